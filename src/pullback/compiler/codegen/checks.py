"""Checks that a program makes while it runs: an index outside its axis is recorded, then replaced by 0 to go on."""

from __future__ import annotations

import numpy as np

from pullback.compiler.codegen.types import literal, vector_of
from pullback.compiler.codegen.values import Values
from pullback.compiler.runtime.layout import TURN_SHIFT, emit_failure
from pullback.loops import Affine, Apply, Expression, Load, walk

__all__ = ["emit_check", "index_load"]

_INT64 = np.dtype(np.int64)


def emit_check(values: Values, expression: Apply, code: int, turn: str | None = None) -> list[str]:
    """The index, counted from the start of its axis, with its violation recorded as the failure ``code``.

    The position that is recorded has the ``turn`` of the loops around as well: the first turn's violation is kept.
    """
    attributes = dict(expression.attributes)
    extent, wrap = attributes["extent"], attributes["wrap"]
    operand = expression.operands[0]
    position = _position(values, operand)
    place = values.offset(position)
    if turn is not None:
        place = values.f.value(f"add i64 {place}, {values.f.value(f'shl i64 {turn}, {TURN_SHIFT}')}")
    if not values.is_vector(expression):
        index = values.convert_index(operand)[0]
        return [_checked(values, index, extent, wrap, code, place)]
    assert values.group is not None
    step = position.coefficient(values.group.axis)
    rows = values.convert_index(operand)
    return [_checked_lanes(values, row, k, extent, wrap, code, place, step) for k, row in enumerate(rows)]


def index_load(index: Expression) -> Load | None:
    """The first array that the index is read from, at a place that is one of its own for every turn.

    What is read behind a guard, as a padded array is, has places outside in turns that do not read it.
    """
    for part in walk(index):
        if isinstance(part, Load):
            low, high = part.offset.bounds()
            if low >= 0 and high < part.buffer.size:
                return part
    return None


def _position(values: Values, index: Expression) -> Affine:
    """Where that array is read, as far as it is read at one place."""
    load = index_load(index)
    return load.offset if load and all(axis in values.places for axis in load.offset.axes) else Affine()


def _outside(values: Values, index: str, extent: int, wrap: bool, lanes: int) -> tuple[str, str]:
    """Whether the index is out of range, and the index counted from the start."""
    kind, f = vector_of("i64", lanes), values.f
    if wrap:
        negative = f.value(f"icmp slt {kind} {index}, {literal(_INT64, 0, lanes)}")
        wrapped = f.value(f"add {kind} {index}, {literal(_INT64, extent, lanes)}")
        index = f.value(f"select {vector_of('i1', lanes)} {negative}, {kind} {wrapped}, {kind} {index}")
    return f.value(f"icmp uge {kind} {index}, {literal(_INT64, extent, lanes)}"), index


def _checked(values: Values, index: str, extent: int, wrap: bool, code: int, place: str) -> str:
    outside, counted = _outside(values, index, extent, wrap, 1)
    with values.f.when(outside):
        emit_failure(values.f, code, place, index)
    return values.f.value(f"select i1 {outside}, i64 0, i64 {counted}")


def _checked_lanes(
    values: Values, index: str, vector: int, extent: int, wrap: bool, code: int, place: str, step: int
) -> str:
    assert values.group is not None
    f, lanes = values.f, values.group.lanes
    kind, mask_kind = vector_of("i64", lanes), vector_of("i1", lanes)
    outside, counted = _outside(values, index, extent, wrap, lanes)
    exists = values.mask(vector)
    if exists is not None:
        outside = f.value(f"and {mask_kind} {outside}, {exists}")
    bits = f.value(f"bitcast {mask_kind} {outside} to i{lanes}") if lanes > 1 else outside
    any_outside = f.value(f"icmp ne i{lanes} {bits}, 0")
    with f.when(any_outside):
        wide = f.value(f"zext i{lanes} {bits} to i64")
        lane = f.call("i64", "llvm.cttz.i64", ("i64", wide), ("i1", "true"))
        value = f.value(f"extractelement {kind} {index}, i64 {lane}")
        ahead = f.value(f"mul i64 {f.value(f'add i64 {lane}, {vector * lanes}')}, {step}")
        emit_failure(f, code, f.value(f"add i64 {place}, {ahead}"), value)
    return f.value(f"select {mask_kind} {outside}, {kind} zeroinitializer, {kind} {counted}")
