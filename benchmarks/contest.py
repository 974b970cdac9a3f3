"""The parent's side: one process per contender, told in turn to run, so that noise hits all alike."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import peak
from contenders import LIBRARIES
from data import folder_of
from networks import Network
from workload import Job

__all__ = [
    "REST_SECONDS", "Entrant", "Result", "Settings", "Worker", "WorkerError", "entrants", "race", "started",
]  # fmt: skip

_WORKER = Path(__file__).with_name("worker.py")
REST_SECONDS = 0.03
"""Between turns: long enough for the threads of the one before to stop spinning."""


@dataclass(frozen=True)
class Entrant:
    """A library, the way it is used, and the interpreter that has it."""

    library: str
    variant: str
    python: str

    @property
    def name(self) -> str:
        return f"{self.library}:{self.variant}" if self.variant else self.library


@dataclass(frozen=True)
class Settings:
    """What the command line says; ``steps`` is 0 where each benchmark has its own number.

    ``data`` is a folder for the data sets.
    """

    entrants: list[Entrant]
    data: str
    threads: int
    rounds: int
    steps: int
    long: bool
    say: Callable[[str], None]
    numerical: list[Entrant] = field(default_factory=list)
    """Those that only take part in benchmarks that ask for them."""

    def job(self, network: Network, entrant: Entrant, **more: Any) -> Job:
        return Job(network, self.folder_of(network), self.threads, entrant.variant, **more)

    def folder_of(self, network: Network) -> str:
        """Where the network's data lie."""
        return folder_of(network.data, self.data, self.say)


@dataclass
class Result:
    """What one entrant did in a race: seconds of a step, one figure a round, and the loss of every step."""

    entrant: str
    version: str
    choice: str
    seconds: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)

    @property
    def minimum(self) -> float:
        return min(self.seconds)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


class WorkerError(RuntimeError):
    """A contender's process ended; the last line that it wrote to standard error is the message."""


class Worker:
    """A contender's process. Use as a context manager; leaving it ends the process."""

    def __init__(
        self, entrant: Entrant, settings: Settings, environment: dict[str, str] | None = None
    ) -> None:
        self.entrant = entrant
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed when the worker is left
        threads = str(settings.threads)
        usual = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), threads)
        usual |= {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
        usual |= {"PYTHONDONTWRITEBYTECODE": ""}  # what is installed has its bytecode; a checkout gets it so
        self._process = subprocess.Popen(
            [entrant.python, str(_WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, **usual, **(environment or {})},
        )

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin and self._process.stdout
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def __call__(self, do: str, **keywords: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        assert self._process.stdin and self._process.stdout
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"do": do, **keywords}) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            tail = self._errors.read().strip().splitlines()[-1:] or ["no message"]
            raise WorkerError(f"{self.entrant.name}: {tail[0]}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def entrants(
    peers: dict[str, str],
    without: Sequence[str],
    say: Callable[[str], None],
    libraries: Mapping[str, Sequence[str]] = LIBRARIES,
) -> list[Entrant]:
    """Pullback in this interpreter, and each peer in the interpreter that was named or in this one."""
    found = []
    for library, variants in libraries.items():
        python = peers.get(library)
        if python is None:
            if importlib.util.find_spec(library) is None:
                say(
                    f"{library} is left out: not installed here; --peer {library}=PYTHON names an interpreter"
                )
                continue
            python = sys.executable
        found += [Entrant(library, variant, python) for variant in variants]
    return [entrant for entrant in found if entrant.name not in without]


@contextlib.contextmanager
def started(settings: Settings, network: Network, **job: Any) -> Iterator[list[tuple[Worker, Result]]]:
    """A worker for each entrant with its first step done; one that fails is left out with a line."""
    with contextlib.ExitStack() as stack:
        running = []
        for entrant in settings.entrants:
            worker = stack.enter_context(Worker(entrant, settings))
            told = settings.job(network, entrant, **job).as_json()
            try:
                start = worker("start", library=entrant.library, job=told)
                losses = worker("run", steps=1)["losses"]
            except WorkerError as error:
                settings.say(f"{error}; left out")
                continue
            settings.say(f"{entrant.name} {start['version']}: {start['choice']}")
            running.append((worker, Result(entrant.name, start["version"], start["choice"], losses=losses)))
        yield running


def race(settings: Settings, network: Network, steps: int) -> tuple[list[Result], list[float]]:
    """Rounds in which each entrant trains ``steps`` steps; results, and the FMA peak in each round.

    All begin with the same weights and see the same batches. In a turn some steps go before the measured
    ones, so that caches and threads are warm again after the others' turns.
    """
    warm = max(1, steps // 10)
    rates = []
    with started(settings, network) as running:
        for worker, result in running:  # programs for these numbers of steps are made now
            result.losses += worker("run", steps=steps, warm=warm)["losses"]
        for number in range(settings.rounds):
            rates.append(peak.measure(settings.threads))
            for place in range(len(running)):
                worker, result = running[(place + number) % len(running)]
                time.sleep(REST_SECONDS)
                answer = worker("run", steps=steps, warm=warm)
                result.seconds.append(answer["seconds"] / steps)
                result.losses += answer["losses"]
    return [result for _, result in running], rates
