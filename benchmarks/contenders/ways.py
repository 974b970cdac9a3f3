"""Ways to write the same step, between which a library is given its best by a short trial at the start."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from networks import Network, Pool

__all__ = ["Way", "described", "fastest", "reducible"]

_TURNS, _TURN_SECONDS = 5, 0.1
_WARM_RUNS, _WARM_SECONDS = 3, 2.0
_HOPELESS = 1.5
"""A way that takes so many times the best one's time in a turn is out: noise hits all alike."""

Way = dict[str, str]
"""For each question how to write the step, such as ``"pooling"``, one of its answers."""


def fastest(
    questions: dict[str, Sequence[str]], make: Callable[[Way], Callable[[], object]], tuned: bool
) -> Way:
    """The first answers, or, if ``tuned``, the best that is found by changing one answer after the other.

    ``make(way)`` returns what trains a few steps in that way. The answers to a question are timed in turns, so
    that whatever else the machine does hits them alike, and the smallest times count.
    """
    best = {name: answers[0] for name, answers in questions.items()}
    if not tuned:
        return best
    made = {}
    for name, answers in questions.items():
        ways = [{**best, name: answer} for answer in answers]
        for way in ways:
            if tuple(way.values()) not in made:
                made[tuple(way.values())] = _warm(make(way))
        times = dict.fromkeys(range(len(ways)), float("inf"))
        for _ in range(_TURNS):
            for k in times:
                times[k] = min(times[k], _seconds(made[tuple(ways[k].values())]))
            times = {k: taken for k, taken in times.items() if taken < _HOPELESS * min(times.values())}
        best = ways[min(times, key=times.__getitem__)]
    return best


def _warm(run: Callable[[], object]) -> Callable[[], object]:
    start = time.perf_counter()
    for _ in range(_WARM_RUNS):
        run()
        if time.perf_counter() - start > _WARM_SECONDS:
            break
    return run


def _seconds(run: Callable[[], object]) -> float:
    """The smallest time of a call in a short turn."""
    best, end = float("inf"), time.perf_counter() + _TURN_SECONDS
    while time.perf_counter() < end:
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


def described(way: Way, questions: dict[str, Sequence[str]]) -> str:
    """The answers to all that was a question."""
    return ", ".join(answer for name, answer in way.items() if len(questions[name]) > 1)


def reducible(network: Network) -> bool:
    """Whether there is a pool with windows, and all cover their images: they can be axes of a reshaped array."""
    pools = [
        (layer, network.places(before))
        for layer, before, _ in network.with_shapes()
        if isinstance(layer, Pool) and layer.window
    ]
    return bool(pools) and all(n % layer.window == 0 for layer, places in pools for n in places)
