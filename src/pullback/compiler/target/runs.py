"""Runs of steps: from how many nanoseconds on threads, the interpreter lock and measuring are worth what they cost."""

from __future__ import annotations

__all__ = [
    "FASTER_PERCENT", "LEAST_BETWEEN_TRIALS", "LONGEST_TRIED", "LONGEST_TRIED_ALONE", "MOST_BETWEEN_TRIALS",
    "PARTS_OF_ROW", "PART_NANOSECONDS", "RELEASED_RUN", "ROWS_OF_TRIAL", "ROW_NANOSECONDS", "SHARED_RUN",
    "SLOWER_PERCENT",
]  # fmt: skip

SHARED_RUN = 5_000.0
"""For a shorter run no other thread is woken."""

RELEASED_RUN = 50_000.0
"""In a shorter run the interpreter lock is kept."""

LONGEST_TRIED, LONGEST_TRIED_ALONE = 10_000_000, 100_000
"""Longer steps are shared among all threads without asking, and never tried on the caller alone."""

PART_NANOSECONDS = 500_000
"""About how long each part of a trial takes, if there are steps enough."""

PARTS_OF_ROW, ROW_NANOSECONDS = 3, 1_000_000
"""Parts with one number of threads in a row, and how long they take, at least: to wake a thread takes some of it."""

ROWS_OF_TRIAL = 4
"""Rows of each comparison of two numbers of threads."""

SLOWER_PERCENT, FASTER_PERCENT = 125, 95
"""Of the time with more threads: beyond the one, fewer are not tried for long; below the other, they are the better."""

LEAST_BETWEEN_TRIALS, MOST_BETWEEN_TRIALS = 4, 64
"""Times as long as a trial has taken, until the next one: others may take processors, or leave them."""
