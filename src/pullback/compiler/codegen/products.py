"""Matrix products: register tiles over rows and columns, pairs of operands one after another, the epilogue at the end.

A tile is ``rows × vectors`` accumulators. For each step of the summed axis it reads the vectors of the right operand
once and multiplies them with one element of the left operand for each row. Strides are constants, so the elements of
all rows are addressed from one register; nothing is packed as long as the right operand stays in the nearer caches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pullback.compiler.codegen.maps import write_stores
from pullback.compiler.codegen.types import memory_type, scalar_type, vector_of
from pullback.compiler.codegen.values import Group, Place, Values
from pullback.compiler.codegen.vectormath import Lanes
from pullback.compiler.products import Pair, Product
from pullback.loops import Apply, Axis, Load, walk

__all__ = ["Tile", "choose_tile", "emit_product", "multiply_panel", "row_axis", "run_epilogue"]

LOOP_BODY = 16
"""Steps of the summed axis are repeated in the innermost loop until it has about this many multiply-adds."""

UNROLLED_DEPTH = 32
"""A nest of summed axes of this many steps in all, such as the window of a convolution, is written out."""

EPILOGUE_IN_REGISTERS = 6
"""Epilogues of more functions than this run in a loop over rows, from a copy of the tile: they need the registers."""


@dataclass(frozen=True)
class Tile:
    """Rows of a register tile and the number of vectors of each of its column groups."""

    rows: int
    columns: tuple[int, ...]


def choose_tile(rows: int, columns: int, lanes: int, registers: int) -> Tile:
    """The tile for a product of ``rows × columns``.

    Enough accumulators to hide the latency of a multiply-add, no more than the registers hold beside one row of the
    right operand, and edges as small as they can be.

    >>> choose_tile(100, 64, lanes=16, registers=32)
    Tile(rows=5, columns=(4,))
    >>> choose_tile(100, 64, lanes=8, registers=16)
    Tile(rows=5, columns=(2, 2, 2, 2))
    """
    vectors = -(-columns // lanes)
    widest = 4 if registers >= 32 else 2
    groups = -(-vectors // widest)
    widths = tuple(vectors // groups + (k < vectors % groups) for k in range(groups))
    most = min((registers - 2 - widths[0]) // widths[0], 14, rows)
    fewest = max(1, -(-most // 2))
    # Of the heights that keep the pipeline full, the one with the least rounding up; the taller of equals.
    best = min(range(fewest, most + 1), key=lambda mr: (-(-rows // mr) * mr + 0.25 * -(-rows // mr), -mr))
    return Tile(best, widths)


def row_axis(product: Product) -> Axis | None:
    """The axis that the rows of a tile lie along: the last row axis that no right operand depends on."""
    free = [axis for axis in product.rows if not any(axis in pair.right.axes for pair in product.pairs)]
    return free[-1] if free else None


def emit_product(
    values: Values, product: Product, tile: Tile, low: str, high: str, shares: Sequence[int]
) -> None:
    """Run ``product`` for turns ``low`` to ``high`` of its first row axis; ``shares`` are the lengths that occur."""
    axis = row_axis(product)
    outer = [a for a in product.rows if a is not axis]

    def nest(axes: Sequence[Axis]) -> None:
        if axes:
            first = axes[0] is product.rows[0]
            start, stop = (low, high) if first else ("0", str(axes[0].extent))
            with values.f.loop(start, stop) as loop:
                values.places[axes[0]] = Place(loop.index)
                with values.scope():
                    nest(axes[1:])
                del values.places[axes[0]]
        elif axis is None:
            _columns(values, product, tile, None, Place(None, 0), 1)
        elif axis is product.rows[0]:
            _rows(values, product, tile, axis, low, high, shares)
        else:
            _rows(values, product, tile, axis, "0", str(axis.extent), [axis.extent])

    nest(outer)


def _rows(
    values: Values, product: Product, tile: Tile, axis: Axis, low: str, high: str, shares: Sequence[int]
) -> None:
    """Full tiles, then the rows that are left; how many that can be is known beforehand."""
    f, height = values.f, tile.rows
    rests = sorted({share % height for share in shares} - {0})
    if any(share >= height for share in shares):
        stop = high
        if rests:
            length = f.value(f"sub i64 {high}, {low}")
            whole = f.value(f"sub i64 {length}, {f.value(f'urem i64 {length}, {height}')}")
            stop = f.value(f"add i64 {low}, {whole}")
        with f.loop(low, stop, height, counted=all(share >= height for share in shares)) as loop:
            _columns(values, product, tile, axis, Place(loop.index), height)
    for rest in rests:
        length = f.value(f"sub i64 {high}, {low}")
        left = f.value(f"urem i64 {length}, {height}")
        with f.when(f.value(f"icmp eq i64 {left}, {rest}")):
            start = f.value(f"sub i64 {high}, {rest}")
            _columns(values, product, tile, axis, Place(start), rest)


def _columns(
    values: Values, product: Product, tile: Tile, axis: Axis | None, place: Place, rows: int
) -> None:
    """All column groups of one strip of rows; equal full groups in a row are a loop."""
    f, lanes, extent = values.f, values.lanes, product.columns.extent
    done, position = 0, 0
    while position < len(tile.columns):
        width = tile.columns[position]
        equal = 1
        while position + equal < len(tile.columns) and tile.columns[position + equal] == width:
            equal += 1
        full = min(equal, (extent - done) // (width * lanes))
        if full > 2:
            stop = done + full * width * lanes
            with f.loop(str(done), str(stop), width * lanes) as loop:
                group = Group(product.columns, width, lanes)
                _tile(values, product, axis, place, rows, group, Place(loop.index))
            done, position = stop, position + full
        else:
            left = min(width * lanes, extent - done)
            group = Group(product.columns, width, lanes, left % lanes)
            _tile(values, product, axis, place, rows, group, Place(None, done))
            done, position = done + left, position + 1


def _tile(
    values: Values, product: Product, axis: Axis | None, place: Place, rows: int, group: Group, column: Place
) -> None:
    """One register tile: zero, accumulate every pair, hand the sums to the epilogue."""
    zero = "zeroinitializer"
    with values.lane_group(group, column), values.scope():
        if axis is not None:
            values.places[axis] = place
        sums = [zero] * (rows * group.vectors)
        for pair in product.pairs:
            sums = accumulate(values, pair, axis, rows, sums)
        if axis is not None:
            del values.places[axis]
        run_epilogue(values, product, axis, place, rows, sums)


def accumulate(values: Values, pair: Pair, axis: Axis | None, rows: int, sums: list[str]) -> list[str]:
    """``sums[r, v] += sum over depth of left[r] * right[v]`` at the places where the axes stand."""
    *outer, deepest = pair.depth
    f = values.f
    row_stride = pair.left.offset.coefficient(axis) if axis is not None else 0
    kind = vector_of(scalar_type(pair.right.dtype), values.lanes)
    short = math.prod(axis.extent for axis in pair.depth) <= UNROLLED_DEPTH

    def nest(axes: Sequence[Axis], sums: list[str]) -> list[str]:
        if not axes:
            left, right = (
                values.address(load.buffer, values.element(load.buffer, load.offset.without([deepest])))
                for load in (pair.left, pair.right)
            )
            steps = (pair.left.offset.coefficient(deepest), pair.right.offset.coefficient(deepest))
            return _deep(values, pair, left, right, steps, row_stride, rows, deepest.extent, sums)
        if short:
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


def multiply_panel(
    values: Values,
    pair: Pair,
    axis: Axis,
    rows: int,
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
    row_stride = pair.left.offset.coefficient(axis)
    return _deep(values, pair, left, panel, steps, row_stride, rows, extent[1] - extent[0], sums, packed=True)


def _deep(
    values: Values,
    pair: Pair,
    left: str,
    right: str,
    steps: tuple[int, int],
    row_stride: int,
    rows: int,
    depth: int,
    sums: list[str],
    packed: bool = False,
) -> list[str]:
    """The innermost loop: pointers that move along the summed axis, some steps a turn."""
    f, group = values.f, values.group
    assert group is not None
    element = memory_type(pair.right.dtype)
    kind = vector_of(element, group.lanes)
    lanes = Lanes(f, element, group.lanes)

    def at(pointer: str, ahead: int) -> str:
        return f.value(f"getelementptr {element}, ptr {pointer}, i64 {ahead}") if ahead else pointer

    def step(left: str, right: str, ahead: int, sums: list[str]) -> list[str]:
        row = [
            _read_right(values, pair.right, at(right, ahead * steps[1] + v * group.lanes), v, packed)
            for v in range(group.vectors)
        ]
        new = list(sums)
        for r in range(rows):
            address = at(left, ahead * steps[0] + r * row_stride)
            x = f.value(f"load {element}, ptr {address}, align {pair.left.dtype.itemsize}")
            spread = values.splat(x, pair.left.dtype)
            for v in range(group.vectors):
                place = r * group.vectors + v
                new[place] = lanes.fma(spread, row[v], new[place])
        return new

    unroll = max(1, LOOP_BODY // len(sums))
    turns, rest = divmod(depth, unroll)
    if turns > 1:
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


def _read_right(values: Values, load: Load, address: str, vector: int, packed: bool) -> str:
    """One vector of the right operand; lanes beyond its end are not read, in a panel they are zeros."""
    group = values.group
    assert group is not None
    element, size = memory_type(load.dtype), load.dtype.itemsize
    kind, mask = vector_of(element, group.lanes), values.mask(vector)
    if mask is None or packed:
        return values.f.value(f"load {kind}, ptr {address}, align {size}")
    suffix = f"v{group.lanes}f{8 * size}"
    return values.f.call(
        kind,
        f"llvm.masked.load.{suffix}.p0",
        ("ptr", address),
        ("i32", str(size)),
        (vector_of("i1", group.lanes), mask),
        (kind, "zeroinitializer"),
    )


def run_epilogue(
    values: Values, product: Product, axis: Axis | None, place: Place, rows: int, sums: Sequence[str]
) -> None:
    """Evaluate the stores for each row of the tile, with the accumulator's value in its hole."""
    group = values.group
    assert group is not None
    roots = [store.value for store in product.stores]
    width = group.vectors
    if axis is None:
        values.bind(product.accumulator, list(sums))
        write_stores(values, product.stores)
        return
    values.places[axis] = place  # hoisting sees which values do not depend on the row
    values.hoist(roots, [axis])
    functions = sum(1 for e in walk(*roots) if isinstance(e, Apply))
    if functions <= EPILOGUE_IN_REGISTERS or rows == 1:
        for r in range(rows):
            values.places[axis] = Place(place.value, place.constant + r)
            with values.scope():
                values.bind(product.accumulator, list(sums[r * width : (r + 1) * width]))
                write_stores(values, product.stores)
    else:
        _looped_epilogue(values, product, axis, place, rows, sums)
    del values.places[axis]


def _looped_epilogue(
    values: Values, product: Product, axis: Axis, place: Place, rows: int, sums: Sequence[str]
) -> None:
    f, group = values.f, values.group
    assert group is not None
    kind = vector_of(scalar_type(product.accumulator.dtype), group.lanes)
    tile = f.reserve(f"[{len(sums)} x {kind}]")
    for position, value in enumerate(sums):
        f.do(f"store {kind} {value}, ptr {f.value(f'getelementptr {kind}, ptr {tile}, i64 {position}')}")
    with f.loop("0", str(rows)) as loop:
        row = f.value(f"add i64 {loop.index}, {place.value}") if place.value is not None else loop.index
        values.places[axis] = Place(row, place.constant)
        start = f.value(f"mul i64 {loop.index}, {group.vectors}")
        current = []
        for v in range(group.vectors):
            place_in_tile = f.value(f"add i64 {start}, {v}")
            address = f.value(f"getelementptr {kind}, ptr {tile}, i64 {place_in_tile}")
            current.append(f.value(f"load {kind}, ptr {address}"))
        with values.scope():
            values.bind(product.accumulator, current)
            write_stores(values, product.stores)
