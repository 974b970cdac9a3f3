"""Reductions: loops that carry accumulators, and the sum across the lanes of a vector.

Four ways, chosen by where the lanes are. A reduction that differs between lanes keeps one accumulator a lane; if its
rows lie along memory, each of these lanes is a row whose own vector of partial results is kept, and a square block of
them is turned and reduced to one vector at the end. One over the lane axis itself, when the group spans it, adds across
lanes at once. Any other takes its own last axis for lanes if memory lies that way, with several accumulators to hide
the latency, and adds them up in a fixed order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pullback.compiler.codegen.integers import integer_function
from pullback.compiler.codegen.nest import Tile, each_place, emit_nest
from pullback.compiler.codegen.types import convert, literal, scalar_type, vector_of
from pullback.compiler.codegen.values import Place, Values
from pullback.compiler.codegen.vectormath import ELEMENTWISE, Lanes
from pullback.compiler.cost import ACCUMULATORS, WRITTEN_OUT
from pullback.compiler.schedules.reduction import is_transposed, length, runs_along
from pullback.loops import Affine, Apply, Load, Reduce
from pullback.loops.nest import Kind, Level, level_of, levels_over, vectors_over

__all__ = ["across_rows", "better", "emit_reduction", "horizontal", "neutral"]


def neutral(kind: str, dtype: np.dtype) -> float | int:
    """The value that changes nothing."""
    if kind in ("add", "multiply"):
        return 0 if kind == "add" else 1
    lowest = kind in ("maximum", "argmax")
    if dtype.kind == "f":
        return float("-inf") if lowest else float("inf")
    if dtype.kind == "b":
        return 0 if lowest else 1
    information = np.iinfo(dtype)
    return int(information.min if lowest else information.max)


def combine(values: Values, kind: str, x: str, y: str, dtype: np.dtype, count: int) -> str:
    """``x`` and ``y`` reduced to one."""
    if dtype.kind == "f":
        return ELEMENTWISE[kind](Lanes(values.f, scalar_type(dtype), count), x, y)
    return integer_function(values.f, kind, (x, y), dtype, count)


def horizontal(values: Values, kind: str, vectors: Sequence[str], dtype: np.dtype, lanes: int) -> str:
    """One scalar from the lanes of several vectors: vectors in pairs, then halves of the last one."""
    row = list(vectors)
    while len(row) > 1:
        paired = [combine(values, kind, a, b, dtype, lanes) for a, b in zip(row[::2], row[1::2])]
        row = paired + row[len(paired) * 2 :]
    value, scalar = row[0], scalar_type(dtype)
    while lanes > 1:
        half = lanes // 2
        kind_text = vector_of(scalar, lanes)
        parts = []
        for start in (0, half):
            picks = ", ".join(f"i32 {start + lane}" for lane in range(half))
            parts.append(
                values.f.value(
                    f"shufflevector {kind_text} {value}, {kind_text} poison, <{half} x i32> <{picks}>"
                )
            )
        if half == 1:
            parts = [values.f.value(f"extractelement {kind_text} {value}, i32 {lane}") for lane in (0, 1)]
        value = combine(values, kind, parts[0], parts[1], dtype, half)
        lanes = half
    return value


def emit_reduction(values: Values, reduce: Reduce) -> list[str]:
    """The value of a reduction: one scalar, or one vector for each vector of the group."""
    group = values.group
    across = group is not None and group.whole and reduce.over == (group.axis,)
    extreme_position = reduce.kind in ("argmax", "argmin")
    # Here and not inside, where it would be forgotten: what several reductions need is evaluated once.
    values.hoist([reduce.body], reduce.over)
    if any(axis in values.places for axis in reduce.over) and (extreme_position or not across):
        with values.shadowing(reduce.over):
            return emit_reduction(values, reduce)
    if extreme_position:
        return _extreme_positions(values, reduce)
    if values.is_vector(reduce):
        assert group is not None
        if is_transposed(reduce, group.axis, values.target):
            return [_transposed(values, reduce, vector) for vector in range(group.vectors)]
        start = [literal(reduce.dtype, neutral(reduce.kind, reduce.dtype), group.lanes)] * group.vectors
        return _accumulate(values, reduce, start, group.lanes)
    if across:
        assert group is not None
        vectors = _masked(values, reduce, values.vectors(reduce.body))
        result = horizontal(values, reduce.kind, vectors, reduce.dtype, group.lanes)
        if reduce.kind == "add" and reduce.dtype.kind == "f" and not group.tail:
            # No lane holds the +0 that a sum begins with.
            result = combine(values, "add", result, literal(reduce.dtype, 0), reduce.dtype, 1)
        return [result]
    if runs_along(reduce) and reduce.over[-1].extent >= 4:
        return [_along_lanes(values, reduce)]
    start = [literal(reduce.dtype, neutral(reduce.kind, reduce.dtype))]
    return _accumulate(values, reduce, start, 1)


def _transposed(values: Values, reduce: Reduce, vector: int) -> str:
    """The vector of results of some rows, one a lane: a vector of partial results for each row, then all turned."""
    assert values.group is not None
    group, here = values.group, values.places[values.group.axis]
    *outer, along = reduce.over
    lanes = group.lanes
    rows = lanes if values.mask(vector) is None else group.tail
    kind = vector_of(scalar_type(reduce.dtype), lanes)
    places = [Place(here.value, here.constant + vector * lanes + row) for row in range(rows)]

    def turn(tile: Tile, sums: list[str]) -> list[str]:
        new = []
        values.hoist([reduce.body], [group.axis])
        for row, value in enumerate(sums):
            values.places[group.axis] = places[row]
            with values.scope():
                new += _added(values, reduce, [value])
            del values.places[group.axis]
        return new

    with values.shadowing([group.axis]), values.scope():
        empty = literal(reduce.dtype, neutral(reduce.kind, reduce.dtype), lanes)
        levels = [*levels_over(outer), *vectors_over(along, lanes)]
        sums = emit_nest(values, levels, turn, [(kind, empty)] * rows)
    return across_rows(
        values, reduce.kind, [*sums, *["zeroinitializer"] * (lanes - rows)], reduce.dtype, lanes
    )


def across_rows(values: Values, kind: str, rows: Sequence[str], dtype: np.dtype, lanes: int) -> str:
    """The vector whose lane ``k`` is row ``k`` reduced; rows are a power of two, no more than ``lanes``.

    Neighbours in pairs, the halves of each beside each other, until one vector is left: with four lanes

        a = [a0 a1 a2 a3]          [a0+a1 a2+a3 b0+b1 b2+b3]
        b = [b0 b1 b2 b3]    →     [c0+c1 …                ]    →    [a b c d]

    Fewer rows than lanes leave several lanes to each, which are reduced in the same way.
    """
    scalar, current = scalar_type(dtype), list(rows)

    def halves(a: str, b: str, lanes: int, kept: int) -> str:
        vector, parts = vector_of(scalar, lanes), []
        for first in (0, 1):
            picks = ", ".join(f"i32 {lane}" for lane in range(first, 2 * kept, 2))
            text = f"shufflevector {vector} {a}, {vector} {b}, <{kept} x i32> <{picks}>"
            parts.append(values.f.value(text))
        return combine(values, kind, parts[0], parts[1], dtype, kept)

    while len(current) > 1:
        current = [halves(a, b, lanes, lanes) for a, b in zip(current[::2], current[1::2])]
    while lanes > len(rows):
        current = [halves(current[0], "poison", lanes, lanes // 2)]
        lanes //= 2
    return current[0]


def _added(values: Values, reduce: Reduce, sums: list[str]) -> list[str]:
    """The accumulators with the body's vectors taken in; a product is multiplied and added in one instruction."""
    assert values.group is not None
    group, body = values.group, reduce.body
    along = group.axis in reduce.over
    if (
        reduce.kind == "add"
        and isinstance(body, Apply)
        and body.function == "multiply"
        and body.dtype.kind == "f"
        # Lanes that do not exist are read as zeros.
        and (not along or all(isinstance(e, Load) and group.axis in e.axes for e in body.operands))
    ):
        lanes = Lanes(values.f, scalar_type(body.dtype), group.lanes)
        left, right = (values.vectors(operand) for operand in body.operands)
        return [lanes.fma(a, b, c) for a, b, c in zip(left, right, sums)]
    vectors = values.vectors(body)
    if along:
        vectors = _masked(values, reduce, vectors)
    return [combine(values, reduce.kind, a, b, reduce.dtype, group.lanes) for a, b in zip(sums, vectors)]


