"""Whether runs of short steps are shared with other threads: measured from time to time, not only estimated.

Threads exchange something at every region, and how long that takes is for the machine to say: of a step of some ten
microseconds it may be more than is saved. Results are the same bits either way.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

from pullback.compiler.target.runs import LEAST_RUN, LONGEST_STEP, RUNS_BETWEEN, TRIAL

__all__ = ["EVER", "Sharing", "steps_from"]

EVER = 1 << 62


class Sharing:
    """The verdict for one program, whose step takes about ``cost`` nanoseconds."""

    def __init__(self, cost: float) -> None:
        self.shared = True
        self._cost = cost
        self._left = 0

    @property
    def most_untried(self) -> int:
        """The most steps of a run that is never a trial.

        >>> Sharing(1e6).most_untried > 1e9, Sharing(5e4).most_untried
        (True, 399)
        """
        return EVER if self._cost > LONGEST_STEP else steps_from(LEAST_RUN, self._cost) - 1

    def parts(self, steps: int) -> Iterator[tuple[int, bool]]:
        """A run of so many steps in parts, each with whether to share it; the time until the next is asked for counts.

        >>> list(Sharing(1e6).parts(100))
        [(100, True)]
        >>> [(count, shared) for count, shared in Sharing(5e4).parts(1000)][:4]
        [(10, False), (10, True), (10, False), (10, True)]
        """
        if self._left or self._cost > LONGEST_STEP or self._cost * steps < LEAST_RUN:
            self._left = max(0, self._left - 1)
            yield steps, self.shared
            return
        trial = max(1, int(TRIAL / self._cost))
        shortest = {False: float("inf"), True: float("inf")}
        for shared in (False, True, False, True):
            start = time.perf_counter()
            yield trial, shared
            shortest[shared] = min(shortest[shared], time.perf_counter() - start)
        self.shared = shortest[True] < shortest[False]
        self._left = RUNS_BETWEEN
        yield steps - 4 * trial, self.shared


def steps_from(nanoseconds: float, cost: float) -> int:
    """The least number of steps, each of ``cost``, that take so many nanoseconds.

    >>> steps_from(5_000, 300.0), steps_from(5_000, float("inf"))
    (17, 1)
    """
    return EVER if cost <= 0 else max(1, min(EVER, math.ceil(nanoseconds / cost)))
