"""Which register tile a product takes: the rows and vectors whose sums a processor keeps in its registers.

A tile is ``rows × bands × vectors`` sums. *Rows* lie along an axis of the left operand alone; where that is short, as
the channels of an image are, whole other axes of the left operand make more rows of each of its steps. *Bands* lie
along an axis of the right operand alone: of a convolution whose lanes lie along the image, several lines of it share
the elements of the weight that are read.

The tile is the one with the fewest cycles by an estimate: multiply-adds, reads, and what a right operand that is too
large for the nearest cache takes to arrive. It also decides how rows can be shared out, so threads should have as
many tiles each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from pullback.compiler.schedules.contraction import Contraction
from pullback.compiler.schedules.cost import (
    CROSSING,
    LEAST_SPLIT_CYCLES,
    LONG_DEPTH,
    MOST_TILE_ROWS,
    MOST_TILE_VECTORS,
    SHARED_BY,
    SPILLING,
    TILE_OVERHEAD,
    UNEVEN,
    UNROLLED,
    USUAL_DEPTH,
)
from pullback.compiler.target import Processor
from pullback.loops import Axis, Load, turns_of
from pullback.loops.nest import strips_of

__all__ = [
    "Tile",
    "choose_tile",
    "cycles_of_tiles",
    "fitting_rows",
    "tile_cycles",
]

Sizes = tuple[tuple[int, ...], int, int]
"""Widths of the column groups in vectors, bands, and rows of a step."""


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


def fitting_rows(rows: int, vectors: int, target: Processor) -> int:
    """The rows of tiles that are ``vectors`` wide with which ``rows`` rows take the fewest cycles.

    >>> wide, narrow = (Processor("generic", "", "x86_64", 8 * n, n) for n in (32, 16))
    >>> fitting_rows(100, 4, wide), fitting_rows(100, 2, narrow)
    (6, 6)
    """
    heights = [
        n
        for n in range(1, min(rows, MOST_TILE_ROWS) + 1)
        if n == 1 or _fits(n, vectors, target.vector_registers)
    ]
    return min(
        heights,
        key=lambda n: (
            sum(c * tile_cycles(target, r, vectors, vectors, USUAL_DEPTH) for r, c in strips_of(rows, n)),
            -n,
        ),
    )


def _fits(rows: int, vectors: int, registers: int) -> bool:
    """Whether a tile's accumulators fit beside the vectors of one step."""
    return rows * vectors + vectors + 2 <= registers


def tile_cycles(
    target: Processor, rows: int, vectors: int, reads: float, depth: int, arrival: float = 0.0
) -> float:
    """Cycles of one tile: multiply-adds, reads, their ``arrival``, or waiting for the sums, whatever takes longest.

    Where the depth is short and written out, the next tile need not wait; long code without a loop runs out of
    registers.
    """
    sums = rows * vectors
    written_out = depth * sums <= UNROLLED
    latency = 0.0 if written_out else target.latency
    step = max(sums / target.multiply_adds, (rows + reads) / target.reads, arrival, latency)
    beside = (
        max(0.0, depth * sums - UNROLLED / 2) * SPILLING
        if written_out
        else target.loop_cycles * depth * sums / UNROLLED
    )
    return depth * step + beside + TILE_OVERHEAD + sums


def cycles_of_tiles(product: Contraction, tile: Tile, target: Processor) -> float:
    """Cycles of all multiply-adds of a product with such tiles."""
    rows, depth = tile.rows * turns_of(tile.inner), product.depth
    places = turns_of(product.rows) / (rows * tile.bands)
    across = [width * tile.bands for width in tile.columns]
    return places * sum(tile_cycles(target, rows, vectors, vectors, depth) for vectors in across)