def _accumulate(values: Values, reduce: Reduce, start: list[str], lanes: int) -> list[str]:
    """Loops over the reduced axes around ``accumulator = combine(accumulator, body)``.

    Turns of a long last axis go to several sets of accumulators in turn: no addition waits for the one before it.
    """
    *outer, last = reduce.over
    kind, count = vector_of(scalar_type(reduce.dtype), lanes), len(start)
    side, short = ACCUMULATORS // count, _written_out(reduce)
    if short or side < 2 or last.extent < 2 * side:
        side, levels = 1, levels_over(reduce.over, short)
    else:
        levels = [*levels_over(outer), level_of(last, size=side), Level(last, Kind.REGISTER)]
    empty = literal(reduce.dtype, neutral(reduce.kind, reduce.dtype), lanes)

    def turns(tile: Tile, sums: list[str]) -> list[str]:
        new = list(sums)
        for k in each_place(values, tile):
            own = slice(k * count, (k + 1) * count)
            if lanes > 1:
                new[own] = _added(values, reduce, new[own])
            else:
                pairs = zip(new[own], values.emit(reduce.body))
                new[own] = [combine(values, reduce.kind, *ab, reduce.dtype, lanes) for ab in pairs]
        return new

    carried = [(kind, value) for value in [*start, *[empty] * (count * (side - 1))]]
    sums = emit_nest(values, levels, turns, carried, hoisted=([reduce.body], []))
    sets = [sums[k : k + count] for k in range(0, len(sums), count)]
    while len(sets) > 1:
        neighbours = zip(sets[::2], sets[1::2])
        paired = [
            [combine(values, reduce.kind, *ab, reduce.dtype, lanes) for ab in zip(*p)] for p in neighbours
        ]
        sets = paired + sets[len(paired) * 2 :]
    return sets[0]


