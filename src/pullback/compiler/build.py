"""The whole way from a graph to LLVM IR, and everything that can be shown of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

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
from pullback.graph import Graph
from pullback.loops import Buffer, Kernel, Load
from pullback.loops.printer import format_kernel

__all__ = ["Built", "Watch", "build"]

Watch = Callable[[str, Lowered, Sequence[Kernel]], None]
"""Called with the name of a stage, what was lowered, and the kernels as the stage leaves them."""

CYCLES_PER_NANOSECOND = 3.5


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
    ``watch(stage, lowered, kernels)`` sees the kernels as each stage leaves them, ``ready`` each part of the module.
    """
    lowered = lower(projected_convolutions(optimise(graph, passes), processor.lanes))

    def see(stage: str, kernels: Sequence[Kernel]) -> None:
        if watch is not None:
            watch(stage, lowered, kernels)

    see("lower", lowered.kernels)
    kernels = fuse(lowered.kernels, lowered.outputs)
    see("fuse", kernels)

    def lanes(kernel: Kernel) -> int:
        return lanes_of(kernel, processor)

    tidied = [tidy(kernel, lanes(kernel)) for kernel in kernels]
    tidied = [tidy(kernel, lanes(kernel)) for kernel in fuse(tidied, lowered.outputs)]
    kernels = [sum_in_blocks(kernel) for kernel in split_sums(few_rows_last(tidied, lanes), lanes)]
    see("tidy", kernels)

    def form_of(kernel: Kernel) -> Form:
        return choose_form(kernel, lanes(kernel), processor)

    kernels = pack(store_places(kernels), lowered.outputs, form_of, lanes, processor.vector_registers)
    see("pack", kernels)
    taken_over = {
        lowered.outputs[result]: lowered.arguments[argument] for result, argument in donated.items()
    }
    ordered, before = arrange(kernels, taken_over)
    see("donate", ordered)
    schedule = make_schedule(ordered, before, lanes, form_of, processor.vector_registers)
    schedule = repeat_small(schedule, before, lowered.outputs, taken_over.values())
    slots = Slots(len(lowered.arguments), len(lowered.outputs), len(lowered.constants))
    addressed: dict[Buffer, int] = {}
    for position, buffer in enumerate(lowered.arguments):
        addressed[buffer] = slots.argument(position)
    for position, buffer in enumerate(lowered.outputs):
        addressed[buffer] = slots.result(position)
    for position, buffer in enumerate(lowered.constants):
        addressed[buffer] = slots.constant(position)
    plan = plan_memory(schedule, addressed)
    emitted = emit_program(schedule, slots, addressed, plan, lanes, processor.vector_registers, ready)
    cycles = sum(group.cycles for phase in schedule for group in phase.groups)
    constants = tuple(lowered.constants.values())
    nanoseconds, saving = (each / CYCLES_PER_NANOSECOND for each in (cycles, _saved_by_two(schedule)))
    return Built(emitted, tuple(schedule), plan, constants, donated, nanoseconds, saving)


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


def show_schedule(phases: Sequence[Phase]) -> str:
    """The loop program as text: phases, groups and kernels."""
    lines = []
    for position, phase in enumerate(phases):
        lines.append(f"phase {position}")
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
