"""Copies that change the order of two axes: square blocks transposed in registers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pullback.compiler.schedules.cost import FEWEST_LANES
from pullback.compiler.schedules.schedule import NestSchedule
from pullback.loops import Axis, Kernel, Load, Store
from pullback.loops.nest import keep, nest_of, parallelise, split, strips_of, vectorise

__all__ = ["TransposedCopy", "find_transposed"]


@dataclass(frozen=True, eq=False)
class TransposedCopy(NestSchedule):
    """``target[…, slow, fast] = source[…, fast, slow]``: ``slow`` is the axis along which the source is contiguous.

    A tile is a block of as many turns of both as a vector has lanes.
    """

    name: ClassVar[str] = "transposed copy"

    slow: Axis
    fast: Axis
    load: Load
    store: Store

    def aligned(self, kernel: Kernel, lanes: int) -> int:
        return lanes if len(kernel.axes) == 2 else 1


def find_transposed(kernel: Kernel, lanes: int) -> TransposedCopy | None:
    """The kernel as a transposed copy, or ``None``; its last two axes must be the ones that change places."""
    if len(kernel.stores) != 1 or len(kernel.axes) < 2:
        return None
    (store,) = kernel.stores
    load = store.value
    if not isinstance(load, Load) or not load.is_plain or store.inner or store.dynamic:
        return None
    slow, fast = kernel.axes[-2:]
    if load.dtype.kind != "f" or load.offset.coefficient(slow) != 1 or store.offset.coefficient(fast) != 1:
        return None
    apart = min(load.offset.coefficient(fast), store.offset.coefficient(slow))
    if apart < 2 or min(slow.extent, fast.extent) < FEWEST_LANES:
        return None
    nest = parallelise(nest_of(kernel), kernel.axes[0])
    for axis in (slow, fast):
        nest = split(nest, axis, strips_of(axis.extent, lanes))
    return TransposedCopy(vectorise(keep(nest, slow), fast, lanes), slow, fast, load, store)
