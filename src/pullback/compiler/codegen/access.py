"""Reads and writes of memory along the lanes: whole vectors, lanes picked out of vectors, mixed lanes, gathers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial, reduce

import numpy as np

from pullback.compiler.codegen.blocks import fenced, load_lanes, load_under, store_lanes
from pullback.compiler.codegen.columns import mixed, separated
from pullback.compiler.codegen.types import (
    convert,
    from_memory,
    literal,
    mangled,
    memory_type,
    scalar_type,
    to_memory,
    vector_of,
    write_element,
)
from pullback.compiler.codegen.values import Values
from pullback.compiler.schedules.columns import in_blocks
from pullback.loops import Buffer, Load, Store
from pullback.loops.arithmetic import conditions

__all__ = ["emit_load", "emit_store", "store_mixed"]

_INT64 = np.dtype(np.int64)


def emit_load(values: Values, load: Load) -> list[str]:
    """What is read: one scalar, or the vectors of the group."""
    if not values.is_vector(load):
        return [_load_scalar(values, load)]
    axis, count = values.current_group.axis, values.current_group.vectors
    if load in values.columns and values.columns[load][0].lane is axis:
        return _column(values, load)
    fixed = [(e, stride) for e, stride in load.dynamic if axis not in e.axes]
    start = values.element(load.buffer, load.offset, fixed)
    together = len(fixed) == len(load.dynamic) and load.offset.coefficient(axis) == 1
    picks = [None if together else _picks(values, load, k) for k in range(count)]
    if None not in picks:
        return [_picked(values, load, start, offsets) for offsets in picks if offsets is not None]
    guards = [None] * count if load.guard is None else values.vectors(load.guard)
    masks = (values.mask(k) if g is None else values.existing(g, k) for k, g in enumerate(guards))
    if not together:
        return [_gather(values, load, start, k, mask) for k, mask in enumerate(masks)]
    guard = _common_guard(values, load)
    return [_load_vector(values, load.buffer, start, k, mask, guard) for k, mask in enumerate(masks)]


def _column(values: Values, load: Load) -> list[str]:
    """A column of a block of rows; the others that are needed are computed with it."""
    group = values.current_group
    block, loads = values.columns[load]
    lanes, element = group.lanes, memory_type(load.dtype)
    kind, start = vector_of(element, lanes), values.element(load.buffer, block.place)
    found: dict[Load, list[str]] = {each: [] for each in loads}
    for k in range(group.vectors):

        @cache
        def source(part: int, first: int = k * lanes * block.step, rows: int = group.present(k)) -> str:
            whole = block.width == block.step
            there = max(0, block.step * rows - part * lanes) if whole else block.width * (part < rows)
            address = values.address(load.buffer, start, first + part * (lanes if whole else block.step))
            if not there:
                return "zeroinitializer"
            return load_lanes(values.f, address, element, lanes, min(lanes, there))

        column = separated(block.width, lanes, source, partial(values.f.shuffled, kind))
        for each in loads:
            found[each].append(column(each.offset.constant - block.place.constant))
    for each in loads:
        values.bind(each, found[each])
    return found[load]


def _load_scalar(values: Values, load: Load) -> str:
    offset = values.element(load.buffer, load.offset, load.dynamic)
    kind, dtype = memory_type(load.dtype), load.dtype
    guard = None if load.guard is None else values.emit(load.guard)[0]
    address = _there(values, guard, values.address(load.buffer, offset), kind)
    value = values.f.value(f"load {kind}, ptr {address}, align {dtype.itemsize}")
    if guard is not None:
        zero = "0" if dtype.kind != "f" else "0.0"
        value = values.f.value(f"select i1 {guard}, {kind} {value}, {kind} {zero}")
    return from_memory(values.f, value, dtype)


def _there(values: Values, guard: str | None, address: str, kind: str) -> str:
    """The address under the ``guard``, if there is one, else that of memory on the stack, which is there."""
    if guard is None:
        return address
    spare = values.spare.get(kind) or values.spare.setdefault(kind, values.f.reserve(kind))
    return values.f.value(f"select i1 {guard}, ptr {address}, ptr {spare}")


def _load_vector(
    values: Values, buffer: Buffer, start: str, vector: int, mask: str | None, guard: str | None
) -> str:
    """Lanes that lie side by side, those under ``mask``; none without the ``guard``, if there is one.

    Where no lane is read the address is that of something that is there: processors take hundreds of cycles to find
    out that memory that does not exist is not asked for.

    A short last vector is read as one of fewer lanes: LLVM may read past the end of the parts of a long one that
    no register holds as a whole.
    """
    lanes, there = values.current_group.lanes, values.current_group.present(vector)
    element, address = memory_type(buffer.dtype), values.address(buffer, start, vector * lanes)
    if mask is None:
        return from_memory(
            values.f, load_lanes(values.f, address, element, lanes, lanes), buffer.dtype, lanes
        )
    address = _there(values, guard, address, vector_of(element, lanes))
    short = max(2, 1 << (there - 1).bit_length())
    if short < lanes:
        mask = _resized(values, mask, "i1", lanes, short)
    value = load_under(values.f, address, element, short, mask)
    if short < lanes:
        value = _resized(values, value, element, short, lanes)
    return from_memory(values.f, value, buffer.dtype, lanes)


def _resized(values: Values, value: str, element: str, lanes: int, wanted: int) -> str:
    """The first lanes of a vector, or all of them and zeros after."""
    picks = (min(lane, lanes) for lane in range(wanted))
    return values.f.shuffled(vector_of(element, lanes), value, "zeroinitializer", picks)


def _picks(values: Values, load: Load, vector: int) -> list[int | None] | None:
    """Where the elements of the lanes lie, None for lanes that read nothing; None unless near and known."""
    if load.dtype.kind == "b":
        return None
    group = values.current_group
    axis, count, first = group.axis, group.present(vector), vector * group.lanes
    offsets = [(first + lane) * load.offset.coefficient(axis) for lane in range(count)]
    for expression, stride in load.dynamic:
        if axis in expression.axes:
            known = values.known_lanes(expression, vector, count)
            if known is None:
                return None
            offsets = [offset + value * stride for offset, value in zip(offsets, known)]
    found: list[int | None] = [*offsets]
    for condition in conditions(load.guard):
        if axis in condition.axes:
            known = values.known_lanes(condition, vector, count)
            if known is None:
                return None
            found = [offset if there else None for offset, there in zip(found, known)]
    near = [offset for offset in found if offset is not None]
    return found if not near or max(near) - min(near) < values.target.gather_vectors * group.lanes else None


def _picked(values: Values, load: Load, start: str, offsets: Sequence[int | None]) -> str:
    """Elements at fixed distances from ``start``, one for each lane that exists: picked out of whole vectors.

    Nothing outside the first and the last of them is read, and zeros are taken where no lane reads anything.
    """
    lanes, element = values.current_group.lanes, memory_type(load.dtype)
    kind = vector_of(element, lanes)
    known = [offset for offset in offsets if offset is not None]
    if not known:
        return "zeroinitializer"
    first = min(known)
    wanted = [None if offset is None else offset - first for offset in offsets]
    span = max(known) - first + 1
    guard = _common_guard(values, load)
    picked = "poison" if len(known) == len(offsets) else "zeroinitializer"
    last = max(0, span - lanes)  # a vector that ends with the last element needs no mask
    for part in (min(part, last) for part in range(0, span, lanes)):
        there = min(lanes, span - part)
        address = _there(values, guard, values.address(load.buffer, start, first + part), kind)
        row = load_lanes(values.f, address, element, lanes, there)
        lies_at = [-1 if offset is None else offset - part for offset in wanted]
        picks = [
            lanes + lies_at[lane] if lane < len(lies_at) and 0 <= lies_at[lane] < lanes else lane
            for lane in range(lanes)
        ]
        picked = values.f.shuffled(kind, picked, row, picks)
    if guard is not None:
        picked = values.f.value(f"select i1 {guard}, {kind} {picked}, {kind} zeroinitializer")
    return picked


def _common_guard(values: Values, load: Load) -> str | None:
    """Of the conditions under which ``load`` reads, those that are the same for all lanes."""
    common = [c for c in conditions(load.guard) if values.current_group.axis not in c.axes]
    found = [values.emit(condition)[0] for condition in common]
    return reduce(lambda a, b: values.f.value(f"and i1 {a}, {b}"), found) if found else None


def _gather(values: Values, load: Load, start: str, vector: int, mask: str | None) -> str:
    """Lanes that do not lie side by side."""
    lanes, step = values.current_group.lanes, load.offset.coefficient(values.current_group.axis)
    indices = values.lane_positions(start, step, vector)
    kind64 = vector_of("i64", lanes)
    for expression, stride in load.dynamic:
        if values.is_vector(expression):
            index = convert(values.f, values.vectors(expression)[vector], expression.dtype, _INT64, lanes)
            index = values.f.value(f"mul {kind64} {index}, {literal(_INT64, stride, lanes)}")
            indices = values.f.value(f"add {kind64} {indices}, {index}")
    kind = memory_type(load.dtype)
    pointers = values.f.value(f"getelementptr {kind}, ptr {values.pointers[load.buffer]}, {kind64} {indices}")
    vector_kind = vector_of(kind, lanes)
    value = values.f.call(
        vector_kind,
        f"llvm.masked.gather.{mangled(kind, lanes)}.v{lanes}p0",
        (vector_of("ptr", lanes), pointers),
        ("i32", str(load.dtype.itemsize)),
        (vector_of("i1", lanes), mask or "splat (i1 true)"),
        (vector_kind, "zeroinitializer"),
    )
    return from_memory(values.f, value, load.dtype, lanes)


def emit_store(values: Values, store: Store) -> None:
    """Write the value; along the lanes where the group's axis moves the target."""
    group, buffer = values.group, store.buffer
    step = 0 if group is None else store.offset.coefficient(group.axis)
    if group is None or not (values.is_vector(store.value) or step):
        scalar = values.emit(store.value)[0]
        address = values.at(buffer, store.offset, store.dynamic)
        write_element(values.f, address, scalar, buffer.dtype)
        return
    found = values.vectors(store.value)
    start = values.element(buffer, store.offset, store.dynamic)
    for k, vector in enumerate(found):
        if step == 1:
            _store_lanes(values, buffer, start, k * group.lanes, vector, group.present(k))
        else:
            _scatter(values, buffer, start, step, k, vector)


