"""Contractions without an axis of the result worth a vector: the lanes lie along the summed axis instead.

The weight gradient of a convolution sums over whole images and leaves a handful of numbers. Each accumulator is a
vector of partial sums of one result; ``left × right`` of them are kept at once, so that every vector read serves
several.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pullback.compiler.schedules.contraction import Pair, contraction_of
from pullback.compiler.schedules.cost import (
    COPY_CYCLES,
    CROSSING,
    OUTWEIGHING,
    REDUCED_VECTOR,
    SHORTEST_SUM,
    STAYING,
)
from pullback.compiler.schedules.lanes import lanes_of
from pullback.compiler.schedules.schedule import NestSchedule
from pullback.compiler.target import Processor
from pullback.loops import Axis, Kernel, Reduce, turns_of
from pullback.loops.nest import keep, nest_of, parallelise, split, strips_of

__all__ = ["ReductionVectorised", "cycles_along_sum", "find_reduction_vectorised", "pays_along_sum"]


@dataclass(frozen=True, eq=False)
class ReductionVectorised(NestSchedule):
    """A kernel of sums of products along memory; a tile has turns of an axis of each operand, if there is one."""

    name: ClassVar[str] = "sums along memory"

    reduce: Reduce
    pair: Pair

    def cycles(self, kernel: Kernel, target: Processor) -> float:
        return cycles_along_sum(kernel, self.pair, lanes_of(kernel, target), target)


def find_reduction_vectorised(kernel: Kernel, lanes: int, target: Processor) -> ReductionVectorised | None:
    """The kernel in this form, if its lanes are better placed along the summed axis than along its last axis."""
    reduce = kernel.only_reduction
    pair = None if reduce is None else contraction_of(reduce)
    if reduce is None or pair is None or len(kernel.axes) < 2 or not _lies_along_sum(pair):
        return None
    along, columns = pair.depth[-1], kernel.axes[-1]
    short = along.extent >= SHORTEST_SUM and OUTWEIGHING * columns.extent <= min(lanes, along.extent)
    # Where the few rows fill vectors, and results lie along them, a copy of them turned round serves as well.
    full = columns.extent % lanes == 0 and all(s.offset.coefficient(columns) == 1 for s in kernel.stores)
    if not short and (full or not pays_along_sum(pair, kernel.axes, lanes, target)):
        return None
    nest = parallelise(nest_of(kernel), kernel.axes[0])
    for axis, size in _tile(kernel, pair, target).items():
        nest = keep(split(nest, axis, strips_of(axis.extent, size, even=True)), axis)
    return ReductionVectorised(nest, reduce, pair)


def _tile(kernel: Kernel, pair: Pair, target: Processor) -> dict[Axis, int]:
    """How many turns of an axis of each operand a tile has, where there is one that chunks are not shares of."""
    tile = dict[Axis, int]()
    for own, other, size in zip((pair.left, pair.right), (pair.right, pair.left), target.sum_tile):
        axes = [axis for axis in kernel.axes if axis in own.axes and axis not in other.axes]
        if axes and (axes[-1] is not kernel.axes[0] or len(kernel.axes) == 2):
            tile[axes[-1]] = min(size, axes[-1].extent)
    return tile


def cycles_along_sum(kernel: Kernel, pair: Pair, lanes: int, target: Processor) -> float:
    """Cycles of products added up along memory, what is read for them, and the sums of lanes; if it lies so."""
    if not _lies_along_sum(pair):
        return math.inf
    *rest, along = pair.depth
    tile = _tile(kernel, pair, target)
    served = [math.prod(tile[axis] for axis in tile.keys() - load.axes) for load in (pair.left, pair.right)]
    reads = sum(1 / products for products in served) * (1 + CROSSING)
    one = max(1 / target.multiply_adds, reads / target.reads)
    return turns_of(kernel.axes) * (turns_of(rest) * -(-along.extent // lanes) * one + REDUCED_VECTOR)


def pays_along_sum(pair: Pair, axes: Sequence[Axis], lanes: int, target: Processor) -> bool:
    """Whether the rows of a matrix, the first of two ``axes``, and the few of another are best multiplied as they lie.

    Lanes along the columns would need a copy of one of them, turned round. Each sum along memory ends with reducing a
    vector to one number instead, and the few rows, which all tiles read, must stay near.
    """
    if len(axes) != 2 or len(pair.depth) != 1 or not _lies_along_sum(pair):
        return False
    (many, few), (depth,) = axes, pair.depth
    if few.extent > many.extent or max(lanes, OUTWEIGHING * few.extent) > depth.extent:
        return False
    if OUTWEIGHING * few.extent <= lanes:
        return True
    near = few.extent * depth.extent * pair.left.dtype.itemsize < STAYING * target.l2_bytes
    return near and few.extent <= 2 * lanes and few.extent * REDUCED_VECTOR <= COPY_CYCLES * depth.extent


def _lies_along_sum(pair: Pair) -> bool:
    return all(load.offset.coefficient(pair.depth[-1]) == 1 for load in (pair.left, pair.right))
