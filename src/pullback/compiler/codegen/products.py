"""Matrix products: register tiles over rows and columns, pairs of operands one after another, the epilogue at the end.

A tile is ``rows × bands × vectors`` accumulators. For each step of the summed axis it reads the vectors of the right
operand once and multiplies them with one element of the left operand for each row. Strides are constants, so the
elements of all rows are addressed from one register; nothing is packed as long as the right operand stays in the
nearer caches.

*Rows* lie along an axis of the left operand alone; where that is short, as the channels of an image are, whole other
axes of the left operand make more rows of each of its steps. *Bands* lie along an axis of the right operand alone: of
a convolution whose lanes lie along the image, several lines of it share the elements of the weight that are read.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pullback.compiler.codegen.blocks import load_lanes
from pullback.compiler.codegen.maps import write_stores
from pullback.compiler.codegen.prefetch import CACHE_LINE, ask
from pullback.compiler.codegen.types import memory_type, scalar_type, vector_of
from pullback.compiler.codegen.values import Group, Place, Values
from pullback.compiler.codegen.vectormath import Lanes
from pullback.compiler.products import Pair, Product
from pullback.loops import Affine, Apply, Axis, Load, walk

__all__ = [
    "NEAREST_CACHE",
    "Block",
    "Tile",
    "by_columns",
    "choose_tile",
    "emit_product",
    "fitting_rows",
    "multiply_panel",
    "row_axis",
    "run_epilogue",
]

LOOP_BODY = 16
"""Steps of the summed axis are repeated in the innermost loop until it has about this many multiply-adds."""

UNROLLED = 256
"""A nest of summed axes of this many multiply-adds, such as the window of a convolution, is written out."""

EPILOGUE_IN_REGISTERS = 6
"""Epilogues of more functions than this run in a loop over rows, from a copy of the tile: they need the registers."""

MOST_ROWS, MOST_VECTORS = 16, 6
"""Elements that are spread and vectors that are read for one step, at most."""

LATENCY = 4.0
"""Cycles from one multiply-add to the next into the same register; two of them are begun in each cycle."""

TILE_OVERHEAD = 8.0
"""Cycles that a tile costs beside its multiply-adds."""

NEAREST_CACHE = 32 << 10
"""Bytes of the first-level cache of a small processor."""

UNEVEN = 1.05
"""How much worse a tile is that leaves rows over where chunks are shares of the rows: some chunk has fewer."""

LONG_DEPTH = 32
"""Sums shorter than this gain nothing from bands: the window of a single channel is soon read."""

STEPS_AHEAD = 32
"""Steps of the summed axis, of a few nanoseconds each, that the line of another core's cache takes to arrive."""

LOOP_TURN = 4.0
"""Cycles that a turn of a loop over the depth costs beside its multiply-adds."""


@dataclass(frozen=True)
class Tile:
    """Rows of a register tile, the vectors of each of its column groups, and its bands.

    Each step along the row axis is as many rows as the axes ``inner`` have turns.
    """

    rows: int
    columns: tuple[int, ...]
    bands: int = 1
    row_axis: Axis | None = None
    band_axis: Axis | None = None
    inner: tuple[Axis, ...] = ()

    def __repr__(self) -> str:
        rows = "·".join(map(str, (self.rows, *(axis.extent for axis in self.inner))))
        bands = f", bands={self.bands}" if self.bands > 1 else ""
        return f"Tile(rows={rows}, columns={self.columns}{bands})"


@dataclass(frozen=True)
class Block:
    """What one tile covers: rows and bands from where their axes stand."""

    tile: Tile
    rows: int
    bands: int = 1

    def places(self) -> Iterator[tuple[tuple[Axis, int], ...]]:
        """For each row of each band, in the order of the accumulators, how far on it is along each axis."""
        for band in self.over_bands():
            for row in self.over_rows():
                yield (*band, *row)

    def over_rows(self) -> list[tuple[tuple[Axis, int], ...]]:
        """How far on each row is."""
        return _turns([(self.tile.row_axis, self.rows), *((axis, axis.extent) for axis in self.tile.inner)])

    def over_bands(self) -> list[tuple[tuple[Axis, int], ...]]:
        """How far on each band is."""
        return _turns([(self.tile.band_axis, self.bands)])

    def axes(self) -> list[tuple[Axis, int]]:
        """Bands, then rows: the axes of the tile and its turns along each."""
        pairs = [(self.tile.band_axis, self.bands), (self.tile.row_axis, self.rows)]
        return [(a, n) for a, n in (*pairs, *((a, a.extent) for a in self.tile.inner)) if a is not None]


