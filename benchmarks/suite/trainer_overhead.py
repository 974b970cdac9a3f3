"""Python's share of a step when the Trainer runs: all of the time that is not inside compiled calls."""

from __future__ import annotations

import contextlib
import io
import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from contenders.with_pullback import build
from contest import Settings
from report import Table
from workload import Job

import pullback as pb
from pullback import nn, optim
from pullback.compiler.runtime.machine import machine
from suite.jobs import MNIST_RNN

_EPOCHS = 5


def run(settings: Settings) -> list[Table]:
    """``Trainer.fit`` again and again in this process, with and without its progress bar on a terminal."""
    pb.set_num_threads(settings.threads)
    job = Job(MNIST_RNN, settings.folder_of(MNIST_RNN))
    images, labels = job.arrays()
    trainer = pb.Trainer(
        build(MNIST_RNN, job.initial_weights()),
        nn.softmax_cross_entropy,
        optim.SGD(MNIST_RNN.learning_rate),
        batch_size=MNIST_RNN.batch,
        scale=1 / 255,
    )
    shares: dict[str, list[tuple[float, float]]] = {"silent": [], "with progress bar": []}
    for number in range(settings.rounds + 1):
        for kind, found in shares.items():
            with _terminal() if kind == "with progress bar" else contextlib.nullcontext(), _clock() as inside:
                start = time.perf_counter()
                trainer.fit((images, labels), _EPOCHS, progress=kind == "with progress bar")
                total = time.perf_counter() - start
            if number:  # the first compiles, and imports what draws the bar
                found.append((total, sum(inside)))
    rows, data = [], {kind: [list(pair) for pair in found] for kind, found in shares.items()}
    steps = _EPOCHS * (len(images) // MNIST_RNN.batch)
    for kind, found in shares.items():
        python = sorted(1 - compiled / total for total, compiled in found)
        best = min(total for total, _ in found) / steps
        share = [f"{100 * figure:.2f} %" for figure in (python[0], statistics.median(python))]
        rows.append([kind, f"{best * 1e3:.3f}", *share])
    columns = ("Trainer.fit", "ms/step min", "Python's share min", "median")
    notes = [
        f"{MNIST_RNN.name}, {settings.rounds} rounds of {_EPOCHS} epochs with accuracy as a metric, "
        f"{settings.threads} threads. Python's share is all of fit that is not inside a compiled call: "
        "orders of rows, histories, the bar.",
    ]
    return [Table("trainer overhead", columns, rows, notes, data)]


@contextlib.contextmanager
def _clock() -> Iterator[list[float]]:
    """The seconds of every compiled call while it is open."""
    shared: Any = machine()
    seconds: list[float] = []
    compiled = shared.run

    def timed(*arguments: int) -> Any:
        start = time.perf_counter()
        try:
            return compiled(*arguments)
        finally:
            seconds.append(time.perf_counter() - start)

    shared.run = timed
    try:
        yield seconds
    finally:
        shared.run = compiled


@contextlib.contextmanager
def _terminal() -> Iterator[None]:
    """Standard error as a terminal that somebody reads, so that the bar is really drawn."""
    reading, writing = os.openpty()

    def drain() -> None:
        with contextlib.suppress(OSError):  # the other end is closed
            while os.read(reading, 65536):
                pass

    reader = threading.Thread(target=drain)
    reader.start()
    before = sys.stderr
    try:
        sys.stderr = io.TextIOWrapper(open(writing, "wb", buffering=0), write_through=True)  # noqa: SIM115
        yield
    finally:
        sys.stderr.close()
        sys.stderr = before
        reader.join()
        os.close(reading)