def store_mixed(values: Values, stores: Sequence[Store]) -> None:
    """Write the columns of rows: values whose lanes lie as far apart as there are stores, one beside the other."""
    group, buffer = values.current_group, stores[0].buffer
    lanes, step = group.lanes, len(stores)
    mix = partial(values.f.shuffled, vector_of(scalar_type(buffer.dtype), lanes))
    start = values.element(buffer, stores[0].offset)
    vectors = [values.vectors(store.value) for store in stores]
    for k in range(group.vectors):
        rows = group.present(k)
        if not in_blocks(step, lanes):
            for part, whole in enumerate(mixed([column[k] for column in vectors], lanes, mix)):
                ahead, there = k * lanes * step + part * lanes, min(lanes, step * rows - part * lanes)
                if there > 0:
                    _store_lanes(values, buffer, start, ahead, whole, there)
            continue
        # Blocks as wide as a vector: the last one may write again what the one before it has written.
        for first in (min(first, step - lanes) for first in range(0, step, lanes)):
            block = mixed([column[k] for column in vectors[first : first + lanes]], lanes, mix)
            for row, whole in enumerate(block[:rows]):
                _store_lanes(values, buffer, start, (k * lanes + row) * step + first, whole, lanes)


def _store_lanes(values: Values, buffer: Buffer, start: str, ahead: int, value: str, count: int) -> None:
    """Write the first ``count`` lanes of a vector to elements that lie side by side."""
    lanes, element = values.current_group.lanes, memory_type(buffer.dtype)
    value = to_memory(values.f, value, buffer.dtype, lanes)
    store_lanes(values.f, value, values.address(buffer, start, ahead), element, lanes, count)


def _scatter(values: Values, buffer: Buffer, start: str, step: int, vector: int, value: str) -> None:
    """Write lanes that do not lie side by side, one by one."""
    lanes, present = values.current_group.lanes, values.current_group.present(vector)
    kind = scalar_type(buffer.dtype)
    first = values.address(buffer, start)  # one for all lanes: LLVM looks at each address that is computed
    if present % 2:
        value = fenced(values.f, kind, lanes, value)
    for lane in range(present):
        element = values.f.value(f"extractelement {vector_of(kind, lanes)} {value}, i32 {lane}")
        address = values.ahead(first, buffer, (vector * lanes + lane) * step)
        write_element(values.f, address, element, buffer.dtype)
