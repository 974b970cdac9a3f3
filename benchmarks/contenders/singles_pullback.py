"""Pullback: the operation compiled."""

from __future__ import annotations

from functools import partial

import numpy as np
from singles import SINGLES, Arrays, Single

import pullback as pb


class Contender:
    def __init__(self, single: Single, arrays: Arrays, variant: str, threads: int, tuned: bool) -> None:
        pb.set_num_threads(threads)
        self.compiled = pb.jit(partial(SINGLES[single.name].function, np))
        self.given = list(arrays.values())
        self.choice = "pb.jit"

    def run(self) -> None:
        self.result = self.compiled(*self.given)

    def numbers(self) -> Arrays:
        return {"result": np.asarray(self.result)}