def _written_out(reduce: Reduce) -> int:
    """How many turns are unrolled: all of them where they are few."""
    return length(reduce) if length(reduce) <= WRITTEN_OUT else 0


def _masked(values: Values, reduce: Reduce, vectors: list[str]) -> list[str]:
    """Neutral values in lanes that do not exist."""
    assert values.group is not None
    lanes, last = values.group.lanes, len(vectors) - 1
    mask = values.mask(last)
    if mask is None:
        return vectors
    kind = vector_of(scalar_type(reduce.dtype), lanes)
    empty = literal(reduce.dtype, neutral(reduce.kind, reduce.dtype), lanes)
    value = vectors[last]
    if reduce.dtype.kind == "f":
        # LLVM takes 0 / 0 in lanes that were not read for 0, and would leave the selection out.
        suffix = f"v{lanes}f{8 * reduce.dtype.itemsize}"
        value = values.f.call(kind, f"llvm.arithmetic.fence.{suffix}", (kind, value))
    kept = values.f.value(f"select {vector_of('i1', lanes)} {mask}, {kind} {value}, {kind} {empty}")
    return [*vectors[:last], kept]


def _along_lanes(values: Values, reduce: Reduce) -> str:
    """Lanes along the last reduced axis."""
    axis = reduce.over[-1]
    lanes = values.lanes
    while lanes > axis.extent:
        lanes //= 2
    full, tail = divmod(axis.extent, lanes)
    side = min(ACCUMULATORS, max(full, 1))
    kind = vector_of(scalar_type(reduce.dtype), lanes)
    empty = literal(reduce.dtype, neutral(reduce.kind, reduce.dtype), lanes)

    blocks, left = divmod(full, side)
    strips = ((side * lanes, blocks), (left * lanes, 1), (tail, 1))
    vectors = Level(axis, Kind.SERIAL, tuple((n, count) for n, count in strips if n and count))
    levels = [*levels_over(reduce.over[:-1]), vectors, Level(axis, Kind.VECTOR, lanes=lanes)]

    def group(tile: Tile, sums: list[str]) -> list[str]:
        body = _masked(values, reduce, values.vectors(reduce.body))
        new = [combine(values, reduce.kind, a, b, reduce.dtype, lanes) for a, b in zip(sums, body)]
        return new + sums[len(new) :]

    with values.scope():
        sums = emit_nest(values, levels, group, [(kind, empty)] * side, hoisted=([reduce.body], []))
    return horizontal(values, reduce.kind, sums, reduce.dtype, lanes)


