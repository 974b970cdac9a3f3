"""The largest or the smallest of many floats, IEEE 754-2019's ``maximum`` or ``minimum``, told when all were seen.

Each step of a chain of ``maximum`` must look for NaN and for zeros of two signs, six instructions that wait for each
other. Beside each other they are three, and in each chain one:

    best  = x if x > best else best        passes over a NaN; of zeros either may stay
    nan   = nan or one of two values is    a comparison for both
    signs = signs and bits of x            (``or`` for a minimum)

At the end NaN is put where one was seen, and where ``best`` is a zero the sign that all of them have.

Where the place of the best one is asked for, the first of equal ones stays, and the first NaN wins, as in NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pullback.compiler.codegen.integers import COMPARISONS, Integers
from pullback.compiler.codegen.pairwise import pairwise
from pullback.compiler.codegen.types import scalar_type
from pullback.compiler.codegen.vectormath.lanes import Arithmetic
from pullback.compiler.llvm.function import Function

__all__ = ["Extremum", "FirstExtremum"]


class Extremum:
    """``maximum`` or ``minimum`` of many values in each lane; the best ones, NaN and signs are a loop's to carry.

    >>> from pullback.compiler.llvm.function import Module
    >>> function = Module().function("largest", [(f"<8 x float>", n) for n in "abc"], result="<8 x float>")
    >>> extremum = Extremum(Arithmetic(function, "float", 8), "maximum")
    >>> start = [value for _, value in extremum.start(1)]
    >>> function.returns(extremum.found(extremum.taken(start, [function[n] for n in "abc"])))
    >>> print(function.text())  # doctest: +ELLIPSIS
    define <8 x float> @largest(<8 x float> %a, <8 x float> %b, <8 x float> %c) nounwind {
    entry:
      %v1 = fcmp ogt <8 x float> %b, %a
      %v2 = select <8 x i1> %v1, <8 x float> %b, <8 x float> %a
      ...
    """

    def __init__(self, lanes: Arithmetic, kind: str) -> None:
        self.lanes = lanes
        largest = kind == "maximum"
        self.beats, self.meet = ("ogt", "and") if largest else ("olt", "or")
        self.least = lanes.constant(-math.inf if largest else math.inf)
        self.unsigned = lanes.integer(-1 if largest else 0)

    def start(self, side: int) -> list[tuple[str, str]]:
        """The types and first values of what a loop carries that keeps ``side`` best values."""
        bits = self.lanes.int_type
        return [
            *[(self.lanes.type, self.least)] * side,
            (bits, self.lanes.integer(0)),
            (bits, self.unsigned),
        ]

    def taken(self, carried: Sequence[str], values: Sequence[str]) -> list[str]:
        """What is carried, with ``values`` taken in."""
        *best, nan, signs = carried
        for k, value in enumerate(values):
            best[k % len(best)] = self._better(value, best[k % len(best)])
        lanes, ones = self.lanes, self.lanes.integer(-1)
        for a, b in zip(values[::2], [*values[1::2], *values[-1:]]):
            seen = lanes.compare("uno", a, b)
            nan = lanes.function.value(
                f"select {lanes.mask_type} {seen}, {lanes.int_type} {ones}, {lanes.int_type} {nan}"
            )
            both = lanes.integers(self.meet, lanes.bits(a), lanes.bits(b))
            signs = lanes.integers(self.meet, signs, both)
        return [*best, nan, signs]

    def found(self, carried: Sequence[str]) -> str:
        """The extremum of all that was taken in; infinity of nothing."""
        lanes, (*rivals, nan, signs) = self.lanes, carried
        best = pairwise(rivals, lambda a, b: self._better(b, a))
        is_zero = lanes.compare("oeq", best, lanes.constant(0.0))
        zero = lanes.floating(lanes.integers("and", signs, lanes.integer(-(1 << (lanes.width - 1)))))
        number = lanes.select(is_zero, zero, best)
        seen = lanes.function.value(f"icmp ne {lanes.int_type} {nan}, {lanes.integer(0)}")
        return lanes.select(seen, lanes.constant(math.nan), number)

    def _better(self, value: str, best: str) -> str:
        if best == self.least:  # nothing was seen before
            return value
        return self.lanes.select(self.lanes.compare(self.beats, value, best), value, best)


class FirstExtremum:
    """The largest or the smallest of several values in each lane, with its place: the first of equals, NaN before all.

    Pairs of values and places go in and come out.
    """

    def __init__(self, f: Function, largest: bool, dtype: np.dtype, places: np.dtype, lanes: int) -> None:
        self.places, self.masks = Integers(f, places, lanes), Integers(f, np.dtype(np.bool_), lanes)
        self.values: Arithmetic | Integers
        floats, signed, unsigned = COMPARISONS["greater" if largest else "less"]
        if dtype.kind == "f":
            # An unordered comparison is true for a NaN on either side.
            self.values, self.beats = Arithmetic(f, scalar_type(dtype), lanes), f"u{floats[1:]}"
        else:
            self.values = Integers(f, dtype, lanes)
            self.beats = signed if self.values.signed else unsigned

    def taken(self, best: tuple[str, str], new: tuple[str, str]) -> tuple[str, str]:
        """The best one, and one that comes after it in every lane, in one."""
        return self._chosen(self._better(new[0], best[0]), new, best)

    def of_two(self, a: tuple[str, str], b: tuple[str, str]) -> tuple[str, str]:
        """The best of two, either of which may come first."""
        wins, loses = self._better(b[0], a[0]), self._better(a[0], b[0])
        sooner = self.places.compare("slt", b[1], a[1])
        # Neither is better: then the place decides.
        undecided = self.masks.compare("ult", loses, sooner)
        return self._chosen(self.masks.do("or", wins, undecided), b, a)

    def _better(self, new: str, best: str) -> str:
        beats = self.values.compare(self.beats, new, best)
        if isinstance(self.values, Integers):
            return beats
        # A NaN that is already the best stays.
        return self.masks.do("and", beats, self.values.compare("ord", best, best))

    def _chosen(self, mask: str, new: tuple[str, str], old: tuple[str, str]) -> tuple[str, str]:
        return self.values.select(mask, new[0], old[0]), self.places.select(mask, new[1], old[1])
