"""Panels of large contractions: how the right operand is cut so that what is packed stays in the second-level cache.

The columns are cut into blocks of some panels, the rows into blocks that share the packing. A panel holds, for each
step of the summed axis, the vectors that a register tile wants side by side.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from pullback.compiler.schedules.contraction import Contraction, Pair
from pullback.compiler.schedules.cost import (
    FETCHED_AHEAD,
    FEW_BLOCKS,
    FEWEST_PACKED_ROWS,
    FEWEST_PACKED_VECTORS,
    FEWEST_TRANSPOSED_ROWS,
    PACKED_BY,
    PACKED_STEPS,
    STAYING,
    USUAL_TILE_ROWS,
    WAITING_SUMS,
)
from pullback.compiler.schedules.tiles import fitting_rows, tile_cycles
from pullback.compiler.target import Processor
from pullback.loops.nest import strips_of

__all__ = ["Packing", "Segment", "choose_packing"]


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

    tile_rows: int
    panel_vectors: int
    """Vectors of a panel, at most."""
    lanes: int
    block_rows: int
    row_blocks: int
    panels: int
    """Panels of a column block."""
    all_panels: int
    """Panels of all columns."""
    columns: int
    rounds: tuple[tuple[Segment, ...], ...]

    @property
    def column_blocks(self) -> int:
        """Blocks that the columns are cut into."""
        return -(-self.all_panels // self.panels)

    @property
    def blocks(self) -> int:
        """Number of chunks at most."""
        return self.row_blocks * self.column_blocks

    @property
    def vectors(self) -> int:
        """Vectors of a row of the result."""
        return -(-self.columns // self.lanes)

    @property
    def width(self) -> int:
        """Columns of a panel, at most."""
        return self.panel_vectors * self.lanes

    def first_column(self, panel: int) -> int:
        """Where a panel begins; those of several blocks differ by a vector at most, for the sake of equal blocks."""
        vector = panel * self.vectors // self.all_panels if self.uneven else panel * self.panel_vectors
        return min(self.columns, vector * self.lanes)

    @property
    def uneven(self) -> bool:
        """Whether some panels are a vector narrower than others, rather than the last one by several."""
        without_last = (self.all_panels - 1) * self.panel_vectors
        return (self.column_blocks > 1 or without_last >= self.vectors) and self.vectors % self.all_panels > 0

    @property
    def depth(self) -> int:
        """Steps of the longest round."""
        return max(sum(s.stop - s.start for s in segments) for segments in self.rounds)

    def scratch_bytes(self, itemsize: int) -> int:
        """Memory for the packed panels, and for sums that wait for the next round."""
        waiting = self.block_rows * self.panels * self.width if len(self.rounds) > 1 else 0
        return (self.depth * self.panels * self.width + waiting) * itemsize


def choose_packing(product: Contraction, lanes: int, target: Processor) -> Packing | None:
    """How to cut ``product``, or ``None`` if its right operands fit into the nearer caches as they are."""
    axis, *others = product.rows
    if others or any(axis in pair.right.axes or len(pair.depth) != 1 for pair in product.pairs):
        return None
    along = any(pair.right.offset.coefficient(pair.depth[0]) == 1 for pair in product.pairs)
    if axis.extent < (FEWEST_TRANSPOSED_ROWS if along else FEWEST_PACKED_ROWS):
        return None
    itemsize, columns = product.accumulator.dtype.itemsize, product.columns.extent
    # What lies along the sum is copied in any case, and panels are the better copy; a small one stays in L1.
    resident = target.tile_bytes if along else _resident(axis.extent, target)
    if product.depth * columns * itemsize <= resident or columns < FEWEST_PACKED_VECTORS * lanes:
        return None
    widest = target.panel_vectors
    height = fitting_rows(axis.extent, widest, target)
    extents = (axis.extent, columns, product.depth)
    block_rows, panels, all_panels = _best_cut(extents, height, widest, lanes, target, itemsize)
    wide, row_blocks = -(-columns // (lanes * all_panels)), -(-axis.extent // block_rows)
    rounds = _rounds(product.pairs, _steps(wide * lanes * itemsize, target))
    return Packing(height, wide, lanes, block_rows, row_blocks, panels, all_panels, columns, rounds)


@functools.lru_cache(maxsize=256)
def _best_cut(
    extents: tuple[int, int, int], height: int, widest: int, lanes: int, target: Processor, itemsize: int
) -> tuple[int, int, int]:
    """Rows and panels of a block, and panels of all columns: of as equal blocks as there may be, the fastest ones.

    A few panels more than there must be may make blocks that come out even.
    """
    rows, columns, _ = extents
    tiles, vectors = -(-rows // height), -(-columns // lanes)
    least = -(-vectors // widest)
    even = {-(-least // n) * n for n in range(2, target.sharers + 1)} if least > 1 else set()
    cuts = [
        (min(rows, down * height), across, panels)
        for panels in sorted({least, *(count for count in even if count <= vectors)})
        for down in sorted({-(-tiles // blocks) for blocks in range(1, tiles + 1)}, reverse=True)
        for across in sorted({-(-panels // blocks) for blocks in range(1, panels + 1)}, reverse=True)
    ]
    return min(cuts, key=lambda cut: _cycles(cut, extents, height, lanes, target, itemsize))


def _cycles(
    cut: tuple[int, int, int],
    extents: tuple[int, int, int],
    height: int,
    lanes: int,
    target: Processor,
    itemsize: int,
) -> float:
    """What a product of rows, columns and depth takes in blocks of so many rows and panels, ``height`` rows a tile.

    That is tiles, lines that arrive, and how unevenly blocks fall to threads. Each block of rows packs the
    right operand, each block of columns reads the left one, sums that wait for the next round leave the cache
    where they are many, and threads that write parts of the same rows lose lines to each other.
    """
    (block_rows, panels, all_panels), (rows, columns, depth) = cut, extents
    row_blocks, column_blocks = -(-rows // block_rows), -(-all_panels // panels)
    blocks, line = row_blocks * column_blocks, target.line_bytes // itemsize
    vectors = -(-columns // lanes)
    widest = -(-vectors // all_panels) * lanes
    lines = depth * columns * row_blocks / line
    if rows * depth * itemsize > STAYING * target.l2_bytes:
        lines += rows * depth * column_blocks / line
    steps = _steps(widest * itemsize, target)
    packed, waiting = (count * panels * widest * itemsize for count in (min(depth, steps), block_rows))
    if depth > steps and waiting > WAITING_SUMS * target.l2_bytes:
        lines += 2 * rows * columns * (depth // steps) / line
    if packed > STAYING * target.l2_bytes:
        lines += rows / block_rows * depth * columns * (block_rows / USUAL_TILE_ROWS) / line
    beside = -(-target.sharers // row_blocks)
    if beside > 1:
        lines += beside * rows * FETCHED_AHEAD
    narrow, wider = divmod(vectors, all_panels)
    tiles = sum(
        count * strips * tile_cycles(target, strip, width, width, depth)
        for width, count in ((narrow, all_panels - wider), (narrow + 1, wider))
        for strip, strips in strips_of(rows, height)
    )
    cycles = tiles + lines * target.far_line_cycles
    uneven = -(-blocks // target.sharers) * target.sharers / blocks
    return cycles * uneven * (1 + FEW_BLOCKS / blocks)


def _steps(step_bytes: int, target: Processor) -> int:
    """Steps of the summed axis that are packed at a time: a panel stays in the first-level cache for all rows."""
    return min(PACKED_STEPS, max(1, target.tile_bytes // step_bytes))


def _resident(rows: int, target: Processor) -> float:
    """Bytes of a right operand that is read where it lies: the fewer rows share its packing, the more must be gained.

    What does not stay in L2 is always packed; for many rows as soon as a tile's steps lie on more pages than are known.
    """
    return min(STAYING * target.l2_bytes, max(target.known_bytes, target.l2_bytes * PACKED_BY // rows))


def _rounds(pairs: Sequence[Pair], limit: int) -> tuple[tuple[Segment, ...], ...]:
    """The depth of all pairs in order, cut so that no round is deeper than ``limit``."""
    rounds: list[list[Segment]] = [[]]
    used = 0
    for number, pair in enumerate(pairs):
        extent = pair.depth[0].extent
        step = -(-extent // -(-extent // limit))
        for start in range(0, extent, step):
            stop = min(extent, start + step)
            if used + stop - start > limit and rounds[-1]:
                rounds.append([])
                used = 0
            rounds[-1].append(Segment(number, start, stop, used))
            used += stop - start
    return tuple(tuple(segments) for segments in rounds)
