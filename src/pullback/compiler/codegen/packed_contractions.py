"""Large products: panels of the right operand are packed into memory that stays in the second-level cache.

The columns are cut into blocks of some panels, the rows into blocks that share the packing; a chunk is one block of
each. A panel holds, for each step of the summed axis, the vectors that a register tile wants side by side: reads run
straight ahead, and neither the distance of rows in memory nor their order matters any more. A right operand that lies
along the summed axis is transposed on its way in.

Packing and epilogues would wait for what lies in none of the nearer caches. So tiles ask for it while they multiply,
a row a step: for their own part of what the epilogue reads, and for a share of what is packed next.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

from pullback.compiler.codegen.blocks import load_lanes, store_lanes, transpose_block
from pullback.compiler.codegen.contractions import multiply_panel, run_epilogue
from pullback.compiler.codegen.nest import Ends, Tile, emit_nest
from pullback.compiler.codegen.prefetch import Wanted, lies_far, wanted_by, wanted_rows
from pullback.compiler.codegen.types import memory_type, vector_of
from pullback.compiler.codegen.values import Group, Place, Values
from pullback.compiler.llvm.function import Function
from pullback.compiler.schedules.contraction_schedules import PackedContraction
from pullback.compiler.schedules.packing import Segment
from pullback.compiler.schedules.tiles import row_axis
from pullback.loops import Affine, Axis, Load
from pullback.loops.nest import Kind, Level, level_of

__all__ = ["emit_packed_contraction"]


def emit_packed_contraction(values: Values, schedule: PackedContraction, ends: Ends) -> None:
    """Run the blocks between ``ends``; neighbours share their rows."""
    f, packing = values.f, schedule.packing
    axis = row_axis(schedule.contraction)
    assert axis is not None
    emitter = _Blocks(values, schedule, axis, f["scratch"])
    with f.loop(ends.low, ends.high) as loop:
        row_block = f.value(f"udiv i64 {loop.index}, {packing.column_blocks}")
        column_block = f.value(f"urem i64 {loop.index}, {packing.column_blocks}")
        first_row = f.value(f"mul i64 {row_block}, {packing.block_rows}")
        end = f.value(f"add i64 {first_row}, {packing.block_rows}")
        last_row = f.call("i64", "llvm.smin.i64", ("i64", end), ("i64", str(axis.extent)))
        first_panel = f.value(f"mul i64 {column_block}, {packing.panels}")
        emitter.block(first_row, last_row, first_panel)


@dataclass(frozen=True)
class _Round:
    """What is packed at once; ``ahead`` is a register with how many steps further on a repeated round is."""

    segments: tuple[Segment, ...]
    first: bool
    last: bool
    ahead: str | None = None

    def place(self, segment: Segment) -> Place:
        """Where the summed axis stands at the segment's start."""
        return Place(self.ahead, segment.start)


def _repeated(rounds: Sequence[tuple[Segment, ...]]) -> Iterator[tuple[_Round, int, int]]:
    """Each round that is written, how often it is run and how far apart: a long axis is cut into many of one length."""
    number = 0
    while number < len(rounds):
        segments, count, step = rounds[number], 1, 0
        last = number == len(rounds) - 1
        if number > 0 and not last:
            step = sum(segment.stop - segment.start for segment in segments)
            while number + count < len(rounds) - 1 and rounds[number + count] == tuple(
                replace(s, start=s.start + count * step, stop=s.stop + count * step) for s in segments
            ):
                count += 1
        yield _Round(segments, number == 0, last), count, step
        number += count


