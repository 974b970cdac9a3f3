"""Large products: panels of the right operand are packed into memory that stays in the second-level cache.

The columns are cut into blocks of some panels, the rows into blocks that share the packing; a chunk is one block of
each. A panel holds, for each step of the summed axis, the vectors that a register tile wants side by side: reads run
straight ahead, and neither the distance of rows in memory nor their order matters any more. A right operand that lies
along the summed axis is transposed on its way in.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pullback.compiler.codegen.blocks import load_lanes, store_lanes, transpose_block
from pullback.compiler.codegen.contractions import multiply_panel, run_epilogue
from pullback.compiler.codegen.function import Function
from pullback.compiler.codegen.prefetch import CACHE_LINE
from pullback.compiler.codegen.types import memory_type, vector_of
from pullback.compiler.codegen.values import Group, Place, Values
from pullback.compiler.schedules.contraction import Contraction, Pair
from pullback.compiler.schedules.tiles import Block, Tile, fitting_rows, row_axis
from pullback.compiler.target import Processor
from pullback.loops import Axis

__all__ = ["Packing", "choose_packing", "emit_packed_contraction"]

FEWEST_ROWS = 24
FEW_ROWS = 256

ROUND = 256
"""Steps of the summed axis that are packed at a time: many multiply-adds for each sum that waits for the next round,
few enough that the panels stay in the second-level cache and a tile's rows in the first."""

LINE_ARRIVES = 24.0
"""Cycles in which a core gets a line from beyond its second-level cache, one after another."""

SHARED_BY = 2
"""Threads that should have as many blocks each; where it costs little, blocks are many, for more threads."""

FEW_BLOCKS = 0.25
"""What a single block is worse than many, whose shares are finer; two are half as bad."""


@dataclass(frozen=True)
class Segment:
    """A range of one pair's summed axis, and where its part of a panel starts, in steps."""

    pair: int
    start: int
    stop: int
    packed_at: int


@dataclass(frozen=True)
class Packing:
    """How a product is cut. ``rounds`` are packed one after another where the whole depth would not fit."""

    tile: Tile
    lanes: int
    block_rows: int
    row_blocks: int
    panels: int
    """Panels of a column block."""
    column_blocks: int
    rounds: tuple[tuple[Segment, ...], ...]

    @property
    def blocks(self) -> int:
        """Number of chunks at most."""
        return self.row_blocks * self.column_blocks

    @property
    def width(self) -> int:
        """Columns of a panel."""
        return self.tile.columns[0] * self.lanes

    @property
    def depth(self) -> int:
        """Steps of the longest round."""
        return max(sum(s.stop - s.start for s in segments) for segments in self.rounds)

    def scratch_bytes(self, itemsize: int) -> int:
        """Memory for the packed panels, and for sums that wait for the next round."""
        waiting = self.block_rows * self.panels * self.width if len(self.rounds) > 1 else 0
        return (self.depth * self.panels * self.width + waiting) * itemsize


