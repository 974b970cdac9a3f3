"""Waiting: how long threads look for each other and for work before they give way or sleep."""

from __future__ import annotations

__all__ = ["ASK_MASK", "PATIENCE", "PAUSES", "POLL_MICROSECONDS", "SIGNAL_MILLISECONDS", "SPINS"]

PAUSES = 1000
"""Turns in which the core only pauses; then the rest of the time slice is given away."""

SPINS = 2000
"""Turns in which a worker waits for work before it sleeps."""

POLL_MICROSECONDS = 200
"""Sleep of a worker before it looks for work again, where nobody can wake it."""

PATIENCE = 64
"""Looks at what others have to do before they are helped: what lies in their caches takes long to fetch."""

ASK_MASK = 1023
"""Whoever waits looks for signals in turns whose numbers have zeros for these bits: each look is one at the clock."""

SIGNAL_MILLISECONDS = 50
"""Between two times that Python is asked to handle its signals, for which the interpreter lock is taken."""
