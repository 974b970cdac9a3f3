"""JAX: its own NumPy, ``jax.jit`` around the whole program, in double precision."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from evaluations import PROGRAMS, Arrays, Evaluation
from jax import lax

from contenders.ways import Way, described, fastest

jax.config.update("jax_enable_x64", True)

QUESTIONS = {"unrolled": ("unroll 1", "unroll 4", "unroll 16")}
"""How a loop may be written."""


class Contender:
    def __init__(self, asked: Evaluation, arrays: Arrays, variant: str, threads: int, tuned: bool) -> None:
        self.arrays = {name: jnp.asarray(value) for name, value in arrays.items()}
        questions = QUESTIONS if asked.program in ("ode", "lstm") else {}
        way = fastest(questions, partial(self._made, asked), tuned)
        self.compiled = self._made(asked, way)
        self.choice = ", ".join(filter(None, ["jit", described(way, questions)]))

    def _made(self, asked: Evaluation, way: Way) -> Any:
        vocabulary = Vocabulary(int(way.get("unrolled", "unroll 1").split()[1]))
        compiled = jax.jit(lambda arrays: PROGRAMS[asked.program](vocabulary, arrays))
        return lambda: jax.block_until_ready(compiled(self.arrays))

    def run(self) -> None:
        self.results = self.compiled()

    def numbers(self) -> Arrays:
        return {name: np.asarray(value) for name, value in self.results.items()}


class Vocabulary:
    """JAX's words. Reverse mode does not go through a ``while_loop``."""

    np = jnp
    true, false = np.bool_(True), np.bool_(False)
    grad, value_and_grad, vmap = (
        staticmethod(jax.grad),
        staticmethod(jax.value_and_grad),
        staticmethod(jax.vmap),
    )
    cond, sigmoid, sorted = staticmethod(lax.cond), staticmethod(jax.nn.sigmoid), staticmethod(jnp.sort)
    constant, array = staticmethod(jnp.asarray), staticmethod(jnp.array)
    scalar, whole = np.float64, np.int64

    def __init__(self, unroll: int) -> None:
        self.unroll = unroll

    def scan(self, step: Any, state: Any, xs: Any, count: int) -> Any:
        return lax.scan(step, state, xs, count, unroll=self.unroll)

    def forward_grad(self, function: Any, chunk: int | None = None) -> Any:
        def gradient(x: Any) -> Any:
            along = partial(jax.jvp, function, (x,))
            return lax.map(lambda k: along((_unit(x, k),))[1], jnp.arange(x.size), batch_size=chunk)

        return jax.jacfwd(function) if chunk is None else gradient

    def jacobian(self, function: Any, argnums: Any = 0, by_rows: bool = False) -> Any:
        return (jax.jacrev if by_rows else jax.jacfwd)(function, argnums)

    def jvp(self, function: Any, x: Any, direction: Any) -> Any:
        return jax.jvp(function, (x,), (direction,))

    def hvp(self, function: Any, x: Any, direction: Any) -> Any:
        return jax.jvp(jax.grad(function), (x,), (direction,))

    def while_loop(self, condition: Any, body: Any, state: Any, most: int | None) -> Any:
        if most is not None:
            raise NotImplementedError("reverse mode through a while loop")
        return lax.while_loop(condition, body, state)

    def placed(self, x: Any, shape: Any, places: Any) -> Any:
        return jnp.zeros(shape, x.dtype).at[:, places[0], places[1]].set(x)

    def constant_rows(self, t: Any, count: int) -> Any:
        return jnp.repeat(t[:, None], count, axis=1).at[:, 0].set(1.0)


def _unit(x: Any, k: Any) -> Any:
    return (jnp.arange(x.size) == k).astype(x.dtype)
