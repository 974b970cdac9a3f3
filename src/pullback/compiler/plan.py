"""From a graph to a program in regions of chunks, with a place for every buffer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pullback.compiler.kernels.bands import in_bands
from pullback.compiler.kernels.branch import branch_on_matches
from pullback.compiler.kernels.canonicalise import canonicalise, few_rows_last
from pullback.compiler.kernels.compact import compact_masked
from pullback.compiler.kernels.donate import arrange
from pullback.compiler.kernels.fuse import fuse
from pullback.compiler.kernels.materialise import materialise_indices
from pullback.compiler.kernels.pack import pack, pack_reread
from pullback.compiler.kernels.split import split_by_rows, split_sums
from pullback.compiler.kernels.summation import sum_in_blocks
from pullback.compiler.kernels.unfold import unfold_short_rows
from pullback.compiler.kernels.unroll import unroll_short_axes
from pullback.compiler.lowering.items import (
    Block,
    Choice,
    HostCall,
    Item,
    Loop,
    Serial,
    View,
    While,
    every_step,
    written_by,
)
from pullback.compiler.lowering.lower import Lowered, lower
from pullback.compiler.lowering.structure import Arrangement, has_loops, with_single_call
from pullback.compiler.passes import Pass, optimise, passes_for
from pullback.compiler.regions.ends import Promise, counted_rows, end_rows
from pullback.compiler.regions.listing import listed
from pullback.compiler.regions.memory import MemoryPlan, plan_memory
from pullback.compiler.regions.parallelise import make_regions, one_after_another
from pullback.compiler.regions.planned import Planned
from pullback.compiler.regions.rematerialise import rematerialised
from pullback.compiler.regions.steps import Group, Region, Step, buffers_of, keeps_to_rows
from pullback.compiler.runtime.layout import ARENA
from pullback.compiler.schedules.choose import Schedules
from pullback.compiler.target import Processor
from pullback.graph import Graph, format_graph
from pullback.loops import Buffer, Kernel
from pullback.loops.printer import format_program

__all__ = ["Stage", "Watch", "plan"]


@dataclass(frozen=True)
class Ends:
    """What holds the arguments, results and constants of a program with loops."""

    arguments: Sequence[Buffer]
    outputs: Sequence[Buffer]
    constants: Mapping[Buffer, np.ndarray]


@dataclass(frozen=True)
class Stage:
    """The program as one stage of the way leaves it: a graph, kernels, or kernels in regions of chunks.

    Of a program with loops each block goes through the stages as a program of its own.
    """

    name: str
    graph: Graph
    """The graph as the last of its passes has left it."""
    lowered: Lowered | Ends | None = None
    """What holds arguments, constants and results; nothing while the program is a graph."""
    kernels: tuple[Kernel, ...] = ()
    aliased: Mapping[Buffer, Buffer] = field(default_factory=dict)
    """The argument whose memory a result has, once kernels are arranged for that."""
    regions: tuple[Step, ...] = ()
    """The schedule, once there is one; it holds the kernels then."""
    memory: MemoryPlan | None = None
    items: tuple[Item, ...] = ()
    """The blocks and loops that the graph has become."""
    bound: Mapping[Buffer, View] = field(default_factory=dict)
    """Where arrays lie that are part of another buffer."""

    def __str__(self) -> str:
        if self.memory is not None:
            return str(self.memory)
        if self.regions or self.items:
            return listed(self.regions or self.items)
        return format_program(self.kernels) if self.lowered is not None else format_graph(self.graph)


Watch = Callable[[Stage], None]
"""Called with the program as each stage leaves it; what it is given may change afterwards."""


def plan(
    graph: Graph,
    donated: Mapping[int, int],
    processor: Processor,
    passes: Sequence[Pass] | None = None,
    watch: Watch | None = None,
) -> Planned:
    """Everything before code is made; the processor is only described, and need not be this one."""
    chosen = passes_for(processor) if passes is None else passes
    return _Planner(processor, watch).program(graph, donated, chosen)


class _Planner:
    def __init__(self, processor: Processor, watch: Watch | None) -> None:
        self.processor = processor
        self.watch = watch
        self.schedules = Schedules(processor)
        self.bound: dict[Buffer, View] = {}
        self.constants: dict[Buffer, np.ndarray] = {}
        self.counted: dict[Buffer, float] = {}
        """What part of the rows that a call counts there will be."""

    def program(self, graph: Graph, donated: Mapping[int, int], passes: Sequence[Pass]) -> Planned:
        """The whole program."""
        limits = graph.limits
        graph = with_single_call(optimise(graph, passes, self.see))
        arguments = [Buffer(f"argument{k}", v.dtype, v.shape) for k, v in enumerate(graph.inputs)]
        results = [Buffer(f"result{k}", node.dtype, node.shape) for k, node in enumerate(graph.outputs)]
        views = [View(buffer) for buffer in arguments], [View(buffer) for buffer in results]
        ends = Ends(arguments, results, self.constants)
        if has_loops(graph):
            items = Arrangement(graph, *views, donated, self.constants).items()
            self.see("loops", graph, lowered=ends, items=tuple(items))
        else:
            items = [Block(graph, tuple(views[0]), tuple(views[1]), dict(donated))]
        counted = tuple(counted_rows(items))
        self.counted = {promise.end.size: promise.share for promise in counted}
        steps: list[Step] = []
        for item in items:
            steps += self.block(item) if isinstance(item, Block) else self.held(item)
        promised = (Promise.of(limit, arguments, results) for limit in limits)
        end_rows(steps, [*promised, *counted], results, self.bound)
        addressed = {b: k for k, b in enumerate((*arguments, *results, *self.constants), ARENA + 1)}
        memory = plan_memory(steps, addressed, self.schedules.target.apart_bytes, self.bound)
        taken = {results[result]: arguments[argument] for result, argument in donated.items()}
        shown = {"lowered": ends, "aliased": taken, "bound": self.bound}
        self.see("memory", graph, **shown, regions=tuple(steps), memory=memory)
        constants = tuple(self.constants.values())
        return Planned(self.processor, tuple(steps), addressed, self.bound, memory, constants, tuple(results))

    def see(self, name: str, graph: Graph, **forms: Any) -> None:
        """Show the program as a stage has left it."""
        if self.watch is not None:
            self.watch(Stage(name, graph, **forms))

    # ------------------------------------------------------------------ blocks

    def kernels(self, block: Block, moving: Set[Buffer] | None = None) -> tuple[Lowered, list[Kernel]]:
        """The kernels of a block, fused and in the forms in which they are emitted.

        Of a block in a loop, ``moving`` is what the loop writes.
        """
        graph, target = block.graph, self.processor
        lowered = lower(graph, target)
        for buffers, views in ((lowered.arguments, block.inputs), (lowered.outputs, block.outputs)):
            self.bound.update(zip(buffers, views))
        self.schedules.shares = {
            buffer: self.counted[view.base]
            for buffer, view in zip(lowered.arguments, block.inputs)
            if view.base in self.counted
        }
        self.constants.update(lowered.constants)

        def seen(name: str, kernels: Iterable[Kernel]) -> list[Kernel]:
            made = list(kernels)
            self.see(name, graph, lowered=lowered, kernels=tuple(made))
            return made

        def each(rewritten: Callable[[Kernel, Schedules], list[Kernel]]) -> Iterable[Kernel]:
            return (made for kernel in kernels for made in rewritten(kernel, self.schedules))

        kernels = seen("lower", lowered.kernels)
        kernels = seen("split by rows", split_by_rows(kernels))
        kernels = seen("fuse", fuse(kernels, lowered.outputs, target))
        kernels = seen("canonicalise", [canonicalise(kernel, target) for kernel in kernels])
        kernels = seen("fuse again", fuse(kernels, lowered.outputs, target))
        kernels = seen("canonicalise again", [canonicalise(kernel, target) for kernel in kernels])
        fixed = frozenset[Buffer]() if moving is None else self._fixed(lowered, moving)
        kernels = seen("few rows last", few_rows_last(kernels, target, fixed))
        kernels = seen("split", split_sums(kernels, target))
        kernels = seen("sum in blocks", map(sum_in_blocks, kernels))
        kernels = seen("pack reread", pack_reread(kernels, self.schedules))
        kernels = seen("bands", each(in_bands))
        kernels = seen("unroll", unroll_short_axes(kernels, lowered.outputs, self.schedules))
        kernels = seen("materialise indices", each(materialise_indices))
        kernels = seen("compact", compact_masked(kernels, self.schedules))
        kernels = seen("branch", [branch_on_matches(kernel, self.schedules) for kernel in kernels])
        kernels = seen("unfold", each(unfold_short_rows))
        kernels = seen("pack", pack(kernels, self.schedules, fixed))
        return lowered, kernels

    def block(self, block: Block) -> list[Step]:
        """The regions of a block that is run once."""
        lowered, kernels = self.kernels(block)
        kernels = rematerialised(kernels, lowered.outputs, self.schedules)
        self.see("rematerialise", block.graph, lowered=lowered, kernels=tuple(kernels))
        aliased = {
            lowered.outputs[output]: lowered.arguments[argument] for output, argument in block.aliased.items()
        }
        kernels, before = arrange(kernels, aliased)
        shown = {"lowered": lowered, "aliased": aliased}
        self.see("donate", block.graph, **shown, kernels=tuple(kernels))
        regions = make_regions(kernels, before, self.schedules)
        self.see("regions", block.graph, **shown, regions=tuple(regions))
        return list(regions)

    # ------------------------------------------------------------------ loops and choices

    def held(self, item: Item, trips: int = 1) -> list[Step]:
        """The steps of an item that is run ``trips`` times."""
        if isinstance(item, HostCall):
            return [item]
        if isinstance(item, Loop):
            return self.loop(item, trips)
        if isinstance(item, Choice):
            return _in_one_chunk([Choice(item.index, [self.all_held(part, trips) for part in item.branches])])
        if isinstance(item, While):
            # The runtime repeats what it knows the number of; one thread can ask each time.
            condition, body = (self.all_held(part, trips) for part in (item.condition, item.body))
            return [Serial([While(item.flag, condition, body)])]
        return list(self._schedule(self.kernels(item)[1], trips))

    def all_held(self, items: Iterable[Item], trips: int) -> list[Step]:
        """The steps of several items."""
        return [step for item in items for step in self.held(item, trips)]

    def loop(self, loop: Loop[Item], trips: int = 1) -> list[Step]:
        """What a loop does once, before its first turn, and its turns."""
        trips *= loop.counter.trips
        moving = {view.base for view in written_by(loop.steps)}
        before: list[Kernel] = []
        parts: list[tuple[list[Kernel], list[Step]]] = []
        for item in loop.steps:
            if not isinstance(item, Block):
                parts.append(([], self.held(item, trips)))
                continue
            lowered, kernels = self.kernels(item, moving)
            once = self._done_once(kernels, self._fixed(lowered, moving))
            before += once
            parts.append(([kernel for kernel in kernels if kernel not in once], []))
        done_once = list[Step](self._schedule(before, trips // loop.counter.trips))
        # Chunks that go through all turns by themselves may be short in each; those that wait in each turn may not.
        for often in (trips, 1):
            turn = [step for own, held in parts for step in (*self._schedule(own, often), *held)]
            match steps := one_after_another(turn, {}):
                case [Region(groups=[Group(turns=None) as group])]:
                    if group.chunks == 1 or self._rows_stay(group, loop):
                        group.turns = loop.counter
                        return [*done_once, *steps]
        return [*done_once, *_in_one_chunk([Loop(loop.counter, steps)])]

    def _schedule(self, kernels: Sequence[Kernel], trips: int) -> list[Region]:
        return make_regions(kernels, {}, self.schedules, trips)

    def _done_once(self, kernels: Sequence[Kernel], fixed: Set[Buffer]) -> list[Kernel]:
        """The kernels that do the same in every turn: they read what is ``fixed`` and each other's results.

        Such are copies of weights in another order, not zeros that each turn adds to.
        """
        found: list[Kernel] = []
        known = set(fixed)
        writers = Counter(buffer for kernel in kernels for buffer in kernel.writes())
        for kernel in kernels:
            alone = all(buffer not in self.bound and writers[buffer] == 1 for buffer in kernel.writes())
            if alone and known.issuperset(kernel.reads()):
                found.append(kernel)
                known.update(kernel.writes())
        return found

    def _fixed(self, lowered: Lowered, moving: Set[Buffer]) -> Set[Buffer]:
        """What a block reads that is the same in every turn of a loop that writes those ``moving``."""
        views = {buffer: self.bound[buffer] for buffer in lowered.arguments}
        stay = {buffer for buffer, view in views.items() if view.base not in moving and not view.moves}
        return stay | lowered.constants.keys()

    def _rows_stay(self, group: Group, loop: Loop[Item]) -> bool:
        """Whether each row of a turn goes on from its own row of the turn before: then no chunk waits for another."""
        carried = {view for pair in loop.carries for view in pair}
        for job in group.jobs:
            own = [buffer for buffer in buffers_of(job.kernel) if self.bound.get(buffer) in carried]
            if own and (job.rows != group.rows or not all(keeps_to_rows(job, buffer) for buffer in own)):
                return False
        return True


def _in_one_chunk(steps: list[Step]) -> list[Step]:
    """``steps`` as one, where each of their regions is a single chunk: nothing waits between them.

    What is called in Python may raise an exception, which must not wait for the end of a loop.
    """

    def is_single(step: Region | HostCall) -> bool:
        if isinstance(step, HostCall):
            return step.node.attributes["function"].routine is not None
        return sum(group.chunks for group in step.groups) == 1

    single = all(is_single(step) for step, _ in every_step(steps))
    return [Serial(steps)] if single else steps
