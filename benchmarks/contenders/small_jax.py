"""JAX: ``jax.jit`` on JAX's own arrays, with donated arguments, called step by step, or ``lax.scan``."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from small import BETA, CALLS_A_TURN, GAMMA, RATE, RUN, TABLE_RATE, inputs, weights


class Contender:
    def __init__(self, program: str, way: str, threads: int) -> None:
        self.program, self.way, self.choice = program, way, "jax.jit"
        given = lambda tree: jax.tree.map(jnp.array, tree)  # noqa: E731
        self.network = given(weights(program))
        self.many = given(inputs(program, RUN))
        self.one = {name: array[0] for name, array in self.many.items()}
        self.count = RUN if way == "run" else CALLS_A_TURN
        if program in ("scalar", "numpy-scalar"):
            self.arguments: tuple[Any, ...] = (1.0 if program == "scalar" else np.float64(1.0),)
            self.compiled = jax.jit(jax.grad(lambda x: jnp.sin(jnp.cos(x))))
        elif program == "flat":
            self.arguments = tuple(self.one["x"] + k for k in range(10))
            self.compiled = jax.jit(lambda *arrays: sum(arrays))
        elif program in ("tree", "momentum"):
            self.state: Any = None if program == "tree" else given(weights(program))
            self._steps(_added)
        elif program == "factorisation":
            self.state, self.choice = (), "jax.jit, gradients of the rows, .at[].add"
            self._steps(_factorisation)
        else:
            zeros = jax.tree.map(jnp.zeros_like, self.network)
            self.state = (zeros, jax.tree.map(jnp.zeros_like, self.network), jnp.zeros(()))
            if program == "dqn":
                target = given(weights(program, seed=2))
                self._steps(_dqn, target)
            else:
                self._steps(_actor_critic)

    def _steps(self, update: Any, *extra: Any) -> None:
        self.extra = extra

        def many(network: Any, state: Any, batches: Any, *extra: Any) -> Any:
            def body(carry: Any, batch: Any) -> Any:
                *carry, loss = update(*carry, batch, *extra)
                return tuple(carry), loss

            (network, state), losses = lax.scan(body, (network, state), batches)
            return network, state, losses

        self.compiled = jax.jit(many if self.way == "run" else update, donate_argnums=(0, 1))

    def run(self) -> None:
        call = self.compiled
        if self.program in ("scalar", "numpy-scalar", "flat"):
            arguments = self.arguments
            for _ in range(CALLS_A_TURN):
                result = call(*arguments)
            self.result = jax.block_until_ready(result)
            return
        network, state, extra = self.network, self.state, self.extra
        if self.way == "run":
            network, state, loss = call(network, state, self.many, *extra)
        else:
            one = self.one
            for _ in range(CALLS_A_TURN):
                network, state, loss = call(network, state, one, *extra)
        self.network, self.state, self.result = jax.block_until_ready((network, state, loss))

    def numbers(self) -> dict[str, Any]:
        return {"result": np.asarray(self.result)}


def _added(network: Any, state: Any, batch: Any) -> Any:
    more = batch["x"][0]
    add = lambda tree: jax.tree.map(lambda x: x + more, tree)  # noqa: E731
    return add(network), add(state), more


def _hidden(network: Any, x: Any) -> Any:
    for layer in network[:2]:
        x = jnp.maximum(x @ layer["w"] + layer["b"], 0)
    return x


def _adam(network: Any, state: Any, gradient: Any) -> Any:
    first, second, step = state
    step = step + 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradient)
    rate, scale = RATE / (1 - 0.9**step), 1 / (1 - 0.999**step)
    network = jax.tree.map(
        lambda p, m, v: p - rate * m / (jnp.sqrt(v * scale) + 1e-8), network, first, second
    )
    return network, (first, second, step)


def _dqn(network: Any, state: Any, batch: Any, target: Any) -> Any:
    def values(network: Any, x: Any) -> Any:
        return _hidden(network, x) @ network[2]["w"] + network[2]["b"]

    best = jnp.max(values(target, batch["then"]), axis=1)
    wanted = batch["reward"] + GAMMA * (1 - batch["done"]) * best

    def loss(network: Any) -> Any:
        chosen = jnp.take_along_axis(values(network, batch["seen"]), batch["action"][:, None], axis=1)[:, 0]
        return jnp.mean((chosen - wanted) ** 2)

    value, gradient = jax.value_and_grad(loss)(network)
    return *_adam(network, state, gradient), value


def _actor_critic(network: Any, state: Any, batch: Any) -> Any:
    def loss(network: Any) -> Any:
        hidden = _hidden(network, batch["seen"])
        logits = hidden @ network[2]["w"] + network[2]["b"]
        value = (hidden @ network[3]["w"] + network[3]["b"])[:, 0]
        after = (_hidden(network, batch["then"]) @ network[3]["w"] + network[3]["b"])[:, 0]
        wanted = lax.stop_gradient(batch["reward"] + GAMMA * (1 - batch["done"]) * after)
        logs = jax.nn.log_softmax(logits, axis=1)
        chosen = jnp.take_along_axis(logs, batch["action"][:, None], axis=1)[:, 0]
        policy = -jnp.mean(chosen * lax.stop_gradient(wanted - value))
        entropy = -jnp.mean(jnp.sum(jnp.exp(logs) * logs, axis=1))
        return policy + 0.5 * jnp.mean((value - wanted) ** 2) - BETA * entropy

    value, gradient = jax.value_and_grad(loss)(network)
    return *_adam(network, state, gradient), value


def _factorisation(network: Any, state: Any, batch: Any) -> Any:
    """By hand with respect to the rows that are picked: gradients of tables would be dense."""

    def loss(u: Any, v: Any) -> Any:
        return jnp.mean((jnp.sum(u * v, axis=1) - batch["rating"]) ** 2)

    tables = [layer["w"] for layer in network]
    picked = [table[batch[name]] for table, name in zip(tables, "ij")]
    value, gradients = jax.value_and_grad(loss, (0, 1))(*picked)
    moved = [
        table.at[batch[name]].add(-TABLE_RATE * gradient)
        for table, name, gradient in zip(tables, "ij", gradients)
    ]
    return [{"w": table} for table in moved], state, value
