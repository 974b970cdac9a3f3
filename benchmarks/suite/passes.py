"""What each of the compiler's passes and stages brings to every program of the suite: whether it earns its lines.

A program's code is made again without each of them in turn, and where it is other code both are run, turn and turn
about. What brings little, to few programs or to one kind of processor, can go; ``--vectors 32`` is another kind.
"""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import calls
import evaluations
import nets
import small
from contenders import calls_pullback, evaluations_pullback, nets_pullback, small_pullback, with_pullback
from contest import REST_SECONDS, Settings
from networks import Network
from report import Table
from workload import Job, batch_rows

from pullback.compiler import build as builder
from pullback.compiler.passes import pipeline
from pullback.compiler.target import Processor
from suite.calls import CALLS, NETS
from suite.evaluations import EVALUATIONS
from suite.jobs import RACES

_TURN_SECONDS = 0.1
_NETWORK_STEPS = 20
_NEEDED = ("without_rules", "with_factors", "with_host_calls", "bodies")
"""Passes without which there is no program."""


def _unchanged(kernels: Any, *_: Any) -> list[Any]:
    return list(kernels)


def _alone(kernel: Any, *_: Any) -> list[Any]:
    return [kernel]


_STAGES: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    "split by rows": {"plan.split_by_rows": _unchanged},
    "few rows last": {"plan.few_rows_last": _unchanged},
    "pack reread": {"plan.pack_reread": _unchanged},
    "bands": {"plan.in_bands": _alone},
    "short rows": {"regions.chunks.join_short_rows": lambda kernel, *_: kernel},
    "unfold": {"plan.unfold_short_rows": _alone},
    "materialise indices": {"plan.materialise_indices": _alone},
    "compact": {"plan.compact_masked": _unchanged},
    "branch": {"plan.branch_on_matches": lambda kernel, *_: kernel},
    "rematerialise": {"plan.rematerialised": _unchanged},
    "columns of rows": {"schedules.map.blocks_of_rows": lambda *_: {}},
    "window maximum": {
        "kernels.fuse.find_window_maximum": lambda *_: None,
        "schedules.choose.schedule_window_maximum": lambda *_: None,
    },
    "reduction vectorised": {"schedules.choose.find_reduction_vectorised": lambda *_: None},
    "inside and at ends": {"codegen.maps.inside_and_at_ends": lambda values, stores, write: write(stores)},
    "shifted": {"codegen.shifted.shifts": lambda *_: []},
    "registers": {"codegen.program.is_written_out": lambda *_: False},
}
"""What is put in whose place, of ``pullback.compiler``, to leave a stage out."""


class _Program:
    """A function of the suite, compiled at its first run; ``seconds`` are those of a step in each turn."""

    def __init__(self, run: Callable[[int], Any], steps: int) -> None:
        self._run, self._steps = run, steps
        self.seconds: list[float] = []

    def begin(self) -> None:
        self._run(1)

    def turn(self) -> None:
        self._run(self._steps)
        start, done = time.perf_counter(), 0
        while time.perf_counter() - start < _TURN_SECONDS:
            self._run(self._steps)
            done += self._steps
        self.seconds.append((time.perf_counter() - start) / done)


Maker = Callable[[], _Program]


