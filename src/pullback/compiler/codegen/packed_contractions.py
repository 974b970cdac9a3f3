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
from pullback.compiler.codegen.nest import ChunkTurns, TileTurns, emit_nest
from pullback.compiler.codegen.prefetch import Wanted, lies_far, wanted_by, wanted_rows
from pullback.compiler.codegen.types import memory_type
from pullback.compiler.codegen.values import LaneGroup, Place, Values
from pullback.compiler.schedules.contraction_schedules import PackedContraction
from pullback.compiler.schedules.packing import Segment
from pullback.compiler.schedules.tiles import row_axis
from pullback.loops import Affine, Axis, Kernel, Load
from pullback.loops.nest import Kind, Level, level_of

__all__ = ["emit_packed_contraction"]


def emit_packed_contraction(
    values: Values, kernel: Kernel, schedule: PackedContraction, ends: ChunkTurns
) -> None:
    """Run the blocks between ``ends``; neighbours share their rows."""
    f, packing = values.f, schedule.packing
    axis = row_axis(schedule.contraction)
    assert axis is not None
    blocks = _Blocks(values, schedule, axis)
    with f.loop(ends.low, ends.high) as loop:
        row_block = f.value(f"udiv i64 {loop.index}, {packing.column_blocks}")
        column_block = f.value(f"urem i64 {loop.index}, {packing.column_blocks}")
        first_row = f.value(f"mul i64 {row_block}, {packing.block_rows}")
        end = f.value(f"add i64 {first_row}, {packing.block_rows}")
        last_row = f.smaller(end, axis.extent)
        first_panel = f.value(f"mul i64 {column_block}, {packing.panels}")
        blocks.run(first_row, last_row, first_panel)


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


@dataclass(frozen=True)
class _Panel:
    """A panel that exists: its number within the block, and which columns it has."""

    within: str
    column: str
    columns: int


