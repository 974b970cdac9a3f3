"""Conditions on where a loop stands that hold, or fail, for all but a few turns at its ends.

What a slice, a shift or padding leaves out are elements at the ends of an axis, and each element would be asked for its
place. Lanes that lie between those ends are written without the question:

    x[i] if i < n - 1  …  x[i - 1] if i >= 1     →     if 1 <= first lane and last lane < n - 1:  x[i]  …  x[i - 1]
                                                       else:  x[i] if i < n - 1  …  x[i - 1] if i >= 1
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from pullback.compiler.codegen.types import literal
from pullback.compiler.codegen.values import Values
from pullback.loops import Apply, Axis, Expression, Literal, Position, walk

__all__ = ["inside_and_at_ends"]

_ORDERS: dict[str, Callable[[int, int], bool]] = {
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}


def inside_and_at_ends(values: Values, roots: Sequence[Expression], write: Callable[[], None]) -> None:
    """``write`` for the vectors of the group; where that pays twice, for those that meet no end of a condition too."""
    group = values.group
    place = None if group is None else values.places[group.axis]
    if group is None or place is None or place.value is None or group.tail or group.whole:
        write()
        return
    known, low, high = _interior(group.axis, roots)
    size = group.vectors * group.lanes
    if not known or 2 * (high - low) < group.axis.extent:
        write()
        return
    f = values.f
    first = f.pure(f"add i64 {place.value}, {place.constant}") if place.constant else place.value
    above = f.value(f"icmp sge i64 {first}, {low}")
    below = f.value(f"icmp sle i64 {first}, {high - size}")
    inside = f.value(f"and i1 {above}, {below}")
    with f.when(inside), values.scope():
        for condition, holds in known.items():
            values.bind(condition, [literal(condition.dtype, holds, group.lanes)] * group.vectors)
        write()
    with f.when(f.value(f"xor i1 {inside}, true")), values.scope():
        write()


def _interior(axis: Axis, roots: Sequence[Expression]) -> tuple[dict[Apply, bool], int, int]:
    """Conditions on the place along ``axis``, what they are in its middle, and from where to where all are that."""
    low, high = 0, axis.extent
    middle, known = axis.extent // 2, dict[Apply, bool]()
    for condition in _conditions(axis, roots):
        holds = _asked(condition)
        known[condition] = holds(middle)
        change = bisect_left(range(axis.extent), True, key=lambda turn: holds(turn) != holds(0))
        if change <= middle:
            low = max(low, change)
        else:
            high = min(high, change)
    return known, low, high


def _conditions(axis: Axis, roots: Sequence[Expression]) -> Iterator[Apply]:
    """Comparisons of a place along ``axis`` alone with a number."""
    for part in walk(*roots):
        if isinstance(part, Apply) and part.function in _ORDERS and part.axes == {axis}:
            place, bound = part.operands
            if (
                isinstance(place, Position)
                and isinstance(bound, Literal)
                and bound.dtype == np.dtype(np.int64)
            ):
                yield part


def _asked(condition: Apply) -> Callable[[int], bool]:
    """Whether it holds, by the turn of its axis."""
    place, bound = condition.operands
    assert isinstance(place, Position) and isinstance(bound, Literal)
    (_, step), start, order = place.index.terms[0], place.index.constant, _ORDERS[condition.function]
    return lambda turn: order(start + step * turn, int(bound.value))
