"""Matrix products: register tiles over rows and columns, pairs of operands one after another, the epilogue at the end.

A tile is ``rows × bands × vectors`` accumulators (``tiles.py`` chooses it). For each step of the summed axis it reads
the vectors of the right operand once and multiplies them with one element of the left operand for each row. Strides are
constants, so the elements of all rows are addressed from one register; nothing is packed as long as the right operand
stays in the nearer caches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pullback.compiler.codegen.blocks import load_lanes
from pullback.compiler.codegen.maps import write_stores
from pullback.compiler.codegen.nest import emit_nest, emit_parallel
from pullback.compiler.codegen.prefetch import prefetch_line
from pullback.compiler.codegen.types import memory_type, scalar_type, vector_of
from pullback.compiler.codegen.values import Group, Place, Values
from pullback.compiler.codegen.vectormath import Lanes
from pullback.compiler.cost import EPILOGUE_IN_REGISTERS, LOOP_BODY, MOST_TILE_VECTORS, UNROLLED
from pullback.compiler.schedules.contraction import Contraction, Pair
from pullback.compiler.schedules.contraction_schedules import TiledContraction
from pullback.compiler.schedules.tiles import Block, Tile, strips
from pullback.compiler.target import Processor
from pullback.loops import Affine, Apply, Axis, walk

__all__ = ["emit_contraction", "multiply_panel", "run_epilogue"]


def emit_contraction(
    values: Values,
    schedule: TiledContraction,
    low: str,
    high: str,
    grains: Sequence[int],
    before: Callable[[Block], None] | None = None,
) -> None:
    """Run a contraction for turns ``low`` to ``high`` of its first row axis; ``grains`` are the lengths that occur.

    ``before`` emits what comes before the tiles of some rows, unless tiles go by columns.
    """
    product, tile = schedule.contraction, schedule.tile
    in_tile = {tile.row_axis, tile.band_axis, *tile.inner}
    shared = product.rows[0] if product.rows else None

    def tiles() -> None:
        if schedule.by_columns:
            _columns(values, product, tile, lambda: bands(lambda block: _tile(values, product, block)))
        else:
            bands(across)

    def across(block: Block) -> None:
        if before is not None:
            before(block)
        _columns(values, product, tile, lambda: _tile(values, product, block))

    def bands(body: Callable[[Block], None]) -> None:
        _bands(values, tile, lambda count: rows(lambda n: body(Block(tile, n, count))))

    def rows(body: Callable[[int], None]) -> None:
        if tile.row_axis is None:
            body(1)
        elif tile.row_axis is shared:
            _shared_rows(values, tile, low, high, grains, body)
        else:
            _along(values, tile.row_axis, tile.rows, body)

    outside = [axis for axis in product.rows if axis not in in_tile]
    emit_parallel(values, outside, shared, (low, high), tiles)


def _bands(values: Values, tile: Tile, body: Callable[[int], None]) -> None:
    for axis in tile.inner:
        values.places[axis] = Place(None, 0)
    if tile.band_axis is None:
        body(1)
    else:
        _along(values, tile.band_axis, tile.bands, body)
    for axis in tile.inner:
        del values.places[axis]


def _along(values: Values, axis: Axis, size: int, body: Callable[[int], None]) -> None:
    """``body(length)`` for strips of ``axis`` of about equal lengths; those of one length are a loop."""
    start = 0
    for length, count in strips(axis.extent, size, True):
        stop = start + length * count
        if count == 1:
            values.places[axis] = Place(None, start)
            body(length)
        else:
            with values.f.loop(str(start), str(stop), length) as loop:
                values.places[axis] = Place(loop.index)
                body(length)
        start = stop
    del values.places[axis]


def _shared_rows(
    values: Values, tile: Tile, low: str, high: str, grains: Sequence[int], body: Callable[[int], None]
) -> None:
    """Full tiles, then the rows that are left; how many they can be is known beforehand."""
    f, height, axis = values.f, tile.rows, tile.row_axis
    assert axis is not None
    rests = sorted({grain % height for grain in grains} - {0})
    if any(grain >= height for grain in grains):
        stop = high
        if rests:
            length = f.value(f"sub i64 {high}, {low}")
            whole = f.value(f"sub i64 {length}, {f.value(f'urem i64 {length}, {height}')}")
            stop = f.value(f"add i64 {low}, {whole}")
        with f.loop(low, stop, height, counted=all(grain >= height for grain in grains)) as loop:
            values.places[axis] = Place(loop.index)
            body(height)
    for rest in rests:
        length = f.value(f"sub i64 {high}, {low}")
        left = f.value(f"urem i64 {length}, {height}")
        with f.when(f.value(f"icmp eq i64 {left}, {rest}")):
            values.places[axis] = Place(f.value(f"sub i64 {high}, {rest}"))
            body(rest)
    values.places.pop(axis, None)


def _columns(values: Values, product: Contraction, tile: Tile, body: Callable[[], None]) -> None:
    """``body`` for all column groups; equal full groups one after another are a loop."""
    f, lanes, extent = values.f, values.lanes, product.columns.extent
    done, position = 0, 0
    while position < len(tile.columns):
        width = tile.columns[position]
        equal = 1
        while position + equal < len(tile.columns) and tile.columns[position + equal] == width:
            equal += 1
        full = min(equal, (extent - done) // (width * lanes))
        if full > 1:
            stop = done + full * width * lanes
            with f.loop(str(done), str(stop), width * lanes) as loop:
                group = Group(product.columns, width, lanes)
                with values.lane_group(group, Place(loop.index)):
                    body()
            done, position = stop, position + full
        else:
            left = min(width * lanes, extent - done)
            group = Group(product.columns, width, lanes, left % lanes)
            with values.lane_group(group, Place(None, done)):
                body()
            done, position = done + left, position + 1


def _tile(values: Values, product: Contraction, block: Block) -> None:
    """One register tile: zero, accumulate every pair, hand the sums to the epilogue."""
    group = values.group
    assert group is not None
    sums = ["zeroinitializer"] * (len(list(block.places())) * group.vectors)
    with values.scope():
        for pair in product.pairs:
            sums = accumulate(values, pair, block, sums)
        run_epilogue(values, product, block, sums)


def accumulate(values: Values, pair: Pair, block: Block, sums: list[str]) -> list[str]:
    """``sums[band, row, v] += sum over depth of left[row] * right[band, v]`` at the places where the axes stand."""
    *outer, deepest = pair.depth
    kind = vector_of(scalar_type(pair.right.dtype), values.lanes)
    steps = (pair.left.offset.coefficient(deepest), pair.right.offset.coefficient(deepest))
    strip = _Strip(
        pair, _ahead(pair.left.offset, block.over_rows()), _ahead(pair.right.offset, block.over_bands())
    )

    def innermost(sums: list[str]) -> list[str]:
        left, right = (
            values.address(load.buffer, values.element(load.buffer, load.offset.without([deepest])))
            for load in (pair.left, pair.right)
        )
        return _deep(values, strip, left, right, steps, deepest.extent, sums)

    def unrolled(axes: Sequence[Axis]) -> bool:
        return len(sums) * math.prod(axis.extent for axis in (*axes, deepest)) <= UNROLLED

    return emit_nest(values, outer, innermost, [(kind, value) for value in sums], unrolled=unrolled)


def _ahead(offset: Affine, places: Sequence[tuple[tuple[Axis, int], ...]]) -> tuple[int, ...]:
    """How many elements further on an operand is read for each of ``places``."""
    return tuple(sum(offset.coefficient(axis) * turn for axis, turn in place) for place in places)


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
    block: Block,
    panel: str,
    width: int,
    extent: tuple[int, int],
    sums: list[str],
) -> list[str]:
    """``accumulate`` over a range of the pair's depth, with the right operand in a packed ``panel``."""
    (depth,) = pair.depth
    values.places[depth] = Place(None, extent[0])
    left = values.address(pair.left.buffer, values.element(pair.left.buffer, pair.left.offset))
    del values.places[depth]
    steps = (pair.left.offset.coefficient(depth), width)
    strip = _Strip(pair, _ahead(pair.left.offset, block.over_rows()), packed=True)
    return _deep(values, strip, left, panel, steps, extent[1] - extent[0], sums)


