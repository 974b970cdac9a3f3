"""Peak memory of a process that trains on all of MNIST, and what one more step allocates."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from contest import Entrant, Settings, Worker, WorkerError
from report import Table

from suite.mnist_rnn import MNIST_RNN

_BLOCK = 100
_EPOCHS = 2
_COUNTED = 1000

_TRAINER = """
import sys
from pullback import Trainer, nn, optim, set_num_threads
from pullback.data import load_mnist
set_num_threads(int(sys.argv[1]))
data = load_mnist(download=False)
model = nn.Chain(nn.Reshape(4, 196), nn.RNN(196, 64, seed=0), nn.Dense(64, 10, seed=1))
trainer = Trainer(model, nn.softmax_cross_entropy, optim.SGD(0.015), scale=data.scale)
trainer.fit(data.train, epochs=2, validation=data.test)
print(int(trainer.history["peak_memory"][-1]))
"""


def run(settings: Settings) -> list[Table]:
    with tempfile.TemporaryDirectory() as folder:
        counter = _counting_library(folder)
        if counter is None:
            settings.say("no C compiler for allocations.c: malloc is not counted")
        rows, figures = [], {}
        for entrant in settings.entrants:
            try:
                found = figures[entrant.name] = _measure(settings, entrant, counter)
            except WorkerError as error:
                settings.say(f"{error}; left out")
                continue
            rows.append(
                [
                    entrant.name,
                    f"{found['peak'] / 1e6:.0f}",
                    f"{found['growth']:.0f}",
                    f"{found['malloc']:,.0f}" if counter else "–",
                    f"{found['python']:,.0f}",
                ]
            )
    if any(entrant.library == "pullback" for entrant in settings.entrants):
        whole = _trainer_peak(settings)
        if whole is not None:
            rows.append(["pullback, Trainer", f"{whole / 1e6:.0f}", "–", "–", "–"])
    columns = ("contender", "peak MB", "growth B/step", "malloc B/step", "Python B/step")
    steps = _EPOCHS * 60_000 // MNIST_RNN.batch
    notes = [
        f"{MNIST_RNN.name} for {_EPOCHS} epochs on the pixels as they are stored, 47 MB of them.",
        f"Growth is that of the resident memory from step {_BLOCK} to step {steps:,}; malloc what the C "
        "library was asked for, Python what tracemalloc saw at its peak: what one step more in a run adds to "
        "them, without its loss in the result.",
        "The row of the Trainer reads the files by itself and evaluates after each epoch.",
    ]
    return [Table("memory", columns, rows, notes, figures)]


def _counting_library(folder: str) -> str | None:
    """``allocations.c`` as a library to preload, where there is a C compiler and a glibc."""
    source, target = Path(__file__).parents[1] / "allocations.c", str(Path(folder, "allocations.so"))
    if not sys.platform.startswith("linux"):
        return None
    try:
        command = ["cc", "-O2", "-shared", "-fPIC", "-o", target, str(source)]
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return target


def _measure(settings: Settings, entrant: Entrant, counter: str | None) -> dict[str, float]:
    job = settings.job(MNIST_RNN, entrant, tuned=False).as_json()
    with Worker(entrant, settings) as worker:
        worker("start", library=entrant.library, job=job)
        worker("run", steps=_BLOCK)
        before = worker("memory")["resident"]
        blocks = _EPOCHS * 60_000 // MNIST_RNN.batch // _BLOCK - 1
        for _ in range(blocks):
            worker("run", steps=_BLOCK)
        after = worker("memory")
    # Another process: the counting library must not be in the one whose memory is measured.
    with Worker(entrant, settings, {"LD_PRELOAD": counter} if counter else None) as worker:
        worker("start", library=entrant.library, job=job)
        asked = worker("allocations", steps=_COUNTED)
    return {"peak": after["peak"], "growth": (after["resident"] - before) / (blocks * _BLOCK), **asked}


def _trainer_peak(settings: Settings) -> int | None:
    """Peak bytes of a process with the Trainer alone; None without MNIST."""
    done = subprocess.run(
        [sys.executable, "-c", _TRAINER, str(settings.threads)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        settings.say(f"Trainer: {(done.stderr.strip().splitlines() or ['no message'])[-1]}; left out")
        return None
    return int(done.stdout)
