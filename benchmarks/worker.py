"""One contender in a process of its own: reads commands, one JSON object a line, and answers in kind.

Started by ``contest.Worker`` with the interpreter that has the library. What the library prints goes to
standard error, so that the answers stay readable.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from networks import accuracy
from numpy.typing import NDArray
from vectors import keep_short
from workload import Job, batch_rows

Answer = dict[str, Any]


class Worker:
    """The commands; each is a method, its keywords are the command's."""

    def __init__(self) -> None:
        self.job: Any = None
        self.contender: Any = None
        self.count = 0
        self.done = 0

    def start(self, library: str, job: Answer) -> Answer:
        """Import the library, build the contender; its first step is still to come."""
        self.job = Job.from_json(job)
        arrays = self.job.arrays()
        self.count = len(arrays[0])
        return self._build(library, f"with_{library}", self.job.threads, self.job, *arrays)

    def start_call(
        self, library: str, call: Answer, variant: str, threads: int, tuned: bool, kind: str = "calls"
    ) -> Answer:
        """The same for a function of arrays, of the module ``kind``; its first call is still to come."""
        described = importlib.import_module(kind)
        asked = described.from_json(call)
        arrays = described.arrays_of(asked)
        return self._build(library, f"{kind}_{library}", threads, asked, arrays, variant, threads, tuned)

    def start_small(self, library: str, program: str, way: str, threads: int) -> Answer:
        """The same for a small function; ``count`` are the calls, or steps, of which a turn of it consists."""
        answer = self._build(library, f"small_{library}", threads, program, way, threads)
        return {**answer, "count": self.contender.count}

    def start_uncompiled(self, library: str, program: str, threads: int) -> Answer:
        """The same for a gradient that is computed operation by operation."""
        return self._build(library, f"uncompiled_{library}", threads, program)

    def number(self) -> Answer:
        """The last number of what the function returned last."""
        return {"number": float(next(iter(self.contender.numbers().values())).ravel()[-1])}

    def _build(self, library: str, name: str, threads: int, *arguments: Any) -> Answer:
        _stay_on_cores(threads)
        begun = time.perf_counter()
        module = importlib.import_module(f"contenders.{name}")
        imported = time.perf_counter() - begun
        if library == "pullback":
            keep_short()
        begun = time.perf_counter()
        self.contender = module.Contender(*arguments)
        built = time.perf_counter() - begun
        version = getattr(sys.modules[library], "__version__", "")
        return {
            "import_seconds": imported,
            "build_seconds": built,
            "choice": self.contender.choice,
            "version": version,
        }

    def call(self, seconds: float = 0.0, times: int = 0) -> Answer:
        """Call the function ``times`` times, or else as often as ``seconds`` allow, and once; seconds of a call."""
        gc.collect()
        gc.disable()
        start = time.perf_counter()
        self.contender.run()
        taken = time.perf_counter() - start
        if seconds or times:
            times = times or max(1, int(seconds / taken))
            start = time.perf_counter()
            for _ in range(times):
                self.contender.run()
            taken = (time.perf_counter() - start) / times
        gc.enable()
        return {"seconds": taken}

    def results(self, file: str) -> Answer:
        """Write the results of the last call to a file of NumPy's."""
        np.savez(file, **self.contender.numbers())
        return {}

    def run(self, steps: int, warm: int = 0) -> Answer:
        """Train ``warm`` steps unmeasured, then ``steps``; the batches go on where they ended before."""
        rows = self._rows(warm + steps)
        gc.collect()
        gc.disable()
        losses = [self.contender.run(rows[:warm])] if warm else []
        start = time.perf_counter()
        losses.append(self.contender.run(rows[warm:]))
        seconds = time.perf_counter() - start
        gc.enable()
        return {"seconds": seconds, "losses": [float(loss) for loss in np.concatenate(losses)]}

    def memory(self) -> Answer:
        """Resident bytes of this process, now and at most so far; and what a program has planned, -1 if nobody says."""
        planned = getattr(self.contender, "program_bytes", lambda: -1)
        return {"resident": _status("VmRSS"), "peak": _status("VmHWM"), "planned": planned()}

    def allocations(self, steps: int) -> Answer:
        """Bytes that one more step asks for: of ``malloc`` and its family, and of Python.

        The difference of runs of ``steps`` and of twice as many, so that what a call costs falls out; the
        losses that a run returns, 4 bytes a step, are left out. ``malloc`` is -1 without what counts it.
        """
        short, long = self._rows(steps), self._rows(2 * steps)
        for rows in (short, long):
            self.contender.run(rows)  # what is made once for each number of steps is made now
        count = _malloc_counter()
        counted = [-1, -1] if count is None else [_grown(count, self.contender.run, r) for r in (short, long)]
        tracemalloc.start()
        traced = []
        for rows in (short, long):
            gc.collect()
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            losses = self.contender.run(rows)
            traced.append(tracemalloc.get_traced_memory()[1] - before)
            del losses
        tracemalloc.stop()
        return {
            "malloc": -1 if count is None else max(0, (counted[1] - counted[0]) / steps - 4),
            "python": max(0, (traced[1] - traced[0]) / steps - 4),
        }

    def accuracy(self) -> Answer:
        """The share of test examples that what was learned classifies rightly."""
        return {"accuracy": accuracy(self.job.network, self.contender.weights(), *self.job.arrays("test_"))}

    def _rows(self, steps: int) -> NDArray[np.int64]:
        rows = batch_rows(self.count, self.job.network.batch, self.done, steps, self.job.seed)
        self.done += steps
        return rows


def _stay_on_cores(count: int) -> None:
    """The same cores for every contender, whatever its own settings are."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


def _status(field: str) -> int:
    """A field of /proc/self/status in bytes; 0 where there is none."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:")), 0)


def _malloc_counter() -> Callable[[], int] | None:
    """What counts the bytes asked for so far, if ``allocations.c`` is loaded."""
    count = getattr(ctypes.CDLL(None), "bytes_asked_for", None) if os.name == "posix" else None
    if count is not None:
        count.restype = ctypes.c_int64
    return count


def _grown(count: Callable[[], int], run: Callable[[Any], Any], rows: NDArray[np.int64]) -> int:
    before = count()
    run(rows)
    return count() - before


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = Worker()
    for line in sys.stdin:
        command = json.loads(line)
        answer = getattr(worker, command.pop("do"))(**command)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
