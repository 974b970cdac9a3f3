"""Pullback: NumPy itself, ``pb.jit`` around the whole program."""

from __future__ import annotations

from typing import Any

import numpy as np
from evaluations import PROGRAMS, Arrays, Evaluation

import pullback as pb


class Contender:
    def __init__(self, asked: Evaluation, arrays: Arrays, variant: str, threads: int, tuned: bool) -> None:
        pb.set_num_threads(threads)
        self.arrays, self.choice = arrays, "pb.jit"
        program = PROGRAMS[asked.program]
        self.compiled = pb.jit(lambda arrays: program(Vocabulary, arrays), flush_subnormals=True)

    def run(self) -> None:
        self.results = self.compiled(self.arrays)

    def numbers(self) -> Arrays:
        return {name: np.asarray(value) for name, value in self.results.items()}


class Vocabulary:
    """What NumPy has no word for."""

    np = np
    true, false = np.bool_(True), np.bool_(False)
    grad, value_and_grad, vmap = pb.grad, pb.value_and_grad, pb.vmap
    cond, scan, sigmoid, sorted = pb.cond, pb.scan, pb.sigmoid, np.sort
    constant, array, scalar, whole = np.asarray, np.array, np.float64, np.int64

    @staticmethod
    def forward_grad(function: Any, chunk: int | None = None) -> Any:
        return pb.jacobian(function, mode="forward", chunk=chunk)

    @staticmethod
    def jacobian(function: Any, argnums: Any = 0, by_rows: bool = False) -> Any:
        return pb.jacobian(function, argnums, mode="reverse" if by_rows else "forward")

    @staticmethod
    def jvp(function: Any, x: Any, direction: Any) -> Any:
        return pb.jvp(function, (x,), (direction,))

    @staticmethod
    def hvp(function: Any, x: Any, direction: Any) -> Any:
        return tuple(part[0] for part in pb.hvp(function, (x,), (direction,)))

    @staticmethod
    def while_loop(condition: Any, body: Any, state: Any, most: int | None) -> Any:
        return pb.while_loop(condition, body, state, most)

    @staticmethod
    def placed(x: Any, shape: Any, places: Any) -> Any:
        made = np.zeros_like(x, shape=shape)
        made[:, places[0], places[1]] = x
        return made

    @staticmethod
    def constant_rows(t: Any, count: int) -> Any:
        made = np.repeat(t[:, None], count, axis=1)
        made[:, 0] = 1.0
        return made
