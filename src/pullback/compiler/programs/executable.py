"""A graph as a loaded program: from the code cache when it is there, built and compiled when it is not."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pullback.compiler.key.graph import check_sites, graph_key
from pullback.compiler.legalise.factors import with_factors
from pullback.compiler.legalise.parts import with_parts
from pullback.compiler.programs.collector import young_collections_only
from pullback.compiler.programs.outside import BoundCall
from pullback.compiler.programs.progress import shown_progress
from pullback.compiler.runtime.cache import default_cache
from pullback.compiler.runtime.compiling import Compilation
from pullback.compiler.runtime.engine import Loaded, assembly, rest
from pullback.compiler.runtime.layout import TURN_SHIFT
from pullback.compiler.runtime.machine import machine
from pullback.compiler.runtime.program import Program, working_bytes, working_threads
from pullback.compiler.runtime.specs import Failure
from pullback.compiler.runtime.threads import get_num_threads
from pullback.compiler.target import Processor
from pullback.control.custom import without_rules
from pullback.control.host import host_functions, with_host_calls
from pullback.control.schedules import Levels
from pullback.errors import IndexRangeError
from pullback.graph import (
    Constant,
    Graph,
    Type,
    every_node,
    format_graph,
    results,
)
from pullback.graph.values import with_line
from pullback.operators.indexing import range_error
from pullback.tracing.trees import Structure
from pullback.undisturbed import undisturbed

if TYPE_CHECKING:
    from pullback.compiler.build import Built, Stage, Watch

__all__ = ["Executable", "Need", "Report", "Requested", "decided", "make_executable", "needed"]


def _builder() -> ModuleType:
    """What builds programs, imported where one is built: a program from the cache starts sooner without it."""
    return undisturbed(lambda: import_module("pullback.compiler.build"))


class Requested(NamedTuple):
    """What is to be compiled: a graph, and what ``jit`` knows of its arguments and results."""

    graph: Graph
    out_structure: Structure
    offered: dict[int, int]
    """Which argument each result may take over, by number."""
    uncarried: str
    """Which donated argument does not come back as it was, in words; empty if all do, as the first results in order."""
    watched: int | None
    """The number of the result that ends a run of steps if it is not finite."""


@dataclass(frozen=True)
class Report:
    """All forms of a program as text, and what it took to make it."""

    graph: str
    optimised: str
    """The graph after its passes."""
    stages: Mapping[str, str]
    """The program as each stage leaves it, by the stage's name: graphs, kernels, the schedule."""
    loops: str
    """The schedule, with the time that each region takes."""
    memory: str
    llvm: str
    assembly: str
    compile_seconds: float
    from_cache: bool
    region_seconds: tuple[float, ...]
    """The time of each region, measured on the arguments that were given."""


@dataclass(frozen=True, eq=False)
class Executable:
    """A program for one graph, with the means to show how it was made."""

    graph: Graph
    program: Program
    compile_seconds: float
    levels: Levels | None

    def report(self, arguments: Sequence[Any]) -> Report:
        """Every intermediate form, made anew, and the time of each region on ``arguments``, which stay as they are."""
        from pullback.compiler.programs.timing import region_seconds

        builder, processor = _builder(), self.program.code.processor
        stages: dict[str, str] = {}
        optimised = format_graph(self.graph)

        def watch(stage: Stage) -> None:
            nonlocal optimised
            text, name = str(stage), stage.name
            if stage.lowered is None:
                optimised = text
            while name in stages:  # passes are run until none changes anything
                name += " again"
            stages[name] = text

        built = builder.build(self.graph, self.program.donated, processor, watch=watch)
        seconds = region_seconds(self.program, arguments, built.again())
        return Report(
            graph=format_graph(self.graph),
            optimised=optimised,
            stages=stages,
            loops=builder.listed(built.schedule, seconds),
            memory=f"{self._memory()}\n{built.plan}",
            llvm=built.emitted.text,
            assembly=assembly(built.emitted.text, processor),
            compile_seconds=self.compile_seconds,
            from_cache=self.program.code.cached,
            region_seconds=seconds,
        )

    @property
    def memory_bytes(self) -> int:
        """What a call takes beside arguments, results and constants: the arena, and scratch memory of all threads."""
        program = self.program
        return working_bytes(program.arena_bytes, program.scratch_bytes, program.code.processor)

    def _memory(self) -> str:
        threads = working_threads(self.program.code.processor)
        text = f"{self.memory_bytes:,} bytes: an arena, and scratch memory for {threads} threads"
        return text if self.levels is None else f"{text}\n{self.levels}"


