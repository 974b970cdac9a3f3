"""Ways to write the same step, between which a library is given its best by a short trial at the start."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from networks import Network, Pool

__all__ = ["Way", "described", "fastest", "reducible", "seconds_of"]

Way = dict[str, str]
"""For each question how to write the step, such as ``"pooling"``, one of its answers."""


def fastest(questions: dict[str, Sequence[str]], seconds: Callable[[Way], float], tuned: bool) -> Way:
    """The first answers, or, if ``tuned``, the best that is found by changing one answer after the other."""
    best = {name: answers[0] for name, answers in questions.items()}
    if not tuned or all(len(answers) == 1 for answers in questions.values()):
        return best
    least = seconds(best)
    for name, answers in questions.items():
        for answer in answers[1:]:
            way = {**best, name: answer}
            needed = seconds(way)
            if needed < least:
                best, least = way, needed
    return best


def seconds_of(run: Callable[[], object], trial: float = 0.4) -> float:
    """The smallest time of a call, within about ``trial`` seconds, after it has been warmed up."""
    for _ in range(3):
        run()
    best, end = float("inf"), time.perf_counter() + trial
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
