"""From the imported library to the first loss: trace, derivative, compile, one step, with and without caches.

The data are loaded before. Each library's own cache on disk is pointed to an empty folder for the cold start
and to what the cold start left there for the warm one.
"""

from __future__ import annotations

import statistics
import tempfile

from contest import Entrant, Settings, Worker, WorkerError
from networks import Network
from report import Table

from suite.jobs import IMDB_CNN, MNIST_CNN, MNIST_RNN

ROUNDS = 5
"""Fresh processes that are enough."""
CACHES = {
    "pullback": {"PULLBACK_CACHE": "{folder}"},
    "torch": {"TORCHINDUCTOR_CACHE_DIR": "{folder}", "TRITON_CACHE_DIR": "{folder}/triton"},
    "jax": {
        "JAX_COMPILATION_CACHE_DIR": "{folder}",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    },
}


def run(settings: Settings) -> list[Table]:
    """A table for each of the main jobs."""
    return [_table(settings, network) for network in (MNIST_RNN, MNIST_CNN, IMDB_CNN)]


def _table(settings: Settings, network: Network) -> Table:
    """Fresh processes in turns, a cold one and a warm one each."""
    settings.say(f"first step of {network.name}")
    rounds = min(settings.rounds, ROUNDS)
    figures: dict[str, dict[str, list[float]]] = {}
    failed = set()
    for _ in range(rounds):
        for entrant in settings.entrants:
            if entrant.name in failed:
                continue
            try:
                with tempfile.TemporaryDirectory() as folder:
                    turns = {"cold": _first_step(settings, network, entrant, folder)}
                    if entrant.library in CACHES:
                        turns["cached"] = _first_step(settings, network, entrant, folder)
            except WorkerError as error:
                settings.say(f"{error}; left out")
                failed.add(entrant.name)
                continue
            found = figures.setdefault(entrant.name, {})
            for kind, (imported, first) in turns.items():
                found.setdefault("import", []).append(imported)
                found.setdefault(kind, []).append(first)
    columns = ("contender", "import s", "cold s min", "median", "cached s min", "median")
    notes = [
        f"{network.name}, {rounds} fresh processes each; the import is the median beyond NumPy's, with all "
        "that the step needs. TensorFlow has no cache for what XLA compiles.",
    ]
    rows = []
    for name, seconds in figures.items():
        begin = f"{statistics.median(seconds['import']):.2f}"
        rows.append([name, begin, *_cells(seconds, "cold"), *_cells(seconds, "cached")])
    return Table(f"first step, {network.name}", columns, rows, notes, figures)


def _cells(found: dict[str, list[float]], kind: str) -> list[str]:
    if kind not in found:
        return ["–", "–"]
    return [f"{min(found[kind]):.3f}", f"{statistics.median(found[kind]):.3f}"]


def cached_in(folder: str, library: str) -> dict[str, str]:
    """The environment in which a library keeps what it compiles in this folder."""
    return {name: value.format(folder=folder) for name, value in CACHES.get(library, {}).items()}


def _first_step(settings: Settings, network: Network, entrant: Entrant, folder: str) -> tuple[float, float]:
    """Seconds of the import and from there to the first loss, in a new process with this cache folder."""
    with Worker(entrant, settings, cached_in(folder, entrant.library)) as worker:
        job = settings.job(network, entrant, tuned=False).as_json()
        start = worker("start", library=entrant.library, job=job)
        first = worker("run", steps=1)
    return start["import_seconds"], start["build_seconds"] + first["seconds"]
