"""A program run after every stage of its way to code, so that what goes wrong is known by the stage that did it.

Graphs are run by the graph's interpreter, kernels by that of loop programs. A schedule is run chunk by chunk, the last
chunk of a region first: chunks must not need each other. Once there is a memory plan chunks run from first to last,
buffers lie where it says in one arena, and what a chunk keeps to itself lies in scratch memory. All memory is full of
NaN before it is written.

>>> import numpy as np, pullback as pb
>>> from pullback.graph import Type, Variable
>>> x = Variable(Type(np.dtype(np.float32), (2, 3)), "x")
>>> graph, some = Graph((x,), (np.exp(x).sum(axis=1),)), Processor("generic", "+avx2,+fma", "x86_64", 32, 16)
>>> for stage, results in run_stages(graph, [np.zeros((2, 3), np.float32)], some):
...     if stage.name in ("lower", "memory"):
...         print(stage.name, results)
lower [array([3., 3.], dtype=float32)]
memory [array([3., 3.], dtype=float32)]
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pullback.compiler.legalise.parts import packed_array, with_parts
from pullback.compiler.lowering.items import Block, Counter, blocks_of
from pullback.compiler.passes import Pass, passes_for
from pullback.compiler.passes.rewriting import Rewriter, RulePass
from pullback.compiler.plan import Stage, plan
from pullback.compiler.regions.memory import MemoryPlan
from pullback.compiler.regions.steps import End, Group, Job, Region, Step, buffers_of, every_job
from pullback.compiler.regions.turns import first_element, run_block, run_steps, unset
from pullback.compiler.schedules.contraction import Contraction
from pullback.compiler.schedules.contraction_schedules import ContractionSchedule
from pullback.compiler.schedules.scatter import ScatterSchedule
from pullback.compiler.target import Processor
from pullback.errors import IndexRangeError, LoopError, StageError
from pullback.graph import Graph
from pullback.interpreter import evaluate
from pullback.loops import Axis, Buffer, Kernel
from pullback.loops.interpreter import Memory, run_kernel
from pullback.loops.printer import format_kernel, format_program

__all__ = ["check_stages", "run_stages", "within"]

Array = np.ndarray[Any, Any]

Same = Callable[[int, Array, Array], bool]
Comparison = Callable[[Graph, Sequence[Array]], "Same"]
"""``same(number, value, wanted)``: whether a result is what it should be, up to rounding."""

ROUNDING = 1024.0
"""Units in the last place of a result's largest number, by which results may differ unless told otherwise."""


def run_stages(
    graph: Graph,
    arguments: Sequence[Array],
    processor: Processor,
    donated: Mapping[int, int] | None = None,
    passes: Sequence[Pass] | None = None,
) -> list[tuple[Stage, list[Array]]]:
    """The results of ``graph`` for ``arguments``, by the program as each stage leaves it for ``processor``.

    ``donated`` offers arguments to results, by number. Blocks of a program with loops have no results of their own.
    Raises ``IndexRangeError`` where an index is out of range.
    """
    found: list[tuple[Stage, list[Array]]] = []
    blocks: list[Graph] = []
    graph, arguments = with_parts(graph), list(map(packed_array, arguments))

    def see(stage: Stage) -> None:
        blocks.extend(block.graph for block in blocks_of(stage.items))
        if all(stage.graph is not block for block in blocks):
            found.append((stage, _Run(stage, arguments).results()))

    plan(graph, donated or {}, processor, passes, see)
    return found


def check_stages(
    graph: Graph,
    arguments: Sequence[Array],
    processor: Processor,
    donated: Mapping[int, int] | None = None,
    passes: Sequence[Pass] | None = None,
    same: Comparison | None = None,
) -> None:
    """Raise ``StageError`` at the first stage after which the program computes something else than ``graph``.

    The error names the stage and shows the kernels that first write something else than before. Where an index is out
    of range every stage must report that. Of a program with loops each block is compared by itself, on what its first
    run is given. ``same(graph, arguments)`` gives the comparison of results, by default ``within()``.
    """
    graph, arguments = with_parts(graph), list(map(packed_array, arguments))
    check = _Check(
        graph,
        arguments,
        passes_for(processor) if passes is None else passes,
        same or (lambda graph, arguments: within()),
    )
    plan(graph, donated or {}, processor, passes, check)


