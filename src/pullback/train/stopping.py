"""Stopping a training that gets no better."""

from __future__ import annotations

import math

from pullback.train.trainer import Trainer

__all__ = ["EarlyStopping"]


class EarlyStopping:
    """For ``on_epoch_end``: asks to stop once a figure has not improved for ``patience`` epochs in a row.

    ``figure`` is a name in the history; it improves when it falls by more than ``least``, or, with ``rising``,
    when it rises by more. An epoch without the figure is one without improvement.

    Raises ``ValueError`` for a patience below 1 or a negative ``least``.

    >>> EarlyStopping("validation_accuracy", patience=5, rising=True)
    EarlyStopping('validation_accuracy', patience=5, least=0.0, rising=True)
    """

    def __init__(
        self, figure: str = "validation_loss", *, patience: int = 3, least: float = 0.0, rising: bool = False
    ) -> None:
        if patience < 1 or not least >= 0:
            raise ValueError(
                f"[EarlyStopping] patience is {patience} and least {least}. Give 1 or more, and 0 or more."
            )
        self.figure, self.patience, self.least, self.rising = figure, patience, least, rising

    def __call__(self, trainer: Trainer) -> bool:
        """Whether to stop now; judged by the whole history, so that a training that goes on is judged alike."""
        best, since = math.inf, 0
        for value in trainer.history.get(self.figure, []):
            loss = -value if self.rising else value
            best, since = (loss, 0) if loss < best - self.least else (best, since + 1)
        return since >= self.patience

    def __repr__(self) -> str:
        return f"EarlyStopping({self.figure!r}, patience={self.patience}, least={self.least}, rising={self.rising})"
