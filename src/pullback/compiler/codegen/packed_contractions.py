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
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace

from pullback.compiler.codegen.blocks import load_lanes, store_lanes, transpose_block
from pullback.compiler.codegen.contractions import accumulate, run_epilogue
from pullback.compiler.codegen.nest import ChunkTurns, TileTurns, each_place, emit_nest
from pullback.compiler.codegen.prefetch import Wanted, lies_far, wanted_by, wanted_rows
from pullback.compiler.codegen.types import memory_type, vector_of
from pullback.compiler.codegen.values import LaneGroup, Place, Values
from pullback.compiler.schedules.contraction import Pair
from pullback.compiler.schedules.contraction_schedules import PackedContraction
from pullback.compiler.schedules.packing import Segment
from pullback.loops import Affine, Axis, Buffer, Kernel, Load, Store
from pullback.loops.nest import Kind, Level, level_of

__all__ = ["emit_packed_contraction"]


def emit_packed_contraction(
    values: Values, kernel: Kernel, schedule: PackedContraction, ends: ChunkTurns
) -> None:
    """Run the blocks between ``ends``; neighbours share their rows."""
    f, packing = values.f, schedule.packing
    (axis,) = schedule.contraction.rows
    with f.loop(ends.low, ends.high) as loop:
        row_block = f.value(f"udiv i64 {loop.index}, {packing.column_blocks}")
        column_block = f.value(f"urem i64 {loop.index}, {packing.column_blocks}")
        first_row = f.value(f"mul i64 {row_block}, {packing.block_rows}")
        end = f.value(f"add i64 {first_row}, {packing.block_rows}")
        last_row = f.smaller(end, axis.extent)
        first_panel = f.value(f"mul i64 {column_block}, {packing.panels}")
        _Block(values, schedule, first_row, first_panel).run(last_row)


@dataclass(frozen=True)
class _Round:
    """What is packed at once; ``ahead`` is a register with how many steps further on a repeated round is.

    Of those that are repeated only the one that is no step ahead may be the ``first``.
    """

    segments: tuple[Segment, ...]
    first: bool
    last: bool
    ahead: str | None = None

    def place(self, segment: Segment) -> Place:
        """Where the summed axis stands at the segment's start."""
        return Place(self.ahead, segment.start)


def _repeated(rounds: Sequence[tuple[Segment, ...]]) -> Iterator[tuple[_Round, int, int]]:
    """Each round that is written, how often it is run and how far apart: a long axis is cut into many of one length."""
    alike = [list(same) for _, same in itertools.groupby(rounds[:-1], key=_lengths)]
    for same in (*alike, rounds[-1:]):
        turn = _Round(same[0], same[0] is rounds[0], same[-1] is rounds[-1])
        yield turn, len(same), sum(length for _, length in _lengths(same[0]))


def _lengths(segments: Sequence[Segment]) -> list[tuple[int, int]]:
    """How many steps of which pair a round has."""
    return [(segment.pair, segment.stop - segment.start) for segment in segments]


@dataclass(frozen=True)
class _Panel:
    """A panel that exists: its number within the block, its first column, and how many columns it has."""

    within: str
    column: str
    count: str
    sizes: Sequence[int]
    """What ``count`` may be, the largest first, in as many vectors."""

    @property
    def columns(self) -> int:
        """The columns, or the most that there may be."""
        return self.sizes[0]


