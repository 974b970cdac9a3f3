"""What more threads bring to every program of the suite: 1, 2, 4 and so on up to ``--threads``, in turns.

Code is made for the largest number, and run by each.
"""

from __future__ import annotations

import time

from contest import REST_SECONDS, Settings
from report import Table

import pullback as pb
from suite.passes import Maker, programs


def run(settings: Settings) -> list[Table]:
    """A row for each program: its least time with one thread, and what that is of the time with more."""
    counts = [1 << k for k in range(settings.threads.bit_length()) if 1 << k < settings.threads]
    counts.append(settings.threads)
    found: dict[str, dict[int, float]] = {}
    for name, make in programs(settings).items():
        settings.say(name)
        found[name] = best_times(make, counts, settings.rounds)
    rows = [
        [name, f"{1e3 * times[1]:.4g}", *(f"{times[1] / times[count]:.2f}" for count in counts[1:])]
        for name, times in found.items()
    ]
    headings = ("program", "ms", *(f"{count} threads ×" for count in counts[1:]))
    notes = [
        f"Milliseconds of a step or call on one thread, the least of {settings.rounds} turns; × is that over the "
        "time on more threads."
    ]
    return [Table("threads", headings, rows, notes, found)]


def best_times(make: Maker, counts: list[int], rounds: int) -> dict[int, float]:
    """The least seconds of a step for each number of threads."""
    program, before = make(), pb.get_num_threads()
    best = dict.fromkeys(counts, float("inf"))
    try:
        pb.set_num_threads(counts[-1])
        program.begin()
        for _ in range(rounds):
            for count in counts:
                pb.set_num_threads(count)
                time.sleep(REST_SECONDS)
                program.turn()
                best[count] = min(best[count], program.seconds[-1])
    finally:
        pb.set_num_threads(before)
    return best
