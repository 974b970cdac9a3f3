"""Runs of steps: from how many nanoseconds on threads, the interpreter lock and measuring are worth what they cost."""

from __future__ import annotations

__all__ = ["LEAST_RUN", "LONGEST_STEP", "RELEASED_RUN", "RUNS_BETWEEN", "SHARED_RUN", "TRIAL"]

SHARED_RUN = 5_000.0
"""For a shorter run no other thread is woken."""

RELEASED_RUN = 50_000.0
"""In a shorter run the interpreter lock is kept."""

LONGEST_STEP = 100_000.0
"""Steps that take this long are shared without asking."""

LEAST_RUN = 20_000_000.0
"""Shorter runs are done as the last ones were: a trial would be too large a part of them."""

TRIAL = 500_000.0
"""About how long each of a trial's four parts takes."""

RUNS_BETWEEN = 16
"""Runs that keep to a verdict before it is asked again: the other threads' processors may become free, or busy."""
