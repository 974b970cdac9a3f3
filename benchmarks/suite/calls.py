"""Races of functions of arrays: recurrences, forward and backward, and simulations."""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import peak
from calls import Arrays, Call, largest_difference
from contest import REST_SECONDS, Entrant, Result, Settings, Worker, WorkerError
from evaluations import Evaluation
from nets import Net
from report import Table
from singles import SINGLES, Single

__all__ = ["CALLS", "NETS", "begin", "callers", "results_of", "tables"]

_CELLS = ("minimal-gated", "peephole", "normalised-gru", "two-products")


def _sized(program: str, units: int, batch: int = 64) -> Call:
    return Call(f"{program} {units}, batch {batch}", program, 32, batch, units, units)


CALLS = {
    "gru": tuple(_sized("gru", units, batch) for batch in (64, 128) for units in (128, 256, 512, 1024)),
    "gru-before": tuple(_sized("gru-before", units) for units in (128, 256, 512, 1024)),
    "cells": tuple(_sized(program, units) for units in (256, 64) for program in _CELLS),
    "gradients": tuple(
        Call(f"{units} units, batch {batch}", "two-products", 1, batch, units, units)
        for units in (256, 512)
        for batch in (12, 32)
    ),
    "lstm-100": (Call("lstm-100", "lstm", 100, 64, 28, 128),),
    "gru-1": (_sized("gru", 64, 1),),
    "scans": (
        Call("ode", "ode", 100),
        Call("kalman", "kalman", 50),
        Call("cloth", "cloth", 200, units=16),
    ),
    "matrices": (
        Call("solving-kalman", "solving-kalman", 50),
        Call("gaussian-process", "gaussian-process", 1, units=500),
        Call("fixed-point", "fixed-point", 1, units=100),
    ),
}
"""By the name of the benchmark."""

NETS = {
    "residual": (
        Net("resnet-8", "residual", 32, 1),
        Net("resnet-8, batch 128", "residual", 128, 1),
        Net("resnet-20", "residual", 32, 3),
        Net("resnet-20, batch 128", "residual", 128, 3),
    ),
    "nets": (
        Net("separable", "separable", 32, 32),
        Net("u-net", "u-net", 8, 16),
        Net("autoencoder", "autoencoder", 128, 512),
        Net("variational autoencoder", "variational", 128, 400),
        Net("adversarial", "adversarial", 128, 256),
        Net("mixer", "mixer", 32, 4),
    ),
    "layers": tuple(
        Net(name, name, 32, size)
        for name, size in {
            "stride-2": 32,
            "transposed": 16,
            "transposed-2": 16,
            "grouped": 32,
            "depthwise": 32,
            "depthwise-stride-2": 32,
            "depthwise-5": 32,
            "small-images": 7,
        }.items()
    ),
    "operations": tuple(Single(name) for name in SINGLES),
}
"""The same for networks that branch, for single layers, and for single operations."""

Timed = Call | Net | Single | Evaluation

_TURN_SECONDS = 0.2
_COLUMNS = ("contender", "ms/call min", "median", "× min", "× median", "GFLOP/s", "of peak", "difference")


def tables(settings: Settings, calls: Sequence[Timed]) -> list[Table]:
    """A race on each of the calls."""
    return [_table(settings, call) for call in calls]


def begin(worker: Worker, settings: Settings, call: Timed, tuned: bool = True) -> dict[str, Any]:
    """Build the contender of a worker, and what it tells of it; its first call is still to come."""
    entrant = worker.entrant
    return worker(
        "start_call",
        library=entrant.library,
        call=call.as_json(),
        variant=entrant.variant,
        threads=settings.threads,
        tuned=tuned,
        kind=type(call).__module__,
    )


def results_of(worker: Worker) -> Arrays:
    """The arrays that the worker's last call gave."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "results.npz")
        worker("results", file=str(file))
        with np.load(file) as stored:
            return {name: stored[name] for name in stored.files}


def callers(settings: Settings, call: Timed | None = None) -> list[Entrant]:
    """The entrants that call functions: steps in a loop and steps in a call are all the same to them.

    NumPy takes part in single operations.
    """
    found = [entrant for entrant in settings.entrants if entrant.variant != "step"]
    return [*found, Entrant("numpy", "", sys.executable)] if isinstance(call, Single) else found


@contextlib.contextmanager
def _started(settings: Settings, call: Timed) -> Iterator[list[tuple[Worker, Result, Arrays]]]:
    """A worker for each entrant with its first call done and its results; one that fails is left out with a line."""
    with contextlib.ExitStack() as stack:
        running = []
        for entrant in callers(settings, call):
            worker = stack.enter_context(Worker(entrant, settings))
            try:
                start = begin(worker, settings, call)
                worker("call")
                found = results_of(worker)
            except WorkerError as error:
                settings.say(f"{error}; left out")
                continue
            settings.say(f"{entrant.name} {start['version']}: {start['choice']}")
            running.append((worker, Result(entrant.name, start["version"], start["choice"]), found))
        yield running


def _table(settings: Settings, call: Timed) -> Table:
    """Rounds in which each entrant calls the function for some time, with the FMA peak in each round."""
    settings.say(f"{call.name}: {settings.rounds} rounds")
    rates = []
    with _started(settings, call) as running:
        for number in range(settings.rounds):
            rates.append(peak.measure(settings.threads))
            for place in range(len(running)):
                worker, result, _ = running[(place + number) % len(running)]
                time.sleep(REST_SECONDS)
                answer = worker("call", seconds=_TURN_SECONDS, times=settings.steps)
                result.seconds.append(answer["seconds"])
    results = [result for _, result, _ in running]
    expected = next((found for _, result, found in running if result.entrant == "pullback"), None)
    differences = [
        None if expected is None or found is expected else largest_difference(found, expected)
        for _, _, found in running
    ]
    flops = call.flops
    own = next((result for result in results if result.entrant == "pullback"), None)
    about = f"{flops / 1e6:,.0f} MFLOP in products as they are written. " if flops else ""
    return Table(
        f"{call.name}: {call.describe()}",
        _COLUMNS,
        [_row(result, own, flops, max(rates), found) for result, found in zip(results, differences)],
        [
            f"{settings.threads} threads, {settings.rounds} rounds. {call.what} {about}× is the time over Pullback's.",
            f"FMA peak in the same rounds: {max(rates):.0f} GFLOP/s at best, {statistics.median(rates):.0f} in the "
            "median. The difference is the largest of all results, in norms, from Pullback's.",
            *(f"{result.entrant} {result.version}: {result.choice}." for result in results),
        ],
        {
            "call": call.as_json(),
            "threads": settings.threads,
            "flops_per_call": flops,
            "peak_gflops": rates,
            "results": [{**vars(result), "difference": found} for result, found in zip(results, differences)],
        },
    )


def _row(result: Result, own: Result | None, flops: int, top: float, difference: float | None) -> list[str]:
    ratios = ["–", "–"]
    if own is not None:
        ratios = [f"{result.minimum / own.minimum:.2f}", f"{result.median / own.median:.2f}"]
    rate = flops / result.minimum / 1e9
    return [
        result.entrant,
        f"{result.minimum * 1e3:.4f}",
        f"{result.median * 1e3:.4f}",
        *ratios,
        f"{rate:.1f}" if flops else "–",
        f"{100 * rate / top:.0f} %" if flops else "–",
        "–" if difference is None else f"{difference:.0e}",
    ]
