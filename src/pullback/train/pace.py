"""How many steps to hand over at a time: enough to hide Python, few enough for a progress bar."""

from __future__ import annotations

__all__ = ["Pace"]

_GROWTH = 32  # at most from one block to the next: the first ones are too short to be measured well


class Pace:
    """The length of the next block of steps, from how long the blocks before it took.

    A run begins with one step, which may include compilation; from then on a block aims at ``seconds``: progress is
    to be shown ten times a second, also where a block takes somewhat longer than the one before.
    Lengths never show in a result: a step is the same in a block of any length.

    >>> pace = Pace(seconds=0.08)
    >>> pace.steps
    1
    >>> pace.measured(1, 0.5); pace.steps
    1
    >>> pace.measured(1, 0.0002); pace.steps
    32
    >>> pace.measured(32, 0.0064); pace.steps, round(pace.rate)
    (400, 5000)
    """

    def __init__(self, seconds: float = 0.08) -> None:
        self.seconds = seconds
        self.steps = 1
        self.rate = 0.0
        """Steps a second, of the last block."""

    def measured(self, steps: int, seconds: float) -> None:
        """A block of ``steps`` took ``seconds``."""
        self.rate = steps / max(seconds, 1e-9)
        self.steps = max(1, min(round(self.rate * self.seconds), steps * _GROWTH))
