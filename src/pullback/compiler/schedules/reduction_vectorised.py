"""Contractions without an axis of the result worth a vector: the lanes lie along the summed axis instead.

The weight gradient of a convolution sums over whole images and leaves a handful of numbers. Each accumulator is a
vector of partial sums of one result; ``left × right`` of them are kept at once, so that every vector read serves
several.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pullback.compiler.cost import SHORTEST_SUM
from pullback.compiler.schedules.contraction import Pair, contractions, with_accumulator
from pullback.compiler.schedules.schedule import Schedule
from pullback.compiler.target import Processor
from pullback.loops import Axis, Kernel, Load, Placeholder, Reduce, Store

__all__ = ["ReductionVectorised", "find_reduction_vectorised"]


@dataclass(frozen=True, eq=False)
class ReductionVectorised(Schedule):
    """A kernel of sums of products along memory; ``left`` and ``right`` are the axes of the tile, if there are any.

    One of them may be the ``first`` axis of the kernel, when there is no ``outer`` one. A tile is at most ``tallest``
    turns of the one by ``widest`` of the other.
    """

    name: ClassVar[str] = "sums along memory"

    first: Axis
    outer: tuple[Axis, ...]
    left: Axis | None
    right: Axis | None
    pair: Pair
    accumulator: Placeholder
    stores: tuple[Store, ...]
    tallest: int
    widest: int


def find_reduction_vectorised(kernel: Kernel, lanes: int, target: Processor) -> ReductionVectorised | None:
    """The kernel in this form, if its lanes are better placed along the summed axis than along its last axis."""
    found = contractions(kernel)
    if len(found) != 1 or len(kernel.axes) < 2:
        return None
    if any(store.inner or store.dynamic or store.accumulate for store in kernel.stores):
        return None
    if any(isinstance(e, Reduce) and e is not found[0] for e in kernel.expressions()):
        return None
    along, columns = found[0].over[-1], kernel.axes[-1]
    if along.extent < SHORTEST_SUM or 2 * columns.extent > lanes or along.extent < 2 * columns.extent:
        return None
    first, second = found[0].body.operands
    if not isinstance(first, Load) or not isinstance(second, Load):
        return None
    if first.offset.coefficient(along) != 1 or second.offset.coefficient(along) != 1:
        return None
    pair = Pair(first, second, found[0].over)
    inner = kernel.axes[1:]
    left = next((a for a in reversed(inner) if a in first.axes and a not in second.axes), None)
    right = next((a for a in reversed(inner) if a in second.axes and a not in first.axes), None)
    outer = tuple(axis for axis in kernel.axes if axis is not left and axis is not right)
    if len(outer) == 1 and (left is None or right is None):
        owner, other = (first, second) if left is None else (second, first)
        if outer[0] in owner.axes and outer[0] not in other.axes:
            left, right, outer = left or outer[0], right or outer[0], ()
    accumulator, stores = with_accumulator(kernel, found)
    sizes = (6, 4) if target.vector_registers >= 32 else (3, 3)
    return ReductionVectorised(kernel.axes[0], outer, left, right, pair, accumulator, stores, *sizes)
