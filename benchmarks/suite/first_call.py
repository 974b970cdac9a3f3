"""From the imported library to the first results of a scan: trace, derivative, compile, one call; at several lengths.

A loop that is compiled once takes as long whatever its length; one that is unrolled does not.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace

from calls import Call
from contest import Entrant, Settings, Worker, WorkerError
from report import Table

from suite.calls import CALLS, begin, callers
from suite.first_step import CACHES, ROUNDS, cached_in

_STACKED = Call("two layers of gru", "gru", 32, 32, 128, 128, layers=2)
_LENGTHS = 32, 320, 1000


def run(settings: Settings) -> list[Table]:
    """A table for two layers of GRU, at each length, and for each of the simulations.

    ``torch.compile`` unrolls its loops, which takes minutes at these lengths; it takes no part.
    """
    calls = [replace(_STACKED, name=f"{_STACKED.name}, {steps} steps", steps=steps) for steps in _LENGTHS]
    return [_table(settings, call) for call in (*calls, *CALLS["scans"])]


def _table(settings: Settings, call: Call) -> Table:
    """Fresh processes in turns, a cold one and a warm one each."""
    settings.say(f"first call of {call.name}")
    rounds = min(settings.rounds, ROUNDS)
    seconds: dict[str, dict[str, list[float]]] = {}
    failed = set()
    for _ in range(rounds):
        for entrant in callers(settings):
            if entrant.name in failed or entrant.variant == "compiled":
                continue
            found = seconds.setdefault(entrant.name, {"cold": [], "cached": []})
            try:
                with tempfile.TemporaryDirectory() as folder:
                    found["cold"].append(_first_call(settings, call, entrant, folder))
                    if entrant.library in CACHES:
                        found["cached"].append(_first_call(settings, call, entrant, folder))
            except WorkerError as error:
                settings.say(f"{error}; left out")
                failed.add(entrant.name)
                del seconds[entrant.name]
    rows = [
        [name, *(f"{min(found[kind]):.3f}" if found[kind] else "–" for kind in ("cold", "cached"))]
        for name, found in seconds.items()
    ]
    notes = [
        f"{call.describe()}; {settings.threads} threads, {rounds} fresh processes each; the import is not counted."
    ]
    return Table(
        f"first call, {call.name}", ("contender", "cold s min", "cached s min"), rows, notes, seconds
    )


def _first_call(settings: Settings, call: Call, entrant: Entrant, folder: str) -> float:
    """Seconds to the first results, in a new process with this cache folder."""
    with Worker(entrant, settings, cached_in(folder, entrant.library)) as worker:
        start = begin(worker, settings, call, tuned=False)
        return float(start["build_seconds"] + worker("call")["seconds"])