def _deep(
    values: Values, strip: _Strip, left: str, right: str, steps: tuple[int, int], depth: int, sums: list[str]
) -> list[str]:
    """The innermost loop: pointers that move along the summed axis, some steps a turn."""
    f, group, pair = values.f, values.group, strip.pair
    assert group is not None
    element = memory_type(pair.right.dtype)
    kind = vector_of(element, group.lanes)
    lanes = Lanes(f, element, group.lanes)

    def at(pointer: str, ahead: int) -> str:
        return f.value(f"getelementptr {element}, ptr {pointer}, i64 {ahead}") if ahead else pointer

    line_bytes = values.target.line_bytes
    later = 0 if strip.packed else _later(values.target, group, pair, steps[1], depth)

    def step(left: str, right: str, ahead: int, sums: list[str]) -> list[str]:
        if later:
            size = pair.right.dtype.itemsize
            width = min(group.vectors * group.lanes, group.axis.extent) * size
            last = [width - 1] if steps[1] * size % line_bytes else []  # rows begin anywhere in a line
            for line in [*range(0, width, line_bytes), *last]:
                prefetch_line(f, at(right, ahead * steps[1] + later + line // size), cache=2)
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

    unroll = max(1, LOOP_BODY // len(sums))
    turns, rest = divmod(depth, unroll)
    if turns > 1 and depth * len(sums) > UNROLLED:
        carried = [("ptr", left), ("ptr", right), *((kind, value) for value in sums)]
        with f.loop("0", str(turns), carried=carried) as loop:
            at_left, at_right, *current = loop.values
            for ahead in range(unroll):
                current = step(at_left, at_right, ahead, current)
            loop.carry(at(at_left, unroll * steps[0]), at(at_right, unroll * steps[1]), *current)
        left, right, *sums = loop.results
    else:
        rest = depth
    for ahead in range(rest):
        sums = step(left, right, ahead, sums)
    return sums


def _later(target: Processor, group: Group, pair: Pair, step: int, depth: int) -> int:
    """How many elements ahead to ask for a right operand with short rows that is not in the nearest cache.

    The processor sees that it is read in order, but does not look far enough where another core has written it.
    """
    near = step <= MOST_TILE_VECTORS * group.lanes
    far = depth * step * pair.right.dtype.itemsize > target.tile_bytes
    return target.exchange_steps * step if near and far else 0


def _read_right(values: Values, strip: _Strip, address: str, vector: int) -> str:
    """One vector of the right operand; lanes beyond its end are not read, in a panel they are zeros."""
    group, dtype = values.group, strip.pair.right.dtype
    assert group is not None
    mask = values.mask(vector)
    count = group.lanes if mask is None or strip.packed else group.tail
    return load_lanes(values.f, address, memory_type(dtype), group.lanes, count)


def run_epilogue(values: Values, product: Contraction, block: Block, sums: Sequence[str]) -> None:
    """Evaluate the stores for each row of the tile, with the accumulator's value in its placeholder."""
    group = values.group
    assert group is not None
    roots = [store.value for store in product.stores]
    base = {axis: values.places[axis] for axis, _ in block.axes()}
    if base:
        # A tile of one place has no loop to stay out of, and what is the same for it may hold the accumulator.
        values.hoist(roots, base)
    functions = sum(1 for e in walk(*roots) if isinstance(e, Apply))
    places = list(block.places())
    if functions <= EPILOGUE_IN_REGISTERS or len(places) == 1:
        for number, place in enumerate(places):
            for axis, turn in place:
                values.places[axis] = Place(base[axis].value, base[axis].constant + turn)
            with values.scope():
                values.bind(product.accumulator, list(sums[number * group.vectors :][: group.vectors]))
                write_stores(values, product.stores)
    else:
        _looped_epilogue(values, product, block, sums)
    values.places.update(base)


def _looped_epilogue(values: Values, product: Contraction, block: Block, sums: Sequence[str]) -> None:
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

    nest([(axis, count) for axis, count in block.axes() if count > 1], "0")
