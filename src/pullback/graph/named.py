"""Named axes: axes of which a program is compiled for every size, and the numbers that stand for these sizes.

While a function is traced for a named axis, its extent is a *stand-in*: a prime beyond the size of any array. What is
made of extents by counting shows how it depends on the size: ``3 * stand_in`` is three times the size, ``stand_in - 1``
one less. So types, attributes and rules stay what they are, plain integers. Where a number is wanted and not an extent
(``/ x.shape[0]``) a *size variable* takes the stand-in's place, an input of the graph.

>>> import numpy as np
>>> from pullback.graph import Type, Variable
>>> batch = NamedSize("batch", STAND_INS[0], Variable(Type(np.dtype(np.int64), (), True), "batch"))
>>> with named_sizes([batch]):
...     shown(3 * batch.stand_in), shown(batch.stand_in - 1), shown(784)
('3·batch', 'batch - 1', '784')
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import local
from typing import Any, NamedTuple

from pullback.graph.node import Variable

__all__ = [
    "LEAST_SIZE",
    "LEAST_STAND_IN",
    "NO_END",
    "STAND_INS",
    "Multiple",
    "NamedSize",
    "is_named",
    "multiple",
    "named_sizes",
    "shown",
    "sizes_under_way",
    "with_names",
]

LEAST_STAND_IN = 1 << 48
"""No extent of an array in memory is as large."""

LEAST_SIZE = 2
"""The least size that a program for any size is for: of one row NumPy makes other shapes, of none other results."""
STAND_INS = (1125899906842597, 1970324836974581, 1407374883553279, 1238489897526787)
"""A prime for each name."""

NO_END = 1 << 63
"""What an attribute has where an index may be any number from its least on."""
_MOST_TIMES = 1 << 12
_MOST_BESIDE = 1 << 20


class NamedSize(NamedTuple):
    """The size of a named axis."""

    name: str
    stand_in: int
    variable: Variable
    """An ``int64`` without axes, weak as a Python number is."""


class Multiple(NamedTuple):
    """``times`` the size, and ``beside`` more."""

    size: NamedSize
    times: int
    beside: int


class _UnderWay(local):
    sizes: tuple[NamedSize, ...] = ()


_under_way = _UnderWay()


@contextmanager
def named_sizes(sizes: Sequence[NamedSize]) -> Iterator[None]:
    """A context in which the stand-ins of ``sizes`` are known."""
    before = _under_way.sizes
    _under_way.sizes = tuple(sizes)
    try:
        yield
    finally:
        _under_way.sizes = before


def sizes_under_way() -> tuple[NamedSize, ...]:
    """The sizes that are named where this thread is."""
    return _under_way.sizes


def is_named(extent: int) -> bool:
    """Whether an extent depends on a size."""
    return LEAST_STAND_IN <= extent != NO_END


def multiple(number: int) -> Multiple | None:
    """How ``number`` depends on a size, if it does so as a multiple with a small number beside it."""
    if -LEAST_STAND_IN < number < LEAST_STAND_IN:
        return None
    for size in _under_way.sizes:
        times = (2 * number + size.stand_in) // (2 * size.stand_in)
        beside = number - times * size.stand_in
        if abs(beside) < _MOST_BESIDE and 0 < abs(times) < _MOST_TIMES:
            return Multiple(size, times, beside)
    return None


def shown(number: int) -> str:
    """An extent as a person writes it; ``"…"`` for one that is no multiple of a size."""
    found = multiple(number)
    if found is None:
        return "…" if _under_way.sizes and is_named(number) else str(number)
    name = found.size.name if found.times == 1 else f"{found.times}·{found.size.name}"
    return name if not found.beside else f"{name} {'+' if found.beside > 0 else '-'} {abs(found.beside)}"


def with_names(text: Any) -> str:
    """``text`` with names for the stand-ins in it."""
    return re.sub(r"\d{15,}", lambda digits: shown(int(digits[0])), str(text))
