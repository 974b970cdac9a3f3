"""The whole way from a graph to LLVM IR, and everything that can be shown of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pullback.compiler.codegen.program import Emitted, emit_program
from pullback.compiler.lowering.items import Loop, Serial, View, While, every_step
from pullback.compiler.passes import Pass
from pullback.compiler.plan import Stage, Watch, plan
from pullback.compiler.regions.again import runs_again
from pullback.compiler.regions.listing import listed
from pullback.compiler.regions.memory import MemoryPlan
from pullback.compiler.regions.steps import Region, Step
from pullback.compiler.schedules.cost import HOST_CYCLES
from pullback.compiler.target import Processor
from pullback.graph import Graph
from pullback.loops import Buffer

__all__ = ["Built", "Stage", "Watch", "build", "estimated", "listed", "plan"]


@dataclass(frozen=True)
class Built:
    """A program before it is machine code."""

    emitted: Emitted
    schedule: tuple[Step, ...]
    plan: MemoryPlan
    constants: tuple[np.ndarray, ...]
    nanoseconds: float
    """Estimated time of a step on one thread."""
    saving: float
    """Estimated nanoseconds of a step that a second thread saves; negative where waiting costs more than it brings."""
    bound: Mapping[Buffer, View]
    """Where arrays lie that are part of another buffer."""

    def again(self) -> list[bool]:
        """Of each step whether it may be run a second time on what its first run has left."""
        return [runs_again(step, self.bound, self.plan) for step in self.schedule]


def build(
    graph: Graph,
    donated: Mapping[int, int],
    processor: Processor,
    passes: Sequence[Pass] | None = None,
    watch: Watch | None = None,
    ready: Callable[[str], None] | None = None,
) -> Built:
    """Optimise, lower, fuse, schedule, plan and emit ``graph``.

    ``donated`` offers arguments to results, by number; ``passes`` are those that the graph goes through.
    ``watch`` sees the program as each stage leaves it, ``ready`` each part of the module.
    """
    planned = plan(graph, donated, processor, passes, watch)
    cost = estimated(planned.steps, processor)
    overwriting = {planned.results[result] for result in donated}
    emitted = emit_program(planned, overwriting, ready)
    return Built(emitted, planned.steps, planned.memory, planned.constants, *cost, planned.bound)


def estimated(steps: Sequence[Step], target: Processor) -> tuple[float, float]:
    """The nanoseconds of a step of the program, and those by which two threads finish it sooner than one.

    Of a loop without a bound nobody knows how long it takes: any time.
    """
    cycles = saved = 0.0
    for region, around in every_step(steps):
        if any(isinstance(step, While) for step in around):
            cycles = math.inf
            continue
        trips = math.prod(step.counter.trips for step in around if isinstance(step, Loop))
        if not isinstance(region, Region):
            cycles += trips * HOST_CYCLES
            continue
        found = [g.cycles * (1 if g.turns is None else g.turns.trips) for g in region.groups]
        total, longest = sum(found), max(c / g.chunks for c, g in zip(found, region.groups))
        cycles += trips * total
        if any(isinstance(step, Serial) for step in around):
            continue
        saved += trips * (total - max(total / 2, longest) - target.exchange_cycles)
    return cycles / target.cycles_per_nanosecond, saved / target.cycles_per_nanosecond