def _extreme_positions(values: Values, reduce: Reduce) -> list[str]:
    """Where the extreme is: loops that carry the best value and its position; the first winner stays, NaN wins."""
    vector = values.is_vector(reduce)
    group, dtype = values.group, reduce.body.dtype
    lanes = group.lanes if vector and group is not None else 1
    count = group.vectors if vector and group is not None else 1
    # Positions are as wide as the values, so that a comparison's mask selects both without being converted.
    wide = dtype.itemsize == 8 or length(reduce) >= 2**31
    index_dtype = np.dtype(np.int64 if wide else np.int32)
    kind, position_kind = vector_of(scalar_type(dtype), lanes), vector_of(scalar_type(index_dtype), lanes)
    best = [literal(dtype, neutral(reduce.kind, dtype), lanes)] * count
    start = best + [literal(index_dtype, 0, lanes)] * count
    position, step = Affine(), 1
    for axis in reversed(reduce.over):
        position, step = position + Affine.of(axis) * step, step * axis.extent

    def element(tile: Tile, carried: list[str]) -> list[str]:
        body = values.vectors(reduce.body) if vector else values.emit(reduce.body)
        at = _position(values, position, index_dtype, lanes)
        taken = [better(values, reduce.kind, b, c, dtype, lanes) for b, c in zip(body, carried)]
        mask = vector_of("i1", lanes)
        new = [
            values.f.value(f"select {mask} {t}, {kind} {b}, {kind} {c}")
            for t, b, c in zip(taken, body, carried)
        ]
        return new + [
            values.f.value(f"select {mask} {t}, {position_kind} {at}, {position_kind} {c}")
            for t, c in zip(taken, carried[count:])
        ]

    pairs = list(zip([kind] * count + [position_kind] * count, start))
    levels = levels_over(reduce.over, _written_out(reduce))
    found = emit_nest(values, levels, element, pairs, hoisted=([reduce.body], []))
    return [convert(values.f, place, index_dtype, reduce.dtype, lanes) for place in found[count:]]


def _position(values: Values, position: Affine, dtype: np.dtype, lanes: int) -> str:
    """The number of the current turn, in every lane."""
    scalar = values.offset(position)
    if not scalar.startswith("%"):
        return literal(dtype, int(scalar), lanes)
    narrow = convert(values.f, scalar, np.dtype(np.int64), dtype, 1)
    return values.splat(narrow, dtype) if lanes > 1 else narrow


def better(values: Values, kind: str, new: str, best: str, dtype: np.dtype, lanes: int) -> str:
    """Whether ``new`` takes the place of ``best``."""
    f, type_, mask = values.f, vector_of(scalar_type(dtype), lanes), vector_of("i1", lanes)
    if dtype.kind != "f":
        greater, less = ("sgt", "slt") if dtype.kind == "i" else ("ugt", "ult")
        return f.value(f"icmp {greater if kind == 'argmax' else less} {type_} {new}, {best}")
    # An unordered comparison is true for a NaN on either side; a NaN that is already the best stays.
    beats = f.value(f"fcmp {'ugt' if kind == 'argmax' else 'ult'} {type_} {new}, {best}")
    known = f.value(f"fcmp ord {type_} {best}, {best}")
    return f.value(f"and {mask} {beats}, {known}")
