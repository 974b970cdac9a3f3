"""The largest or the smallest of many floats, IEEE 754-2019's ``maximum`` or ``minimum``, told when all were seen.

Each step of a chain of ``maximum`` must look for NaN and for zeros of two signs, six instructions that wait for each
other. Beside each other they are three, and in each chain one:

    best  = x if x > best else best        passes over a NaN; of zeros either may stay
    nan   = nan or one of two values is    a comparison for both
    signs = signs and bits of x            (``or`` for a minimum)

At the end NaN is put where one was seen, and where ``best`` is a zero the sign that all of them have.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pullback.compiler.codegen.pairwise import pairwise
from pullback.compiler.codegen.vectormath.lanes import Arithmetic

__all__ = ["Extremum"]


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
