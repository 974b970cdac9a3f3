"""PyTorch: eager, its fused Adam, one call after another."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from small import BETA, CALLS_A_TURN, GAMMA, RATE, RUN, TABLE_RATE, inputs, weights


class Contender:
    def __init__(self, program: str, way: str, threads: int) -> None:
        if way == "run":
            raise NotImplementedError("many steps in a call: a loop in Python")
        torch.set_num_threads(threads)
        self.program, self.choice, self.count = program, "eager, fused Adam", CALLS_A_TURN
        self.network = _tensors(weights(program))
        self.one = {name: torch.tensor(array[0]) for name, array in inputs(program, RUN).items()}
        if program in ("scalar", "numpy-scalar"):
            self.call: Any = self._slope
        elif program == "flat":
            self.arguments = [self.one["x"] + k for k in range(10)]
            self.call = lambda: sum(self.arguments)
        elif program in ("tree", "momentum"):
            self.state = _tensors(weights(program)) if program == "momentum" else []
            self.call = self._added
        elif program == "factorisation":
            self.choice = "eager, nn.Embedding(sparse=True), SGD"
            self.tables = [torch.nn.Embedding(*layer["w"].shape, sparse=True) for layer in self.network]
            for table, layer in zip(self.tables, self.network):
                table.weight.data = layer["w"]
            self.optimiser = torch.optim.SGD([table.weight for table in self.tables], TABLE_RATE)
            self.call = self._factorisation
        else:
            self.target = _tensors(weights(program, seed=2))
            arrays = [array.requires_grad_() for layer in self.network for array in layer.values()]
            self.optimiser = torch.optim.Adam(arrays, RATE, fused=True)
            self.call = self._dqn if program == "dqn" else self._actor_critic

    def run(self) -> None:
        for _ in range(CALLS_A_TURN):
            self.result = self.call()

    def numbers(self) -> dict[str, Any]:
        return {"result": np.asarray(self.result.detach())}

    def _slope(self) -> Any:
        x = torch.tensor(1.0, requires_grad=True)
        return torch.autograd.grad(torch.sin(torch.cos(x)), x)[0]

    def _added(self) -> Any:
        more = self.one["x"][0]
        with torch.no_grad():
            for layer in (*self.network, *self.state):
                for array in layer.values():
                    array.add_(more)
        return more

    def _update(self, loss: Any) -> Any:
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        return loss

    def _dqn(self) -> Any:
        batch = self.one
        with torch.no_grad():
            best = _head(self.target, 2, _hidden(self.target, batch["then"])).amax(1)
            wanted = batch["reward"] + GAMMA * (1 - batch["done"]) * best
        values = _head(self.network, 2, _hidden(self.network, batch["seen"]))
        chosen = values.gather(1, batch["action"].long()[:, None])[:, 0]
        return self._update(((chosen - wanted) ** 2).mean())

    def _actor_critic(self) -> Any:
        batch = self.one
        hidden = _hidden(self.network, batch["seen"])
        logs = torch.log_softmax(_head(self.network, 2, hidden), 1)
        value = _head(self.network, 3, hidden)[:, 0]
        with torch.no_grad():
            after = _head(self.network, 3, _hidden(self.network, batch["then"]))[:, 0]
            wanted = batch["reward"] + GAMMA * (1 - batch["done"]) * after
        chosen = logs.gather(1, batch["action"].long()[:, None])[:, 0]
        policy = -(chosen * (wanted - value).detach()).mean()
        entropy = -(logs.exp() * logs).sum(1).mean()
        return self._update(policy + 0.5 * ((value - wanted) ** 2).mean() - BETA * entropy)

    def _factorisation(self) -> Any:
        u, v = (table(self.one[name]) for table, name in zip(self.tables, "ij"))
        return self._update((((u * v).sum(1) - self.one["rating"]) ** 2).mean())


def _tensors(layers: Any) -> Any:
    return [{name: torch.tensor(array) for name, array in layer.items()} for layer in layers]


def _hidden(network: Any, x: Any) -> Any:
    for layer in network[:2]:
        x = torch.relu(x @ layer["w"] + layer["b"])
    return x


def _head(network: Any, number: int, x: Any) -> Any:
    return x @ network[number]["w"] + network[number]["b"]
