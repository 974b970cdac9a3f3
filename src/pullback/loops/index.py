"""Axes and affine indices: where in a buffer a loop reads and writes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

__all__ = ["Affine", "Axis", "in_strips", "matched", "turns_of"]

_serial = itertools.count()


class Axis:
    """A loop of ``extent`` turns. Two axes are the same only if they are the same object."""

    __slots__ = ("extent", "name", "serial")

    def __init__(self, name: str, extent: int) -> None:
        self.name = name
        self.extent = extent
        self.serial = next(_serial)

    def __repr__(self) -> str:
        return f"{self.name}<{self.extent}"


def turns_of(axes: Iterable[Axis]) -> int:
    """How many turns loops over ``axes`` have, one inside the other.

    >>> turns_of([Axis("i", 3), Axis("j", 4)]), turns_of([])
    (12, 1)
    """
    return math.prod([axis.extent for axis in axes])


class Affine(NamedTuple):
    """``constant + sum(coefficient * axis)``, with integer coefficients, none of them zero.

    A tuple, since those are made, compared and hashed in the least time: expressions are found by their indices.

    >>> i, j = Axis("i", 3), Axis("j", 4)
    >>> print(Affine.of(i) * 4 + Affine.of(j) + 1)
    4*i + j + 1
    """

    terms: tuple[tuple[Axis, int], ...] = ()
    constant: int = 0

    @staticmethod
    def of(axis: Axis) -> Affine:
        """The index that is the axis itself; an axis of one turn is always at 0."""
        return Affine(((axis, 1),)) if axis.extent != 1 else Affine()

    @staticmethod
    def total(indices: Iterable[Affine]) -> Affine:
        """The sum of several indices."""
        coefficients: dict[Axis, int] = {}
        constant = 0
        for index in indices:
            constant += index.constant
            for axis, coefficient in index.terms:
                coefficients[axis] = coefficients.get(axis, 0) + coefficient
        terms = sorted(((a, c) for a, c in coefficients.items() if c), key=lambda term: term[0].serial)
        return Affine(tuple(terms), constant)

    def __add__(self, other: Affine | int) -> Affine:  # type: ignore[override]
        if isinstance(other, int):
            return Affine(self.terms, self.constant + other)
        return Affine.total((self, other))

    def __mul__(self, factor: int) -> Affine:  # type: ignore[override]
        if factor == 1:
            return self
        terms = tuple([(axis, c * factor) for axis, c in self.terms]) if factor else ()
        return Affine(terms, self.constant * factor)

    def coefficient(self, axis: Axis) -> int:
        """What one step of ``axis`` adds."""
        for known, coefficient in self.terms:
            if known is axis:
                return coefficient
        return 0

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes that the index depends on."""
        return tuple(axis for axis, _ in self.terms)

    def goes_through(self, axes: Sequence[Axis]) -> bool:
        """Whether the turns of ``axes``, the last of them first, are steps from one element to the next.

        >>> i, j = Axis("i", 3), Axis("j", 4)
        >>> index = Affine.of(i) * 4 + Affine.of(j)
        >>> index.goes_through([i, j]), index.goes_through([i])
        (True, False)
        """
        return all(self.coefficient(axis) == turns_of(axes[k:]) for k, axis in enumerate(axes, 1))

    def without(self, axes: Iterable[Axis]) -> Affine:
        """The index with ``axes`` held at 0."""
        dropped = set(axes)
        return Affine(tuple((axis, c) for axis, c in self.terms if axis not in dropped), self.constant)

    def replace(self, new: Mapping[Axis, Affine]) -> Affine:
        """The index with axes replaced by other indices."""
        if not any(axis in new for axis, _ in self.terms):
            return self
        parts = [new[axis] * c if axis in new else Affine(((axis, c),)) for axis, c in self.terms]
        return Affine.total([*parts, Affine((), self.constant)])

    def bounds(self) -> tuple[int, int]:
        """The smallest and the largest value over all turns of all axes."""
        reach = [(axis.extent - 1) * c for axis, c in self.terms]
        return (
            self.constant + sum(r for r in reach if r < 0),
            self.constant + sum(r for r in reach if r > 0),
        )

    @property
    def span(self) -> int:
        """How many numbers there are from the smallest value to the largest.

        >>> (Affine.of(Axis("i", 3)) * 4 + Affine.of(Axis("j", 2))).span
        10
        """
        low, high = self.bounds()
        return high - low + 1

    def divide(self, divisor: int) -> tuple[Affine, Affine] | None:
        """Quotient and remainder by ``divisor`` when both are affine, else ``None``.

        Terms whose coefficient is a multiple go to the quotient; the rest must stay within ``[0, divisor)``.
        """
        if divisor == 1:
            return self, Affine()
        whole = tuple((axis, c // divisor) for axis, c in self.terms if c % divisor == 0)
        rest = tuple((axis, c) for axis, c in self.terms if c % divisor)
        quotient, remainder = divmod(self.constant, divisor)
        left = Affine(rest, remainder)
        low, high = left.bounds()
        return (Affine(whole, quotient), left) if low >= 0 and high < divisor else None

    def text(self, name: Callable[[Axis], str]) -> str:
        """The index with its axes called by their ``name``."""
        parts = [name(axis) if c == 1 else f"{c}*{name(axis)}" for axis, c in self.terms]
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts)

    def __str__(self) -> str:
        return self.text(lambda axis: axis.name)


def matched(old: Sequence[Axis], new: Sequence[Axis]) -> dict[Axis, Affine] | None:
    """The indices that ``new`` axes are in the place of ``old`` ones, if those have as many turns each."""
    if [axis.extent for axis in old] != [axis.extent for axis in new]:
        return None
    return {axis: Affine.of(other) for axis, other in zip(old, new)}


def in_strips(axis: Axis, turns: int) -> Iterator[tuple[tuple[Axis, ...], Affine]]:
    """Axes that go through whole strips of an axis, and one for the turns that these leave over, each with the index.

    Where there are no whole strips, or nothing is left over, there are no axes for them.

    >>> for axes, index in in_strips(Axis("i", 23), 5):
    ...     print(axes, index)
    (i<4, i<5) 5*i + i
    (i<3,) i + 20
    """
    count, left = divmod(axis.extent, turns)
    if count:
        strip, inside = Axis(axis.name, count), Axis(axis.name, turns)
        yield (strip, inside), Affine.of(strip) * turns + Affine.of(inside)
    if left:
        rest = Axis(axis.name, left)
        yield (rest,), Affine.of(rest) + count * turns
