"""Many values as one, neighbours first: no instruction waits for more others than it must."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

__all__ = ["pairwise"]

T = TypeVar("T")


def pairwise(values: Sequence[T], join: Callable[[T, T], T]) -> T:
    """``join`` of neighbours, then of what neighbours became, until one is left.

    >>> pairwise("abcde", "({}{})".format)
    '(((ab)(cd))e)'
    """
    row = list(values)
    while len(row) > 1:
        joined = [join(a, b) for a, b in zip(row[::2], row[1::2])]
        row = joined + row[len(joined) * 2 :]
    return row[0]
