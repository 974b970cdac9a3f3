"""Kernels without a product: loops over the axes, lanes along the last one wherever memory lies that way."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pullback.compiler.codegen import access
from pullback.compiler.codegen.nest import emit_nest
from pullback.compiler.codegen.prefetch import prefetch_ahead
from pullback.compiler.codegen.values import Group, Place, Values
from pullback.compiler.schedules.map import MapSchedule, row_fits_registers, side_by_side
from pullback.loops import Apply, Axis, Kernel, Load, Store

__all__ = ["emit_map", "lane_loop", "write_stores"]


def emit_map(values: Values, kernel: Kernel, schedule: MapSchedule, low: str, high: str) -> None:
    """Run ``kernel`` for turns ``low`` to ``high`` of its first axis; a kernel without axes runs once.

    When the first axis carries the lanes, ``low`` is a multiple of the schedule's alignment and ``high`` is one too or
    the axis' end.
    """
    lane, row = schedule.lane, schedule.row
    outer = tuple(axis for axis in kernel.axes if axis is not lane)
    roots = [root for store in kernel.stores for root in store.roots()]
    inner = {axis for store in kernel.stores for axis in store.inner} | (
        {lane} if lane is not None else set()
    )

    def loops(axes: Sequence[Axis], body: Callable[[], None]) -> None:
        """Loops around ``body``; what no axis inside changes is computed before them."""

        def turn(carried: list[str]) -> list[str]:
            body()
            return carried

        def prefetch(turn: str) -> None:
            if axes[0] is kernel.axes[0]:
                prefetch_ahead(values, kernel, schedule.prefetched, axes[0], turn)

        ends = (low, high) if axes and axes[0] is kernel.axes[0] else None
        inside = {*outer[outer.index(axes[-1]) + 1 :], *inner} if axes else inner
        emit_nest(values, axes, turn, ends=ends, hoisted=(roots, inside), entered=prefetch)

    def rows() -> None:
        """The last loop, with vectors that all its rows use in registers."""
        assert row is not None
        values.hoist(roots, {*outer[-1:], row})
        with values.lane_group(_whole_group(values, row), Place(None, 0)):
            values.hoist(roots, outer[-1:], lanes=row)
            loops(outer[-1:], lambda: _body(values, kernel, lane, low, high))

    with values.scope():
        if row is None:
            loops(outer, lambda: _body(values, kernel, lane, low, high))
        else:
            loops(outer[:-1], rows)


def _body(values: Values, kernel: Kernel, lane: Axis | None, low: str, high: str) -> None:
    if lane is not None:
        if lane is kernel.axes[0]:
            _shared_lanes(values, lane, kernel.stores, low, high)
        else:
            lane_loop(values, lane, kernel.stores)
        return
    by_inner: dict[tuple[Axis, ...], list[Store]] = {}
    for store in kernel.stores:
        by_inner.setdefault(store.inner, []).append(store)
    # Stores of the whole row last: they may need what the others leave, and share a register-resident row.
    for inner, stores in sorted(by_inner.items(), key=lambda item: len(item[0])):
        if values.group is not None:
            write_stores(values, stores)
        else:
            _inner_loops(values, inner, stores)


def _inner_loops(values: Values, inner: tuple[Axis, ...], stores: Sequence[Store]) -> None:
    if not inner:
        write_stores(values, stores)
        return
    roots = [root for store in stores for root in store.roots()]
    values.hoist(roots, inner)
    if len(inner) == 1:
        lane_loop(values, inner[0], stores)
        return
    with values.f.loop("0", str(inner[0].extent)) as loop:
        values.places[inner[0]] = Place(loop.index)
        with values.scope():
            _inner_loops(values, inner[1:], stores)
        del values.places[inner[0]]


def write_stores(values: Values, stores: Sequence[Store]) -> None:
    """All values first, then all stores: a store must not disturb what another one of the same turn still reads."""
    for store in stores:
        if values.group is not None and values.is_vector(store.value):
            values.vectors(store.value)
        else:
            values.emit(store.value)
    position = 0
    while position < len(stores):
        store = stores[position]
        count = _interleaved_stores(values, stores[position:])
        if store.accumulate:
            _accumulate(values, store)
        elif count > 1:
            mixed = [each.value for each in stores[position : position + count]]
            access.store_mixed(values, store.buffer, store.offset, mixed)
        else:
            access.store(values, store.buffer, store.offset, store.value, store.dynamic)
        position += count


def _interleaved_stores(values: Values, stores: Sequence[Store]) -> int:
    """How many stores from the first on fill all that lies between its lanes: 1 if these lie side by side."""
    first = stores[0]
    step = 0 if values.group is None else first.offset.coefficient(values.group.axis)
    together = stores[:step]
    if not 1 < step == len(together) or first.dynamic or first.accumulate:
        return 1
    follow = all(
        store.buffer is first.buffer
        and store.offset == first.offset + ahead
        and not (store.dynamic or store.accumulate)
        for ahead, store in enumerate(together)
    )
    return step if follow else 1


def _accumulate(values: Values, store: Store) -> None:
    """Store a function of what is there and the value; to ``set`` is to leave what the last turn stored."""
    value = store.value
    with values.scope():
        if store.accumulate != "set":
            there = Load(store.buffer, store.offset, store.dynamic)
            value = Apply(store.accumulate, (there, value), value.dtype)
        access.store(values, store.buffer, store.offset, value, store.dynamic)


def _whole_group(values: Values, axis: Axis) -> Group:
    full, tail = divmod(axis.extent, values.lanes)
    return Group(axis, full + bool(tail), values.lanes, tail, whole=True)


def lane_loop(values: Values, axis: Axis, stores: Sequence[Store]) -> None:
    """All of ``axis`` in vectors: a loop over groups, then what is left in one shorter group."""
    roots = [root for store in stores for root in store.roots()]
    values.hoist(roots, [axis])
    if side_by_side(axis, roots, values.target) > 1 and row_fits_registers(
        axis, roots, values.lanes, values.target
    ):
        with values.lane_group(_whole_group(values, axis), Place(None, 0)):
            write_stores(values, stores)
        return
    side = side_by_side(axis, roots, values.target)
    block = side * values.lanes
    blocks = axis.extent // block
    if blocks:
        with values.f.loop("0", str(blocks * block), block) as loop:
            _group(values, Group(axis, side, values.lanes), Place(loop.index), stores)
    _rest(values, axis, blocks * block, stores)


def _rest(values: Values, axis: Axis, done: int, stores: Sequence[Store]) -> None:
    full, tail = divmod(axis.extent - done, values.lanes)
    if full or tail:
        _group(values, Group(axis, full + bool(tail), values.lanes, tail), Place(None, done), stores)


def _group(values: Values, group: Group, place: Place, stores: Sequence[Store]) -> None:
    with values.lane_group(group, place):
        write_stores(values, stores)


def _shared_lanes(values: Values, axis: Axis, stores: Sequence[Store], low: str, high: str) -> None:
    """Lanes along the axis that threads share out: full groups from ``low``, the rest only at the axis' end."""
    roots = [root for store in stores for root in store.roots()]
    values.hoist(roots, [axis])
    block = side_by_side(axis, roots, values.target) * values.lanes
    done = axis.extent // block * block
    if done:
        stop = values.f.call("i64", "llvm.smin.i64", ("i64", high), ("i64", str(done)))
        with values.f.loop(low, stop, block, counted=False) as loop:
            _group(values, Group(axis, block // values.lanes, values.lanes), Place(loop.index), stores)
    if done < axis.extent:
        at_end = values.f.value(f"icmp eq i64 {high}, {axis.extent}")
        with values.f.when(at_end):
            _rest(values, axis, done, stores)