def _turns(axes: Sequence[tuple[Axis | None, int]]) -> list[tuple[tuple[Axis, int], ...]]:
    known = [(axis, count) for axis, count in axes if axis is not None]
    return [
        tuple((axis, turn) for (axis, _), turn in zip(known, turns))
        for turns in itertools.product(*(range(count) for _, count in known))
    ]


def fitting_rows(rows: int, vectors: int, registers: int) -> int:
    """The rows of tiles that are ``vectors`` wide with which ``rows`` rows take the fewest cycles.

    >>> fitting_rows(100, 4, registers=32), fitting_rows(100, 2, registers=16)
    (6, 6)
    """
    heights = [n for n in range(1, min(rows, MOST_ROWS) + 1) if n == 1 or _fits(n, vectors, registers)]
    return min(
        heights,
        key=lambda n: (sum(c * _cycles(r, vectors, vectors, 64) for r, c in _strips(rows, n, False)), -n),
    )


def _fits(rows: int, vectors: int, registers: int) -> bool:
    """Whether a tile's accumulators fit beside the vectors of one step."""
    return rows * vectors + vectors + 2 <= registers


def _even(extent: int, most: int) -> tuple[int, ...]:
    """The fewest parts of at most ``most``, as equal as can be, the longer ones first."""
    count = -(-extent // most)
    return tuple(extent // count + (k < extent % count) for k in range(count))


def _strips(extent: int, size: int, even: bool) -> list[tuple[int, int]]:
    """Lengths of strips and how many there are of each."""
    if even:
        sizes = _even(extent, size)
        return [(length, sizes.count(length)) for length in dict.fromkeys(sizes)]
    return [(n, count) for n, count in ((size, extent // size), (extent % size, 1)) if n and count]


def _cycles(rows: int, vectors: int, reads: float, depth: int) -> float:
    """Cycles of one tile: multiply-adds, or reads, or waiting for the sums, whatever takes longest.

    Where the depth is short and written out, the next tile need not wait; long code without a loop runs out of
    registers.
    """
    sums = rows * vectors
    written_out = depth * sums <= UNROLLED
    step = max(sums / 2, (rows + reads) / 2, 0.0 if written_out else LATENCY)
    beside = max(0.0, depth * sums - UNROLLED / 2) / 8 if written_out else LOOP_TURN * depth * sums / UNROLLED
    return depth * step + beside + TILE_OVERHEAD + sums


def choose_tile(product: Product, lanes: int, registers: int) -> Tile:
    """The tile with which ``product`` takes the fewest cycles."""
    first = product.rows[0] if product.rows else None
    lefts = [axis for axis in product.rows if not any(axis in p.right.axes for p in product.pairs)]
    rights = [axis for axis in product.rows[1:] if not any(axis in p.left.axes for p in product.pairs)]
    vectors = -(-product.columns.extent // lanes)
    depth = sum(math.prod(axis.extent for axis in pair.depth) for pair in product.pairs)
    if depth < LONG_DEPTH or vectors > MOST_VECTORS:
        rights = []
    crossing = not all(_aligned(pair.right, product.columns, lanes) for pair in product.pairs)
    others = math.prod(axis.extent for axis in product.rows)
    best: tuple[float, Tile] | None = None
    for main, inner in _row_choices(lefts, first):
        whole = math.prod(axis.extent for axis in inner)
        length = main.extent if main is not None else 1
        for band_axis in (None, *rights[-1:]):
            lines = band_axis.extent if band_axis is not None else 1
            rest = others // (whole * length * lines)
            for widths, bands, height in _sizes(vectors, lines, length, whole, registers):
                if (bands > 1) != (band_axis is not None) or (bands > 1 and len(widths) > 1):
                    continue
                cycles = 0.0
                for rows, row_strips in _strips(length, height, main is not first):
                    for lane_bands, band_strips in _strips(lines, bands, True):
                        for width in widths:
                            across = width * lane_bands
                            reads = across * (1.75 if crossing else 1.0)
                            one = _cycles(rows * whole, across, reads, depth)
                            cycles += rest * row_strips * band_strips * one
                if main is first and length % height:
                    cycles *= UNEVEN
                if best is None or cycles < best[0]:
                    best = cycles, Tile(height, widths, bands, main, band_axis, inner)
    assert best is not None
    return best[1]


def _row_choices(lefts: list[Axis], first: Axis | None) -> Iterator[tuple[Axis | None, tuple[Axis, ...]]]:
    """Axes that the rows may lie along, each with axes that make more rows of each step."""
    if not lefts:
        yield None, ()
    for main in reversed(lefts):
        rest = [axis for axis in lefts if axis is not main and axis is not first]
        for count in range(len(rest) + 1):
            inner = tuple(rest[len(rest) - count :])
            if math.prod(axis.extent for axis in inner) <= MOST_ROWS:
                yield main, inner


def _sizes(
    vectors: int, lines: int, length: int, whole: int, registers: int
) -> Iterator[tuple[tuple[int, ...], int, int]]:
    """Widths of column groups, bands and steps of rows for which there are registers."""
    for width in range(1, min(vectors, MOST_VECTORS) + 1):
        widths = _even(vectors, width)
        for bands in range(1, min(lines, MOST_VECTORS // widths[0]) + 1):
            for height in range(1, min(length, MOST_ROWS // whole) + 1):
                if height == bands == width == 1 or _fits(height * whole, widths[0] * bands, registers):
                    yield widths, bands, height


def _aligned(load: Load, columns: Axis, lanes: int) -> bool:
    """Whether vectors of the operand never lie across two lines of the cache."""
    steps = [load.offset.constant, *(c for axis, c in load.offset.terms if axis is not columns)]
    return all(step % lanes == 0 for step in steps)


def row_axis(product: Product) -> Axis | None:
    """The last row axis that no right operand depends on."""
    free = [axis for axis in product.rows if not any(axis in pair.right.axes for pair in product.pairs)]
    return free[-1] if free else None


def emit_product(
    values: Values,
    product: Product,
    tile: Tile,
    low: str,
    high: str,
    shares: Sequence[int],
    before: Callable[[Block], None] | None = None,
) -> None:
    """Run ``product`` for turns ``low`` to ``high`` of its first row axis; ``shares`` are the lengths that occur.

    ``before`` emits what comes before the tiles of some rows, unless tiles go by columns.
    """
    in_tile = {tile.row_axis, tile.band_axis, *tile.inner}
    shared = product.rows[0] if product.rows else None

    def nest(axes: Sequence[Axis]) -> None:
        if not axes:
            tiles()
            return
        start, stop = (low, high) if axes[0] is shared else ("0", str(axes[0].extent))
        with values.f.loop(start, stop) as loop:
            values.places[axes[0]] = Place(loop.index)
            with values.scope():
                nest(axes[1:])
            del values.places[axes[0]]

    def tiles() -> None:
        if by_columns(product):
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
            _shared_rows(values, tile, low, high, shares, body)
        else:
            _along(values, tile.row_axis, tile.rows, body)

    nest([axis for axis in product.rows if axis not in in_tile])


def by_columns(product: Product) -> bool:
    """Whether all rows are done for one group of columns after another.

    Then what a group reads of a large right operand stays close by; the left one, which all groups read, must lie
    along the summed axis.
    """
    outer = {axis for pair in product.pairs for axis in pair.left.axes & pair.right.axes} - {
        axis for pair in product.pairs for axis in pair.depth
    }
    size = sum(
        math.prod(axis.extent for axis in pair.right.axes - outer) * pair.right.dtype.itemsize
        for pair in product.pairs
    )
    along = all(pair.left.offset.coefficient(pair.depth[-1]) == 1 for pair in product.pairs)
    return along and size > NEAREST_CACHE


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
    for length, count in _strips(axis.extent, size, True):
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
    values: Values, tile: Tile, low: str, high: str, shares: Sequence[int], body: Callable[[int], None]
) -> None:
    """Full tiles, then the rows that are left; how many they can be is known beforehand."""
    f, height, axis = values.f, tile.rows, tile.row_axis
    assert axis is not None
    rests = sorted({share % height for share in shares} - {0})
    if any(share >= height for share in shares):
        stop = high
        if rests:
            length = f.value(f"sub i64 {high}, {low}")
            whole = f.value(f"sub i64 {length}, {f.value(f'urem i64 {length}, {height}')}")
            stop = f.value(f"add i64 {low}, {whole}")
        with f.loop(low, stop, height, counted=all(share >= height for share in shares)) as loop:
            values.places[axis] = Place(loop.index)
            body(height)
    for rest in rests:
        length = f.value(f"sub i64 {high}, {low}")
        left = f.value(f"urem i64 {length}, {height}")
        with f.when(f.value(f"icmp eq i64 {left}, {rest}")):
            values.places[axis] = Place(f.value(f"sub i64 {high}, {rest}"))
            body(rest)
    values.places.pop(axis, None)


def _columns(values: Values, product: Product, tile: Tile, body: Callable[[], None]) -> None:
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


def _tile(values: Values, product: Product, block: Block) -> None:
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
    f = values.f
    kind = vector_of(scalar_type(pair.right.dtype), values.lanes)
    steps = (pair.left.offset.coefficient(deepest), pair.right.offset.coefficient(deepest))
    strip = _Strip(
        pair, _ahead(pair.left.offset, block.over_rows()), _ahead(pair.right.offset, block.over_bands())
    )

    def nest(axes: Sequence[Axis], sums: list[str]) -> list[str]:
        if not axes:
            left, right = (
                values.address(load.buffer, values.element(load.buffer, load.offset.without([deepest])))
                for load in (pair.left, pair.right)
            )
            return _deep(values, strip, left, right, steps, deepest.extent, sums)
        if len(sums) * math.prod(axis.extent for axis in (*axes, deepest)) <= UNROLLED:
            for turn in range(axes[0].extent):
                values.places[axes[0]] = Place(None, turn)
                with values.scope():
                    sums = nest(axes[1:], sums)
                del values.places[axes[0]]
            return sums
        with f.loop("0", str(axes[0].extent), carried=[(kind, value) for value in sums]) as loop:
            values.places[axes[0]] = Place(loop.index)
            with values.scope():
                loop.carry(*nest(axes[1:], loop.values))
            del values.places[axes[0]]
        return loop.results

    return nest(outer, sums)


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

    later = 0 if strip.packed else _later(group, pair, steps[1], depth)

    def step(left: str, right: str, ahead: int, sums: list[str]) -> list[str]:
        if later:
            size = pair.right.dtype.itemsize
            for line in range(0, group.vectors * group.lanes * size, CACHE_LINE):
                ask(f, at(right, ahead * steps[1] + later + line // size), cache=2)
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


def _later(group: Group, pair: Pair, step: int, depth: int) -> int:
    """How many elements ahead to ask for a right operand that is read from end to end and is not in the nearest cache.

    The processor sees that it is read in order, but does not look far enough where another core has written it.
    """
    whole = group.axis.extent <= group.vectors * group.lanes and step <= group.vectors * group.lanes
    return STEPS_AHEAD * step if whole and depth * step * pair.right.dtype.itemsize > NEAREST_CACHE else 0


def _read_right(values: Values, strip: _Strip, address: str, vector: int) -> str:
    """One vector of the right operand; lanes beyond its end are not read, in a panel they are zeros."""
    group, dtype = values.group, strip.pair.right.dtype
    assert group is not None
    mask = values.mask(vector)
    count = group.lanes if mask is None or strip.packed else group.tail
    return load_lanes(values.f, address, memory_type(dtype), group.lanes, count)


def run_epilogue(values: Values, product: Product, block: Block, sums: Sequence[str]) -> None:
    """Evaluate the stores for each row of the tile, with the accumulator's value in its hole."""
    group = values.group
    assert group is not None
    roots = [store.value for store in product.stores]
    base = {axis: values.places[axis] for axis, _ in block.axes()}
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


def _looped_epilogue(values: Values, product: Product, block: Block, sums: Sequence[str]) -> None:
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
