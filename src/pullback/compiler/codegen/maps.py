"""Kernels without a product: loops over the axes, lanes along the last one wherever memory lies that way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from pullback.compiler.codegen import access
from pullback.compiler.codegen.interior import inside_and_at_ends
from pullback.compiler.codegen.nest import ChunkTurns, TileTurns, emit_nest
from pullback.compiler.codegen.reductions import SumsOfLoop
from pullback.compiler.codegen.values import LaneGroup, Place, Values
from pullback.compiler.schedules.map import MapSchedule, lane_strips
from pullback.loops import Apply, Axis, Kernel, Load, Reduce, Store, walk
from pullback.loops.nest import Kind, Level, levels_over

__all__ = ["emit_map", "emit_stores", "write_stores"]


def emit_map(values: Values, kernel: Kernel, schedule: MapSchedule, ends: ChunkTurns) -> None:
    """Run ``kernel`` between ``ends`` of its first axis; a kernel without axes runs once."""
    levels, row = schedule.nest.levels, schedule.row
    roots = [root for store in kernel.stores for root in store.roots()]
    inner = {axis for store in kernel.stores for axis in store.inner}

    def rows(tile: TileTurns, _: list[str]) -> None:
        """The last loop, with vectors that all its rows use in registers."""
        assert row is not None
        values.hoist(roots, {*kernel.axes[-1:], row})
        group = LaneGroup.over(row, row.extent, values.lanes, whole=True)
        with values.lane_group(group, Place(None, 0)):
            values.hoist(roots, kernel.axes[-1:], lanes=row)
            emit_nest(values, levels[-1:], each, ends=ends, hoisted=(roots, inner))

    def each(tile: TileTurns, _: list[str]) -> None:
        write_stores(values, kernel.stores)

    def body(tile: TileTurns, _: list[str]) -> None:
        if schedule.columns:
            values.emit_side_by_side(roots)
        late = [store for store in kernel.stores if any(e in schedule.beside for e in walk(store.value))]
        # Those of the whole row are last, and share a register-resident row.
        for axes, stores in kernel.by_inner:
            emit_stores(values, axes, [s for s in stores if s not in late], schedule.beside if axes else ())
        emit_stores(values, (), late)

    values.columns, values.together = schedule.columns, schedule.together
    with values.scope():
        if row is None:
            emit_nest(values, levels, body, ends=ends, hoisted=(roots, inner))
        else:
            within = {*inner, *kernel.axes[-1:]}
            emit_nest(values, levels[:-1], rows, ends=ends, hoisted=(roots, within))


def emit_stores(
    values: Values, axes: Sequence[Axis], stores: Sequence[Store], beside: Sequence[Reduce] = ()
) -> None:
    """Stores in loops over ``axes``, with the lanes along the last one, which makes the sums ``beside`` as well."""
    roots = [root for store in stores for root in store.roots()]
    roots += [reduce.body for reduce in beside]
    levels, side = levels_over(axes[:-1]), 1
    for axis in axes[-1:]:
        strips = lane_strips(axis, roots, values.lanes, values.target)
        levels += [Level(axis, Kind.SERIAL, strips), Level(axis, Kind.VECTOR, lanes=values.lanes)]
        side = -(-max((length for length, _ in strips), default=1) // values.lanes)
    sums = SumsOfLoop(values, beside, values.lanes, side)

    def write(tile: TileTurns, carried: list[str]) -> list[str]:
        if not beside:
            inside_and_at_ends(values, stores, partial(write_stores, values))
            return []
        # Each turn of the loop is one that the sums take in: it may not go on inside a turn.
        new = sums.taken(tile, carried)
        write_stores(values, stores)
        return new

    sums.bind(emit_nest(values, levels, write, sums.start, hoisted=(roots, [])))


def write_stores(values: Values, stores: Sequence[Store]) -> None:
    """All values first, then all stores: a store must not disturb what another one of the same turn still reads."""
    if len(stores) > 1:
        values.emit_as_read([store.value for store in stores])
    for store in stores:
        values.emit(store.value)
    position = 0
    while position < len(stores):
        store = stores[position]
        count = _interleaved_stores(values, stores[position:])
        if store.accumulate:
            _accumulate(values, store)
        elif count > 1:
            access.store_mixed(values, stores[position : position + count])
        else:
            access.emit_store(values, store)
        position += count


def _interleaved_stores(values: Values, stores: Sequence[Store]) -> int:
    """How many stores from the first on fill all that lies between its lanes: 1 if these lie side by side."""
    first = stores[0]
    step = 0 if values.group is None else first.offset.coefficient(values.group.axis)
    together = stores[:step]
    if not 1 < step == len(together):
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
        access.emit_store(values, replace(store, value=value))
