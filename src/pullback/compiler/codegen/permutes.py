"""Sums over a pool's winners whose elements are looked up in registers: the weight gradient of a small convolution.

    for o, k, l: dw[o, k, l] = add[p, q](g[o, p, q] * x[2p + u + k, 2q + v + l])    u, v = divmod(winner[o, p, q], 2)

What neighbouring windows can meet of the image is two runs of elements, one for each line of a window, and fits into
two vectors: for each element of the weights one instruction moves what each winner meets to the winner's lane.

    x       a b c d e f g h              u, v of three windows    0,1  1,0  1,1
            i j k l m n o p              looked up                b    k    n

So winners cost the same wherever they are, and no branch depends on them. The lower lanes belong to one row, such as a
channel, the upper ones to the next. Zero factors are not left out: what they meet is multiplied by them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from pullback.compiler.codegen.blocks import load_lanes
from pullback.compiler.codegen.nest import Tile, each_place, emit_nest
from pullback.compiler.codegen.types import vector_of
from pullback.compiler.codegen.values import Group, Place, Values
from pullback.compiler.codegen.vectormath import Lanes
from pullback.compiler.schedules.permute import Permute
from pullback.loops import Axis
from pullback.loops.nest import levels_over

__all__ = ["sums_of_permutes"]

LANES = 16
"""What the two instructions that are used have: 32-bit lanes of AVX-512 (``Processor.table_lanes``)."""

HALF = LANES // 2


def sums_of_permutes(
    values: Values,
    permute: Permute,
    lines: Sequence[int],
    column: Axis,
    rows: Tile,
) -> list[list[str]]:
    """For a tile of one or two rows the sums for the columns of each line: vectors of a power of two lanes.

    ``lines`` tells how many elements after the place each line begins.
    """
    *outer, along = permute.over
    kind = vector_of("float", LANES)

    def blocks(tile: Tile, current: list[str]) -> list[str]:
        for first in range(0, along.extent, permute.windows):
            current = _block(values, permute, lines, column, rows, first, current)
        return current

    start_of_sums = [(kind, "zeroinitializer")] * (len(lines) * column.extent)
    totals = emit_nest(values, levels_over(outer), blocks, start_of_sums)
    folded = [_folded(values, totals[k : k + column.extent]) for k in range(0, len(totals), column.extent)]
    width = max(2, 1 << (column.extent - 1).bit_length())
    return [
        [_picked(values, line, line, range(r * HALF, r * HALF + width)) for line in folded]
        for r in range(math.prod(rows.values()))
    ]


def _block(
    values: Values,
    permute: Permute,
    lines: Sequence[int],
    column: Axis,
    rows: Tile,
    first: int,
    current: Sequence[str],
) -> list[str]:
    """Add what the windows from ``first`` on give.

    Lanes without a window have a zero as their factor, which meets what the first window might meet.
    """
    f, along = values.f, permute.over[-1]
    kind, indices = vector_of("float", LANES), vector_of("i32", LANES)
    step = Lanes(f, "float", LANES)
    count = min(permute.windows, along.extent - first)
    factor, number = _side_by_side(values, permute, rows, first, count)
    # Vectors begin some elements sooner where whole ones would reach too far.
    needed = permute.step * (count - 1) + permute.reach + permute.shared
    sooner = LANES - needed if LANES - needed <= permute.step * first else 0
    numbered = ", ".join(f"i32 {pick}" for pick in (*permute.picks, *[0] * (LANES - len(permute.picks))))
    place = f.call(indices, "llvm.x86.avx512.permvar.si.512", (indices, f"<{numbered}>"), (indices, number))
    places = []
    for shift in range(permute.shared):
        windows = [lane % HALF if lane % HALF < count else 0 for lane in range(LANES)]
        moved = ", ".join(f"i32 {permute.step * window + sooner + shift}" for window in windows)
        places.append(f.value(f"add {indices} {place}, <{moved}>"))
    values.places[along] = Place(None, first)
    fixed = permute.load.offset.without([a for a in permute.load.axes if a not in values.places])
    address = values.address(permute.load.buffer, values.element(permute.load.buffer, fixed))
    del values.places[along]
    tables: dict[int, str] = {}

    def table(ahead: int) -> str:
        if ahead not in tables:
            at = f.value(f"getelementptr float, ptr {address}, i64 {ahead - sooner}")
            tables[ahead] = load_lanes(f, at, "float", LANES, LANES if sooner else needed)
        return tables[ahead]

    new = list[str]()
    for line, turn in itertools.product(lines, range(column.extent)):
        ahead, shift = (line, turn) if permute.shared > 1 else (line + turn, 0)
        found = [(kind, table(ahead + start)) for start in permute.starts]
        name = "llvm.x86.avx512.vpermi2var.ps.512" if len(found) > 1 else "llvm.x86.avx512.permvar.sf.512"
        met = f.call(kind, name, found[0], (indices, places[shift]), *found[1:])
        new.append(step.fma(met, factor, current[len(new)]))
    return new


def _side_by_side(values: Values, permute: Permute, rows: Tile, first: int, count: int) -> list[str]:
    """The factors and the numbers of some windows, of the second row in the upper lanes."""
    group = Group(permute.over[-1], 1, HALF, count if count < HALF else 0)
    halves: list[list[str]] = [[], []]
    for _ in each_place(values, rows):
        with values.lane_group(group, Place(None, first)):
            halves[0] += values.vectors(permute.factor)
            halves[1] += values.vectors(permute.number)
    joined = []
    for half, element in zip(halves, ("float", "i32")):
        kind = vector_of(element, HALF)
        upper = half[1] if len(half) > 1 else "zeroinitializer"
        lanes = ", ".join(f"i32 {lane}" for lane in range(LANES))
        joined.append(
            values.f.value(f"shufflevector {kind} {half[0]}, {kind} {upper}, <{LANES} x i32> <{lanes}>")
        )
    return joined


def _folded(values: Values, totals: Sequence[str]) -> str:
    """In each half, lane after lane, the sum of that half of each vector."""
    step = Lanes(values.f, "float", LANES)
    row = list(totals)
    row += ["zeroinitializer"] * (max(2, 1 << (len(row) - 1).bit_length()) - len(row))
    size = HALF
    while size > 1:
        size //= 2
        pairs = list(zip(row[::2], row[1::2])) if len(row) > 1 else [(row[0], row[0])]
        row = []
        for a, b in pairs:
            parts = []
            for side in (0, size):
                # Of each half: the parts of the first vector, then those of the second.
                picks = [
                    half + vector * LANES + part + lane + side
                    for half in (0, HALF)
                    for vector in (0, 1)
                    for part in range(0, HALF, 2 * size)
                    for lane in range(size)
                ]
                parts.append(_picked(values, a, b, picks))
            row.append(step.add(*parts))
    return row[0]


def _picked(values: Values, first: str, second: str, picks: Sequence[int]) -> str:
    kind, lanes = vector_of("float", LANES), ", ".join(f"i32 {pick}" for pick in picks)
    return values.f.value(f"shufflevector {kind} {first}, {kind} {second}, <{len(picks)} x i32> <{lanes}>")