def run(settings: Settings) -> list[Table]:
    """A table of all parts, and of the programs that each changes."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for name, make in programs(settings).items():
        settings.say(name)
        for part, times in _compared(settings, make).items():
            found.setdefault(part, {})[name] = times
    rows = [
        [f"{part}: {name}", f"{1e3 * whole:.4g}", f"{without / whole:.2f}"]
        for part, programs in sorted(found.items())
        for name, (whole, without) in programs.items()
    ]
    notes = [
        f"Milliseconds of a step or call, the least of {settings.rounds} turns, {settings.threads} threads; × is the "
        "time without the part over that with it. Programs that are the same code without it are not listed."
    ]
    return [Table("passes", ("part: program", "ms", "without it ×"), rows, notes, found)]


def _compared(settings: Settings, make: Maker) -> dict[str, tuple[float, float]]:
    """The times of a step with all parts, and without each that makes a difference to the code."""
    graph = graph_of(make)
    whole, changing = _code(graph), []
    for part in _parts():
        with _without(part):
            if _code(graph) != whole:
                changing.append(part)
    programs = {"": make()} | {part: make() for part in changing}
    for part, program in programs.items():
        with _without(part), mock.patch.dict("os.environ", {"PULLBACK_CACHE": "off"}):
            program.begin()
    for _ in range(settings.rounds):
        for program in programs.values():
            time.sleep(REST_SECONDS)
            program.turn()
    best = {part: min(program.seconds) for part, program in programs.items()}
    return {part: (best[""], best[part]) for part in changing}


def _parts() -> list[str]:
    names = [each.name for each in pipeline.passes_for(Processor.host())]
    return [*dict.fromkeys(name for name in names if name not in _NEEDED), *_STAGES]


@contextlib.contextmanager
def _without(part: str) -> Iterator[None]:
    """Programs, and the bodies of their loops, are made without a pass or stage of this name."""
    usual = pipeline.passes_for

    def fewer(*arguments: Any, **options: Any) -> Any:
        return tuple(each for each in usual(*arguments, **options) if each.name != part)

    instead = _STAGES.get(part, {"passes.pipeline.passes_for": fewer, "plan.passes_for": fewer})
    with contextlib.ExitStack() as stack:
        for place, replacement in instead.items():
            module, name = f"pullback.compiler.{place}".rsplit(".", 1)
            stack.enter_context(mock.patch.object(importlib.import_module(module), name, replacement))
        yield


class _MetError(Exception):
    """A program is about to be made."""


def graph_of(make: Maker) -> tuple[Any, ...]:
    """What the program is made of: its graph, donated arguments, processor."""
    met: list[tuple[Any, ...]] = []

    def build(*arguments: Any, **_: Any) -> None:
        met.append(arguments)
        raise _MetError

    environment = mock.patch.dict("os.environ", {"PULLBACK_CACHE": "off"})
    with mock.patch.object(builder, "build", build), environment, contextlib.suppress(_MetError):
        make().begin()
    return met[0]


def _code(made_of: tuple[Any, ...]) -> tuple[str, str]:
    built = builder.build(*made_of)
    return built.emitted.text, builder.listed(built.schedule)


def programs(settings: Settings) -> dict[str, Maker]:
    """The programs of the suite, but for single operations, by the names of their benchmark and their own."""
    found: dict[str, Maker] = {}
    for name, race in RACES.items():
        for network in race.networks:
            found[f"{name}, {network.name}"] = _trained(settings, network)
    for kind, contenders, groups in (
        (nets, nets_pullback, NETS),
        (calls, calls_pullback, CALLS),
        (evaluations, evaluations_pullback, EVALUATIONS),
    ):
        for name, group in groups.items():
            for asked in group if name != "operations" else ():
                found[f"{name}, {asked.name}"] = _called(settings, kind, contenders, asked)
    for program in small.UPDATES:
        found[f"small-calls, {program}"] = _updating(settings, program)
    return found


def _trained(settings: Settings, network: Network) -> Maker:
    def make() -> _Program:
        job = Job(network, settings.folder_of(network), settings.threads)
        arrays = job.arrays()
        contender = with_pullback.Contender(job, *arrays)
        rows = batch_rows(len(arrays[0]), network.batch, 0, _NETWORK_STEPS)
        return _Program(lambda steps: contender.run(rows[:steps]), _NETWORK_STEPS)

    return make


def _called(settings: Settings, kind: Any, contenders: Any, asked: Any) -> Maker:
    def make() -> _Program:
        contender = contenders.Contender(asked, kind.arrays_of(asked), "", settings.threads, False)
        return _Program(lambda _: contender.run(), 1)

    return make


def _updating(settings: Settings, program: str) -> Maker:
    def make() -> _Program:
        contender = small_pullback.Contender(program, "run", settings.threads)
        return _Program(lambda _: contender.run(), small.RUN)

    return make
