"""Kernels without a product: loops over the axes, lanes along the last one wherever memory lies that way."""

from __future__ import annotations

from collections.abc import Sequence

from pullback.compiler.codegen import access
from pullback.compiler.codegen.prefetch import prefetch_ahead
from pullback.compiler.codegen.reductions import is_transposed
from pullback.compiler.codegen.values import Group, Place, Values
from pullback.loops import Apply, Axis, Expression, Kernel, Load, Reduce, Store, walk

__all__ = ["alignment", "emit_map", "lane_axis", "write_stores"]

CHEAP, SIDE_BY_SIDE, COSTLY_SIDE_BY_SIDE = 12, 4, 2
"""Bodies of up to ``CHEAP`` functions run on four vectors at once, longer ones on two: registers are limited."""


def emit_map(
    values: Values, kernel: Kernel, low: str, high: str, row_by_row: bool = False, prefetches: bool = False
) -> None:
    """Run ``kernel`` for turns ``low`` to ``high`` of its first axis; a kernel without axes runs once.

    When the first axis carries the lanes, ``low`` is a multiple of ``alignment(kernel)`` and ``high`` is one too or
    the axis' end; ``row_by_row`` keeps the lanes off that axis. A kernel that ``asks`` does so for what it gathers in
    later turns.
    """
    lane = None if row_by_row else lane_axis(kernel)
    outer = tuple(axis for axis in kernel.axes if axis is not lane)
    roots = [root for store in kernel.stores for root in store.roots()]
    row = None if lane is not None else _one_row(values, kernel.stores, roots)
    inner_axes = {axis for store in kernel.stores for axis in store.inner}

    def nest(axes: Sequence[Axis]) -> None:
        if row is not None and values.group is None and len(axes) <= 1:
            values.hoist(roots, {*axes, row})
            with values.lane_group(_whole_group(values, row), Place(None, 0)):
                values.hoist(roots, axes, lanes=row)  # vectors that all rows use stay in registers
                nest(axes)
            return
        if not axes:
            _body(values, kernel, lane, low, high)
            return
        axis = axes[0]
        first = axis is kernel.axes[0]
        values.hoist(roots, {*axes, *inner_axes, *([lane] if lane else [])})
        start, stop = (low, high) if first else ("0", str(axis.extent))
        with values.f.loop(start, stop) as loop:
            values.places[axis] = Place(loop.index)
            if first and prefetches:
                prefetch_ahead(values, kernel, axis, loop.index)
            with values.scope():
                nest(axes[1:])
            del values.places[axis]

    with values.scope():
        nest(outer)


def lane_axis(kernel: Kernel) -> Axis | None:
    """The axis of the kernel that the lanes lie along, if any: the last one, unless reads lie along a reduction."""
    if not kernel.axes or any(store.inner for store in kernel.stores):
        return None
    axis = kernel.axes[-1]
    if any(axis in e.axes for store in kernel.stores for e, _ in store.dynamic):
        return None
    if any(store.accumulate and not store.offset.coefficient(axis) for store in kernel.stores):
        return None  # all lanes would be for the same element
    along = against = 0
    for expression in kernel.expressions():
        if not isinstance(expression, Reduce) or is_transposed(expression, axis):
            continue
        if 2 * expression.over[-1].extent > axis.extent:
            for load in walk(expression.body):
                if isinstance(load, Load) and axis in load.axes:
                    if load.offset.coefficient(axis) == 1:
                        along += 1
                    elif load.offset.coefficient(expression.over[-1]) == 1:
                        against += 1
    if against > along:
        return None
    return axis if axis.extent >= 4 or kernel.axes[0] is not axis else None


def side_by_side(roots: Sequence[Expression]) -> int:
    """How many vectors a loop body works on at once."""
    functions = sum(1 for e in walk(*roots) if isinstance(e, Apply))
    return SIDE_BY_SIDE if functions <= CHEAP else COSTLY_SIDE_BY_SIDE


def _vectors(axis: Axis, roots: Sequence[Expression]) -> int:
    """How many vectors along ``axis`` a loop body works on at once: one where each of its lanes is a row to read."""
    if any(isinstance(e, Reduce) and is_transposed(e, axis) for e in walk(*roots)):
        return 1
    return side_by_side(roots)


def alignment(kernel: Kernel, lanes: int) -> int:
    """What shares of the first axis must be multiples of."""
    lane = lane_axis(kernel)
    if lane is None or lane is not kernel.axes[0]:
        return 1
    return lanes * _vectors(lane, [root for store in kernel.stores for root in store.roots()])


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


def _one_row(values: Values, stores: Sequence[Store], roots: Sequence[Expression]) -> Axis | None:
    """The axis inside the kernel's own that registers hold as a whole, if there is no other one."""
    inner = {store.inner for store in stores}
    widest = max(inner, key=len)
    if len(widest) == 1 and inner <= {(), widest} and _fits_registers(values, widest[0], roots):
        return widest[0]
    return None


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


def _fits_registers(values: Values, axis: Axis, roots: Sequence[Expression]) -> bool:
    """Whether all of ``axis`` is at once in registers: a quarter of them where ``roots`` need few others."""
    most = max(SIDE_BY_SIDE, values.registers // 4) if side_by_side(roots) == SIDE_BY_SIDE else SIDE_BY_SIDE
    return -(-axis.extent // values.lanes) <= most


def _whole_group(values: Values, axis: Axis) -> Group:
    full, tail = divmod(axis.extent, values.lanes)
    return Group(axis, full + bool(tail), values.lanes, tail, whole=True)


def lane_loop(values: Values, axis: Axis, stores: Sequence[Store]) -> None:
    """All of ``axis`` in vectors: a loop over groups, then what is left in one shorter group."""
    roots = [root for store in stores for root in store.roots()]
    values.hoist(roots, [axis])
    if _vectors(axis, roots) > 1 and _fits_registers(values, axis, roots):
        with values.lane_group(_whole_group(values, axis), Place(None, 0)):
            write_stores(values, stores)
        return
    side = _vectors(axis, roots)
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
    block = _vectors(axis, roots) * values.lanes
    done = axis.extent // block * block
    if done:
        stop = values.f.call("i64", "llvm.smin.i64", ("i64", high), ("i64", str(done)))
        with values.f.loop(low, stop, block, counted=False) as loop:
            _group(values, Group(axis, block // values.lanes, values.lanes), Place(loop.index), stores)
    if done < axis.extent:
        at_end = values.f.value(f"icmp eq i64 {high}, {axis.extent}")
        with values.f.when(at_end):
            _rest(values, axis, done, stores)