def choose_packing(product: Contraction, lanes: int, processor: Processor) -> Packing | None:
    """How to cut ``product``, or ``None`` if its right operands fit into the nearer caches as they are."""
    axis = row_axis(product)
    if axis is None or product.rows != (axis,) or axis.extent < FEWEST_ROWS:
        return None
    if any(len(pair.depth) != 1 for pair in product.pairs):
        return None
    itemsize, columns = product.accumulator.dtype.itemsize, product.columns.extent
    depth = sum(pair.depth[0].extent for pair in product.pairs)
    if depth * columns * itemsize <= _resident(axis.extent, processor) or columns < 2 * lanes:
        return None
    widest = 4 if processor.vector_registers >= 32 else 2
    height = fitting_rows(axis.extent, widest, processor.vector_registers)
    rounds = _rounds(product.pairs, ROUND)
    extents = (axis.extent, columns, depth)
    block_rows, panels = _best_cut(extents, height, widest * lanes, lanes, processor.l2_bytes, itemsize)
    row_blocks, column_blocks = -(-axis.extent // block_rows), -(-columns // (panels * widest * lanes))
    tile = Tile(height, (widest,), row_axis=axis)
    return Packing(tile, lanes, block_rows, row_blocks, panels, column_blocks, rounds)


@functools.lru_cache(maxsize=256)
def _best_cut(
    extents: tuple[int, int, int], height: int, width: int, lanes: int, l2_bytes: int, itemsize: int
) -> tuple[int, int]:
    """Rows and panels of a block: of as many equal blocks as there may be, of whole tiles, the fastest ones."""
    rows, columns, _ = extents
    tiles, panels = -(-rows // height), -(-columns // width)
    cuts = [
        (min(rows, down * height), across)
        for down in sorted({-(-tiles // blocks) for blocks in range(1, tiles + 1)}, reverse=True)
        for across in sorted({-(-panels // blocks) for blocks in range(1, panels + 1)}, reverse=True)
    ]
    return min(cuts, key=lambda cut: _cycles(cut, extents, width, lanes, l2_bytes, itemsize))


def _cycles(
    cut: tuple[int, int], extents: tuple[int, int, int], width: int, lanes: int, l2_bytes: int, itemsize: int
) -> float:
    """What a product of rows, columns and depth takes in blocks of so many rows and panels ``width`` wide.

    That is multiply-adds, lines that arrive, and how unevenly blocks fall to threads. Each block of rows packs the
    right operand, each block of columns reads the left one, and sums that wait for the next round leave the cache
    where they are many.
    """
    (block_rows, panels), (rows, columns, depth) = cut, extents
    row_blocks, column_blocks = -(-rows // block_rows), -(-columns // (panels * width))
    blocks, line = row_blocks * column_blocks, CACHE_LINE // itemsize
    lines = depth * columns * row_blocks / line
    if rows * depth * itemsize > l2_bytes // 2:
        lines += rows * depth * column_blocks / line
    near = l2_bytes // 4
    packed, waiting = (count * panels * width * itemsize for count in (min(depth, ROUND), block_rows))
    if depth > ROUND and waiting > near:
        lines += 2 * rows * columns * (depth // ROUND) / line
    if packed > 2 * near:
        lines += rows / block_rows * depth * columns * (block_rows / 8) / line
    cycles = rows * columns * depth / (2 * lanes) + lines * LINE_ARRIVES
    uneven = -(-blocks // SHARED_BY) * SHARED_BY / blocks
    return cycles * uneven * (1 + FEW_BLOCKS / blocks)


def _resident(rows: int, processor: Processor) -> int:
    """Bytes of a right operand that is read where it lies: few rows do not pay for packing one that half fills L2."""
    return processor.l2_bytes // (2 if rows < FEW_ROWS else 4)


def _rounds(pairs: Sequence[Pair], limit: int) -> tuple[tuple[Segment, ...], ...]:
    """The depth of all pairs in order, cut so that no round is deeper than ``limit``."""
    rounds: list[list[Segment]] = [[]]
    used = 0
    for number, pair in enumerate(pairs):
        extent, start = pair.depth[0].extent, 0
        parts = -(-extent // limit)
        step = -(-extent // parts)
        while start < extent:
            stop = min(extent, start + step)
            if used + stop - start > limit and rounds[-1]:
                rounds.append([])
                used = 0
            rounds[-1].append(Segment(number, start, stop, used))
            used += stop - start
            start = stop
    return tuple(tuple(segments) for segments in rounds)


def emit_packed_contraction(
    values: Values, product: Contraction, packing: Packing, low: str, high: str, scratch: str
) -> None:
    """Run the blocks ``low`` to ``high``; neighbours share their rows."""
    f = values.f
    axis = row_axis(product)
    assert axis is not None
    emitter = _Blocks(values, product, packing, axis, scratch)
    with f.loop(low, high) as loop:
        row_block = f.value(f"udiv i64 {loop.index}, {packing.column_blocks}")
        column_block = f.value(f"urem i64 {loop.index}, {packing.column_blocks}")
        first_row = f.value(f"mul i64 {row_block}, {packing.block_rows}")
        end = f.value(f"add i64 {first_row}, {packing.block_rows}")
        last_row = f.call("i64", "llvm.smin.i64", ("i64", end), ("i64", str(axis.extent)))
        first_panel = f.value(f"mul i64 {column_block}, {packing.panels}")
        emitter.block(first_row, last_row, first_panel)


class _Blocks:
    def __init__(
        self, values: Values, product: Contraction, packing: Packing, axis: Axis, scratch: str
    ) -> None:
        self.values, self.product, self.packing, self.axis = values, product, packing, axis
        self.f: Function = values.f
        self.scratch = scratch
        self.kind = memory_type(product.accumulator.dtype)
        self.pitch = packing.depth * packing.width
        columns = product.columns.extent
        self.full_panels, self.last_columns = divmod(columns, packing.width)
        self.waiting = self._at(scratch, str(packing.panels * self.pitch)) if len(packing.rounds) > 1 else ""

    def _at(self, pointer: str, ahead: str) -> str:
        return (
            self.f.value(f"getelementptr {self.kind}, ptr {pointer}, i64 {ahead}")
            if ahead != "0"
            else pointer
        )

    def _step(self, pointer: str, pitch: int, count: int) -> str:
        """``count`` rows of ``pitch`` elements further on."""
        return self._at(pointer, str(count * pitch))

    def block(self, first_row: str, last_row: str, first_panel: str) -> None:
        """Pack the block's panels, then run all of its rows over them; once for each round."""
        for number, segments in enumerate(self.packing.rounds):
            self._each_panel(first_panel, functools.partial(self._pack, segments))
            self._rows(first_row, last_row, first_panel, number)

    def _each_panel(self, first_panel: str, body: Callable[[str, str, int], None]) -> None:
        """``body(panel within the block, first column, columns)`` for each panel that exists."""
        f, packing = self.f, self.packing
        end = f.value(f"add i64 {first_panel}, {packing.panels}")
        stop = f.call("i64", "llvm.smin.i64", ("i64", end), ("i64", str(self.full_panels)))
        with f.loop(first_panel, stop, counted=False) as loop:
            within = f.value(f"sub i64 {loop.index}, {first_panel}")
            body(within, f.value(f"mul i64 {loop.index}, {packing.width}"), packing.width)
        if self.last_columns:
            has_last = f.value(f"icmp ugt i64 {end}, {self.full_panels}")
            with f.when(has_last):
                within = f.value(f"sub i64 {self.full_panels}, {first_panel}")
                body(within, str(self.full_panels * packing.width), self.last_columns)

    # ------------------------------------------------------------------ packing

    def _pack(self, segments: Sequence[Segment], within: str, column: str, columns: int) -> None:
        panel = self._at(self.scratch, self.f.value(f"mul i64 {within}, {self.pitch}"))
        for segment in segments:
            pair = self.product.pairs[segment.pair]
            depth = pair.depth[0]
            target = self._at(panel, str(segment.packed_at * self.packing.width))
            values = self.values
            values.places[self.product.columns], values.places[depth] = (
                Place(column),
                Place(None, segment.start),
            )
            source = values.address(pair.right.buffer, values.element(pair.right.buffer, pair.right.offset))
            del values.places[self.product.columns], values.places[depth]
            steps = pair.right.offset.coefficient(depth)
            across = pair.right.offset.coefficient(self.product.columns)
            if across == 1:
                self._copy(source, steps, target, segment.stop - segment.start, columns)
            else:
                self._turn(source, steps, across, target, segment.stop - segment.start, columns)

    def _copy(self, source: str, steps: int, target: str, depth: int, columns: int) -> None:
        """Rows of the operand as they are."""
        f, lanes, width = self.f, self.packing.lanes, self.packing.width
        with f.loop("0", str(depth)) as loop:
            row = self._at(source, f.value(f"mul i64 {loop.index}, {steps}"))
            packed = self._at(target, f.value(f"mul i64 {loop.index}, {width}"))
            for start in range(0, width, lanes):
                count = min(lanes, max(0, columns - start))
                value = (
                    load_lanes(f, self._at(row, str(start)), self.kind, lanes, count)
                    if count
                    else "zeroinitializer"
                )
                store_lanes(f, value, self._at(packed, str(start)), self.kind, lanes, lanes)

    def _turn(self, source: str, steps: int, across: int, target: str, depth: int, columns: int) -> None:
        """Blocks transposed: the operand's rows are the panel's columns."""
        f, lanes, width = self.f, self.packing.lanes, self.packing.width
        whole, rest = divmod(depth, lanes)

        def strip(source: str, target: str, count: int) -> None:
            for start in range(0, width, lanes):
                rows = min(lanes, max(0, columns - start))
                first, into = self._at(source, str(start * across)), self._at(target, str(start))
                read = functools.partial(self._step, first, across)
                write = functools.partial(self._step, into, width)
                transpose_block(f, self.kind, lanes, read, write, rows, count, full_rows=True)

        if steps != 1:
            raise AssertionError("a packed operand runs along its columns or along its depth")
        if whole:
            with f.loop("0", str(whole * lanes), lanes) as loop:
                strip(
                    self._at(source, loop.index),
                    self._at(target, f.value(f"mul i64 {loop.index}, {width}")),
                    lanes,
                )
        if rest:
            strip(self._at(source, str(whole * lanes)), self._at(target, str(whole * lanes * width)), rest)

    # ------------------------------------------------------------------ tiles

    def _rows(self, first_row: str, last_row: str, first_panel: str, number: int) -> None:
        f, height, packing = self.f, self.packing.tile.rows, self.packing
        lengths = {packing.block_rows, self.axis.extent - (packing.row_blocks - 1) * packing.block_rows}
        rests = sorted({length % height for length in lengths} - {0})
        length = f.value(f"sub i64 {last_row}, {first_row}")
        left = f.value(f"urem i64 {length}, {height}")
        stop = f.value(f"sub i64 {last_row}, {left}")

        def strip(row: str, rows: int) -> None:
            self._each_panel(
                first_panel,
                lambda k, column, columns: self._tile(row, first_row, rows, k, column, columns, number),
            )

        with f.loop(first_row, stop, height, counted=False) as loop:
            strip(loop.index, height)
        for rest in rests:
            with f.when(f.value(f"icmp eq i64 {left}, {rest}")):
                strip(stop, rest)

    def _tile(
        self, row: str, first_row: str, rows: int, within: str, column: str, columns: int, number: int
    ) -> None:
        """One register tile over one panel; between rounds its sums wait in memory."""
        values, packing, f = self.values, self.packing, self.f
        vectors = -(-columns // packing.lanes)
        group = Group(self.product.columns, vectors, packing.lanes, columns % packing.lanes)
        panel = self._at(self.scratch, f.value(f"mul i64 {within}, {self.pitch}"))
        last = number == len(packing.rounds) - 1
        with values.lane_group(group, Place(column)):
            waiting = ""
            if len(packing.rounds) > 1:
                done = f.value(f"sub i64 {row}, {first_row}")
                place = f.value(f"mul i64 {done}, {packing.panels * packing.width}")
                across = f.value(f"mul i64 {within}, {packing.width}")
                waiting = self._at(self._at(self.waiting, place), across)
            sums = (
                ["zeroinitializer"] * (rows * vectors)
                if number == 0
                else self._resume(waiting, rows, vectors)
            )
            values.places[self.axis] = Place(row)
            block = Block(packing.tile, rows)
            for segment in packing.rounds[number]:
                pair = self.product.pairs[segment.pair]
                packed = self._at(panel, str(segment.packed_at * packing.width))
                extent = (segment.start, segment.stop)
                sums = multiply_panel(values, pair, block, packed, packing.width, extent, sums)
            if last:
                run_epilogue(values, self.product, block, sums)
            else:
                self._wait(waiting, rows, vectors, sums)
            del values.places[self.axis]

    def _spot(self, waiting: str, r: int, v: int) -> str:
        packing = self.packing
        return self._at(waiting, str(r * packing.panels * packing.width + v * packing.lanes))

    def _resume(self, waiting: str, rows: int, vectors: int) -> list[str]:
        kind = vector_of(self.kind, self.packing.lanes)
        size = self.product.accumulator.dtype.itemsize
        spots = [self._spot(waiting, r, v) for r in range(rows) for v in range(vectors)]
        return [self.f.value(f"load {kind}, ptr {spot}, align {size}") for spot in spots]

    def _wait(self, waiting: str, rows: int, vectors: int, sums: Sequence[str]) -> None:
        kind = vector_of(self.kind, self.packing.lanes)
        size = self.product.accumulator.dtype.itemsize
        for position, value in enumerate(sums):
            spot = self._spot(waiting, position // vectors, position % vectors)
            self.f.do(f"store {kind} {value}, ptr {spot}, align {size}")
