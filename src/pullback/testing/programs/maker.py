"""Grows a program by one random step after another, each run by NumPy at once: what fails is not kept."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from pullback.graph import DTYPES
from pullback.testing.programs.program import Input, Step, step_value

__all__ = ["Maker", "Rejected"]

T = TypeVar("T")

MOST_ELEMENTS = 6000
MOST_INPUTS = 5
LARGEST = 1e6
SMALL = (1, 2, 3, 4, 5, 6, 7, 8, 9)
LARGE = (16, 17, 33, 64, 79, 100, 150, 300, 700)
INTEGERS = tuple(dtype for dtype in DTYPES if dtype.kind in "iu")
INT64 = np.dtype(np.int64)


class Rejected(Exception):
    """A step that NumPy refuses, or whose result leads nowhere."""


class Maker:
    """A program under way: inputs, steps and the values of all, for one example."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(self.random.getrandbits(64))
        self.values: dict[str, Any] = {}
        self.inputs: list[Input] = []
        self.steps: list[Step] = []
        self.refused: Step | None = None
        """The latest step that NumPy has refused."""
        self.float = np.dtype(self.pick((np.float32, np.float64)))
        self.style = self.pick(
            ("integers", "integers", "halves", "normal", "normal", "normal", "special", "zeros")
        )
        self.extents = [self.pick(SMALL) for _ in range(3)]
        if self.chance(0.25):
            self.extents[self.below(3)] = self.pick(LARGE)
        if self.chance(0.04):
            self.extents[self.below(3)] = 0

    # ------------------------------------------------------------------ chance

    def below(self, count: int) -> int:
        """A number from 0 to ``count - 1``."""
        return self.random.randrange(count)

    def chance(self, probability: float = 0.5) -> bool:
        return self.random.random() < probability

    def pick(self, choices: Sequence[T]) -> T:
        return self.random.choice(choices)

    # ------------------------------------------------------------------ steps

    def step(self, text: str, *operands: str) -> str:
        """One more step; its name."""
        step = Step(f"v{len(self.steps)}", text, operands)
        try:
            value = step_value(step, self.values)
        except (ValueError, TypeError, IndexError, ArithmeticError) as error:
            self.refused = step
            raise Rejected(str(error)) from None
        self._check(value)
        self.steps.append(step)
        self.values[step.name] = value
        return step.name

    def _check(self, value: Any) -> None:
        if not isinstance(value, (np.ndarray, np.generic)) or value.dtype not in DTYPES:
            raise Rejected("no array of a dtype that graphs hold")
        if value.size > MOST_ELEMENTS:
            raise Rejected("too large")
        if value.dtype.kind == "f" and value.size and not self.chance(0.1):
            usual = np.isfinite(value) & (np.abs(value) < LARGEST)
            if usual.mean() < 0.5:
                raise Rejected("nothing left to compute with")

    def input(
        self,
        shape: Sequence[int],
        dtype: Any = None,
        low: int = -4,
        high: int = 5,
        most: int = MOST_ELEMENTS,
    ) -> str:
        """A new argument of ``most`` elements at most; integers from ``low`` up to below ``high``."""
        shape, dtype = tuple(shape), self.float if dtype is None else np.dtype(dtype)
        if len(self.inputs) >= MOST_INPUTS or math.prod(shape) > most:
            raise Rejected("too many inputs, or too large")
        name = f"x{len(self.inputs)}"
        self.inputs.append(Input(name, self.drawn(shape, dtype, low, high)))
        self.values[name] = self.inputs[-1].values
        return name

    def drawn(self, shape: tuple[int, ...], dtype: np.dtype, low: int = -4, high: int = 5) -> np.ndarray:
        """Values in the program's style."""
        draw = self.numbers
        if dtype.kind == "b":
            return np.asarray(draw.integers(0, 2, shape), bool)
        if dtype.kind in "iu":
            limits = np.iinfo(dtype)
            if (low, high) == (-4, 5) and self.style == "special":
                return np.asarray(draw.integers(limits.min, limits.max, shape, dtype, endpoint=True))
            return np.asarray(draw.integers(max(low, limits.min), high, shape), dtype)
        if self.style == "integers":
            return np.asarray(draw.integers(-4, 5, shape), dtype)
        if self.style == "halves":
            return np.asarray(draw.integers(-8, 9, shape) / 2, dtype)
        values = np.asarray(draw.standard_normal(shape), dtype)
        if self.style == "zeros":
            return np.where(draw.random(shape) < 0.4, draw.choice([0.0, -0.0], shape), values).astype(dtype)
        if self.style == "special":
            tiny = float(np.finfo(dtype).smallest_subnormal)
            odd = draw.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 3 * tiny, -tiny, 1e30], shape)
            return np.where(draw.random(shape) < 0.12, odd, values).astype(dtype)
        return values

    # ------------------------------------------------------------------ operands

    def value(self, name: str) -> Any:
        return self.values[name]

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(np.shape(self.values[name]))

    def rank(self, name: str) -> int:
        return int(np.ndim(self.values[name]))

    def dtype(self, name: str) -> np.dtype:
        return np.asarray(self.values[name]).dtype

    def any(self, wanted: Callable[[str], bool] = lambda name: True) -> str:
        """A value, a late one more often."""
        fits = [name for name in self.values if wanted(name)]
        if not fits:
            raise Rejected("no such value")
        return fits[max(self.below(len(fits)), self.below(len(fits)))]

    def floats(self, rank: int = 0) -> str:
        """A float value with so many axes at least."""
        return self.any(lambda name: self.dtype(name).kind == "f" and self.rank(name) >= rank)

    def number(self, rank: int = 0) -> str:
        """A value that is mostly of floats, now and then of integers."""
        if self.chance(0.85):
            return self.floats(rank)
        return self.any(lambda name: self.dtype(name).kind != "b" and self.rank(name) >= rank)

    def integers(self) -> str:
        """An integer value, an input if there is none yet."""
        if self.chance(0.6):
            try:
                return self.any(lambda name: self.dtype(name).kind in "iu")
            except Rejected:
                pass
        return self.input(self.some_shape(), self.pick(INTEGERS))

    def mask(self, like: str) -> str:
        """A boolean value that broadcasts with ``like``."""
        if self.chance(0.4):
            try:
                return self.any(lambda name: self.dtype(name).kind == "b" and self.fits(name, like))
            except Rejected:
                pass
        operator = self.pick((">", "<", ">=", "<=", "==", "!="))
        if self.chance():
            return self.step(f"{{0}} {operator} {{1}}", like, self.partner(like))
        return self.step(f"{{0}} {operator} {self.pick((0, 0, 1, 0.5))}", like)

    def fits(self, name: str, like: str) -> bool:
        """Whether two values broadcast to no more than a moderate size."""
        try:
            return math.prod(np.broadcast_shapes(self.shape(name), self.shape(like))) <= MOST_ELEMENTS
        except ValueError:
            return False

    def partner(self, like: str, dtype: np.dtype | None = None) -> str:
        """A value that broadcasts with ``like``, of its dtype or of ``dtype``, or now and then of another."""
        wanted = self.dtype(like) if dtype is None else dtype
        other = self.chance(0.15)
        if self.chance(0.7):
            try:
                return self.any(
                    lambda name: (
                        self.fits(name, like)
                        and (self.dtype(name) == wanted or (other and self.dtype(name).kind != "b"))
                    )
                )
            except Rejected:
                pass
        shape = [1 if self.chance(0.25) else extent for extent in self.shape(like)]
        return self.input(shape[self.below(len(shape) + 1) if self.chance(0.3) else 0 :], wanted)

    def some_shape(self, most: int = 3) -> tuple[int, ...]:
        rank = self.pick((0, 1, 1, 2, 2, 2, 2, 3, 3))
        return tuple(self.pick(self.extents) for _ in range(min(rank, most)))

    def axis(self, name: str) -> int:
        """One axis, counted from either end."""
        rank = self.rank(name)
        if not rank:
            raise Rejected("no axis")
        if self.chance(0.4):
            return -1
        return self.below(rank) - (rank if self.chance(0.3) else 0)

    def axes(self, name: str) -> Any:
        """One axis, several, or ``None`` for all."""
        if self.chance(0.15) or not self.rank(name):
            return None
        if self.rank(name) > 1 and self.chance(0.25):
            some = [axis for axis in range(self.rank(name)) if self.chance()]
            return tuple(some) if some else (0,)
        return self.axis(name)
