"""Peak memory of a process that holds all of the data and trains, and what one more step allocates.

Every contender does the same number of steps, enough for all that is made once; ``--steps`` asks for more.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from contest import Entrant, Settings, Worker, WorkerError
from networks import Network
from report import Table
from workload import Job

from suite.jobs import IMDB_CNN, MNIST_CNN, MNIST_CNN_1, MNIST_RNN

_BLOCK = 20
"""Steps of one command; everything is made in the first of them."""
_STEPS = 100
_COUNTED = _BLOCK // 2
"""Steps of the shorter run that is counted; the longer one, of twice as many, is already compiled."""

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
    """A table for each of the main jobs."""
    with tempfile.TemporaryDirectory() as folder:
        counter = _counting_library(folder)
        if counter is None:
            settings.say("no C compiler for allocations.c: malloc is not counted")
        jobs = (MNIST_RNN, MNIST_CNN, MNIST_CNN_1, IMDB_CNN)
        return [_table(settings, network, counter) for network in jobs]


def _table(settings: Settings, network: Network, counter: str | None) -> Table:
    settings.say(f"memory of {network.name}")
    inputs, _ = Job(network, settings.folder_of(network)).arrays()
    steps = max(2, (settings.steps or _STEPS) // _BLOCK) * _BLOCK
    rows, figures = [], {}
    for entrant in settings.entrants:
        try:
            found = figures[entrant.name] = _measure(settings, network, entrant, steps, counter)
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
    notes = [
        f"{network.name}, {steps:,} steps of each contender on the data as they are stored, all "
        f"{inputs.nbytes / 1e6:.0f} MB of them.",
        f"Growth is that of the resident memory from step {_BLOCK} to step {steps:,}; malloc what the C "
        "library was asked for, Python what tracemalloc saw at its peak: what one step more in a run adds to "
        "them, without its loss in the result.",
    ]
    if network is MNIST_RNN and any(entrant.library == "pullback" for entrant in settings.entrants):
        whole = _trainer_peak(settings)
        if whole is not None:
            rows.append(["pullback, Trainer", f"{whole / 1e6:.0f}", "–", "–", "–"])
            notes.append("The row of the Trainer reads the files by itself and evaluates after each epoch.")
    columns = ("contender", "peak MB", "growth B/step", "malloc B/step", "Python B/step")
    return Table(f"memory, {network.name}", columns, rows, notes, figures)


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


def _measure(
    settings: Settings, network: Network, entrant: Entrant, steps: int, counter: str | None
) -> dict[str, float]:
    job = settings.job(network, entrant, tuned=False).as_json()
    with Worker(entrant, settings, {"LD_PRELOAD": counter} if counter else None) as worker:
        worker("start", library=entrant.library, job=job)
        worker("run", steps=_BLOCK)
        before = worker("memory")["resident"]
        blocks = steps // _BLOCK - 1
        for _ in range(blocks):
            worker("run", steps=_BLOCK)
        after = worker("memory")
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
