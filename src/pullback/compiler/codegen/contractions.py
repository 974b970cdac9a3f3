"""Matrix products: register tiles over rows and columns, pairs of operands one after another, the epilogue at the end.

A tile is ``rows × bands × vectors`` accumulators (``tiles.py`` chooses it). For each step of the summed axis it reads
the vectors of the right operand once and multiplies them with one element of the left operand for each row. Strides are
constants, so the elements of all rows are addressed from one register; nothing is packed as long as the right operand
stays in the nearer caches.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pullback.compiler.codegen.blocks import load_lanes
from pullback.compiler.codegen.maps import write_stores
from pullback.compiler.codegen.nest import Ends, Tile, each_place, emit_nest
from pullback.compiler.codegen.prefetch import Cursors, Wanted, wanted_by
from pullback.compiler.codegen.types import memory_type, scalar_type, vector_of
from pullback.compiler.codegen.values import Place, Values
from pullback.compiler.codegen.vectormath import ACCURACY, Lanes
from pullback.compiler.llvm.function import Function
from pullback.compiler.schedules.contraction import Contraction, Pair
from pullback.compiler.schedules.contraction_schedules import TiledContraction
from pullback.compiler.schedules.cost import EPILOGUE_IN_REGISTERS, LOOP_BODY, UNROLLED
from pullback.loops import Affine, Apply, Axis, walk
from pullback.loops.nest import levels_over

__all__ = ["emit_contraction", "multiply_panel", "run_epilogue"]


def emit_contraction(values: Values, schedule: TiledContraction, ends: Ends) -> None:
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

    def sums(tile: Tile, _: list[str]) -> None:
        """One register tile: zero, accumulate every pair, hand the sums to the epilogue."""
        group = values.group
        assert group is not None
        ahead = cursors.share(turns)
        found = ["zeroinitializer"] * (math.prod(tile.values()) * group.vectors)
        wanted = _wanted(values, product, tile)
        for pair in product.pairs:
            found = accumulate(values, pair, tile, found, wanted, ahead)
            wanted, ahead = [], []
        run_epilogue(values, product, tile, found)

    emit_nest(values, schedule.nest.levels, sums, ends=ends)


def _wanted(values: Values, product: Contraction, tile: Tile) -> list[Wanted]:
    """What a tile whose rows lie along one axis asks for while it multiplies: what its epilogue reads."""
    long = [(axis, count) for axis, count in tile.items() if count > 1]
    if len(long) != 1 or len(product.pairs[0].depth) > 1:
        return []
    return wanted_by(values, product.stores, long[0], product.columns)


def accumulate(
    values: Values,
    pair: Pair,
    tile: Tile,
    sums: list[str],
    wanted: Sequence[Wanted] = (),
    ahead: Sequence[Wanted] = (),
) -> list[str]:
    """``sums[band, row, v] += sum over depth of left[row] * right[band, v]`` at the places where the axes stand.

    The first steps ask for what is ``wanted`` after the last, a row each; the turns of the outermost summed axis for
    what others read ``ahead``.
    """
    *outer, deepest = pair.depth
    kind = vector_of(scalar_type(pair.right.dtype), values.lanes)
    steps = (pair.left.offset.coefficient(deepest), pair.right.offset.coefficient(deepest))
    bands = {axis: turns for axis, turns in tile.items() if axis in pair.right.axes}
    rows = {axis: turns for axis, turns in tile.items() if axis not in bands}
    strip = _Strip(pair, _ahead(pair.left.offset, rows), _ahead(pair.right.offset, bands))

    def innermost(_: Tile, sums: list[str]) -> list[str]:
        left, right = (
            values.address(load.buffer, values.element(load.buffer, load.offset.without([deepest])))
            for load in (pair.left, pair.right)
        )
        if values.end is None:
            return _deep(values, strip, left, right, steps, deepest.extent, sums, wanted)
        size, rows = values.end
        if deepest.extent == rows:
            return _deep(values, strip, left, right, steps, size, sums, wanted)
        pointers = [("ptr", left), ("ptr", right)]
        with values.f.loop(
            "0", str(deepest.extent // rows), carried=[*pointers, *((kind, s) for s in sums)]
        ) as loop:
            left, right, *current = loop.values
            following = [
                values.f.ahead(pointer, memory_type(pair.right.dtype), rows * step)
                for pointer, step in zip((left, right), steps)
            ]
            loop.carry(*following, *_deep(values, strip, left, right, steps, size, current))
        return loop.results[2:]

    def entered(axis: Axis, _: Tile) -> None:
        if axis is outer[0]:
            for rows in ahead:
                rows.ask(values.f, values.offset(Affine.of(axis)))

    wanted = wanted if outer else [*wanted, *ahead]
    levels = levels_over(outer, UNROLLED // (len(sums) * deepest.extent))
    return emit_nest(values, levels, innermost, [(kind, value) for value in sums], entered=entered)


def _ahead(offset: Affine, tile: Tile) -> tuple[int, ...]:
    """How many elements further on an operand is read at each place of a tile."""
    steps = [offset.coefficient(axis) for axis in tile]
    places = itertools.product(*map(range, tile.values()))
    return tuple(sum(step * turn for step, turn in zip(steps, place)) for place in places)


_Repeat = Callable[[int | str, int, Sequence[Wanted], Sequence[str]], list[str]]
"""Turns of a loop of some steps each, from pointers and sums to what they are then."""


@dataclass(frozen=True)
class _Strip:
    """A pair, and how far apart the rows of its left operand and the bands of its right one lie."""

    pair: Pair
    rows: tuple[int, ...]
    bands: tuple[int, ...] = (0,)
    packed: bool = False


def multiply_panel(
    values: Values,
    pair: Pair,
    tile: Tile,
    panel: str,
    width: int,
    extent: tuple[Place, int | str],
    sums: list[str],
    wanted: Sequence[Wanted] = (),
) -> list[str]:
    """``accumulate`` over steps of the depth from a place on, with the right operand in a packed ``panel``.

    The first steps ask for what is ``wanted`` after the last, a row each.
    """
    (depth,) = pair.depth
    values.places[depth], steps_deep = extent
    left = values.address(pair.left.buffer, values.element(pair.left.buffer, pair.left.offset))
    del values.places[depth]
    steps = (pair.left.offset.coefficient(depth), width)
    strip = _Strip(pair, _ahead(pair.left.offset, tile), packed=True)
    return _deep(values, strip, left, panel, steps, steps_deep, sums, wanted)


def _deep(
    values: Values,
    strip: _Strip,
    left: str,
    right: str,
    steps: tuple[int, int],
    depth: int | str,
    sums: list[str],
    wanted: Sequence[Wanted] = (),
) -> list[str]:
    """The innermost loop: pointers that move along the summed axis, some steps a turn.

    A ``depth`` that is known when the program runs is a register.
    """
    f, group, pair = values.f, values.group, strip.pair
    assert group is not None
    element = memory_type(pair.right.dtype)
    kind = vector_of(element, group.lanes)
    lanes = Lanes(f, element, group.lanes)

    def at(pointer: str, ahead: int) -> str:
        return f.ahead(pointer, element, ahead)

    def step(left: str, right: str, ahead: int, sums: list[str]) -> list[str]:
        across = [
            _read_right(values, strip, at(right, ahead * steps[1] + band + v * group.lanes), v)
            for band in strip.bands
            for v in range(group.vectors)
        ]
        new = list(sums)
        for r, row in enumerate(strip.rows):
            address = at(left, ahead * steps[0] + row)
            x = f.value(f"load {element}, ptr {address}, align {pair.left.dtype.itemsize}")
            spread = values.splat(x, pair.left.dtype)
            for k, vector in enumerate(across):
                band, v = divmod(k, group.vectors)
                place = (band * len(strip.rows) + r) * group.vectors + v
                new[place] = lanes.fma(spread, vector, new[place])
        return new

    def repeat(turns: int | str, unroll: int, asked: Sequence[Wanted], start: Sequence[str]) -> list[str]:
        kinds, counted = ["ptr", "ptr", *([kind] * len(sums))], isinstance(turns, int)
        with f.loop("0", str(turns), carried=list(zip(kinds, start)), counted=counted) as loop:
            at_left, at_right, *current = loop.values
            for rows in asked:
                rows.ask(f, loop.index)
            for ahead in range(unroll):
                current = step(at_left, at_right, ahead, current)
            loop.carry(at(at_left, unroll * steps[0]), at(at_right, unroll * steps[1]), *current)
        return loop.results

    asking = max((rows.rows for rows in wanted), default=0)
    unroll = max(1, LOOP_BODY // len(sums))
    if isinstance(depth, str):
        return _until(f, depth, repeat, [left, right, *sums], unroll, wanted)[2:]
    if 0 < asking < depth:
        left, right, *sums = repeat(asking, 1, wanted, [left, right, *sums])
        depth -= asking
    turns, rest = divmod(depth, unroll)
    if turns > 1 and depth * len(sums) > UNROLLED:
        left, right, *sums = repeat(turns, unroll, (), [left, right, *sums])
    else:
        rest = depth
    for ahead in range(rest):
        sums = step(left, right, ahead, sums)
    return sums


def _until(
    f: Function, depth: str, repeat: _Repeat, current: list[str], unroll: int, wanted: Sequence[Wanted]
) -> list[str]:
    """``repeat`` for a number of steps that is a register, some a turn."""
    if wanted:
        asking = str(max(rows.rows for rows in wanted))
        first = f.call("i64", "llvm.smin.i64", ("i64", depth), ("i64", asking))
        current = repeat(first, 1, wanted, current)
        depth = f.value(f"sub i64 {depth}, {first}")
    shift = unroll.bit_length() - 1
    current = repeat(f.value(f"lshr i64 {depth}, {shift}"), 1 << shift, (), current)
    return repeat(f.value(f"and i64 {depth}, {(1 << shift) - 1}"), 1, (), current) if shift else current


def _read_right(values: Values, strip: _Strip, address: str, vector: int) -> str:
    """One vector of the right operand; lanes beyond its end are not read, in a panel they are zeros."""
    group, dtype = values.group, strip.pair.right.dtype
    assert group is not None
    mask = values.mask(vector)
    count = group.lanes if mask is None or strip.packed else group.tail
    return load_lanes(values.f, address, memory_type(dtype), group.lanes, count)


def run_epilogue(values: Values, product: Contraction, tile: Tile, sums: Sequence[str]) -> None:
    """Evaluate the stores for each row of the tile, with the accumulator's value in its placeholder."""
    group = values.group
    assert group is not None
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


