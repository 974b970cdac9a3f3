"""Pullback: ``pb.jit`` with donated arguments, called step by step, or ``run_steps``."""

from __future__ import annotations

from typing import Any

import numpy as np
from small import BETA, CALLS_A_TURN, GAMMA, RATE, RUN, TABLE_RATE, inputs, weights

import pullback as pb
from pullback import optim

_ADAM, _DESCENT = optim.Adam(RATE), optim.SGD(TABLE_RATE)


class Contender:
    def __init__(self, program: str, way: str, threads: int) -> None:
        pb.set_num_threads(threads)
        self.program, self.way, self.choice = program, way, "pb.jit"
        self.network: Any = weights(program)
        self.many = inputs(program, RUN)
        self.one = {name: array[0].copy() for name, array in self.many.items()}
        self.count = RUN if way == "run" else CALLS_A_TURN
        if program in ("scalar", "numpy-scalar"):
            self.arguments: tuple[Any, ...] = (1.0 if program == "scalar" else np.float64(1.0),)
            self.compiled = pb.jit(pb.grad(lambda x: np.sin(np.cos(x))))
        elif program == "flat":
            self.arguments = tuple(self.one["x"] + k for k in range(10))
            self.compiled = pb.jit(lambda *arrays: sum(arrays))
        elif program in ("tree", "momentum"):
            self.state: Any = None if program == "tree" else weights(program)
            self.compiled = pb.jit(_added, donate_argnums=(0, 1))
        else:
            self.state = (_DESCENT if program == "factorisation" else _ADAM).init(self.network)
            update = {"dqn": _dqn, "actor-critic": _actor_critic, "factorisation": _factorisation}[program]
            self.target = weights(program, seed=2) if program == "dqn" else None
            self.compiled = pb.jit(update, donate_argnums=(0, 1))
        self.extra = (self.target,) if program == "dqn" else ()

    def run(self) -> None:
        call = self.compiled
        if self.program in ("scalar", "numpy-scalar", "flat"):
            arguments = self.arguments
            for _ in range(CALLS_A_TURN):
                self.result = call(*arguments)
            return
        network, state, one, extra = self.network, self.state, self.one, self.extra
        if self.way == "run":
            (network, state, loss), _ = call.run_steps((network, state, self.many, *extra), RUN, 2)
        else:
            for _ in range(CALLS_A_TURN):
                network, state, loss = call(network, state, one, *extra)
        self.network, self.state, self.result = network, state, loss

    def numbers(self) -> dict[str, Any]:
        return {"result": np.asarray(self.result)}


def _added(network: Any, state: Any, batch: Any) -> Any:
    more = batch["x"][0]
    add = lambda tree: pb.map_tree(lambda x: x + more, tree)  # noqa: E731
    return add(network), add(state), more


def _hidden(network: Any, x: Any) -> Any:
    for layer in network[:2]:
        x = np.maximum(x @ layer["w"] + layer["b"], 0)
    return x


def _dqn(network: Any, state: Any, batch: Any, target: Any) -> Any:
    def values(network: Any, x: Any) -> Any:
        return _hidden(network, x) @ network[2]["w"] + network[2]["b"]

    best = np.max(values(target, batch["then"]), axis=1)
    wanted = batch["reward"] + GAMMA * (1 - batch["done"]) * best

    def loss(network: Any) -> Any:
        chosen = np.take_along_axis(values(network, batch["seen"]), batch["action"][:, None], axis=1)[:, 0]
        return np.mean((chosen - wanted) ** 2)

    value, gradient = pb.value_and_grad(loss)(network)
    return *_ADAM.update(gradient, state, network), value


def _actor_critic(network: Any, state: Any, batch: Any) -> Any:
    def loss(network: Any) -> Any:
        hidden = _hidden(network, batch["seen"])
        logits = hidden @ network[2]["w"] + network[2]["b"]
        value = (hidden @ network[3]["w"] + network[3]["b"])[:, 0]
        after = (_hidden(network, batch["then"]) @ network[3]["w"] + network[3]["b"])[:, 0]
        wanted = pb.stop_gradient(batch["reward"] + GAMMA * (1 - batch["done"]) * after)
        logs = logits - pb.logsumexp(logits, axis=1, keepdims=True)
        chosen = np.take_along_axis(logs, batch["action"][:, None], axis=1)[:, 0]
        policy = -np.mean(chosen * pb.stop_gradient(wanted - value))
        entropy = -np.mean(np.sum(np.exp(logs) * logs, axis=1))
        return policy + 0.5 * np.mean((value - wanted) ** 2) - BETA * entropy

    value, gradient = pb.value_and_grad(loss)(network)
    return *_ADAM.update(gradient, state, network), value


def _factorisation(network: Any, state: Any, batch: Any) -> Any:
    def loss(network: Any) -> Any:
        products = np.sum(network[0]["w"][batch["i"]] * network[1]["w"][batch["j"]], axis=1)
        return np.mean((products - batch["rating"]) ** 2)

    value, gradient = pb.value_and_grad(loss)(network)
    return *_DESCENT.update(gradient, state, network), value
