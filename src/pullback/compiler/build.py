"""The whole way from a graph to LLVM IR, and everything that can be shown of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pullback.compiler.codegen.program import Emitted, emit_program
from pullback.compiler.donate import arrange
from pullback.compiler.form import Form, choose_form
from pullback.compiler.fuse import fuse
from pullback.compiler.lower import Lowered, lower
from pullback.compiler.memory import MemoryPlan, plan_memory
from pullback.compiler.pack import pack
from pullback.compiler.passes import PASSES, Pass, optimise
from pullback.compiler.passes.projected_convolutions import projected_convolutions
from pullback.compiler.places import store_places
from pullback.compiler.repeated import EXCHANGE_CYCLES, repeat_small
from pullback.compiler.runtime.layout import Slots
from pullback.compiler.runtime.processor import Processor
from pullback.compiler.schedule import Phase, make_schedule
from pullback.compiler.split import split_sums
from pullback.compiler.summation import sum_in_blocks
from pullback.compiler.tidy import few_rows_last, tidy
from pullback.graph import Graph, format_graph
from pullback.loops import Buffer, Kernel, Load
from pullback.loops.printer import format_kernel, format_program

__all__ = ["Built", "Planned", "Stage", "Watch", "build", "plan"]

CYCLES_PER_NANOSECOND = 3.5


@dataclass(frozen=True)
class Stage:
    """The program as one stage of the way leaves it: a graph, kernels, or kernels in phases of chunks."""

    name: str
    graph: Graph
    """The graph as the last of its passes has left it."""
    lowered: Lowered | None = None
    """What holds arguments, constants and results; nothing while the program is a graph."""
    kernels: tuple[Kernel, ...] = ()
    taken_over: Mapping[Buffer, Buffer] = field(default_factory=dict)
    """The argument whose memory a result has, once kernels are arranged for that."""
    phases: tuple[Phase, ...] = ()
    """The schedule, once there is one; it holds the kernels then."""
    memory: MemoryPlan | None = None

    def __str__(self) -> str:
        if self.memory is not None:
            return str(self.memory)
        if self.phases:
            return show_schedule(self.phases)
        return format_program(self.kernels) if self.lowered is not None else format_graph(self.graph)


Watch = Callable[[Stage], None]
"""Called with the program as each stage leaves it; what it is given may change afterwards."""


@dataclass(frozen=True)
class Planned:
    """A program in phases of chunks, with a place for every buffer."""

    lowered: Lowered
    phases: tuple[Phase, ...]
    slots: Slots
    addressed: Mapping[Buffer, int]
    """The slot of every buffer outside the arena."""
    memory: MemoryPlan


@dataclass(frozen=True)
class Built:
    """A program before it is machine code."""

    emitted: Emitted
    schedule: tuple[Phase, ...]
    plan: MemoryPlan
    constants: tuple[np.ndarray, ...]
    donated: Mapping[int, int]
    """The argument that each result took over, by the result's number."""
    nanoseconds: float
    """Estimated time of a step on one thread."""
    saving: float
    """Estimated nanoseconds of a step that a second thread saves; negative where waiting costs more than it brings."""
    in_place: tuple[bool, ...]
    """Of each phase whether it writes into memory that was taken over."""


def build(
    graph: Graph,
    donated: Mapping[int, int],
    processor: Processor,
    passes: Sequence[Pass] = PASSES,
    watch: Watch | None = None,
    ready: Callable[[str], None] | None = None,
) -> Built:
    """Optimise, lower, fuse, schedule, plan and emit ``graph``.

    ``donated`` offers arguments to results, by number; ``passes`` are those that the graph goes through.
    ``watch`` sees the program as each stage leaves it, ``ready`` each part of the module.
    """
    planned = plan(graph, donated, processor, passes, watch)
    phases, memory = planned.phases, planned.memory

    def lanes(kernel: Kernel) -> int:
        return lanes_of(kernel, processor)

    registers = processor.vector_registers
    emitted = emit_program(phases, planned.slots, planned.addressed, memory, lanes, registers, ready)
    cycles = sum(group.cycles for phase in phases for group in phase.groups)
    constants = tuple(planned.lowered.constants.values())
    nanoseconds, saving = (each / CYCLES_PER_NANOSECOND for each in (cycles, _saved_by_two(phases)))
    overwriting = {planned.lowered.outputs[result] for result in donated}
    in_place = tuple(
        any(not overwriting.isdisjoint(job.kernel.writes()) for group in phase.groups for job in group.jobs)
        for phase in phases
    )
    return Built(emitted, phases, memory, constants, donated, nanoseconds, saving, in_place)