class _Block:
    """A block of rows and columns, from its first row and its first panel on."""

    def __init__(self, values: Values, schedule: PackedContraction, first_row: str, first_panel: str) -> None:
        product, packing = schedule.contraction, schedule.packing
        self.values, self.product, self.packing = values, product, packing
        self.first_row, self.first_panel, (self.axis,) = first_row, first_panel, product.rows
        self.f, self.scratch = values.f, values.f["scratch"]
        dtype = product.accumulator.dtype
        self.kind, self.panel = memory_type(dtype), Buffer("panel", dtype, ())
        self.pitch = packing.depth * packing.width
        row = Affine.of(self.axis) * (packing.panels * packing.width)
        self.waiting = Load(Buffer("waiting", dtype, ()), row + Affine.of(product.columns))
        """Where a tile's sums of a panel are between rounds."""
        wait = Store(self.waiting.buffer, self.waiting.offset, product.accumulator)
        self.unfinished = replace(product, stores=(wait,))
        self.following = self.f.value(f"add i64 {first_panel}, {packing.panels}")
        """The first panel of the next block of columns."""

    def _at(self, pointer: str, ahead: int | str) -> str:
        return self.f.ahead(pointer, self.kind, ahead)

    def run(self, last_row: str) -> None:
        """Pack the block's panels, then run all of its rows over them; once for each round."""

        def run(turn: _Round) -> None:
            for segment in turn.segments:
                self._each_panel(functools.partial(self._pack, turn, segment), by_vectors=False)
            self._rows(last_row, turn)

        for turn, count, step in _repeated(self.packing.rounds):
            if count == 1:
                run(turn)
                continue
            stop = self._made(Place(None, min(s.start for s in turn.segments)), count * step)
            if turn.first and isinstance(stop, str):
                stop = self.f.larger(stop, 1)
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

    def _each_panel(self, body: Callable[[_Panel], None], by_vectors: bool) -> None:
        """``body`` for each panel of the block; it is written once for each number of columns, or of their vectors."""
        f, packing = self.f, self.packing
        starts = [packing.first_column(panel) for panel in range(packing.all_panels + 1)]
        sizes = sorted({end - start for start, end in itertools.pairwise(starts)}, reverse=True)
        unit = packing.lanes if by_vectors else 1
        alike = [(n, list(group)) for n, group in itertools.groupby(sizes, key=lambda size: -(-size // unit))]
        end = f.value(f"add i64 {self.first_panel}, {packing.panels}")
        with f.loop(self.first_panel, f.smaller(end, packing.all_panels), counted=False) as loop:
            within = f.value(f"sub i64 {loop.index}, {self.first_panel}")
            column = self._column(loop.index)
            following = self._column(f.value(f"add i64 {loop.index}, 1"))
            count = f.value(f"sub i64 {f.smaller(following, packing.columns)}, {column}")
            for number, group in alike:
                with self._where(count, (number - 1) * unit, unit, len(alike) == 1):
                    body(_Panel(within, column, count, group))

    def _where(self, count: str, below: int, most: int, always: bool) -> AbstractContextManager[None]:
        """Around what is done if ``count`` is more than ``below``, by so much at most."""
        if always:
            return nullcontext()
        more = self.f.value(f"sub i64 {count}, {below + 1}")
        return self.f.when(self.f.value(f"icmp ult i64 {more}, {most}"))

    # ------------------------------------------------------------------ packing

    @contextmanager
    def _steps(
        self, turn: _Round, segment: Segment, panel: _Panel, all_made: bool = False
    ) -> Iterator[tuple[Pair, Affine]]:
        """A segment's pair along an axis of its own, and where the panel has each of its steps."""
        values, pair, start = self.values, self.product.pairs[segment.pair], turn.place(segment)
        (depth,), step = pair.depth, Axis("step", segment.stop - segment.start)
        size = step.extent if all_made else self._made(start, step.extent)
        if isinstance(size, str):
            values.sizes[step] = size
        packed = self.f.value(f"mul i64 {panel.within}, {self.pitch}")
        values.pointers = {**values.pointers, self.panel: self._at(self.scratch, packed)}
        with values.standing({depth: start}):
            along = pair.along({depth: Affine.of(depth) + Affine.of(step)}, (step,))
            yield along, (Affine.of(step) + segment.packed_at) * self.packing.width

    def _pack(self, turn: _Round, segment: Segment, panel: _Panel) -> None:
        """Rows of the operand as they are, or blocks transposed where its rows are the panel's columns."""
        f, values, lanes, columns = self.f, self.values, self.packing.lanes, self.product.columns
        width, piece = self.packing.width, values.target.piece_bytes
        across = self.product.pairs[segment.pair].right.offset.coefficient(columns)
        size = 1 if across == 1 else lanes

        def strip(tile: TileTurns, _: list[str]) -> None:
            for first in range(0, panel.columns, lanes):
                count = min(lanes, panel.columns - first)
                read = values.at(right.buffer, right.offset + first * across)
                write = values.at(self.panel, place + first)
                if size == 1:
                    row = load_lanes(f, read, self.kind, lanes, count)
                    store_lanes(f, row, write, self.kind, lanes, lanes)
                else:
                    places = (read, across), (write, width)
                    transpose_block(f, self.kind, lanes, *places, count, tile[step], piece, full_rows=True)

        with self._steps(turn, segment, panel, all_made=size > 1) as (pair, place):
            right, (step,) = pair.right, pair.depth
            if size > 1 and right.offset.coefficient(step) != (step.extent > 1):
                raise AssertionError("a packed operand runs along its columns or along its depth")
            with values.standing({columns: Place(panel.column)}):
                emit_nest(values, [level_of(step, size=size), Level(step, Kind.REGISTER)], strip)

    # ------------------------------------------------------------------ tiles

    def _rows(self, last_row: str, turn: _Round) -> None:
        packing, axis = self.packing, self.axis
        last = axis.extent - (packing.row_blocks - 1) * packing.block_rows
        lengths = [packing.block_rows, last] if last < packing.block_rows else [last]

        def strip(tile: TileTurns, _: list[str]) -> None:
            self._each_panel(functools.partial(self._tile, tile, turn), by_vectors=True)

        levels = [level_of(axis, Kind.PARALLEL, packing.tile_rows), Level(axis, Kind.REGISTER)]
        emit_nest(self.values, levels, strip, ends=ChunkTurns(self.first_row, last_row, lengths))

    def _tile(self, tile: TileTurns, turn: _Round, panel: _Panel) -> None:
        """One register tile over one panel; between rounds its sums wait in memory."""
        values, packing, columns = self.values, self.packing, self.product.columns
        group, at = LaneGroup.over(columns, panel.columns, packing.lanes), Place(panel.column)
        with values.lane_group(group, at):
            wanted = self._wanted(turn, tile[self.axis], panel)
        # In a panel there are zeros beyond the operand's end.
        with values.lane_group(replace(group, tail=0), Place(None)):
            sums = ["zeroinitializer"] * (tile[self.axis] * group.vectors)
            if not (turn.first and turn.last):
                values.pointers = {**values.pointers, self.waiting.buffer: self._waiting(panel)}
            if not turn.first or turn.ahead is not None:
                sums = [vector for _ in each_place(values, tile) for vector in values.vectors(self.waiting)]
            if turn.first and turn.ahead is not None:
                begins, kind = (
                    self.f.value(f"icmp eq i64 {turn.ahead}, 0"),
                    vector_of(self.kind, packing.lanes),
                )
                sums = [self.f.value(f"select i1 {begins}, {kind} zeroinitializer, {kind} {s}") for s in sums]
            for segment in turn.segments:
                with self._steps(turn, segment, panel) as (pair, place):
                    packed = Load(self.panel, place + Affine.of(columns))
                    sums = accumulate(values, replace(pair, right=packed), tile, sums, wanted)
                wanted = []
            if not turn.last:
                run_epilogue(values, self.unfinished, tile, sums)
                return
        for size in panel.sizes:
            group = LaneGroup.over(columns, size, packing.lanes)
            with self._where(panel.count, size - 1, 1, len(panel.sizes) == 1), values.lane_group(group, at):
                run_epilogue(values, self.product, tile, sums)

    def _waiting(self, panel: _Panel) -> str:
        """Where the sums of the first row would wait that there is."""
        f, packing = self.f, self.packing
        before = f.value(f"mul i64 {self.first_row}, {packing.panels}")
        ahead = f.value(f"mul i64 {f.value(f'sub i64 {panel.within}, {before}')}, {packing.width}")
        return self._at(self._at(self.scratch, packing.panels * self.pitch), ahead)

    # ------------------------------------------------------------------ prefetching

    def _wanted(self, turn: _Round, rows: int, panel: _Panel) -> list[Wanted]:
        """What a tile asks for while it multiplies: what its epilogue reads, a share of what comes next."""
        stores, columns = self.product.stores, self.product.columns
        wanted = wanted_by(self.values, stores, (self.axis, rows), columns) if turn.last else []
        if len(turn.segments) > 1 or rows < self.packing.tile_rows:
            return wanted
        return [*wanted, *self._of_next(turn, panel)]

    def _of_next(self, turn: _Round, panel: _Panel) -> Iterator[Wanted]:
        """A tile's share of what is packed next, the same columns further down or those of the next block.

        All tiles of a block together ask for all of it, and for what they read of a left operand that is read once.
        """
        packing, f, (segment,) = self.packing, self.f, turn.segments
        pair, start = self.product.pairs[segment.pair], turn.place(segment)
        length, tiles = segment.stop - segment.start, packing.block_rows // packing.tile_rows
        done = f.value(f"sub i64 {self.values.offset(Affine.of(self.axis))}, {self.first_row}")
        tile = f.value(f"udiv i64 {done}, {packing.tile_rows}")
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
