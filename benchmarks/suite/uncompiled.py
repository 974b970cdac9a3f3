"""Gradients that nobody compiles: what Python's share of each operation costs, forward and back."""

from __future__ import annotations

import contextlib
import statistics
import time
from typing import Any

from calls import largest_difference
from contest import REST_SECONDS, Settings, Worker, WorkerError
from report import Table
from uncompiled import PROGRAMS

from suite.calls import results_of

_TURN_SECONDS = 0.1
_LIBRARIES = ("pullback", "autograd", "jax")


def run(settings: Settings) -> list[Table]:
    """A table of all programs, in microseconds a gradient."""
    rows, data = [], {}
    for program in PROGRAMS:
        settings.say(f"{program}: {settings.rounds} rounds")
        found = data[program] = _measured(settings, program)
        cells = [f"{1e6 * found[name]['seconds']:.1f}" if name in found else "–" for name in _LIBRARIES]
        ratios = [_ratio(found, name) for name in _LIBRARIES[1:]]
        differences = [each["difference"] for each in found.values() if each["difference"] is not None]
        rows.append([program, *cells, *ratios, f"{max(differences):.0e}" if differences else "–"])
    notes = [
        f"Microseconds, the least of {settings.rounds} rounds in which all took turns. Over autograd and over JAX is "
        "Pullback's time over theirs, the median of the rounds. The difference is the largest of all gradients, in "
        "norms, from Pullback's.",
        *(f"{name} {each['version']}: {each['choice']}." for name, each in data["sin(cos x)"].items()),
    ]
    columns = ("gradient of", *_LIBRARIES, "over autograd", "over jax", "difference")
    return [Table("uncompiled gradients", columns, rows, notes, data)]


def _ratio(found: dict[str, dict[str, Any]], peer: str) -> str:
    if peer not in found or "pullback" not in found:
        return "–"
    pairs = zip(found["pullback"]["all"], found[peer]["all"])
    return f"{statistics.median(own / other for own, other in pairs):.2f}"


def _measured(settings: Settings, program: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    entrants = [e for e in (*settings.entrants, *settings.numerical) if e.library in _LIBRARIES]
    with contextlib.ExitStack() as stack:
        running: list[tuple[Worker, str]] = []
        expected: Any = None
        for entrant in [entrant for entrant in entrants if not entrant.variant]:
            worker = stack.enter_context(Worker(entrant, settings))
            try:
                start = worker(
                    "start_uncompiled", library=entrant.library, program=program, threads=settings.threads
                )
                worker("call", seconds=_TURN_SECONDS)
                results = results_of(worker)
            except WorkerError as error:
                settings.say(f"{error}; left out")
                continue
            expected = results if entrant.library == "pullback" else expected
            own = expected is None or expected is results
            apart = None if own else largest_difference(results, expected)
            found[entrant.name] = {**start, "seconds": float("inf"), "all": [], "difference": apart}
            running.append((worker, entrant.name))
        for number in range(settings.rounds):
            for place in range(len(running)):
                worker, name = running[(place + number) % len(running)]
                time.sleep(REST_SECONDS)
                each = found[name]
                each["all"].append(worker("call", seconds=_TURN_SECONDS, times=settings.steps)["seconds"])
                each["seconds"] = min(each["all"])
    return found
