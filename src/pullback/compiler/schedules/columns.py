"""Reads along rows of a few elements, of which all or most columns are wanted: rows are read whole, and taken apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pullback.loops import Affine, Axis, Buffer, Kernel, Load

__all__ = ["Columns", "RowBlock", "blocks_of_rows", "in_blocks"]


@dataclass(frozen=True)
class RowBlock:
    """``width`` columns of rows of a buffer that are ``step`` elements apart; the first row's begin at ``place``.

    Each turn of the axis ``lane`` is another row.
    """

    lane: Axis
    buffer: Buffer
    place: Affine
    step: int
    width: int


Columns = Mapping[Load, tuple[RowBlock, tuple[Load, ...]]]
"""For reads of columns the block that each belongs to, and the reads of that."""


def blocks_of_rows(kernel: Kernel, lane: Axis, lanes: int) -> Columns:
    """For each read whose lanes are read in rows, the block of columns that it belongs to, and the block's reads.

    Short rows are one block, read one behind the other; longer ones are cut into blocks as wide as a vector, the last
    of which may overlap with that before it. The whole of each row must be in the buffer, and of
    a block more than half of the columns be read: few of them are picked out one by one.
    """
    found: dict[RowBlock, list[Load]] = {}
    for load in kernel.loads():
        block = _block_of(load, lane, lanes)
        if block is not None:
            found.setdefault(block, []).append(load)
    most = {block: tuple(loads) for block, loads in found.items() if 2 * len(loads) > block.width}
    return {load: (block, loads) for block, loads in most.items() for load in loads}


def in_blocks(step: int, lanes: int) -> bool:
    """Whether rows of ``step`` elements are cut into blocks as wide as a vector: long ones, and those that are full."""
    return step >= 2 * lanes or step % lanes == 0


def _block_of(load: Load, lane: Axis, lanes: int) -> RowBlock | None:
    """The block of rows that holds what is read."""
    step = load.offset.coefficient(lane)
    if step < 2 or not load.is_plain or load.dtype.kind == "b":
        return None
    column = load.offset.constant % step
    start = load.offset + -column
    low, high = start.bounds()
    if low < 0 or high + step > load.buffer.size:
        return None
    if not in_blocks(step, lanes):
        return RowBlock(lane, load.buffer, start, step, step)
    first = min(column - column % lanes, step - lanes)
    return RowBlock(lane, load.buffer, start + first, step, lanes)
