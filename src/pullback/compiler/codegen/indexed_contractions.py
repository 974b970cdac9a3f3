"""Indexed contractions: sums of products that read one operand at a computed place, a tile of vectors at a time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter

from pullback.compiler.codegen.blocks import load_lanes
from pullback.compiler.codegen.compaction import Compacted, compact
from pullback.compiler.codegen.maps import write_stores
from pullback.compiler.codegen.nest import ChunkTurns, TileTurns, each_place, emit_nest
from pullback.compiler.codegen.pairwise import pairwise
from pullback.compiler.codegen.types import memory_type, splat, vector_of
from pullback.compiler.codegen.values import LaneGroup, Place, Values
from pullback.compiler.codegen.vectormath import Lanes
from pullback.compiler.schedules.cost import CHAINS, MOST_INDEXED_ROWS
from pullback.compiler.schedules.indexed_contraction import IndexedContraction, vector_width
from pullback.loops import Kernel
from pullback.loops.nest import Kind, Level, level_of, levels_over

__all__ = ["emit_indexed_contraction"]


_Vector = tuple[tuple[int, ...], int]
"""One of a row: where the other columns stand, and its number along the lanes."""


def emit_indexed_contraction(
    values: Values, kernel: Kernel, sums: IndexedContraction, ends: ChunkTurns
) -> None:
    """Run the kernel between ``ends`` of its first axis."""
    first, *outer = sums.outer
    levels, most = [level_of(first, Kind.PARALLEL), *levels_over(outer)], values.target.sum_vectors
    tiled = [] if sums.row is None else [sums.row]
    chosen = [] if sums.chosen is None else [sums.chosen]

    def rows(_: TileTurns, __: list[str]) -> None:
        if chosen:
            body = partial(_compacted, values, sums)
            emit_nest(values, levels_over(tiled), body, hoisted=(chosen, sums.over))
            return
        for part in _parts(values, sums, most):
            size = min(MOST_INDEXED_ROWS, max(1, most // part.vectors))
            tiles = [level_of(axis, size=size) for axis in tiled]
            emit_nest(values, [*tiles, *(Level(axis, Kind.REGISTER) for axis in tiled)], part.tile)

    emit_nest(values, levels, rows, ends=ends, hoisted=(chosen, [*tiled, *sums.over]))


def _compacted(values: Values, sums: IndexedContraction, _: TileTurns, __: Sequence[str]) -> None:
    """A row: the factors that count, the sums of each part over them, their stores."""
    assert sums.chosen is not None
    fixed, most = sums.right.offset.without(sums.columns), values.target.sum_vectors
    listed = compact(values, sums.left, sums.chosen, sums.right, fixed, sums.over)
    for part in _parts(values, sums, most // 2):
        part.store(part.over_list(listed, max(1, min(CHAINS, most // part.vectors))))


def _parts(values: Values, sums: IndexedContraction, budget: int) -> list[_Part]:
    """The vectors of a row in parts of at most ``budget``, about equally many in each."""
    *others, lane = sums.columns
    turns = itertools.product(*(range(axis.extent) for axis in others))
    vectors = list(itertools.product(turns, range(-(-lane.extent // vector_width(lane, values.lanes)))))
    size = -(-len(vectors) // -(-len(vectors) // budget))
    return [_Part(values, sums, vectors[k : k + size]) for k in range(0, len(vectors), size)]


@dataclass(frozen=True)
class _Read:
    """One vector of a part: ``count`` lanes from ``ahead`` elements after the place, of which ``skipped`` are unwanted.

    Some of the last ones may be unwanted too: what lies between elements that are there can be read.
    """

    ahead: int
    count: int
    skipped: int


def _reads(sums: IndexedContraction, part: Sequence[_Vector], width: int) -> list[_Read]:
    """How the vectors of ``part`` are read: whole ones wherever the columns reach that far to either side."""
    lane, strides = sums.columns[-1], [sums.right.offset.coefficient(axis) for axis in sums.columns]
    reach = 1 + sum((axis.extent - 1) * stride for axis, stride in zip(sums.columns, strides))
    found = []
    for turns, v in part:
        ahead = sum(turn * stride for turn, stride in zip(turns, strides)) + v * width
        missing = max(0, (v + 1) * width - lane.extent)
        if ahead + width <= reach:
            found.append(_Read(ahead, width, 0))
        elif ahead >= missing:
            found.append(_Read(ahead - missing, width, missing))
        else:
            found.append(_Read(ahead, width - missing, 0))
    return found


class _Part:
    """Vectors of a row of which the sums are kept side by side."""

    def __init__(self, values: Values, sums: IndexedContraction, part: Sequence[_Vector]) -> None:
        self.values, self.sums, self.part, self.right = values, sums, part, sums.right
        self.width = vector_width(sums.columns[-1], values.lanes)
        self.element = memory_type(sums.right.dtype)
        self.kind = vector_of(self.element, self.width)
        self.lanes = Lanes(values.f, self.element, self.width)
        self.reads, self.vectors = _reads(sums, part, self.width), len(part)

    def tile(self, rows: TileTurns, _: Sequence[str]) -> None:
        """The sums of all rows of a tile, then their stores."""
        values, right, vectors = self.values, self.right, self.vectors
        fixed = right.offset.without(self.sums.columns)

        def turn(_: TileTurns, current: list[str]) -> list[str]:
            new = list[str]()
            for r in each_place(values, rows):
                (x,) = values.emit(self.sums.left)
                address = values.at(right.buffer, fixed, right.dynamic)
                new += self._added(x, address, current[r * vectors : (r + 1) * vectors])
            return new

        start = [(self.kind, "zeroinitializer")] * (math.prod(rows.values()) * vectors)
        totals = emit_nest(values, levels_over(self.sums.over), turn, start)
        for r in each_place(values, rows):
            self.store(totals[r * vectors : (r + 1) * vectors])

    def over_list(self, listed: Compacted, chains: int) -> list[str]:
        """The sums over a list: its factors go to each of the ``chains`` in turn."""
        f, vectors = self.values.f, self.vectors

        def turn(position: str, current: Sequence[str]) -> list[str]:
            x, place = listed.factor(f, self.element, position), listed.place(f, position)
            return self._added(x, self.values.address(self.right.buffer, place), current)

        whole = f.value(f"sub i64 {listed.count}, {f.value(f'urem i64 {listed.count}, {chains}')}")
        carried = [(self.kind, "zeroinitializer")] * (vectors * chains)
        with f.loop("0", whole, chains, carried=carried, counted=False) as loop:
            new = list[str]()
            for chain in range(chains):
                position = f.value(f"add i64 {loop.index}, {chain}") if chain else loop.index
                new += turn(position, loop.values[len(new) : len(new) + vectors])
            loop.carry(*new)
        first, *others = (loop.results[k : k + vectors] for k in range(0, len(loop.results), vectors))
        if others:
            carried = [(self.kind, v) for v in first]
            with f.loop(whole, listed.count, carried=carried, counted=False) as loop:
                loop.carry(*turn(loop.index, loop.values))
            first = loop.results
        return pairwise([first, *others], lambda a, b: list(map(self.lanes.add, a, b)))

    def _added(self, x: str, address: str, current: Sequence[str]) -> list[str]:
        """The sums with ``x`` times what lies at ``address`` and after it added."""
        f, new = self.values.f, list[str]()
        spread = splat(f, x, self.element, self.width)
        for read, total in zip(self.reads, current):
            place = f.ahead(address, self.element, str(read.ahead))
            row = load_lanes(f, place, self.element, self.width, read.count)
            new.append(self.lanes.fma(spread, row, total))
        return new

    def store(self, totals: Sequence[str]) -> None:
        """Write what the kernel makes of the sums."""
        values, width, wanted = self.values, self.width, self._wanted(totals)
        *others, lane = self.sums.columns
        for turns, side_by_side in itertools.groupby(self.part, key=itemgetter(0)):
            numbers = [v for _, v in side_by_side]
            start, count = numbers[0] * width, len(numbers)
            group = LaneGroup.over(lane, min(count * width, lane.extent - start), width)
            places = {axis: Place(None, turn) for axis, turn in zip(others, turns)}
            with values.standing(places), values.lane_group(group, Place(None, start)):
                values.bind(self.sums.accumulator, wanted[:count])
                write_stores(values, self.sums.stores)
            wanted = wanted[count:]

    def _wanted(self, totals: Sequence[str]) -> list[str]:
        """The vectors without the lanes that lie before the first wanted one."""
        found = list[str]()
        for read, total in zip(self.reads, totals):
            picks = (min(lane + read.skipped, self.width - 1) for lane in range(self.width))
            skipped = self.values.f.shuffled(self.kind, total, "poison", picks) if read.skipped else total
            found.append(skipped)
        return found
