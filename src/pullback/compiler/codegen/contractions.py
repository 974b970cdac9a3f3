"""Matrix products: register tiles over rows and columns, pairs of operands one after another, the epilogue at the end.

A tile is ``rows × bands × vectors`` accumulators (``tiles.py`` chooses it). For each step of the summed axis it reads
the vectors of the right operand once and multiplies them with one element of the left operand for each row, as all sums
of products do (``nest.py``). Strides are constants, so the elements of all rows are addressed from one register;
nothing is packed as long as the right operand stays in the nearer caches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pullback.compiler.codegen.maps import write_stores
from pullback.compiler.codegen.nest import ChunkTurns, TileTurns, add_products, each_place, emit_nest
from pullback.compiler.codegen.prefetch import Cursors, Wanted, wanted_by
from pullback.compiler.codegen.types import scalar_type, vector_of
from pullback.compiler.codegen.values import Place, Values
from pullback.compiler.codegen.vectormath import ACCURACY
from pullback.compiler.schedules.contraction import Contraction, Pair
from pullback.compiler.schedules.contraction_schedules import TiledContraction
from pullback.compiler.schedules.cost import EPILOGUE_IN_REGISTERS, LOOP_BODY, UNROLLED
from pullback.loops import Affine, Apply, Axis, Buffer, Kernel, Load, element, walk
from pullback.loops.nest import Kind, Level, levels_over

__all__ = ["accumulate", "emit_contraction", "run_epilogue"]


def emit_contraction(values: Values, kernel: Kernel, schedule: TiledContraction, ends: ChunkTurns) -> None:
    """Run a contraction between ``ends`` of its first row axis."""
    product = schedule.contraction
    loops = [level for level in schedule.nest.levels if level.strips]
    tiles = math.prod(sum(count for _, count in level.strips) for level in loops)
    rows = product.rows[0].extent if product.rows else 1
    own = max(1, tiles * max(ends.lengths) // rows)
    cursors = Cursors(values.f, values.pieces, own, values.target.line_bytes)
    first = product.pairs[0].depth
    # A sum of a single axis must not end with the turns that ask.
    turns = first[0].extent if len(first) > 1 else max(1, first[0].extent - 1)
    pairs = [_ended(values, pair) for pair in product.pairs]

    def sums(tile: TileTurns, _: list[str]) -> None:
        """One register tile: zero, accumulate every pair, hand the sums to the epilogue."""
        # Bands last: an element that is spread over the lanes is used for all of them at once.
        tile = dict(sorted(tile.items(), key=lambda each: each[0] is schedule.tile.band_axis))
        ahead = cursors.share(turns)
        found = ["zeroinitializer"] * (math.prod(tile.values()) * values.current_group.vectors)
        wanted = [*_wanted(values, product, tile), *ahead]
        for pair in pairs:
            found = accumulate(values, pair, tile, found, wanted)
            wanted = []
        run_epilogue(values, product, tile, found)

    emit_nest(values, schedule.nest.levels, sums, ends=ends)


def _wanted(values: Values, product: Contraction, tile: TileTurns) -> list[Wanted]:
    """What a tile whose rows lie along one axis asks for while it multiplies: what its epilogue reads."""
    long = [(axis, count) for axis, count in tile.items() if count > 1]
    if len(long) != 1 or len(product.pairs[0].depth) > 1:
        return []
    return wanted_by(values, product.stores, long[0], product.columns)


def _ended(values: Values, pair: Pair) -> Pair:
    """A pair; where it is summed over rows, or several times as many, over those that there are."""
    if values.end is None:
        return pair
    (size, most), (*outer, rows) = values.end, pair.depth
    if rows.extent > most:
        several, each = Axis("several", rows.extent // most), Axis("each", most)
        pair = pair.along({rows: Affine.of(several) * most + Affine.of(each)}, (*outer, several, each))
    values.sizes[pair.depth[-1]] = size
    return pair


def accumulate(
    values: Values, pair: Pair, tile: TileTurns, sums: list[str], wanted: Sequence[Wanted]
) -> list[str]:
    """``sums[row, band, v] += sum over depth of left[row] * right[band, v]`` at the places where the axes stand.

    The first turns of the outermost summed axis ask for what is ``wanted`` after the last, a row each.
    """
    *outer, deepest = pair.depth
    asking = 0 if outer else max((rows.rows for rows in wanted), default=0)
    if asking >= deepest.extent:
        asking, wanted = 0, ()
    asked = [*wanted]

    def entered(axis: Axis) -> None:
        if axis is pair.depth[0]:
            for rows in asked:
                rows.ask(values.f, values.offset(Affine.of(axis)))
            if not outer:
                asked.clear()

    inside = _steps(deepest, len(sums), asking, deepest in values.sizes)
    moving, reads = [deepest, *tile, values.current_group.axis], (pair.left, pair.right)
    left, right = (_from_here(load, moving) for load in reads)
    kinds = "ptr", "ptr", *[vector_of(scalar_type(left.dtype), values.lanes)] * len(sums)

    def turn(steps: TileTurns, current: list[str]) -> list[str]:
        """Steps at constant distances from pointers, which move on."""
        (first, second), sums = current[:2], current[2:]
        values.pointers = {**values.pointers, left.buffer: first, right.buffer: second}
        with values.standing(dict.fromkeys(moving, Place(None))):
            for _ in each_place(values, steps):
                sums = add_products(values, tile, left, right, sums)
        ahead = [steps[deepest] * load.offset.coefficient(deepest) for load in reads]
        return [
            values.ahead(first, left.buffer, ahead[0]),
            values.ahead(second, right.buffer, ahead[1]),
            *sums,
        ]

    def innermost(_: TileTurns, sums: list[str]) -> list[str]:
        start = [values.at(load.buffer, load.offset.without([deepest])) for load in reads]
        return emit_nest(values, inside, turn, list(zip(kinds, [*start, *sums])), entered=entered)[2:]

    levels = levels_over(outer, UNROLLED // (len(sums) * deepest.extent))
    return emit_nest(values, levels, innermost, list(zip(kinds[2:], sums)), entered=entered)


def _steps(axis: Axis, sums: int, asking: int, ended: bool) -> list[Level]:
    """The innermost loop over a summed axis: turns that ask, then some steps a turn; few are written out."""
    unroll, left = max(1, LOOP_BODY // sums), axis.extent - asking
    turns, rest = divmod(left, unroll)
    strips = [(1, asking), (unroll, turns), (rest, 1)]
    if ended:
        strips[1:] = [*[(unroll, turns)] * (unroll > 1), (1, left)]
    elif turns < 2 or left * sums <= UNROLLED:
        strips[1:] = [(left, 1)]
    return [Level(axis, Kind.SERIAL, tuple(filter(all, strips))), Level(axis, Kind.REGISTER)]


def _from_here(load: Load, moving: Sequence[Axis]) -> Load:
    """A read from a pointer to the place where the ``moving`` axes begin."""
    fixed = load.offset.without(moving)
    return Load(Buffer("here", load.dtype, ()), load.offset.without(fixed.axes) + -fixed.constant)


def run_epilogue(values: Values, product: Contraction, tile: TileTurns, sums: Sequence[str]) -> None:
    """Evaluate the stores for each row of the tile, with the accumulator's value in its placeholder."""
    group = values.current_group
    roots = [store.value for store in product.stores]
    if tile:
        # A tile of one place has no loop to stay out of, and what is the same for it may hold the accumulator.
        values.hoist(roots, tile)
    # Those of many operations hold as many registers as two others.
    functions = sum(1 + (e.function in ACCURACY) for e in walk(*roots) if isinstance(e, Apply))
    # What is stored lane by lane is much text for each row, and little of it reads the registers.
    lane_by_lane = any(abs(store.offset.coefficient(group.axis)) > 1 for store in product.stores)
    if (functions > EPILOGUE_IN_REGISTERS or lane_by_lane) and math.prod(tile.values()) > 1:
        _looped_epilogue(values, product, tile, sums)
        return
    for number in each_place(values, tile):
        values.bind(product.accumulator, list(sums[number * group.vectors :][: group.vectors]))
        write_stores(values, product.stores)


def _looped_epilogue(values: Values, product: Contraction, tile: TileTurns, sums: Sequence[str]) -> None:
    """The epilogue in a loop along each axis of the tile."""
    f, group = values.f, values.current_group
    kind = vector_of(scalar_type(product.accumulator.dtype), group.lanes)
    copy = f.reserve(f"[{len(sums)} x {kind}]")
    for position, value in enumerate(sums):
        f.do(f"store {kind} {value}, ptr {f.ahead(copy, kind, str(position))}")
    turns = {axis: Axis(axis.name, count) for axis, count in tile.items() if count > 1}
    first = element(map(Affine.of, turns.values()), [turn.extent for turn in turns.values()])

    def row(_: TileTurns, __: list[str]) -> None:
        start = f.ahead(copy, kind, values.offset(first * group.vectors))
        found = [f.value(f"load {kind}, ptr {f.ahead(start, kind, v)}") for v in range(group.vectors)]
        places = {axis: values.offset(Affine.of(axis) + Affine.of(turn)) for axis, turn in turns.items()}
        with values.standing({axis: Place(place) for axis, place in places.items()}):
            values.bind(product.accumulator, found)
            write_stores(values, product.stores)

    emit_nest(values, levels_over([*turns.values()]), row)
