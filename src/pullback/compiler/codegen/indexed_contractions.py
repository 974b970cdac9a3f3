"""Indexed contractions: sums of products that read one operand at a computed place, a tile of vectors at a time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from pullback.compiler.codegen.blocks import load_lanes
from pullback.compiler.codegen.compaction import Compacted, compact
from pullback.compiler.codegen.maps import write_stores
from pullback.compiler.codegen.nest import Ends, Tile, each_place, emit_nest
from pullback.compiler.codegen.types import memory_type, scalar_type, vector_of
from pullback.compiler.codegen.values import Group, Place, Values
from pullback.compiler.codegen.vectormath import Lanes
from pullback.compiler.schedules.cost import CHAINS, MOST_INDEXED_ROWS
from pullback.compiler.schedules.indexed_contraction import (
    IndexedContraction,
    vector_width,
    vectors_of_row,
)
from pullback.loops.nest import Kind, Level, level_of, levels_over

__all__ = ["emit_indexed_contraction"]


@dataclass(frozen=True)
class _Piece:
    """Vectors side by side along the lanes, the other columns at ``turns``."""

    turns: tuple[int, ...]
    first: int
    count: int


def emit_indexed_contraction(values: Values, sums: IndexedContraction, ends: Ends) -> None:
    """Run the kernel between ``ends`` of its first axis."""
    first, *outer = sums.outer
    levels = [level_of(first, Kind.PARALLEL), *levels_over(outer)]

    tiled = [] if sums.row is None else [sums.row]
    chosen = [] if sums.chosen is None else [sums.chosen]

    def rows(_: Tile, __: list[str]) -> None:
        if chosen:
            body = partial(_compacted, values, sums)
            emit_nest(values, levels_over(tiled), body, hoisted=(chosen, sums.over))
            return
        for part in _pieces(sums, values.lanes, sums.vectors):
            most = min(MOST_INDEXED_ROWS, max(1, sums.vectors // _count(part)))
            tiles = [
                level for axis in tiled for level in (level_of(axis, size=most), Level(axis, Kind.REGISTER))
            ]
            emit_nest(values, tiles, partial(_tile, values, sums, part))

    emit_nest(values, levels, rows, ends=ends, hoisted=(chosen, [*tiled, *sums.over]))


def _pieces(sums: IndexedContraction, lanes: int, budget: int) -> list[list[_Piece]]:
    """The vectors of a row in parts of at most ``budget``, about equally many in each."""
    *others, lane = sums.columns
    along = -(-lane.extent // vector_width(lane, lanes))
    total = vectors_of_row(sums.columns, vector_width(lane, lanes))
    size = -(-total // -(-total // budget))
    parts: list[list[_Piece]] = [[]]
    left = size
    for turns in itertools.product(*(range(axis.extent) for axis in others)):
        first = 0
        while first < along:
            if not left:
                parts.append([])
                left = size
            count = min(left, along - first)
            parts[-1].append(_Piece(turns, first, count))
            first, left = first + count, left - count
    return parts


@dataclass(frozen=True)
class _Read:
    """One vector of a part: ``count`` lanes from ``ahead`` elements after the place, of which ``skipped`` are unwanted.

    Some of the last ones may be unwanted too: what lies between elements that are there can be read.
    """

    ahead: int
    count: int
    skipped: int


def _reads(sums: IndexedContraction, part: Sequence[_Piece], width: int) -> list[_Read]:
    """How the vectors of ``part`` are read: whole ones wherever the columns reach that far to either side."""
    lane, strides = sums.columns[-1], [sums.right.offset.coefficient(axis) for axis in sums.columns]
    reach = 1 + sum((axis.extent - 1) * stride for axis, stride in zip(sums.columns, strides))
    found = []
    for piece in part:
        start = sum(turn * stride for turn, stride in zip(piece.turns, strides))
        for v in range(piece.first, piece.first + piece.count):
            ahead, missing = start + v * width, max(0, (v + 1) * width - lane.extent)
            if ahead + width <= reach:
                found.append(_Read(ahead, width, 0))
            elif ahead >= missing:
                found.append(_Read(ahead - missing, width, missing))
            else:
                found.append(_Read(ahead, width - missing, 0))
    return found


def _count(part: Sequence[_Piece]) -> int:
    """Vectors of a part."""
    return sum(piece.count for piece in part)


def _tile(
    values: Values, sums: IndexedContraction, part: Sequence[_Piece], rows: Tile, _: Sequence[str]
) -> None:
    """All rows of a tile, all vectors of ``part``: the sums, then their stores."""
    right = sums.right
    kind = vector_of(memory_type(right.dtype), vector_width(sums.columns[-1], values.lanes))
    fixed = right.offset.without(sums.columns)

    def turn(_: Tile, current: list[str]) -> list[str]:
        new = list[str]()
        for r in each_place(values, rows):
            (x,) = values.emit(sums.left)
            dynamic = [(values.convert_index(index)[0], stride) for index, stride in right.dynamic]
            address = values.address(right.buffer, values.element(right.buffer, fixed, dynamic))
            new += _added(values, sums, part, x, address, current[r * vectors : (r + 1) * vectors])
        return new

    vectors = _count(part)
    start = [(kind, "zeroinitializer")] * (math.prod(rows.values()) * vectors)
    totals = emit_nest(values, levels_over(sums.over), turn, start)
    for r in each_place(values, rows):
        _store(values, sums, part, _wanted(values, sums, part, totals[r * vectors : (r + 1) * vectors]))


def _compacted(values: Values, sums: IndexedContraction, _: Tile, __: Sequence[str]) -> None:
    """A row: the factors that count, the sums of each part over them, their stores."""
    assert sums.chosen is not None
    fixed = sums.right.offset.without(sums.columns)
    listed = compact(values, sums.left, sums.chosen, sums.right, fixed, sums.over)
    for part in _pieces(sums, values.lanes, sums.vectors // 2):
        chains = max(1, min(CHAINS, sums.vectors // _count(part)))
        _store(
            values, sums, part, _wanted(values, sums, part, _over_list(values, sums, part, listed, chains))
        )


def _over_list(
    values: Values, sums: IndexedContraction, part: Sequence[_Piece], listed: Compacted, chains: int
) -> list[str]:
    """The vectors of ``part``, summed over a list: its factors go to each of the ``chains`` in turn."""
    f, vectors, element = values.f, _count(part), memory_type(sums.right.dtype)
    width = vector_width(sums.columns[-1], values.lanes)
    kind, step = vector_of(element, width), Lanes(f, scalar_type(sums.right.dtype), width)

    def turn(position: str, current: Sequence[str]) -> list[str]:
        x, place = listed.factor(f, element, position), listed.place(f, position)
        return _added(values, sums, part, x, values.address(sums.right.buffer, place), current)

    whole = f.value(f"sub i64 {listed.count}, {f.value(f'urem i64 {listed.count}, {chains}')}")
    carried = [(kind, "zeroinitializer")] * (vectors * chains)
    with f.loop("0", whole, chains, carried=carried, counted=False) as loop:
        new = list[str]()
        for chain in range(chains):
            position = f.value(f"add i64 {loop.index}, {chain}") if chain else loop.index
            new += turn(position, loop.values[len(new) : len(new) + vectors])
        loop.carry(*new)
    first, *others = (loop.results[k : k + vectors] for k in range(0, len(loop.results), vectors))
    if others:
        with f.loop(whole, listed.count, carried=[(kind, v) for v in first], counted=False) as loop:
            loop.carry(*turn(loop.index, loop.values))
        first = loop.results
    totals = [first, *others]
    while len(totals) > 1:
        pairs, left = zip(totals[::2], totals[1::2]), totals[-1:] if len(totals) % 2 else []
        totals = [*([step.add(a, b) for a, b in zip(*pair)] for pair in pairs), *left]
    return totals[0]


def _added(
    values: Values,
    sums: IndexedContraction,
    part: Sequence[_Piece],
    x: str,
    address: str,
    current: Sequence[str],
) -> list[str]:
    """The vectors of ``part`` with ``x`` times what lies at ``address`` and after it added."""
    f, right = values.f, sums.right
    width, element = vector_width(sums.columns[-1], values.lanes), memory_type(right.dtype)
    step, new = Lanes(f, scalar_type(right.dtype), width), list[str]()
    spread = _spread(values, x, element, width)
    for read, total in zip(_reads(sums, part, width), current):
        place = f.value(f"getelementptr {element}, ptr {address}, i64 {read.ahead}")
        row = load_lanes(f, place, element, width, read.count)
        new.append(step.fma(spread, row, total))
    return new


def _store(values: Values, sums: IndexedContraction, part: Sequence[_Piece], totals: Sequence[str]) -> None:
    """Write what the kernel makes of the sums of ``part``."""
    *others, lane = sums.columns
    width, position = vector_width(lane, values.lanes), 0
    for piece in part:
        for axis, place in zip(others, piece.turns):
            values.places[axis] = Place(None, place)
        last = lane.extent - (piece.first + piece.count) * width
        group = Group(lane, piece.count, width, width + last if last < 0 else 0)
        with values.lane_group(group, Place(None, piece.first * width)):
            values.bind(sums.accumulator, list(totals[position : position + piece.count]))
            write_stores(values, sums.stores)
        position += piece.count
    for axis in others:
        values.places.pop(axis, None)


def _wanted(
    values: Values, sums: IndexedContraction, part: Sequence[_Piece], totals: Sequence[str]
) -> list[str]:
    """The vectors of ``part`` without the lanes that lie before the first wanted one."""
    element, width = memory_type(sums.right.dtype), vector_width(sums.columns[-1], values.lanes)
    kind, found = vector_of(element, width), list[str]()
    for read, total in zip(_reads(sums, part, width), totals):
        picks = (min(lane + read.skipped, width - 1) for lane in range(width))
        found.append(values.f.shuffled(kind, total, "poison", picks) if read.skipped else total)
    return found


def _spread(values: Values, value: str, element: str, width: int) -> str:
    """One scalar in every lane."""
    kind = vector_of(element, width)
    first = values.f.value(f"insertelement {kind} poison, {element} {value}, i32 0")
    return values.f.value(f"shufflevector {kind} {first}, {kind} poison, <{width} x i32> zeroinitializer")
