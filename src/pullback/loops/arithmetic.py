"""Arithmetic on indices, affine as long as possible and an ``int64`` expression where it is not."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from pullback.loops.expression import Apply, Expression, Index, Literal, Position, as_expression, linear, walk
from pullback.loops.index import Affine, Axis

__all__ = [
    "as_index",
    "both",
    "bounds",
    "conditions",
    "counted",
    "divided",
    "in_row",
    "plus",
    "reach",
    "times",
    "total",
    "within",
    "within_extent",
]

_INT = np.dtype(np.int64)
_BOOL = np.dtype(np.bool_)
_FARTHEST = 2**62


def _integer(value: int) -> Literal:
    return Literal(value, _INT)


def as_index(value: Expression) -> Index:
    """An ``int64`` value as an index, affine where the value is a position or a constant."""
    if isinstance(value, Position):
        return value.index
    return Affine((), int(value.value)) if isinstance(value, Literal) else value


def counted(function: str, operands: Sequence[Expression]) -> Position | None:
    """``function`` of positions and whole numbers as a position itself, where it is affine and no sum wraps around.

    >>> i, j = Axis("i", 5), Axis("j", 16)
    >>> counted("add", (Position(Affine.of(j)), Position(Affine.of(i) * 16)))
    (16*i + j)
    """
    if function not in ("add", "subtract", "multiply") or not any(isinstance(e, Position) for e in operands):
        return None
    if any(not isinstance(e, (Position, Literal)) or e.dtype != _INT for e in operands):
        return None
    first, second = (as_index(e) for e in operands)
    assert isinstance(first, Affine) and isinstance(second, Affine)
    if function == "multiply":
        if first.terms and second.terms:
            return None
        index = first * second.constant if first.terms else second * first.constant
    else:
        index = first + second * (1 if function == "add" else -1)
    low, high = index.bounds()
    return Position(index) if low >= -_FARTHEST and high <= _FARTHEST else None


def plus(index: Index, offset: int) -> Index:
    """``index + offset``."""
    if isinstance(index, Affine):
        return index + offset
    return Apply("add", (index, _integer(offset)), _INT) if offset else index


def times(index: Index, factor: int) -> Index:
    """``index * factor``."""
    if isinstance(index, Affine):
        return index * factor
    return Apply("multiply", (index, _integer(factor)), _INT) if factor != 1 else index


def total(indices: Iterable[Index]) -> Index:
    """The sum of ``indices``, its affine parts added first."""
    affine, terms = linear((index, 1) for index in indices)
    if not terms:
        return affine
    value, *others = [as_expression(times(index, stride)) for index, stride in terms]
    for other in others:
        value = Apply("add", (value, other), _INT)
    return value if affine == Affine() else Apply("add", (value, Position(affine)), _INT)


def divided(index: Index, divisor: int) -> tuple[Index, Index]:
    """Quotient and remainder of ``index`` by a positive ``divisor``, rounded down.

    >>> from pullback.loops import Axis
    >>> i, j = Affine.of(Axis("i", 3)), Affine.of(Axis("j", 4))
    >>> quotient, remainder = divided(i * 4 + j, 4)
    >>> print(quotient, "and", remainder)
    i and j
    >>> divided(j, 3)
    (floor_divide((j), 3), remainder((j), 3))
    """
    if divisor == 1:
        return index, Affine()
    if isinstance(index, Affine):
        exact = index.divide(divisor)
        if exact is not None:
            return exact
    operands = (as_expression(index), _integer(divisor))
    return Apply("floor_divide", operands, _INT), Apply("remainder", operands, _INT)


def bounds(index: Index) -> tuple[int, int] | None:
    """The least and the greatest value that ``index`` can have, or ``None`` where nothing is known."""
    if isinstance(index, Affine):
        return index.bounds()
    found: dict[int, tuple[int, int] | None] = {}
    for part in walk(index):  # without recursion: a chain of reshapes has each part many times
        found[id(part)] = _own_bounds(part, [found[id(operand)] for operand in part.operands])
    return found[id(index)]


def _own_bounds(index: Expression, operands: Sequence[tuple[int, int] | None]) -> tuple[int, int] | None:
    """The bounds of an expression whose operands have those."""
    if isinstance(index, Position):
        return index.index.bounds()
    if isinstance(index, Literal) and index.dtype.kind in "iub":
        return int(index.value), int(index.value)
    if not isinstance(index, Apply):
        return None
    if index.function == "bounded":
        limits = dict(index.attributes)
        return limits["low"], limits["high"]
    if index.function == "check_index":
        return 0, dict(index.attributes)["extent"] - 1
    if index.function not in ("add", "multiply", "floor_divide", "remainder"):
        return None
    known, factor = operands
    if factor is None or (index.function != "add" and factor[0] != factor[1]):
        return None
    if index.function == "remainder":
        return 0, factor[0] - 1
    if known is None:
        return None
    if index.function == "add":
        return known[0] + factor[0], known[1] + factor[1]
    if index.function == "floor_divide":
        return known[0] // factor[0], known[1] // factor[0]
    low, high = sorted((known[0] * factor[0], known[1] * factor[0]))
    return low, high


def reach(dynamic: Sequence[tuple[Expression, int]]) -> tuple[int, int] | None:
    """The least and the most that computed indices add to a place, or ``None`` where that is not known."""
    low = high = 0
    for index, stride in dynamic:
        known = bounds(index)
        if known is None:
            return None
        least, most = sorted(end * stride for end in known)
        low, high = low + least, high + most
    return low, high


def within_extent(index: Expression, extent: int) -> Expression:
    """``index``, known to be one of an axis of ``extent`` elements."""
    if isinstance(as_index(index), Affine) or bounds(index) is not None:
        return index
    return Apply("bounded", (index,), _INT, (("high", extent - 1), ("low", 0)))


def in_row(
    offset: Affine,
    dynamic: Sequence[tuple[Expression, int]],
    pitch: int,
    row: Axis,
    guard: Expression | None = None,
) -> bool:
    """Whether a place is always one of the ``pitch`` elements of row ``row``, wherever its computed indices lead.

    Only places for which ``guard`` holds count.

    >>> i, j = Axis("i", 3), Axis("j", 4)
    >>> in_row(Affine.of(i) * 4 + Affine.of(j), (), 4, i), in_row(Affine.of(i) * 4 + Affine.of(j) + 1, (), 4, i)
    (True, False)
    >>> in_row(Affine.of(i) * 4 + Affine.of(j) + 1, (), 4, i, within(Affine.of(j), 0, 3))
    True
    >>> k = Axis("k", 3)
    >>> inside = Affine.of(j) + Affine.of(k) + -1
    >>> in_row(Affine.of(i) * 4 + inside, (), 4, i, within(inside, 0, 4))
    True
    """
    for index, low, high in _bounded(guard):
        offset = _narrowed(offset, index, low, high) if row not in index.axes else offset
    splits = [(offset + end).divide(pitch) for end in reach(dynamic) or ()]
    return bool(splits) and all(split is not None and split[0] == Affine.of(row) for split in splits)


def _bounded(guard: Expression | None) -> list[tuple[Affine, int, int]]:
    """The indices that a guard's conditions bound, each without a constant, and the least and most they leave it."""
    ranges: dict[tuple[tuple[Axis, int], ...], tuple[int, int]] = {}
    for condition in conditions(guard):
        if not isinstance(condition, Apply) or condition.function not in ("less", "greater_equal"):
            continue
        value, limit = condition.operands
        index = as_index(value)
        if not isinstance(index, Affine) or not isinstance(limit, Literal) or not index.terms:
            continue
        step = math.gcd(*(c for _, c in index.terms))
        terms = tuple((axis, c // step) for axis, c in index.terms)
        least = -((index.constant - int(limit.value)) // step)  # of what is not below the limit
        low, high = ranges.get(terms, Affine(terms).bounds())
        ranges[terms] = (
            (low, min(high, least - 1)) if condition.function == "less" else (max(low, least), high)
        )
    return [(Affine(terms), low, high) for terms, (low, high) in ranges.items() if low <= high]


def _narrowed(offset: Affine, index: Affine, low: int, high: int) -> Affine:
    """``offset`` with a multiple of ``index`` in it as one axis of the values from ``low`` to ``high``."""
    first, step = index.terms[0]
    factor = offset.coefficient(first) // step
    if not factor or any(offset.coefficient(axis) != c * factor for axis, c in index.terms):
        return offset
    known = Affine.of(Axis(first.name, high - low + 1)) + low
    return offset.without(index.axes) + known * factor


def conditions(guard: Expression | None) -> list[Expression]:
    """The conditions that must all hold for ``guard`` to hold."""
    if isinstance(guard, Apply) and guard.function == "logical_and":
        return [condition for operand in guard.operands for condition in conditions(operand)]
    return [] if guard is None else [guard]


def within(index: Index, low: int, high: int) -> Expression | bool:
    """Whether ``low <= index < high``: known where the loops' extents tell, else a ``bool`` expression."""
    value, (least, most) = as_expression(index), bounds(index) or (-math.inf, math.inf)
    if least >= high or most < low:
        return False
    above = least >= low or Apply("greater_equal", (value, _integer(low)), _BOOL)
    below = most < high or Apply("less", (value, _integer(high)), _BOOL)
    return both(above, below)


def both(first: Expression | bool, second: Expression | bool) -> Expression | bool:
    """``first and second``."""
    if isinstance(first, bool):
        return second if first else False
    if isinstance(second, bool):
        return first if second else False
    return Apply("logical_and", (first, second), _BOOL)
