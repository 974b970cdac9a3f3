"""Checks that a program makes while it runs: an index outside its axis is recorded, then replaced by 0 to go on."""

from __future__ import annotations

import numpy as np

from pullback.compiler.codegen.types import literal, vector_of
from pullback.compiler.codegen.values import Values
from pullback.compiler.llvm.function import Function
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
    operand, lanes, f = expression.operands[0], values.lanes_of(expression), values.f
    position = _position(values, operand)
    place = values.offset(position)
    if turn is not None:
        place = f.value(f"add i64 {place}, {f.value(f'shl i64 {turn}, {TURN_SHIFT}')}")
    kind, mask = vector_of("i64", lanes), vector_of("i1", lanes)
    zero, found = "0" if lanes == 1 else "zeroinitializer", []
    for k, index in enumerate(values.convert_index(operand)):
        outside, counted = _outside(f, index, extent, wrap, lanes)
        if lanes == 1:
            with f.when(outside):
                emit_failure(f, code, place, index)
        else:
            outside = values.existing(outside, k)
            step = position.coefficient(values.current_group.axis)
            _record_first(values, outside, index, code, place, step, k)
        found.append(f.value(f"select {mask} {outside}, {kind} {zero}, {kind} {counted}"))
    return found


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


def _outside(f: Function, index: str, extent: int, wrap: bool, lanes: int) -> tuple[str, str]:
    """Whether the index is out of range, and the index counted from the start."""
    kind = vector_of("i64", lanes)
    if wrap:
        negative = f.value(f"icmp slt {kind} {index}, {literal(_INT64, 0, lanes)}")
        wrapped = f.value(f"add {kind} {index}, {literal(_INT64, extent, lanes)}")
        index = f.value(f"select {vector_of('i1', lanes)} {negative}, {kind} {wrapped}, {kind} {index}")
    return f.value(f"icmp uge {kind} {index}, {literal(_INT64, extent, lanes)}"), index


def _record_first(
    values: Values, outside: str, index: str, code: int, place: str, step: int, vector: int
) -> None:
    """Record the first lane that is ``outside``, if any; the group's first is at ``place``, the next ``step`` on."""
    f, lanes = values.f, values.current_group.lanes
    bits = f.value(f"bitcast {vector_of('i1', lanes)} {outside} to i{lanes}")
    with f.when(f.value(f"icmp ne i{lanes} {bits}, 0")):
        wide = f.value(f"zext i{lanes} {bits} to i64")
        lane = f.call("i64", "llvm.cttz.i64", ("i64", wide), ("i1", "true"))
        value = f.value(f"extractelement {vector_of('i64', lanes)} {index}, i64 {lane}")
        ahead = f.value(f"mul i64 {f.value(f'add i64 {lane}, {vector * lanes}')}, {step}")
        emit_failure(f, code, f.value(f"add i64 {place}, {ahead}"), value)