class _Blocks:
    def __init__(self, values: Values, schedule: PackedContraction, axis: Axis, scratch: str) -> None:
        product, packing = schedule.contraction, schedule.packing
        self.values, self.product, self.packing, self.axis = values, product, packing, axis
        self.f: Function = values.f
        self.scratch = scratch
        self.following = ""
        """The first panel of the next block of columns."""
        self.kind = memory_type(product.accumulator.dtype)
        self.pitch = packing.depth * packing.width
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

        self.following = self.f.value(f"add i64 {first_panel}, {self.packing.panels}")

        def run(turn: _Round) -> None:
            self._each_panel(first_panel, functools.partial(self._pack, turn))
            self._rows(first_row, last_row, first_panel, turn)

        for turn, count, step in _repeated(self.packing.rounds):
            if count == 1:
                run(turn)
                continue
            stop = self._made(Place(None, min(s.start for s in turn.segments)), count * step)
            counted = isinstance(stop, int)
            with self.f.loop("0", str(stop), step, counted=counted) as loop, self.values.scope():
                run(replace(turn, ahead=loop.index))

    def _made(self, start: Place, steps: int) -> int | str:
        """How many of so many steps from ``start`` on are made: all, or a register with those before the sum's end."""
        if self.values.end is None:
            return steps
        first = self.f.value(f"add i64 {start.value or 0}, {start.constant}")
        left = self.f.value(f"sub i64 {self.values.end[0]}, {first}")
        least = self.f.call("i64", "llvm.smin.i64", ("i64", left), ("i64", str(steps)))
        return self.f.call("i64", "llvm.smax.i64", ("i64", least), ("i64", "0"))

    def _column(self, panel: str) -> str:
        """Where the panel begins; beyond the last one, behind the last whole vector."""
        f, packing = self.f, self.packing
        if not packing.uneven:
            return f.value(f"mul i64 {panel}, {packing.width}")
        vector = f.value(f"udiv i64 {f.value(f'mul i64 {panel}, {packing.vectors}')}, {packing.all_panels}")
        return f.value(f"mul i64 {vector}, {packing.lanes}")

    def _each_panel(self, first_panel: str, body: Callable[[str, str, int], None]) -> None:
        """``body(panel within the block, first column, columns)`` for each panel that exists.

        It is written once for each number of columns that there is.
        """
        f, packing = self.f, self.packing
        starts = [packing.first_column(panel) for panel in range(packing.all_panels + 1)]
        sizes = sorted({end - start for start, end in itertools.pairwise(starts)}, reverse=True)
        end = f.value(f"add i64 {first_panel}, {packing.panels}")
        stop = f.call("i64", "llvm.smin.i64", ("i64", end), ("i64", str(packing.all_panels)))
        with f.loop(first_panel, stop, counted=False) as loop:
            within = f.value(f"sub i64 {loop.index}, {first_panel}")
            column = self._column(loop.index)
            following = self._column(f.value(f"add i64 {loop.index}, 1"))
            following = f.call("i64", "llvm.smin.i64", ("i64", following), ("i64", str(packing.columns)))
            columns = f.value(f"sub i64 {following}, {column}")
            for size in sizes:
                one = len(sizes) == 1
                fits = nullcontext() if one else f.when(f.value(f"icmp eq i64 {columns}, {size}"))
                with fits:
                    body(within, column, size)

    # ------------------------------------------------------------------ packing

    def _pack(self, turn: _Round, within: str, column: str, columns: int) -> None:
        panel = self._at(self.scratch, self.f.value(f"mul i64 {within}, {self.pitch}"))
        for segment in turn.segments:
            pair = self.product.pairs[segment.pair]
            depth = pair.depth[0]
            target = self._at(panel, str(segment.packed_at * self.packing.width))
            with self.values.standing({self.product.columns: Place(column), depth: turn.place(segment)}):
                source = self.values.address(
                    pair.right.buffer, self.values.element(pair.right.buffer, pair.right.offset)
                )
            steps = pair.right.offset.coefficient(depth)
            across = pair.right.offset.coefficient(self.product.columns)
            if across == 1:
                count = self._made(turn.place(segment), segment.stop - segment.start)
                self._copy(source, steps, target, count, columns)
            else:
                self._turn(source, steps, across, target, segment.stop - segment.start, columns)

    def _copy(self, source: str, steps: int, target: str, depth: int | str, columns: int) -> None:
        """Rows of the operand as they are."""
        f, lanes, width = self.f, self.packing.lanes, self.packing.width
        with f.loop("0", str(depth), counted=isinstance(depth, int)) as loop:
            row = self._at(source, f.value(f"mul i64 {loop.index}, {steps}"))
            packed = self._at(target, f.value(f"mul i64 {loop.index}, {width}"))
            for start in range(0, columns, lanes):
                count = min(lanes, columns - start)
                value = load_lanes(f, self._at(row, str(start)), self.kind, lanes, count)
                store_lanes(f, value, self._at(packed, str(start)), self.kind, lanes, lanes)

    def _turn(self, source: str, steps: int, across: int, target: str, depth: int, columns: int) -> None:
        """Blocks transposed: the operand's rows are the panel's columns."""
        f, lanes, width = self.f, self.packing.lanes, self.packing.width
        whole, rest = divmod(depth, lanes)

        def strip(source: str, target: str, count: int) -> None:
            for start in range(0, columns, lanes):
                rows = min(lanes, columns - start)
                first, into = self._at(source, str(start * across)), self._at(target, str(start))
                read = functools.partial(self._step, first, across)
                write = functools.partial(self._step, into, width)
                piece = self.values.target.piece_bytes
                transpose_block(f, self.kind, lanes, read, write, rows, count, piece, full_rows=True)

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

    def _rows(self, first_row: str, last_row: str, first_panel: str, turn: _Round) -> None:
        packing, axis = self.packing, self.axis
        last = axis.extent - (packing.row_blocks - 1) * packing.block_rows
        lengths = [packing.block_rows, last] if last < packing.block_rows else [last]

        def strip(tile: Tile, _: list[str]) -> None:
            tile_of = functools.partial(self._tile, tile, first_row, turn)
            self._each_panel(first_panel, tile_of)

        levels = [level_of(axis, Kind.PARALLEL, packing.tile.rows), Level(axis, Kind.REGISTER)]
        emit_nest(self.values, levels, strip, ends=Ends(first_row, last_row, lengths))

    def _tile(self, tile: Tile, first_row: str, turn: _Round, within: str, column: str, columns: int) -> None:
        """One register tile over one panel; between rounds its sums wait in memory."""
        values, packing, f = self.values, self.packing, self.f
        rows, vectors = tile[self.axis], -(-columns // packing.lanes)
        group = Group(self.product.columns, vectors, packing.lanes, columns % packing.lanes)
        panel = self._at(self.scratch, f.value(f"mul i64 {within}, {self.pitch}"))
        with values.lane_group(group, Place(column)):
            waiting = ""
            if len(packing.rounds) > 1:
                row = values.offset(Affine.of(self.axis))
                done = f.value(f"sub i64 {row}, {first_row}")
                place = f.value(f"mul i64 {done}, {packing.panels * packing.width}")
                across = f.value(f"mul i64 {within}, {packing.width}")
                waiting = self._at(self._at(self.waiting, place), across)
            sums = (
                ["zeroinitializer"] * (rows * vectors) if turn.first else self._resume(waiting, rows, vectors)
            )
            wanted = self._wanted(turn, rows, first_row, (within, column, columns))
            for segment in turn.segments:
                pair = self.product.pairs[segment.pair]
                packed = self._at(panel, str(segment.packed_at * packing.width))
                start = turn.place(segment)
                extent = start, self._made(start, segment.stop - segment.start)
                sums = multiply_panel(values, pair, tile, packed, packing.width, extent, sums, wanted)
                wanted = []
            if turn.last:
                run_epilogue(values, self.product, tile, sums)
            else:
                self._wait(waiting, rows, vectors, sums)

    # ------------------------------------------------------------------ prefetching

    def _wanted(self, turn: _Round, rows: int, first_row: str, at: tuple[str, str, int]) -> list[Wanted]:
        """What a tile asks for while it multiplies: what its epilogue reads, a share of what comes next."""
        stores, columns = self.product.stores, self.product.columns
        wanted = wanted_by(self.values, stores, (self.axis, rows), columns) if turn.last else []
        if len(turn.segments) > 1 or rows < self.packing.tile.rows:
            return wanted
        return [*wanted, *self._of_next(turn, first_row, at)]

    def _of_next(self, turn: _Round, first_row: str, at: tuple[str, str, int]) -> Iterator[Wanted]:
        """A tile's share of what is packed next, the same columns further down or those of the next block.

        All tiles of a block together ask for all of it, and for what they read of a left operand that is read once.
        """
        packing, f = self.packing, self.f
        (segment,), (within, column, columns) = turn.segments, at
        pair, start = self.product.pairs[segment.pair], turn.place(segment)
        length, tiles = segment.stop - segment.start, packing.block_rows // packing.tile.rows
        done = f.value(f"sub i64 {self.values.offset(Affine.of(self.axis))}, {first_row}")
        tile = f.value(f"udiv i64 {done}, {packing.tile.rows}")
        start = Place(None) if turn.last else Place(start.value, start.constant + length)
        if lies_far(self.values, pair.right):
            following = self._column(f.value(f"add i64 {self.following}, {within}")) if turn.last else column
            places = {pair.depth[0]: start, self.product.columns: Place(following)}
            yield self._share(pair.right, places, (length, columns), (tile, tiles))
        if lies_far(self.values, pair.left) and packing.column_blocks == 1 and not turn.last:
            number = f.value(f"add i64 {f.value(f'mul i64 {tile}, {packing.panels}')}, {within}")
            places = {pair.depth[0]: start, self.axis: Place(first_row)}
            yield self._share(
                pair.left, places, (length, packing.block_rows), (number, tiles * packing.panels)
            )

    def _share(
        self, load: Load, places: dict[Axis, Place], extents: tuple[int, int], part: tuple[str, int]
    ) -> Wanted:
        """Part number so of so many of what ``load`` reads from ``places`` on, along both axes up to ``extents``."""
        (number, parts), steps = part, [load.offset.coefficient(axis) for axis in places]
        (count, pitch), (run, _) = sorted(zip(extents, steps), key=lambda along: along[1] == 1)
        rows = -(-count // parts)
        with self.values.standing(places):
            first = self.values.address(load.buffer, self.values.element(load.buffer, load.offset))
        address = self._at(first, self.f.value(f"mul i64 {number}, {rows * pitch}"))
        return wanted_rows(self.values, load, address, (rows, pitch, run), cache=2)

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
