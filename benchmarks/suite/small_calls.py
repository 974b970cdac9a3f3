"""What a call costs beside its computation, and small updates called step by step."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from contest import REST_SECONDS, Entrant, Settings, Worker, WorkerError
from report import Table
from small import FIXED, RUN, UPDATES

_TURN_SECONDS = 0.1
_LIBRARIES = ("pullback", "jax", "torch")


def run(settings: Settings) -> list[Table]:
    """A table of all programs, in microseconds a call, and a step of a run."""
    entrants = [e for e in settings.entrants if e.library in _LIBRARIES and not e.variant]
    names = [entrant.name for entrant in entrants]
    rows, data = [], {}
    for program in (*FIXED, *UPDATES):
        calls = _measured(settings, entrants, program, "call")
        runs = _measured(settings, entrants, program, "run") if program not in FIXED[:3] else {}
        data[program] = {"call": calls, "run": runs}
        for kind, found in (("a call", calls), (f"a step of {RUN} in one call", runs)):
            if found:
                best = {name: 1e6 * found[name]["seconds"] for name in names if name in found}
                own = best.get("pullback")
                fastest = min((value for name, value in best.items() if name != "pullback"), default=None)
                ratio = f"{fastest / own:.2f}" if own and fastest else "–"
                rows.append(
                    [f"{program}: {kind}", *(f"{best[n]:.2f}" if n in best else "–" for n in names), ratio]
                )
    notes = [
        f"Microseconds, the least of {settings.rounds} rounds in which all took turns; × is the fastest peer's time "
        f"over Pullback's. {settings.threads} threads. JAX is given its own arrays, Pullback NumPy's.",
        *(
            f"{name} {found['version']}: {found['choice']}; after the first turn the loss is {found['result']:.5g}."
            for name, found in data["dqn"]["call"].items()
        ),
    ]
    return [Table("small calls", ("program", *names, "×"), rows, notes, data)]


def _measured(
    settings: Settings, entrants: list[Entrant], program: str, way: str
) -> dict[str, dict[str, Any]]:
    settings.say(f"{program}, {way}: {settings.rounds} rounds")
    found: dict[str, dict[str, Any]] = {}
    with contextlib.ExitStack() as stack:
        running = []
        for entrant in entrants:
            worker = stack.enter_context(Worker(entrant, settings))
            try:
                start = worker(
                    "start_small", library=entrant.library, program=program, way=way, threads=settings.threads
                )
                worker("call")
                start["result"] = worker("number")["number"]
            except WorkerError as error:
                if "NotImplementedError" not in str(error):
                    settings.say(f"{error}; left out")
                continue
            found[entrant.name] = {**start, "seconds": float("inf"), "all": []}
            running.append((worker, entrant.name))
        for number in range(settings.rounds):
            for place in range(len(running)):
                worker, name = running[(place + number) % len(running)]
                time.sleep(REST_SECONDS)
                seconds = worker("call", seconds=_TURN_SECONDS, times=settings.steps)["seconds"]
                each = found[name]
                each["all"].append(seconds / each["count"])
                each["seconds"] = min(each["all"])
    return found
