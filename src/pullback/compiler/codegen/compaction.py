"""Lists of the factors that count, with the places of what they multiply.

Which they are nobody can foresee. They are looked for a vector at a time: what is chosen moves to the front of the
vector and is appended to the list, and its place to another.

    factor    0   3   0   0   5   2   0   0             factors   3   5   2
    place     7   9   1   4   2   8   0   6      →      places    9   2   8
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pullback.compiler.codegen.nest import TileTurns, emit_nest
from pullback.compiler.codegen.types import constants, convert, mangled, memory_type, splat, vector_of
from pullback.compiler.codegen.values import Values
from pullback.compiler.llvm.function import Function
from pullback.loops import Affine, Axis, Expression, Load, turns_of
from pullback.loops.nest import levels_over, vectors_over

__all__ = ["Compacted", "compact"]


@dataclass(frozen=True)
class Compacted:
    """Where the factors and the places (32-bit) of a list lie, and how many there are (``i64``)."""

    factors: str
    places: str
    count: str

    def factor(self, f: Function, element: str, position: str) -> str:
        """The factor at ``position``."""
        at = f.ahead(self.factors, element, position)
        return f.value(f"load {element}, ptr {at}, align 4")

    def place(self, f: Function, position: str) -> str:
        """The place at ``position``, in elements from the buffer's pointer."""
        at = f.ahead(self.places, "i32", position)
        return f.value(f"sext i32 {f.value(f'load i32, ptr {at}, align 4')} to i64")


def compact(
    values: Values, factor: Expression, chosen: Expression, load: Load, start: Affine, axes: Sequence[Axis]
) -> Compacted:
    """List ``factor`` where it is ``chosen`` over ``axes``; ``load`` is at ``start`` and its computed indices."""
    f, lanes, (*outer, along) = values.f, values.lanes, axes
    room = turns_of(axes) + lanes
    element = memory_type(factor.dtype)
    factors, places = f.reserve(f"[{room} x {element}]"), f.reserve(f"[{room} x i32]")

    def append(_: TileTurns, counted: list[str]) -> list[str]:
        (count,) = counted
        mask = values.existing(values.vectors(chosen)[0], 0)
        _append(f, factors, count, values.vectors(factor)[0], mask, element, lanes)
        _append(f, places, count, _places(values, load, start, along), mask, "i32", lanes)
        bits = f.value(f"bitcast <{lanes} x i1> {mask} to i{lanes}")
        more = f.call(f"i{lanes}", f"llvm.ctpop.i{lanes}", (f"i{lanes}", bits))
        return [f.value(f"add i64 {count}, {f.value(f'zext i{lanes} {more} to i64')}")]

    levels = [*levels_over(outer), *vectors_over(along, lanes)]
    (count,) = emit_nest(values, levels, append, [("i64", "0")], hoisted=([chosen], ()))
    return Compacted(factors, places, count)


def _places(values: Values, load: Load, start: Affine, along: Axis) -> str:
    """Where each lane's element lies, in elements from the buffer's pointer, as 32-bit integers."""
    f, lanes = values.f, values.lanes
    kind = vector_of("i32", lanes)
    first = f.value(f"trunc i64 {values.element(load.buffer, start)} to i32")
    steps = constants("i32", (start.coefficient(along) * lane for lane in range(lanes)))
    places = f.value(f"add {kind} {splat(f, first, 'i32', lanes)}, {steps}")
    for index, stride in load.dynamic:
        turn = convert(f, values.vectors(index)[0], index.dtype, np.dtype(np.int32), lanes)
        far = f.value(f"mul {kind} {turn}, splat (i32 {stride})")
        places = f.value(f"add {kind} {places}, {far}")
    return places


def _append(f: Function, target: str, count: str, vector: str, mask: str, element: str, lanes: int) -> None:
    """Write the lanes of ``vector`` in ``mask`` to ``target`` from ``count`` on; the next ones overwrite the rest."""
    kind = vector_of(element, lanes)
    name = f"llvm.experimental.vector.compress.{mangled(element, lanes)}"
    front = f.call(kind, name, (kind, vector), (f"<{lanes} x i1>", mask), (kind, "poison"))
    at = f.ahead(target, element, count)
    f.do(f"store {kind} {front}, ptr {at}, align 4")
