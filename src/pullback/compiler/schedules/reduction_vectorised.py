"""Contractions without an axis of the result worth a vector: the lanes lie along the summed axis instead.

The weight gradient of a convolution sums over whole images and leaves a handful of numbers. Each accumulator is a
vector of partial sums of one result; ``left × right`` of them are kept at once, so that every vector read serves
several.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pullback.compiler.schedules.contraction import Pair, contractions, with_accumulator
from pullback.compiler.schedules.cost import OUTWEIGHING, SHORTEST_SUM
from pullback.compiler.schedules.schedule import NestSchedule
from pullback.compiler.target import Processor
from pullback.loops import Kernel, Load, Placeholder, Store
from pullback.loops.nest import keep, nest_of, parallelise, split, strips_of

__all__ = ["ReductionVectorised", "find_reduction_vectorised"]


@dataclass(frozen=True, eq=False)
class ReductionVectorised(NestSchedule):
    """A kernel of sums of products along memory; a tile has turns of an axis of each operand, if there is one."""

    name: ClassVar[str] = "sums along memory"

    pair: Pair
    accumulator: Placeholder
    stores: tuple[Store, ...]


def find_reduction_vectorised(kernel: Kernel, lanes: int, target: Processor) -> ReductionVectorised | None:
    """The kernel in this form, if its lanes are better placed along the summed axis than along its last axis."""
    found = contractions(kernel)
    if not found or kernel.only_reduction is None or len(kernel.axes) < 2:
        return None
    along, columns = found[0].over[-1], kernel.axes[-1]
    if along.extent < SHORTEST_SUM or OUTWEIGHING * columns.extent > min(lanes, along.extent):
        return None
    first, second = found[0].body.operands
    if not isinstance(first, Load) or not isinstance(second, Load):
        return None
    if first.offset.coefficient(along) != 1 or second.offset.coefficient(along) != 1:
        return None
    pair = Pair(first, second, found[0].over)
    accumulator, stores = with_accumulator(kernel, found)
    nest = parallelise(nest_of(kernel), kernel.axes[0])
    for own, other, size in zip((first, second), (second, first), target.sum_tile):
        axes = [axis for axis in kernel.axes if axis in own.axes and axis not in other.axes]
        if axes and (axes[-1] is not kernel.axes[0] or len(kernel.axes) == 2):
            nest = keep(split(nest, axes[-1], strips_of(axes[-1].extent, size, even=True)), axes[-1])
    return ReductionVectorised(nest, pair, accumulator, stores)