def within(rounding: float = ROUNDING) -> Same:
    """Equal to ``rounding`` units in the last place of the largest finite number; what is no float, exactly."""

    def same(number: int, value: Array, wanted: Array) -> bool:
        if wanted.dtype.kind != "f":
            return bool(np.array_equal(value, wanted))
        finite = np.isfinite(wanted)
        if not np.array_equal(value[~finite], wanted[~finite], equal_nan=True):
            return False
        largest = float(np.abs(wanted[finite]).max(initial=0.0))
        with np.errstate(all="ignore"):
            off = np.abs(value[finite].astype(np.float64) - wanted[finite])
        return bool((off <= rounding * float(np.finfo(wanted.dtype).eps) * largest).all())

    return same


class _Check:
    """Compares the program after each stage with the graph that it was made of."""

    def __init__(
        self, graph: Graph, arguments: Sequence[Array], passes: Sequence[Pass], comparison: Comparison
    ) -> None:
        self.arguments, self.passes, self.comparison = arguments, passes, comparison
        self.same = comparison(graph, arguments)
        self.before = Stage("graph", graph)
        self.contents: Mapping[Buffer, Array] = {}
        self.blocks: dict[int, _Check | None] = {}
        """Of each block of a program with loops, by its graph; None of one that was not run."""
        self.wanted: list[Array] | None = None
        with contextlib.suppress(IndexRangeError):
            self.wanted = evaluate(graph, arguments)

    def __call__(self, stage: Stage) -> None:
        if id(stage.graph) in self.blocks:
            block = self.blocks[id(stage.graph)]
            if block is not None:
                block(stage)
            return
        run = _Run(stage, self.arguments)
        try:
            results = run.results()
        except IndexRangeError as error:
            if self.wanted is not None:
                raise StageError(f"[{stage.name}] {error}, where no index was before") from error
            return
        except (LoopError, ValueError, TypeError, LookupError) as error:
            raise StageError(f"[{stage.name}] {error}\n{run.kernel and format_kernel(run.kernel)}") from error
        if self.wanted is None:
            raise StageError(f"[{stage.name}] an index that is out of range is not reported any more")
        for number, (value, wanted) in enumerate(zip(results, self.wanted, strict=True)):
            if (value.dtype, value.shape) != (wanted.dtype, wanted.shape):
                raise StageError(
                    f"[{stage.name}] result {number} has become {value.dtype}{list(value.shape)}"
                )
            if not self.same(number, value, wanted):
                raise StageError(f"[{self._name(stage)}] {self._difference(stage, run, number, value)}")
        self.before, self.contents = stage, run.contents()
        self.blocks.update((id(block.graph), None) for block in blocks_of(stage.items))
        for graph, given in run.blocks:
            self.blocks[id(graph)] = _Check(graph, given, self.passes, self.comparison)

    def _name(self, stage: Stage) -> str:
        """The stage, or of passes that share a walk the first one with which the results are wrong."""
        names = stage.name.split(", ")
        rules = [each for each in self.passes if each.name in names and isinstance(each, RulePass)]
        for count in range(1, len(rules)):
            made = evaluate(Rewriter(rules[:count])(self.before.graph), self.arguments)
            if not all(self.same(k, *pair) for k, pair in enumerate(zip(made, self.wanted or []))):
                return rules[count - 1].name
        return rules[-1].name if rules else stage.name

    def _difference(self, stage: Stage, run: _Run, number: int, value: Array) -> str:
        assert self.wanted is not None
        wanted = self.wanted[number]
        found, right = value.astype(np.float64), wanted.astype(np.float64)
        with np.errstate(all="ignore"):
            distance = np.where(
                (found == right) | np.isnan(found) & np.isnan(right), 0, np.abs(found - right)
            )
        place = np.unravel_index(np.argmax(np.where(np.isnan(distance), np.inf, distance)), value.shape)
        where = f" at {tuple(map(int, place))}" if place else ""
        text = f"result {number}{where} is {value[place]} where the graph gives {wanted[place]}"
        return f"{text}\n{self._culprits(stage, run, number)}"

    def _culprits(self, stage: Stage, run: _Run, number: int) -> str:
        """What writes the first buffer that holds something else than in the stage before, or else the result."""
        if stage.lowered is None:
            return str(stage)
        contents, same = run.contents(), within()
        written = [buffer for kernel in run.order for buffer in kernel.writes()]
        known = [buffer for buffer in written if buffer in self.contents and buffer in contents]
        changed = (b for b in known if not same(number, contents[b], self.contents[b]))
        wrong = next(changed, stage.lowered.outputs[number])
        return format_program(kernel for kernel in run.order if wrong in kernel.writes())


