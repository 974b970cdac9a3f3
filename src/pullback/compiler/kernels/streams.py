"""Matrices that come from beyond the caches, of which reductions take some rows at a time, side by side.

    for j: y[j] = add[r](x[r, j])        column by column each line is met on another page, and none is asked for ahead
    →
    for p, b, j: part[p, b, j] = add[r<8](x[8 (n p + b) + r, j])
    for p, j: part[p, j] = add[b](part[p, b, j]);    for j: y[j] = add[p](part[p, j])

Whether, is told here; ``split.py`` cuts them. Of no more rows than a processor follows all are read side by side.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from pullback.compiler.schedules.contraction import contraction_of
from pullback.compiler.schedules.cost import (
    ENOUGH_ROWS,
    FEWEST_PACKED_ROWS,
    LONG_ROW,
    SHORTEST_SUMMED_ROW,
    STAYING,
)
from pullback.compiler.target import Processor
from pullback.loops import Axis, Buffer, Kernel, Load, Reduce, turns_of, walk

__all__ = ["streamed", "streams_of_each", "streams_side_by_side"]


def streamed(kernel: Kernel, reduce: Reduce, target: Processor) -> int:
    """The bytes of a matrix that the kernel takes row by row: 0 if there is none, or a near cache holds it.

    Such are a few rows times a matrix; and where its rows are long, one row times it, and sums of its columns or
    extremes. A column may be a piece of the row that is summed itself, such as a channel of an image.
    """
    if not kernel.axes:
        return 0
    (depth, *piece), (*rows, columns) = reduce.over, kernel.axes
    few = contraction_of(reduce) is not None
    if turns_of(rows) >= FEWEST_PACKED_ROWS or (few and piece) or (rows and not few):
        return 0
    if turns_of(piece) < SHORTEST_SUMMED_ROW if piece else not few and depth.extent <= target.streams:
        return 0
    row = max((row for _, row in _matrices(reduce, (columns, *piece))), default=0)
    least = STAYING * target.l3_bytes if piece else target.l2_bytes
    if depth.extent * row <= least or not (few or row >= LONG_ROW * target.page_bytes):
        return 0
    return depth.extent * row


def streams_side_by_side(kernel: Kernel, reduce: Reduce, matrix: int, target: Processor) -> int:
    """How many rows of a matrix of so many bytes are read side by side."""
    if len(reduce.over) > 1:
        return 1
    several = turns_of(kernel.axes[:-1]) > 1 and matrix < STAYING * target.l3_bytes
    return target.streams if several else target.ways


def streams_of_each(kernel: Kernel, reduce: Reduce, target: Processor, made: Collection[Buffer]) -> int:
    """The same for columns of many matrices: 0 where they are few or short, or were ``made`` just before."""
    if len(reduce.over) > 1 or reduce.over[0].extent <= target.streams:
        return 0
    if turns_of(kernel.axes[:-1]) < ENOUGH_ROWS:
        return 0
    *matrices, columns = kernel.axes
    far = any(
        row >= LONG_ROW * target.page_bytes
        and load.buffer.nbytes >= STAYING * target.l3_bytes
        and load.buffer not in made
        for load, row in _matrices(reduce, (columns,), matrices)
    )
    return target.ways if far and not contraction_of(reduce) else 0


def _matrices(reduce: Reduce, row: Sequence[Axis], around: Sequence[Axis] = ()) -> Iterator[tuple[Load, int]]:
    """The reads of matrices whose rows lie along the axes of a ``row``, with how many bytes these are apart."""
    depth = reduce.over[0]
    for load in walk(reduce.body):
        if isinstance(load, Load) and not load.dynamic and load.axes == {depth, *row, *around}:
            apart = load.offset.coefficient(depth)
            if apart >= turns_of(row) and load.offset.goes_through(row):
                yield load, apart * load.dtype.itemsize
