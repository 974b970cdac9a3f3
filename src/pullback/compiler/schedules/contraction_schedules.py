"""Matrix products and convolutions: register tiles over operands as they lie, or over packed panels of large ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pullback.compiler.schedules.contraction import Contraction, find_contraction
from pullback.compiler.schedules.cost import STAYING, kernel_cycles
from pullback.compiler.schedules.packing import Packing, choose_packing
from pullback.compiler.schedules.schedule import NestSchedule, Schedule
from pullback.compiler.schedules.tiles import Tile, choose_tile
from pullback.compiler.target import Processor
from pullback.loops import Axis, Kernel, Load, turns_of
from pullback.loops.nest import Nest, keep, nest_of, parallelise, reorder, split, strips_of, vectorise

__all__ = ["ContractionSchedule", "PackedContraction", "TiledContraction", "schedule_contraction"]


@dataclass(frozen=True, eq=False)
class ContractionSchedule(Schedule):
    """A contraction, in one of the two ways below."""

    name: ClassVar[str] = "product"
    contraction: Contraction

    def cycles(self, kernel: Kernel, target: Processor) -> float:
        return kernel_cycles(kernel, self.contraction, target)


@dataclass(frozen=True, eq=False)
class TiledContraction(ContractionSchedule, NestSchedule):
    """Register tiles whose operands are read where they lie."""

    tile: Tile

    @property
    def by_columns(self) -> bool:
        """Whether all rows of a chunk are done for one group of columns after another."""
        loops = [level.axis for level in self.nest.levels if level.strips]
        return len(loops) > 1 and loops[0] is self.contraction.columns


@dataclass(frozen=True, eq=False)
class PackedContraction(ContractionSchedule):
    """Register tiles over panels of the right operand; blocks of rows and columns are shared out."""

    packing: Packing

    @property
    def alone(self) -> bool:
        return True

    def parts(self, kernel: Kernel) -> int:
        return self.packing.blocks

    @property
    def scratch_bytes(self) -> int:
        return self.packing.scratch_bytes(self.contraction.accumulator.dtype.itemsize)

    def runs(self, kernel: Kernel, low: int, high: int) -> Iterator[Mapping[str, Any]]:
        packing, (rows,), columns = self.packing, self.contraction.rows, self.contraction.columns
        for block in range(low, high):
            row, column = divmod(block, packing.column_blocks)
            starts = (packing.first_column((column + k) * packing.panels) for k in range(2))
            turns = range(rows.extent)[row * packing.block_rows :][: packing.block_rows]
            yield {"places": {rows: turns, columns: range(*starts)}}

    def __str__(self) -> str:
        packing = self.packing
        return (
            f"{self.name}: blocks of {packing.block_rows} rows, {packing.panels} of {packing.all_panels} panels of "
            f"{packing.width} columns; {len(packing.rounds)} rounds of {packing.depth} steps; register "
            f"{packing.tile_rows} rows; vector of {packing.lanes}"
        )


def schedule_contraction(kernel: Kernel, lanes: int, target: Processor) -> ContractionSchedule | None:
    """Packed panels where the right operand is large, tiles over it as it lies elsewhere; ``None`` for no product."""
    found = find_contraction(kernel)
    if found is None:
        return None
    packing = choose_packing(found, lanes, target)
    if packing is not None:
        return PackedContraction(found, packing)
    tile = choose_tile(found, lanes, target)
    return TiledContraction(_tiled(kernel, found, tile, lanes, target), found, tile)


def _tiled(kernel: Kernel, product: Contraction, tile: Tile, lanes: int, target: Processor) -> Nest:
    """Loops over bands, rows and groups of columns of a tile; the columns may be outermost.

    Rows go round what the left operand does not have, such as the lines of an image, if the nearest cache holds all
    that is read there of the right one: results are written along memory then. Of an operand that the second cache does
    not hold a part at a time is used by all rows that it is the same for; if neither is held, of the right one.
    """
    columns, first = product.columns, product.rows[0]
    nest = parallelise(nest_of(kernel), first)
    steps = [(tile.band_axis, tile.bands), (tile.row_axis, tile.rows), *((a, a.extent) for a in tile.inner)]
    kept = [(axis, size) for axis, size in steps if axis is not None]
    for axis, size in kept:
        strips = strips_of(axis.extent, size, even=axis is not first)
        nest = keep(split(nest, axis, strips), axis)
    rows = [axis for axis, _ in kept]
    outer = [axis for axis in product.rows if axis not in rows]
    lefts, rights = ([getattr(pair, side) for pair in product.pairs] for side in ("left", "right"))
    shared = [axis for axis in outer if axis is first or any(axis in load.axes for load in lefts)]
    if first in outer and _bytes_read(rights, shared) <= target.tile_bytes:
        outer, inner = shared, [*rows, *(axis for axis in outer if axis not in shared), columns]
    elif _by_columns(product, target):
        outer, inner = [*outer, columns], rows
    else:
        inner = [*rows, columns]
    for loads in (lefts, rights):
        if _bytes_read(loads, [first]) >= STAYING * target.l2_bytes:
            parts = {axis for load in loads for axis in (first, *load.axes)}
            outer.sort(key=lambda axis: axis not in parts)
    widths = [width * lanes for width in tile.columns[:-1]]
    widths.append(columns.extent - sum(widths))
    strips = tuple((length, len(list(equal))) for length, equal in itertools.groupby(widths))
    return vectorise(split(reorder(nest, [*outer, *inner]), columns, strips), columns, lanes)


def _by_columns(product: Contraction, target: Processor) -> bool:
    """Whether all rows are done for one group of columns after another.

    Then what a group reads of a large right operand stays close by; the left one, which all groups read, must lie
    along the summed axis.
    """
    outer = [a for a in product.rows if any(a in pair.left.axes & pair.right.axes for pair in product.pairs)]
    along = all(pair.left.offset.coefficient(pair.depth[-1]) == 1 for pair in product.pairs)
    return along and _bytes_read([pair.right for pair in product.pairs], outer) > target.tile_bytes


def _bytes_read(loads: Iterable[Load], outer: Sequence[Axis]) -> int:
    """What is read by ``loads`` while the axes ``outer`` stand."""
    return sum(_elements_read(load, outer) * load.dtype.itemsize for load in loads)


def _elements_read(load: Load, outer: Sequence[Axis]) -> int:
    """How many there are at most: those of windows that overlap count once."""
    return min(load.offset.without(outer).span, turns_of(load.axes.difference(outer)))