class _Run:
    """A program as a stage leaves it, run once."""

    def __init__(self, stage: Stage, arguments: Sequence[Array]) -> None:
        self.stage, self.arguments = stage, arguments
        self.order: list[Kernel] = []
        self.kernel: Kernel | None = None
        """The kernel that runs, or was the last to run."""
        self.memory = Memory({})
        self.turns: dict[Counter, int] = {}
        """The turn of each loop around what runs."""
        self.blocks: list[tuple[Graph, Sequence[Array]]] = []
        """The blocks of a program with loops, with what the first run of each was given."""

    def results(self) -> list[Array]:
        """What the program gives for the arguments."""
        lowered = self.stage.lowered
        if lowered is None:
            return evaluate(self.stage.graph, self.arguments)
        overwritten = set(self.stage.aliased.values())
        for buffer, array in [*zip(lowered.arguments, self.arguments), *lowered.constants.items()]:
            flat = self.memory.arrays[buffer] = np.array(array, buffer.dtype).ravel()
            flat.flags.writeable = buffer in overwritten
        for buffer in lowered.outputs:
            taken = self.stage.aliased.get(buffer)
            self.memory.arrays[buffer] = unset(buffer) if taken is None else self.memory.arrays[taken]
        if self.stage.items:
            run_steps(self.stage.items, self.memory.arrays, self.turns, self._block)
        if self.stage.regions:
            self._prepare(self.stage.regions, self.stage.memory)
            run_steps(self.stage.regions, self.memory.arrays, self.turns, self._region, self.memory.failures)
        for kernel in self.stage.kernels:
            self._provide(kernel)
            self._run(kernel, self.memory)
            self._report()
        arrays = [self.memory.arrays[buffer] for buffer in lowered.outputs]
        return [array.reshape(buffer.shape) for array, buffer in zip(arrays, lowered.outputs)]

    def contents(self) -> Mapping[Buffer, Array]:
        """What is in each buffer that has memory of its own."""
        return self.memory.arrays if self.stage.memory is None else {}

    def _block(self, block: Block) -> None:
        arguments = run_block(block, self.memory.arrays, self.turns)
        if all(block.graph is not graph for graph, _ in self.blocks):
            self.blocks.append((block.graph, arguments))

    def _provide(self, kernel: Kernel) -> None:
        for buffer in kernel.writes():
            if buffer not in self.memory.arrays:
                self.memory.arrays[buffer] = unset(buffer)

    def _run(self, kernel: Kernel, memory: Memory, **share: Any) -> None:
        self.kernel = kernel
        if kernel not in self.order:
            self.order.append(kernel)
        run_kernel(kernel, memory, **share)

    def _report(self) -> None:
        """Raise what was found wrong with an index; nothing may have been overwritten then."""
        if not self.memory.failures:
            return
        assert self.stage.lowered is not None
        for buffer, array in zip(self.stage.lowered.arguments, self.arguments):
            if self.memory.arrays[buffer].tobytes() != np.asarray(array, buffer.dtype).tobytes():
                raise LoopError(f"{buffer!r} is overwritten although an index is out of range")
        raise self.memory.failures[0]

    # ------------------------------------------------------------------ schedules

    def _prepare(self, steps: Sequence[Step], memory: MemoryPlan | None) -> None:
        """Memory for what the whole program shares."""
        if memory is None:
            for job in every_job(steps):
                self._provide(job.kernel)
            return
        arena = _bytes(memory.arena_bytes)
        for placed in memory.placed:
            part = arena[placed.offset : placed.offset + placed.buffer.nbytes]
            self.memory.arrays[placed.buffer] = part.view(placed.buffer.dtype)
        self.memory.arrays.update((buffer, _bytes(0).view(buffer.dtype)) for buffer in self.stage.bound)

    def _region(self, region: Region) -> None:
        memory = self.stage.memory
        chunks = [(group, k) for group in region.groups for k in range(group.chunks)]
        order = [chunks[k] for k in region.order()]
        writers = _Writers()
        for group, chunk in reversed(order) if memory is None else order:
            self._chunk(group, chunk, writers)
        self._report()

    def _chunk(self, group: Group, chunk: int, writers: _Writers) -> None:
        low, high = chunk * group.grain, min((chunk + 1) * group.grain, group.rows)
        memory = self._memory_of(group, low, high)
        if self.stage.memory is None:
            writers.chunk += 1
            memory.on_write = writers
        for turn in range(1 if group.turns is None else group.turns.trips):
            if group.turns is not None:
                self.turns[group.turns] = turn
            if group.end is not None and low * group.end.capacity >= self._size(group.end) * group.rows:
                self._clear(group, low, high)
                continue
            for job in group.jobs:
                if job.rows == group.rows > 1:
                    self._job(job, low * job.pitch, high * job.pitch, memory)
                else:
                    self._job(job, 0, job.parts, memory)

    def _memory_of(self, group: Group, low: int, high: int) -> Memory:
        """What a chunk sees: memory for its own rows, where it keeps them to itself, and all that is shared."""
        arrays, starts, plan = dict(self.memory.arrays), dict[Buffer, int](), self.stage.memory
        if plan is not None:
            scratch = _bytes(plan.scratch_bytes)
            used = {buffer for job in group.jobs for buffer in buffers_of(job.kernel)}
            for buffer in used & plan.kept.keys():
                kept, size = plan.kept[buffer], buffer.dtype.itemsize
                rows = scratch[kept.offset : kept.offset + (high - low) * kept.row_bytes]
                arrays[buffer], starts[buffer] = rows.view(buffer.dtype), low * kept.row_bytes // size
        return Memory(arrays, starts, self.memory.failures)

    def _size(self, end: End) -> int:
        """How many rows count."""
        return int(self.memory.arrays[end.size][0])

    def _clear(self, group: Group, low: int, high: int) -> None:
        """Zeros in some rows of all that others may read."""
        for buffer in group.cleared:
            if self.stage.memory is None or buffer not in self.stage.memory.kept:
                pitch = buffer.size // group.rows
                self._bound(buffer, self.memory.arrays)[low * pitch : high * pitch] = 0

    def _bound(self, buffer: Buffer, arrays: dict[Buffer, Array]) -> Array:
        """Where a buffer lies in this turn."""
        view = self.stage.bound.get(buffer)
        if view is not None:
            start = first_element(view, self.turns)
            arrays[buffer] = self.memory.arrays[view.base][start : start + buffer.size]
        return arrays[buffer]

    def _job(self, job: Job, low: int, high: int, memory: Memory) -> None:
        """The parts ``low`` to ``high`` of the job."""
        kernel = job.kernel
        for buffer in buffers_of(kernel):
            self._bound(buffer, memory.arrays)
        places: dict[Axis, range] = {}
        if job.ended is not None and isinstance(job.schedule, ContractionSchedule):
            memory = self._up_to(job.ended, job.schedule.contraction, memory)
        elif job.ended is not None and isinstance(job.schedule, ScatterSchedule):
            places = dict.fromkeys(job.schedule.positions, range(self._size(job.ended)))
        for run in job.schedule.runs(kernel, low, high):
            self._run(kernel, memory, **{**run, "places": {**run.get("places", {}), **places}})

    def _up_to(self, end: End, product: Contraction, memory: Memory) -> Memory:
        """Memory that has nothing in the summed rows beyond the end, which are not read."""
        arrays = dict(memory.arrays)
        for pair in product.pairs:
            for load in (pair.left, pair.right):
                pitch = load.offset.coefficient(pair.depth[-1])
                arrays[load.buffer] = arrays[load.buffer].copy()
                arrays[load.buffer].reshape(-1, end.capacity, pitch)[:, self._size(end) :] = 0
        return replace(memory, arrays=arrays)


class _Writers:
    """Which chunk of a region has written each element; a second one that writes it is an error."""

    def __init__(self) -> None:
        self.chunk = 0
        self.of: dict[Buffer, Array] = {}

    def __call__(self, buffer: Buffer, index: Array) -> None:
        chunks = self.of.setdefault(buffer, np.zeros(buffer.size, np.int64))
        if ((chunks[index] != 0) & (chunks[index] != self.chunk)).any():
            raise LoopError(f"two chunks of a region write an element of {buffer!r}")
        chunks[index] = self.chunk


def _bytes(count: int) -> Array:
    """Memory that nothing was written to: NaN for floats, -1 for integers."""
    return np.full(count, 0xFF, np.uint8)
