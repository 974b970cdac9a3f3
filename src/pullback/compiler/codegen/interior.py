"""Conditions on where a loop stands that hold, or fail, for all but a few turns at its ends.

What a slice, a shift or padding leaves out are elements at the ends of an axis, and each element would be asked for its
place. Lanes that lie between those ends are written without the question:

    x[i] if i < n - 1  …  x[i - 1] if i >= 1     →     if 1 <= first lane and last lane < n - 1:  x[i]  …  x[i - 1]
                                                       else:  x[i] if i < n - 1  …  x[i - 1] if i >= 1
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence

from pullback.compiler.codegen.shifted import Shift, ahead_of_first, bind_shifted, shifts
from pullback.compiler.codegen.values import Place, Values
from pullback.compiler.schedules.cost import LEAST_INSIDE
from pullback.loops import Apply, Axis, Expression, Literal, Position, Store, rebuilt, walk
from pullback.loops.fixed import fixed_value, settled

__all__ = ["inside_and_at_ends"]

Write = Callable[[Sequence[Store]], None]
"""What writes some stores."""
_ORDERS = ("less", "less_equal", "greater", "greater_equal")


def inside_and_at_ends(values: Values, stores: Sequence[Store], write: Write) -> None:
    """``write`` for the vectors of the group; where that pays twice, for those that meet no end of a condition too.

    These follow each other in a loop of their own, in which values go on from turn to turn.
    """
    group = values.group
    loop = None if group is None else values.places[group.axis].loop
    if group is None or loop is None or group.tail or group.whole:
        write(stores)
        return
    roots = [root for store in stores for root in store.roots()]
    known, low, high = _interior(group.axis, roots)
    # Sums along the axis, too, stay as they are: they go through all turns.
    memo = {part: part for part in walk(*roots) if group.axis not in part.axes}
    plain = [_known(store, known, memo) for store in stores]
    written = {store.buffer for store in stores}
    found = shifts(group.axis, [root for store in plain for root in store.roots()], group.lanes, written)
    if high - low < LEAST_INSIDE * group.axis.extent or not (known or found):
        write(stores)
        return
    if not known:
        loop.last = _run(values, plain, found, write, loop.index, loop.stop)
        return
    f, before, size = values.f, values.f.block, group.vectors * group.lanes
    above = f.value(f"icmp sge i64 {loop.index}, {low}")
    below = f.value(f"icmp sle i64 {loop.index}, {high - size}")
    inside = f.value(f"and i1 {above}, {below}")
    with f.when(inside), values.scope():
        stop = f.smaller(loop.stop, high - size + 1)
        last = _run(values, plain, found, write, loop.index, stop)
        end = f.block
    loop.last = f.value(f"phi i64 [{loop.index}, %{before}], [{last}, %{end}]")
    with f.when(f.value(f"xor i1 {inside}, true")), values.scope():
        write(stores)


def _run(
    values: Values, stores: Sequence[Store], found: Sequence[Shift], write: Write, start: str, stop: str
) -> str:
    """All turns from ``start`` until ``stop``, the first at least; gives the place of the last."""
    f, group = values.f, values.current_group
    carried = [("i64", start), *ahead_of_first(values, found)]
    with f.loop(start, stop, group.vectors * group.lanes, carried) as loop:
        with values.shadowing([group.axis]), values.lane_group(group, Place(loop.index)):
            last = bind_shifted(values, found, loop.values[1:])
            write(stores)
        loop.carry(loop.index, *last)
    return loop.results[0]


def _known(store: Store, known: Mapping[Apply, bool], memo: dict[Expression, Expression]) -> Store:
    """``store`` where conditions are what is ``known`` of them."""

    def change(part: Expression) -> Expression:
        holds = known.get(part) if isinstance(part, Apply) else None
        return settled(part) if holds is None else Literal(holds, part.dtype)

    return store.with_roots(lambda root: rebuilt(root, change, memo))


def _interior(axis: Axis, roots: Sequence[Expression]) -> tuple[dict[Apply, bool], int, int]:
    """Conditions on the place along ``axis``, what they are in its middle, and from where to where all are that."""
    low, high = 0, axis.extent
    middle, known = axis.extent // 2, dict[Apply, bool]()
    for condition in _conditions(axis, roots):

        def holds(turn: int, condition: Apply = condition) -> bool:
            return bool(fixed_value(condition, {axis: turn}))

        known[condition] = holds(middle)
        change = bisect_left(range(axis.extent), True, key=lambda turn: holds(turn) != holds(0))
        if change <= middle:
            low = max(low, change)
        else:
            high = min(high, change)
    return known, low, high


def _conditions(axis: Axis, roots: Sequence[Expression]) -> Iterator[Apply]:
    """Comparisons of a place along ``axis`` alone with a number; those inside sums along it are of other turns."""
    for part in walk(*roots, enter=lambda part: axis in part.axes):
        if isinstance(part, Apply) and part.function in _ORDERS and part.axes == {axis}:
            place, bound = part.operands
            if isinstance(place, Position) and isinstance(bound, Literal):
                yield part
