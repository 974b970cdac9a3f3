"""One contender in a process of its own: reads commands, one JSON object a line, and answers in kind.

Started by ``contest.Worker`` with the interpreter that has the library. What the library prints goes to
standard error, so that the answers stay readable.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from workload import Job, accuracy, batch_rows


class Worker:
    """The commands; each is a method, its keywords are the command's."""

    def __init__(self) -> None:
        self.job: Any = None
        self.contender: Any = None
        self.done = 0

    def start(self, library: str, job: dict[str, Any]) -> dict[str, Any]:
        """Import the library, build the contender; its first step is still to come."""
        self.job = Job.from_json(job)
        _stay_on_cores(self.job.threads)
        start = time.perf_counter()
        module = importlib.import_module(f"contenders.with_{library}")
        imported = time.perf_counter()
        self.contender = module.Contender(self.job)
        built = time.perf_counter()
        self.count = len(np.load(Path(self.job.data, "labels.npy"), mmap_mode="r"))
        library_version = getattr(sys.modules[library], "__version__", "")
        return {
            "import_seconds": imported - start,
            "build_seconds": built - imported,
            "choice": self.contender.choice,
            "version": library_version,
        }

    def run(self, steps: int, warm: int = 0) -> dict[str, Any]:
        """Train ``warm`` steps unmeasured, then ``steps``; the batches go on where they ended before."""
        rows = batch_rows(self.count, self.job.network.batch, self.done, warm + steps, self.job.seed)
        self.done += warm + steps
        gc.collect()
        gc.disable()
        losses = [self.contender.run(rows[:warm])] if warm else []
        start = time.perf_counter()
        losses.append(self.contender.run(rows[warm:]))
        seconds = time.perf_counter() - start
        gc.enable()
        return {"seconds": seconds, "losses": [float(loss) for loss in np.concatenate(losses)]}

    def memory(self) -> dict[str, Any]:
        """Resident bytes of this process, now and at most so far."""
        return {"resident": _status("VmRSS"), "peak": _status("VmHWM")}

    def accuracy(self) -> dict[str, Any]:
        """The share of test images that what was learned classifies rightly."""
        images, labels = (np.load(Path(self.job.data, f"test_{name}.npy")) for name in ("images", "labels"))
        return {"accuracy": accuracy(self.job.network, self.contender.weights(), images, labels)}


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
