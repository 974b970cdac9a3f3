"""JAX: the operation compiled."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from singles import SINGLES, Arrays, Single


class Contender:
    def __init__(self, single: Single, arrays: Arrays, variant: str, threads: int, tuned: bool) -> None:
        self.compiled = jax.jit(partial(SINGLES[single.name].function, jnp))
        self.given = [jnp.array(value) for value in arrays.values()]
        self.choice = "jit"

    def run(self) -> None:
        self.result = jax.block_until_ready(self.compiled(*self.given))

    def numbers(self) -> Arrays:
        return {"result": np.asarray(self.result)}
