"""JAX: ``jax.grad`` without ``jax.jit``, operation by operation, on its own arrays in double precision."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from uncompiled import PROGRAMS, argument, named

jax.config.update("jax_enable_x64", True)


class Contender:
    def __init__(self, program: str) -> None:
        self.choice = "jax.grad"
        function, self.given = PROGRAMS[program], jax.tree.map(jnp.asarray, argument(program))
        self.gradient = jax.grad(lambda x: function(jnp, x))

    def run(self) -> None:
        self.result = jax.block_until_ready(self.gradient(self.given))

    def numbers(self) -> dict[str, Any]:
        return named(self.result)