class _Blocks:
    first_row: str
    """The first row of the block that is being run."""
    first_panel: str
    """The first of its panels."""
    following: str
    """The first panel of the next block of columns."""

    def __init__(self, values: Values, schedule: PackedContraction, axis: Axis) -> None:
        product, packing = schedule.contraction, schedule.packing
        self.values, self.product, self.packing, self.axis = values, product, packing, axis
        self.f, self.scratch = values.f, values.f["scratch"]
        self.kind = memory_type(product.accumulator.dtype)
        self.pitch = packing.depth * packing.width
        several = len(packing.rounds) > 1
        self.waiting = self._at(self.scratch, packing.panels * self.pitch) if several else ""

    def _at(self, pointer: str, ahead: int | str) -> str:
        return self.f.ahead(pointer, self.kind, ahead)

    def run(self, first_row: str, last_row: str, first_panel: str) -> None:
        """Pack the block's panels, then run all of its rows over them; once for each round."""
        self.first_row, self.first_panel = first_row, first_panel
        self.following = self.f.value(f"add i64 {first_panel}, {self.packing.panels}")

        def run(turn: _Round) -> None:
            self._each_panel(functools.partial(self._pack, turn))
            self._rows(last_row, turn)

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
        return self.f.larger(self.f.smaller(left, steps), 0)

    def _column(self, panel: str) -> str:
        """Where the panel begins; beyond the last one, behind the last whole vector."""
        f, packing = self.f, self.packing
        if not packing.uneven:
            return f.value(f"mul i64 {panel}, {packing.width}")
        vector = f.value(f"udiv i64 {f.value(f'mul i64 {panel}, {packing.vectors}')}, {packing.all_panels}")
        return f.value(f"mul i64 {vector}, {packing.lanes}")

    def _each_panel(self, body: Callable[[_Panel], None]) -> None:
        """``body`` for each panel of the block; it is written once for each number of columns that there is."""
        f, packing = self.f, self.packing
        starts = [packing.first_column(panel) for panel in range(packing.all_panels + 1)]
        sizes = sorted({end - start for start, end in itertools.pairwise(starts)}, reverse=True)
        end = f.value(f"add i64 {self.first_panel}, {packing.panels}")
        with f.loop(self.first_panel, f.smaller(end, packing.all_panels), counted=False) as loop:
            within = f.value(f"sub i64 {loop.index}, {self.first_panel}")
            column = self._column(loop.index)
            following = self._column(f.value(f"add i64 {loop.index}, 1"))
            columns = f.value(f"sub i64 {f.smaller(following, packing.columns)}, {column}")
            for size in sizes:
                fits = f"icmp eq i64 {columns}, {size}"
                with nullcontext() if len(sizes) == 1 else f.when(f.value(fits)):
                    body(_Panel(within, column, size))

    # ------------------------------------------------------------------ packing

    def _packed(self, panel: _Panel) -> str:
        """The memory of a panel."""
        return self._at(self.scratch, self.f.value(f"mul i64 {panel.within}, {self.pitch}"))

    def _pack(self, turn: _Round, panel: _Panel) -> None:
        packed = self._packed(panel)
        for segment in turn.segments:
            right, (depth,) = self.product.pairs[segment.pair].right, self.product.pairs[segment.pair].depth
            target = self._at(packed, segment.packed_at * self.packing.width)
            places = {self.product.columns: Place(panel.column), depth: turn.place(segment)}
            with self.values.standing(places):
                source = self.values.at(right.buffer, right.offset)
            steps, across = (right.offset.coefficient(axis) for axis in (depth, self.product.columns))
            if across == 1:
                count = self._made(turn.place(segment), segment.stop - segment.start)
                self._copy(source, steps, target, count, panel.columns)
            else:
                self._turn(source, steps, across, target, segment.stop - segment.start, panel.columns)

    def _copy(self, source: str, steps: int, target: str, depth: int | str, columns: int) -> None:
        """Rows of the operand as they are."""
        f, lanes, width = self.f, self.packing.lanes, self.packing.width
        with f.loop("0", str(depth), counted=isinstance(depth, int)) as loop:
            row = self._at(source, f.value(f"mul i64 {loop.index}, {steps}"))
            packed = self._at(target, f.value(f"mul i64 {loop.index}, {width}"))
            for start in range(0, columns, lanes):
                count = min(lanes, columns - start)
                value = load_lanes(f, self._at(row, start), self.kind, lanes, count)
                store_lanes(f, value, self._at(packed, start), self.kind, lanes, lanes)

    def _turn(self, source: str, steps: int, across: int, target: str, depth: int, columns: int) -> None:
        """Blocks transposed: the operand's rows are the panel's columns."""
        f, lanes, width = self.f, self.packing.lanes, self.packing.width
        whole, rest = divmod(depth, lanes)

        def strip(source: str, target: str, count: int) -> None:
            for start in range(0, columns, lanes):
                rows = min(lanes, columns - start)
                read = self._at(source, start * across), across
                write, piece = (self._at(target, start), width), self.values.target.piece_bytes
                transpose_block(f, self.kind, lanes, read, write, rows, count, piece, full_rows=True)

        if steps != 1:
            raise AssertionError("a packed operand runs along its columns or along its depth")
        if whole:
            with f.loop("0", str(whole * lanes), lanes) as loop:
                start = self._at(source, loop.index)
                strip(start, self._at(target, f.value(f"mul i64 {loop.index}, {width}")), lanes)
        if rest:
            strip(self._at(source, whole * lanes), self._at(target, whole * lanes * width), rest)

    # ------------------------------------------------------------------ tiles

    def _rows(self, last_row: str, turn: _Round) -> None:
        packing, axis = self.packing, self.axis
        last = axis.extent - (packing.row_blocks - 1) * packing.block_rows
        lengths = [packing.block_rows, last] if last < packing.block_rows else [last]

        def strip(tile: TileTurns, _: list[str]) -> None:
            self._each_panel(functools.partial(self._tile, tile, turn))

        levels = [level_of(axis, Kind.PARALLEL, packing.tile.rows), Level(axis, Kind.REGISTER)]
        emit_nest(self.values, levels, strip, ends=ChunkTurns(self.first_row, last_row, lengths))

    def _tile(self, tile: TileTurns, turn: _Round, panel: _Panel) -> None:
        """One register tile over one panel; between rounds its sums wait in memory."""
        values, packing, f = self.values, self.packing, self.f
        group = LaneGroup.over(self.product.columns, panel.columns, packing.lanes)
        lanes, rows, vectors = packing.lanes, tile[self.axis], group.vectors
        packed = self._packed(panel)
        with values.lane_group(group, Place(panel.column)):
            waiting = self._waiting(panel) if self.waiting else ""
            sums = ["zeroinitializer"] * (rows * vectors)
            if not turn.first:
                spots = list(self._spots(waiting, rows, vectors))
                sums = [load_lanes(f, spot, self.kind, lanes, lanes) for spot in spots]
            wanted = self._wanted(turn, rows, panel)
            for segment in turn.segments:
                pair, start = self.product.pairs[segment.pair], turn.place(segment)
                right = self._at(packed, segment.packed_at * packing.width)
                extent = start, self._made(start, segment.stop - segment.start)
                sums = multiply_panel(values, pair, tile, right, packing.width, extent, sums, wanted)
                wanted = []
            if turn.last:
                run_epilogue(values, self.product, tile, sums)
                return
            for spot, value in zip(self._spots(waiting, rows, vectors), sums):
                store_lanes(f, value, spot, self.kind, lanes, lanes)

    def _waiting(self, panel: _Panel) -> str:
        """Where the sums of the tile whose first row is reached wait between rounds."""
        f, packing = self.f, self.packing
        done = f.value(f"sub i64 {self.values.offset(Affine.of(self.axis))}, {self.first_row}")
        place = f.value(f"mul i64 {done}, {packing.panels * packing.width}")
        across = f.value(f"mul i64 {panel.within}, {packing.width}")
        return self._at(self._at(self.waiting, place), across)

    def _spots(self, waiting: str, rows: int, vectors: int) -> Iterator[str]:
        """The place of each vector of a tile."""
        for r, v in itertools.product(range(rows), range(vectors)):
            yield self._at(waiting, r * self.packing.panels * self.packing.width + v * self.packing.lanes)

    # ------------------------------------------------------------------ prefetching

    def _wanted(self, turn: _Round, rows: int, panel: _Panel) -> list[Wanted]:
        """What a tile asks for while it multiplies: what its epilogue reads, a share of what comes next."""
        stores, columns = self.product.stores, self.product.columns
        wanted = wanted_by(self.values, stores, (self.axis, rows), columns) if turn.last else []
        if len(turn.segments) > 1 or rows < self.packing.tile.rows:
            return wanted
        return [*wanted, *self._of_next(turn, panel)]

    def _of_next(self, turn: _Round, panel: _Panel) -> Iterator[Wanted]:
        """A tile's share of what is packed next, the same columns further down or those of the next block.

        All tiles of a block together ask for all of it, and for what they read of a left operand that is read once.
        """
        packing, f, (segment,) = self.packing, self.f, turn.segments
        pair, start = self.product.pairs[segment.pair], turn.place(segment)
        length, tiles = segment.stop - segment.start, packing.block_rows // packing.tile.rows
        done = f.value(f"sub i64 {self.values.offset(Affine.of(self.axis))}, {self.first_row}")
        tile = f.value(f"udiv i64 {done}, {packing.tile.rows}")
        start = Place(None) if turn.last else Place(start.value, start.constant + length)
        if lies_far(self.values, pair.right):
            column = panel.column
            if turn.last:
                column = self._column(f.value(f"add i64 {self.following}, {panel.within}"))
            places = {pair.depth[0]: start, self.product.columns: Place(column)}
            yield self._share(pair.right, places, (length, panel.columns), (tile, tiles))
        if lies_far(self.values, pair.left) and packing.column_blocks == 1 and not turn.last:
            number = f.value(f"add i64 {f.value(f'mul i64 {tile}, {packing.panels}')}, {panel.within}")
            places = {pair.depth[0]: start, self.axis: Place(self.first_row)}
            share = number, tiles * packing.panels
            yield self._share(pair.left, places, (length, packing.block_rows), share)

    def _share(
        self, load: Load, places: dict[Axis, Place], extents: tuple[int, int], part: tuple[str, int]
    ) -> Wanted:
        """Part number so of so many of what ``load`` reads from ``places`` on, along both axes up to ``extents``."""
        (number, parts), steps = part, [load.offset.coefficient(axis) for axis in places]
        (count, pitch), (run, _) = sorted(zip(extents, steps), key=lambda along: along[1] == 1)
        rows = -(-count // parts)
        with self.values.standing(places):
            first = self.values.at(load.buffer, load.offset)
        address = self._at(first, self.f.value(f"mul i64 {number}, {rows * pitch}"))
        return wanted_rows(self.values, load, address, (rows, pitch, run), cache=2)