def _looped_epilogue(values: Values, product: Contraction, tile: Tile, sums: Sequence[str]) -> None:
    """The epilogue in a loop along each axis of the tile."""
    f, group = values.f, values.group
    assert group is not None
    kind = vector_of(scalar_type(product.accumulator.dtype), group.lanes)
    copy = f.reserve(f"[{len(sums)} x {kind}]")
    for position, value in enumerate(sums):
        f.do(f"store {kind} {value}, ptr {f.value(f'getelementptr {kind}, ptr {copy}, i64 {position}')}")

    def nest(axes: Sequence[tuple[Axis, int]], number: str) -> None:
        if not axes:
            start = f.value(f"mul i64 {number}, {group.vectors}")
            current = []
            for v in range(group.vectors):
                place = f.value(f"add i64 {start}, {v}")
                address = f.value(f"getelementptr {kind}, ptr {copy}, i64 {place}")
                current.append(f.value(f"load {kind}, ptr {address}"))
            values.bind(product.accumulator, current)
            write_stores(values, product.stores)
            return
        axis, count = axes[0]
        base = values.places[axis]
        with f.loop("0", str(count)) as loop:
            value = loop.index if base.value is None else f.value(f"add i64 {loop.index}, {base.value}")
            values.places[axis] = Place(value, base.constant)
            before = f.value(f"mul i64 {number}, {count}")
            with values.scope():
                nest(axes[1:], f.value(f"add i64 {before}, {loop.index}"))
        values.places[axis] = base

    nest([(axis, count) for axis, count in tile.items() if count > 1], "0")
