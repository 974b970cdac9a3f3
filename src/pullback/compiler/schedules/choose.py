"""Which kind of kernel a kernel is: asked once, here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial

from pullback.compiler.schedules.contraction_schedules import schedule_contraction
from pullback.compiler.schedules.cost import SHARED_BY
from pullback.compiler.schedules.indexed_contraction import find_indexed_contraction
from pullback.compiler.schedules.lanes import lanes_of
from pullback.compiler.schedules.map import schedule_map
from pullback.compiler.schedules.reduction_vectorised import find_reduction_vectorised
from pullback.compiler.schedules.scatter import find_scatter
from pullback.compiler.schedules.schedule import Schedule
from pullback.compiler.schedules.transpose import find_transposed
from pullback.compiler.schedules.window_maximum import schedule_window_maximum
from pullback.compiler.target import Processor
from pullback.loops import Buffer, Expression, Kernel, Load, walk

__all__ = ["Schedules", "choose_schedule"]


class Schedules:
    """The schedules of a program's kernels for one target, each chosen when first asked for.

    That is for a target of few cores: for more of them a region's are chosen anew, once it is known what is in it.
    """

    def __init__(self, target: Processor) -> None:
        self.target = replace(target, cores=SHARED_BY, threads=0)
        self.sharers = target.sharers
        self.shares: Mapping[Buffer, float] = {}
        """What part of the rows that numbers in a buffer may name there will be, where they are counted."""
        self.of = cache(partial(choose_schedule, target=self.target))
        """The schedule of a kernel."""

    def share(self, index: Expression) -> float:
        """What part of the rows that ``index`` may name there will be."""
        found = (self.shares.get(part.buffer, 1.0) for part in walk(index) if isinstance(part, Load))
        return min(found, default=1.0)

    def lanes(self, kernel: Kernel) -> int:
        """Lanes of its vectors."""
        return lanes_of(kernel, self.target)


def choose_schedule(kernel: Kernel, target: Processor) -> Schedule:
    """The schedule of ``kernel``, for vectors of its widest float."""
    lanes = lanes_of(kernel, target)
    return (
        find_scatter(kernel, target)
        or find_indexed_contraction(kernel, lanes, target)
        or schedule_window_maximum(kernel, lanes, target)
        or find_reduction_vectorised(kernel, lanes, target)
        or schedule_contraction(kernel, lanes, target)
        or find_transposed(kernel, lanes)
        or schedule_map(kernel, lanes, target)
    )
