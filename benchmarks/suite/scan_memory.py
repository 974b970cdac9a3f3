"""Peak memory and time of a recurrence of many steps, forward and backward: as it is, with checkpoints, in a budget."""

from __future__ import annotations

import tempfile
from dataclasses import replace

from calls import Call, arrays_of, differentiated
from contest import Entrant, Settings, Worker, WorkerError
from report import Table

from suite.calls import begin, callers
from suite.first_step import cached_in

_STEPS, _BETWEEN = 10_000, 100
_CALLS = 3
_SHARES = (10, 100)
"""Budgets: these parts of what the program takes as it is."""


def run(settings: Settings) -> list[Table]:
    """A process each; ``--steps`` asks for another number of steps, a multiple of 100."""
    plain = Call("gru 256, batch 16", "gru", settings.steps or _STEPS, 16, 256, 256)
    rows, figures = [], {}
    for entrant in callers(settings):
        if entrant.variant == "compiled":  # it unrolls
            continue
        ways = {"plain": plain, "checkpoints by hand": replace(plain, checkpoint=_BETWEEN)}
        while ways:
            way, call = next(iter(ways.items()))
            del ways[way]
            settings.say(f"memory of {call.describe()}: {entrant.name}, {way}")
            try:
                with tempfile.TemporaryDirectory() as folder:
                    _measure(settings, entrant, call, folder)  # fills the cache
                    peak, used, planned, seconds = _measure(settings, entrant, call, folder)
            except WorkerError as error:
                settings.say(f"{error}; left out")
                continue
            said = f"{planned / 1e6:,.0f}" if planned >= 0 else ""
            rows.append(
                [f"{entrant.name}, {way}", f"{peak / 1e6:,.0f}", f"{used / 1e6:,.0f}", said, f"{seconds:.2f}"]
            )
            name = f"{entrant.name}, {way}"
            figures[name] = {"peak": peak, "used": used, "planned": planned, "seconds": seconds}
            if way == "plain" and planned >= 0:
                for share in _SHARES:
                    budget = f"{planned / share / 1e6:.2f}MB"
                    ways[f"memory={budget!r}"] = replace(plain, memory=budget)
    given = arrays_of(plain)
    size = sum(array.nbytes for array in given.values())
    results = sum(given[name].nbytes for name in differentiated(plain))
    columns = ("contender", "peak MB", "beyond the arguments MB", "of these planned MB", "s a call")
    notes = [
        f"{plain.describe()}, {settings.threads} threads. The arguments have {size / 1e6:,.0f} MB, the gradients "
        f"{results / 1e6:,.0f}, which every contender returns as well. By hand: a checkpoint every {_BETWEEN} steps. "
        f"Planned is what a program has of its own, beside arguments, results and constants; the budgets are a tenth "
        f"and a hundredth of it. What is compiled comes from the library's cache, where it has one. The time is the "
        f"smallest of {_CALLS} calls.",
    ]
    return [Table("memory of a scan", columns, rows, notes, figures)]


def _measure(settings: Settings, entrant: Entrant, call: Call, folder: str) -> tuple[int, int, int, float]:
    """Bytes of the process at most, those that the first call took, those planned, and seconds of a call."""
    with Worker(entrant, settings, cached_in(folder, entrant.library)) as worker:
        begin(worker, settings, call, tuned=False)
        before = worker("memory")["resident"]
        worker("call")
        after = worker("memory")
        seconds = min(worker("call")["seconds"] for _ in range(_CALLS))
    return after["peak"], after["peak"] - before, after["planned"], seconds