def choose_tile(product: Contraction, lanes: int, target: Processor) -> Tile:
    """The tile with which ``product`` takes the fewest cycles."""
    first = product.rows[0]
    lefts = [axis for axis in product.rows if not any(axis in p.right.axes for p in product.pairs)]
    rights = [axis for axis in product.rows[1:] if not any(axis in p.left.axes for p in product.pairs)]
    vectors = -(-product.columns.extent // lanes)
    depth = product.depth
    if depth < LONG_DEPTH or vectors > MOST_TILE_VECTORS:
        rights = []
    crossing = not all(_aligned(pair.right, product.columns, lanes) for pair in product.pairs)
    others = turns_of(product.rows)
    itemsize = product.accumulator.dtype.itemsize
    tiles: list[tuple[float, Tile]] = []
    for main, inner in _row_choices(lefts, first):
        whole = turns_of(inner)
        length = main.extent if main is not None else 1
        for band_axis in (None, *rights[-1:]):
            lines = band_axis.extent if band_axis is not None else 1
            rest = others // (whole * length * lines)
            found = _best_sizes(
                vectors, lines, length, whole, rest, depth, lanes * itemsize, target, crossing, main is first,
                _cache_sets(product, main, target),
            )  # fmt: skip
            if found is not None:
                cycles, (widths, bands, height) = found
                tiles.append((cycles, Tile(height, widths, bands, main, band_axis, inner)))
    return min(tiles, key=lambda each: each[0])[1]


@lru_cache(maxsize=4096)  # a network has the same product many times
def _best_sizes(
    vectors: int,
    lines: int,
    length: int,
    whole: int,
    rest: int,
    depth: int,
    vector_bytes: int,
    target: Processor,
    crossing: bool,
    outermost: bool,
    cache_sets: int,
) -> tuple[float, Sizes] | None:
    """The widths, bands and step of rows of the fewest cycles, with these."""
    best: tuple[float, Sizes] | None = None
    for widths, bands, height in _sizes(vectors, lines, length, whole, target.vector_registers):
        cycles = 0.0
        for rows, row_strips in strips_of(length, height, even=not outermost):
            for lane_bands, band_strips in strips_of(lines, bands, even=True):
                for width in widths:
                    across = width * lane_bands
                    reads = across * (1 + CROSSING * crossing)
                    size = across * vector_bytes
                    far = depth * size > target.tile_bytes
                    lines_read = size / target.line_bytes + CROSSING * crossing
                    arrival = target.near_line_cycles * lines_read if far else 0.0
                    if rows > cache_sets * target.ways:
                        arrival += target.near_line_cycles * rows * whole
                    one = tile_cycles(target, rows * whole, across, reads, depth, arrival)
                    cycles += rest * row_strips * band_strips * one
        if outermost and (length > MOST_TILE_ROWS or (rest > 1 and cycles >= SHARED_BY * LEAST_SPLIT_CYCLES)):
            shared = target.sharers * height
            cycles *= shared * -(-length // shared) / length
            cycles *= UNEVEN if length % height else 1.0
        if best is None or cycles < best[0]:
            best = cycles, (widths, bands, height)
    return best


def _cache_sets(product: Contraction, rows: Axis | None, target: Processor) -> int:
    """Into how many sets of the nearest cache lines fall that are as far apart as the ``rows`` of a left operand."""
    steps = (
        pair.left.offset.coefficient(rows) * pair.left.dtype.itemsize
        for pair in product.pairs
        if rows is not None
    )
    apart = (max(target.line_bytes, math.gcd(step, target.page_bytes)) for step in steps if step)
    return target.page_bytes // max(apart, default=target.line_bytes)


def _row_choices(lefts: list[Axis], first: Axis) -> Iterator[tuple[Axis | None, tuple[Axis, ...]]]:
    """Axes that the rows may lie along, each with axes that make more rows of each step."""
    if not lefts:
        yield None, ()
    for main in reversed(lefts):
        rest = [axis for axis in lefts if axis is not main and axis is not first]
        for count in range(len(rest) + 1):
            inner = tuple(rest[len(rest) - count :])
            if turns_of(inner) <= MOST_TILE_ROWS:
                yield main, inner


def _sizes(vectors: int, lines: int, length: int, whole: int, registers: int) -> Iterator[Sizes]:
    """Widths of column groups, bands and steps of rows for which there are registers.

    Of several lines there are bands, which all columns share.
    """
    for width in range(1, min(vectors, MOST_TILE_VECTORS) + 1):
        groups = strips_of(vectors, width, even=True)
        widths = tuple(length for length, count in groups for _ in range(count))
        most = min(lines, MOST_TILE_VECTORS // widths[0]) if len(widths) == 1 else 1
        for bands in range(min(lines, 2), most + 1):
            for height in range(1, min(length, MOST_TILE_ROWS // whole) + 1):
                if height == bands == width == 1 or _fits(height * whole, widths[0] * bands, registers):
                    yield widths, bands, height


def _aligned(load: Load, columns: Axis, lanes: int) -> bool:
    """Whether vectors of the operand never lie across two lines of the cache."""
    steps = [load.offset.constant, *(c for axis, c in load.offset.terms if axis is not columns)]
    return all(step % lanes == 0 for step in steps)
