"""What each of the compiler's passes is worth to a recurrence, and what is left to be gained by writing it otherwise.

The variants of the essay on recurrent networks are made by hand there: products joined over time and over gates, sums
of products sunk behind the loop, the reset gate moved. Here passes make them of the cell as it is written down; each
is left out in turn, and added in turn to those before it. The second table writes the cell in the essay's ways and
leaves the passes as they are: where these do their work, all ways take the same time.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import numpy as np
from calls import Arrays, Call, arrays_of, differentiated
from contenders.calls_pullback import function_of
from contest import REST_SECONDS, Settings
from report import Table

import pullback as pb
from pullback.compiler import build as builder
from pullback.compiler.passes import PASSES, Pass, pipeline
from pullback.compiler.programs.executable import make_executable
from pullback.graph import Graph
from pullback.tracing import flatten, trace

_CALL = Call("gru 256, batch 64", "gru", 32, 64, 256, 256)
_TURN_SECONDS = 0.2

Values = Mapping[str, Any]
Function = Callable[[Values, Values], Any]


def run(settings: Settings) -> list[Table]:
    """A table of the passes, for the reset gate after and before the product, and one of the ways to write it."""
    pb.set_num_threads(settings.threads)
    calls = _CALL, Call("gru-before 256, batch 64", "gru-before", 32, 64, 256, 256)
    return [*(_passes(settings, call) for call in calls), _ways(settings)]


class _Variant:
    """A program made with these passes, and its times."""

    def __init__(self, function: Function, varied: Values, fixed: Values, passes: Sequence[Pass]) -> None:
        self.leaves, _ = flatten(((varied, fixed), {}))
        graph = trace(function, varied, fixed).graph
        with _chosen(passes):
            self.program = make_executable(graph, {}).program
        self.program(*self.leaves)
        self.seconds: list[float] = []

    @property
    def milliseconds(self) -> float:
        return 1e3 * min(self.seconds)

    @property
    def megabytes(self) -> float:
        return float(self.program.arena_bytes / 1e6)

    def turn(self, times: int) -> None:
        """Run for a while."""
        self.program(*self.leaves)
        start, done = time.perf_counter(), 0
        while not done or (done < times if times else time.perf_counter() - start < _TURN_SECONDS):
            self.program(*self.leaves)
            done += 1
        self.seconds.append((time.perf_counter() - start) / done)


@contextlib.contextmanager
def _chosen(passes: Sequence[Pass]) -> Iterator[None]:
    """Programs and the bodies of their loops are built with these passes, and not taken from the cache.

    The cache knows of no other passes.
    """
    usual = pipeline.optimise

    def optimise(graph: Graph, _: Sequence[Pass] = ()) -> Graph:
        return usual(graph, passes)

    with (
        mock.patch.object(builder, "build", functools.partial(builder.build, passes=passes)),
        mock.patch.object(pipeline, "optimise", optimise),
        mock.patch.dict(os.environ, {"PULLBACK_CACHE": "off"}),
    ):
        yield


def _measured(settings: Settings, variants: Sequence[_Variant]) -> None:
    for number in range(settings.rounds):
        for place in range(len(variants)):
            time.sleep(REST_SECONDS)
            variants[(place + number) % len(variants)].turn(settings.steps)


def _passes(settings: Settings, call: Call) -> Table:
    settings.say(f"passes of {call.name}")
    arrays = arrays_of(call)
    varied, fixed = _parted(arrays, differentiated(call))

    def made(passes: Sequence[Pass]) -> _Variant | None:
        try:
            return _Variant(function_of(call), varied, fixed, passes)
        except Exception as error:
            settings.say(
                f"without {sorted({p.name for p in PASSES} - {p.name for p in passes})}: {error!r:.200}"
            )
            return None

    whole, none = made(PASSES), made(())
    without = {each.name: made([other for other in PASSES if other is not each]) for each in PASSES}
    up_to = {each.name: made(PASSES[: k + 1]) for k, each in enumerate(PASSES)}
    made_all = [whole, none, *without.values(), *up_to.values()]
    _measured(settings, [variant for variant in made_all if variant is not None])
    rows = [
        ["all", *_cells(whole, whole), "–", "–", "–"],
        ["none", *_cells(none, whole), "–", "–", "–"],
        *([name, *_cells(without[name], whole), *_cells(up_to[name], whole)] for name in without),
    ]
    columns = ("pass", "without it ms", "×", "arena MB", "up to it ms", "×", "arena MB")
    notes = [
        f"{call.program}, {call.describe()}, {settings.threads} threads, the best of {settings.rounds} rounds. "
        "Each pass left out of all, and added to those before it; × is the time over that with all passes.",
    ]
    figures = {
        kind: {
            name: None if v is None else [v.seconds, v.program.arena_bytes] for name, v in variants.items()
        }
        for kind, variants in {
            "whole": {"all": whole, "none": none},
            "without": without,
            "up to": up_to,
        }.items()
    }
    return Table(f"ablation, passes of {call.name}", columns, rows, notes, figures)


def _cells(variant: _Variant | None, whole: _Variant | None) -> list[str]:
    if variant is None:
        return ["–", "–", "–"]
    ratio = "–" if whole is None else f"{variant.milliseconds / whole.milliseconds:.2f}"
    return [f"{variant.milliseconds:.3f}", ratio, f"{variant.megabytes:.2f}"]


def _parted(arrays: Arrays, names: Sequence[str]) -> tuple[Arrays, Arrays]:
    return {n: arrays[n] for n in names}, {n: array for n, array in arrays.items() if n not in names}


def _ways(settings: Settings) -> Table:
    settings.say("ways to write a GRU")
    arrays = arrays_of(_CALL)
    varied, fixed = _parted(arrays, differentiated(_CALL))
    apart = {
        f"{name}{gate}": np.ascontiguousarray(part)
        for name in "wubc"
        for gate, part in zip("rzn", np.split(varied[f"0.{name}"], 3, axis=-1))
    }
    joined = {name: varied[f"0.{name}"] for name in "wubc"}
    x = {"x": varied["x"]}
    variants = {
        "a product for each gate and step": _Variant(_of(_gates_apart), {**apart, **x}, fixed, PASSES),
        "gates joined": _Variant(_of(_gates_joined), {**joined, **x}, fixed, PASSES),
        "gates joined, inputs before the loop": _Variant(_of(_inputs_before), {**joined, **x}, fixed, PASSES),
        "reset gate before the product": _Variant(_of(_reset_before), {**joined, **x}, fixed, PASSES),
    }
    _measured(settings, list(variants.values()))
    first = next(iter(variants.values()))
    rows = [[name, *_cells(variant, first)] for name, variant in variants.items()]
    notes = [
        f"{_CALL.describe()}, {settings.threads} threads, the best of {settings.rounds} rounds, with all passes. "
        "× is the time over that of the first way.",
    ]
    figures = {name: [variant.seconds, variant.program.arena_bytes] for name, variant in variants.items()}
    return Table("ablation, ways to write a GRU", ("way", "ms", "×", "arena MB"), rows, notes, figures)


def _of(states_of: Callable[[Values, Any], Any]) -> Function:
    """The gradients of Σ g·h for a function from weights and the first state to the states of all steps."""

    def gradients(varied: Values, fixed: Values) -> Any:
        states, pull = pb.vjp(lambda varied: states_of(varied, fixed["h0"][0]), varied)
        return states[-1], pull(fixed["g"])

    return gradients


def _gates_apart(p: Values, start: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        r = pb.sigmoid(x @ p["wr"] + p["br"] + h @ p["ur"] + p["cr"])
        z = pb.sigmoid(x @ p["wz"] + p["bz"] + h @ p["uz"] + p["cz"])
        n = np.tanh(x @ p["wn"] + p["bn"] + r * (h @ p["un"] + p["cn"]))
        h = (1 - z) * n + z * h
        return h, h

    return pb.scan(step, start, p["x"])[1]


def _gates_joined(p: Values, start: Any) -> Any:
    return pb.scan(lambda h, x: _twice(_new(h, x @ p["w"] + p["b"], p)), start, p["x"])[1]


def _inputs_before(p: Values, start: Any) -> Any:
    return pb.scan(lambda h, x: _twice(_new(h, x, p)), start, p["x"] @ p["w"] + p["b"])[1]


def _new(h: Any, x: Any, p: Values) -> Any:
    xr, xz, xn = np.split(x, 3, axis=-1)
    hr, hz, hn = np.split(h @ p["u"] + p["c"], 3, axis=-1)
    z = pb.sigmoid(xz + hz)
    return (1 - z) * np.tanh(xn + pb.sigmoid(xr + hr) * hn) + z * h


def _reset_before(p: Values, start: Any) -> Any:
    units = start.shape[-1]

    def step(h: Any, x: Any) -> Any:
        xr, xz, xn = np.split(x @ p["w"] + p["b"], 3, axis=-1)
        hr, hz = np.split(h @ p["u"][:, : 2 * units] + p["c"][: 2 * units], 2, axis=-1)
        z = pb.sigmoid(xz + hz)
        reset = pb.sigmoid(xr + hr) * h
        return _twice((1 - z) * np.tanh(xn + reset @ p["u"][:, 2 * units :] + p["c"][2 * units :]) + z * h)

    return pb.scan(step, start, p["x"])[1]


def _twice(h: Any) -> tuple[Any, Any]:
    return h, h