@young_collections_only()
def make_executable(
    graph: Graph,
    offered: Mapping[int, int],
    watch_result: int | None = None,
    levels: Levels | None = None,
    processor: Processor | None = None,
    watch: Watch | None = None,
    flush_subnormals: bool = False,
    names: Sequence[str] = (),
) -> Executable:
    """Compile ``graph``; ``offered`` says which argument each result may take over, by number.

    ``processor`` is this one unless another is given, such as the same with narrower vectors; it may
    ``flush_subnormals``. ``watch`` sees the kernels of each stage where code is made, not where it comes from the
    cache. ``names`` are what errors call the arguments.
    """
    start = time.perf_counter()
    whole = graph
    graph = with_parts(without_rules(graph))  # rules matter to derivatives alone
    graph = with_factors(graph)
    graph = with_host_calls(graph)  # a program from the cache is told what it calls
    processor = processor or _this_processor()
    if flush_subnormals:
        processor = replace(processor, flush_subnormals=True)
    key = graph_key(graph, offered)
    made = default_cache().load(key, processor)
    cached = made is not None
    if not cached:
        with Compilation(processor) as compilation, shown_progress() as tell:
            compilation.begin(machine)  # all programs need it, and building this one takes a while

            def seen(stage: Stage) -> None:
                tell(stage.name)
                if watch is not None:
                    watch(stage)

            def ready(part: str) -> None:
                tell("a part of the code")
                compilation.add(part)

            built = _builder().build(graph, offered, processor, watch=seen, ready=ready)
            objects = compilation.objects(tell)
        made = objects, _metadata(graph, built)
        default_cache().store(key, processor, made)
    objects, metadata = made
    machine()  # what it calls must be there
    code = Loaded(objects, processor, cached)
    program = _program(graph, whole, offered, code, metadata, watch_result, names)
    rest()
    return Executable(graph, program, time.perf_counter() - start, levels)


def _this_processor() -> Processor:
    """The processor of this process, with the threads that programs may run on now, unless a description says."""
    default_cache().learn_processor()
    host = Processor.host()
    return host if host.threads else replace(host, threads=get_num_threads())


class Need(NamedTuple):
    """What a program takes: bytes, and the estimated time of a call in nanoseconds."""

    bytes: int
    nanoseconds: float


def needed(made: Requested) -> Need:
    """What the program would take for itself: memory, and time."""
    builder, processor = _builder(), _this_processor()
    plan = builder.plan(with_parts(without_rules(made.graph)), made.offered, processor)
    nanoseconds, _ = builder.estimated(plan.steps, processor)
    return Need(working_bytes(plan.memory.arena_bytes, plan.scratch_bytes, processor), nanoseconds)


def decided(made: Requested, budget: int, decide: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    """What ``decide()`` says for a program and a budget of memory; from the code cache if it is known there.

    The program is that of what its scans say by themselves.
    """
    processor, text = _this_processor(), graph_key(with_parts(without_rules(made.graph)), made.offered)
    key = None if text is None else f"budget {budget} for {working_threads(processor)} threads\n{text}"
    decision: Mapping[str, Any] | None = default_cache().load(key, processor)
    if decision is None:
        decision = decide()
        default_cache().store(key, processor, decision)
    return decision


def _metadata(graph: Graph, built: Built) -> dict[str, Any]:
    """What the runtime must know beside the code; lines, functions and constants of the graph by their numbers.

    A routine that a pass has made is none of the graph's functions; it is part of the program.
    """
    nodes = every_node(graph)
    positions = {id(node.value): k for k, node in enumerate(nodes) if isinstance(node, Constant)}
    sites, functions, emitted = check_sites(nodes), host_functions(nodes), built.emitted
    return {
        "regions": emitted.regions,
        "needs": {
            "arena_bytes": built.plan.arena_bytes,
            "scratch_bytes": emitted.scratch_bytes,
            "cost": built.nanoseconds,
            "saving": built.saving,
        },
        "checks": [(replace(check, source=None), sites.get(check.source, -1)) for check in emitted.checks],
        "calls": [
            (
                functions.get(node.attributes["function"]),
                sites.get(node.source, -1),
                [x.type for x in node.inputs],
                [x.type for x in results(node)],
            )
            for node in (call.node for call in emitted.calls)
        ],
        "constants": [positions.get(id(value), value) for value in built.constants],
    }


def _program(
    graph: Graph,
    whole: Graph,
    donated: Mapping[int, int],
    code: Loaded,
    metadata: Mapping[str, Any],
    watch_result: int | None,
    names: Sequence[str],
) -> Program:
    """The program of ``graph`` with the arguments and results of ``whole``, which may be complex."""
    nodes = every_node(graph)
    lines, functions = [*check_sites(nodes), None], [*host_functions(nodes)]  # the last is nobody's line

    def explain(failure: Failure) -> Exception:
        check, site = metadata["checks"][failure.code - 1]
        turn, position = divmod(failure.position, 1 << TURN_SHIFT) if check.loops else (0, failure.position)
        place = _place(position, check.shape) if check.shape else ()
        outside = range_error(check.what, failure.value, check.low, check.extent, place)
        error: IndexRangeError = with_line(outside, lines[site])
        for trips, reverse in reversed(check.loops):
            turn, step = divmod(turn, trips)
            error = error.extended(f"in step {trips - 1 - step if reverse else step} of {trips}")
        return error

    def bound(number: int | None, site: int, inputs: list[Type], outputs: list[Type]) -> BoundCall | int:
        """What the program calls: in Python, or at an address of this process."""
        if number is None:
            return 0
        function = functions[number]
        if function.routine is not None:
            return function.routine.address or 0
        return BoundCall(function, inputs, outputs, lines[site])

    return Program(
        code,
        arguments=[variable.type for variable in whole.inputs],
        results=[node.type for node in whole.outputs],
        donated=donated,
        regions=metadata["regions"],
        constants=[nodes[each].value if isinstance(each, int) else each for each in metadata["constants"]],
        **metadata["needs"],
        watch_result=watch_result,
        explain=explain,
        calls=[bound(*call) for call in metadata["calls"]],
        names=names,
    )


def _place(position: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The index of the element at a position in memory; of one in another array, the position itself."""
    if position >= math.prod(shape):
        return (position,)
    return tuple(int(index) for index in np.unravel_index(position, shape))
