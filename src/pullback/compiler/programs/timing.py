"""How long each region of a program takes, measured by running it over and over between those before it.

The programs that are timed have the very code of the one asked about in another schedule: all regions up to one, and
that one some turns more. What the turns more take is the region's time; of one that must not be run on what it has left
itself, it is what the program takes longer with it than without. Programs that are not asked about know nothing of it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pullback.compiler.runtime.program import Program
from pullback.compiler.runtime.specs import RepeatSpec, Scheduled
from pullback.errors import IndexRangeError, MatrixError

__all__ = ["region_seconds"]

LEAST_SECONDS = 1e-3
"""What is timed lasts this long at least, unless it is a thousand turns."""

MOST_TURNS = 1000
SAMPLES = 3


def region_seconds(program: Program, arguments: Sequence[Any], again: Sequence[bool]) -> tuple[float, ...]:
    """The seconds that each region takes on these arguments, which stay as they are: the shortest of some samples.

    ``again`` tells of each region whether it may be run a second time on what its first run has left.

    Errors that the program raises for the arguments are raised here, too.
    """
    regions = list(program.regions)
    return tuple(_seconds(program, regions[:k], regions[k], arguments, again[k]) for k in range(len(regions)))


def _seconds(
    program: Program, before: list[Scheduled], region: Scheduled, given: Sequence[Any], again: bool
) -> float:
    turns = 1
    least = _least(replace(program, regions=[*before, region]), given)
    if not again:
        return _longer(program, before, least, given)
    while True:
        once, more = (replace(program, regions=[*before, RepeatSpec(n, [region])]) for n in (1, 1 + turns))
        try:
            samples = [(_run(once, given), _run(more, given)) for _ in range(SAMPLES)]
        except (IndexRangeError, MatrixError):  # a turn has overwritten what the next one looks at
            return _longer(program, before, least, given)
        least, most = (min(column) for column in zip(*samples))
        seconds: float = max(0.0, most - least)
        if seconds >= LEAST_SECONDS or turns >= MOST_TURNS:
            return seconds / turns
        turns = min(MOST_TURNS, turns * 8)


def _longer(program: Program, before: list[Scheduled], least: float, given: Sequence[Any]) -> float:
    """By how much ``least`` is more than what the regions before take."""
    return max(0.0, least - _least(replace(program, regions=before), given) if before else least)


def _least(program: Program, arguments: Sequence[Any]) -> float:
    return min(_run(program, arguments) for _ in range(SAMPLES))


def _run(program: Program, arguments: Sequence[Any]) -> float:
    """The seconds of one call, with copies of arrays that it may overwrite."""
    own = program.with_copies(arguments)
    start = time.perf_counter()
    program(*own)
    return time.perf_counter() - start