def plan(
    graph: Graph,
    donated: Mapping[int, int],
    processor: Processor,
    passes: Sequence[Pass] = PASSES,
    watch: Watch | None = None,
) -> Planned:
    """Everything before code is made; the processor is only described, and need not be this one."""

    def see(name: str, graph: Graph, **forms: Any) -> None:
        if watch is not None:
            watch(Stage(name, graph, **forms))

    graph = optimise(graph, passes, see)
    graph = projected_convolutions(graph, processor.lanes)
    see("projected_convolutions", graph)
    lowered = lower(graph)

    def lanes(kernel: Kernel) -> int:
        return lanes_of(kernel, processor)

    def form_of(kernel: Kernel) -> Form:
        return choose_form(kernel, lanes(kernel), processor)

    def seen(name: str, kernels: Iterable[Kernel]) -> list[Kernel]:
        made = list(kernels)
        see(name, graph, lowered=lowered, kernels=tuple(made))
        return made

    kernels = seen("lower", lowered.kernels)
    kernels = seen("fuse", fuse(kernels, lowered.outputs))
    kernels = seen("tidy", [tidy(kernel, lanes(kernel)) for kernel in kernels])
    kernels = seen("fuse again", fuse(kernels, lowered.outputs))
    kernels = seen("tidy again", [tidy(kernel, lanes(kernel)) for kernel in kernels])
    kernels = seen("few rows last", few_rows_last(kernels, lanes))
    kernels = seen("split", split_sums(kernels, lanes))
    kernels = seen("sum in blocks", map(sum_in_blocks, kernels))
    kernels = seen("places", store_places(kernels))
    kernels = seen("pack", pack(kernels, lowered.outputs, form_of, lanes, processor.vector_registers))
    taken_over = {
        lowered.outputs[result]: lowered.arguments[argument] for result, argument in donated.items()
    }
    kernels, before = arrange(kernels, taken_over)
    see("donate", graph, lowered=lowered, taken_over=taken_over, kernels=tuple(kernels))
    phases = make_schedule(kernels, before, lanes, form_of, processor.vector_registers)
    see("schedule", graph, lowered=lowered, taken_over=taken_over, phases=tuple(phases))
    phases = repeat_small(phases, before, lowered.outputs, taken_over.values())
    see("repeat", graph, lowered=lowered, taken_over=taken_over, phases=tuple(phases))
    slots = Slots(len(lowered.arguments), len(lowered.outputs), len(lowered.constants))
    addressed: dict[Buffer, int] = {}
    for position, buffer in enumerate(lowered.arguments):
        addressed[buffer] = slots.argument(position)
    for position, buffer in enumerate(lowered.outputs):
        addressed[buffer] = slots.result(position)
    for position, buffer in enumerate(lowered.constants):
        addressed[buffer] = slots.constant(position)
    memory = plan_memory(phases, addressed)
    see("memory", graph, lowered=lowered, taken_over=taken_over, phases=tuple(phases), memory=memory)
    return Planned(lowered, tuple(phases), slots, addressed, memory)


def _saved_by_two(schedule: Sequence[Phase]) -> float:
    """The cycles by which two threads finish a step sooner than one."""
    saved = 0.0
    for phase in schedule:
        total = sum(group.cycles for group in phase.groups)
        longest = max(group.cycles / group.chunks for group in phase.groups)
        saved += total - max(total / 2, longest) - EXCHANGE_CYCLES
    return saved


def lanes_of(kernel: Kernel, processor: Processor) -> int:
    """Lanes of a kernel's vectors: a register of its widest float, or of 32-bit elements where it has none.

    What depends on no axis, such as a learning rate, is never a vector.
    """
    dtypes = [e.dtype for e in kernel.expressions() if e.axes]
    dtypes += [store.buffer.dtype for store in kernel.stores if store.inner or kernel.axes]
    sizes = [dtype.itemsize for dtype in dtypes if dtype.kind == "f"]
    if not sizes:
        sizes = [e.dtype.itemsize for e in kernel.expressions() if isinstance(e, Load)]
    return processor.lanes(max([4, *sizes]))


def show_schedule(phases: Sequence[Phase], seconds: Sequence[float] = ()) -> str:
    """The loop program as text: phases, with the time that each takes where that is known, groups and kernels."""
    lines = []
    for position, phase in enumerate(phases):
        measured = f": {seconds[position] * 1e6:,.1f} microseconds" if seconds else ""
        lines.append(f"phase {position}{measured}")
        if phase.first:
            lines.append("  each thread first")
            lines += [
                f"      {line}" for job in phase.first for line in format_kernel(job.kernel).splitlines()
            ]
        for group in phase.groups:
            lines.append(
                f"  {group.chunks} chunks of {group.share} rows of {group.rows}, {group.cycles:,.0f} cycles"
            )
            for job in group.jobs:
                lines.append(f"    {job.form.name} {job.form.blocking or job.tile or ''}".rstrip())
                lines += [f"      {line}" for line in format_kernel(job.kernel).splitlines()]
    return "\n".join(lines)
