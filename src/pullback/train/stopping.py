"""Stopping a training that gets no better."""

from __future__ import annotations

import math
from typing import Any

from pullback.counts import count
from pullback.optim.averaged import averages_of
from pullback.optim.optimiser import check_not_negative, map_parameters
from pullback.train.best import Best
from pullback.train.history import epochs_without_improvement, watched
from pullback.train.snapshot import copy_arrays
from pullback.train.trainer import Trainer
from pullback.undisturbed import completed

__all__ = ["EarlyStopping"]


class EarlyStopping:
    """For ``on_epoch_end``: asks to stop once a figure has not improved for ``patience`` epochs in a row.

    ``figure`` is a name in the history; it improves when it falls by more than ``least``, or, with ``rising``,
    when it rises by more. An epoch without the figure is one without improvement.

    With ``restore_best`` the model is kept after each epoch that is the best so far, in ``trainer.best``, where
    checkpoints find it; when the training ends, also by Ctrl-C or after its last epoch, the model becomes that one
    again. The optimiser's state stays that of the last step. With ``optim.Averaged`` that model is the averaged one,
    which is what is validated; at the end the averages are those of that epoch as well.

    Raises ``ValueError`` for a patience below 1 or a negative ``least``; when called, ``DataError`` for a
    figure that the history does not have.

    >>> EarlyStopping("validation_accuracy", patience=5, rising=True)
    EarlyStopping('validation_accuracy', patience=5, least=0.0, rising=True, restore_best=False)
    """

    def __init__(
        self,
        figure: str = "validation_loss",
        *,
        patience: int = 3,
        least: float = 0.0,
        rising: bool = False,
        restore_best: bool = False,
    ) -> None:
        check_not_negative("EarlyStopping", least=least)
        self.figure, self.least, self.rising = figure, least, rising
        self.patience = count("EarlyStopping", "patience", patience)
        self.restore_best = restore_best

    def __call__(self, trainer: Trainer) -> bool:
        """Whether to stop now; judged by the whole history, so that a training that goes on is judged alike."""
        values = watched("EarlyStopping", trainer.history, self.figure)
        if self.restore_best:
            self._keep(trainer, values[-1])
        return epochs_without_improvement(values, self.least, self.rising)[-1:] >= [self.patience]

    def finish(self, trainer: Trainer) -> None:
        """The training has ended: put the best model back."""
        best = trainer.best
        if self.restore_best and best is not None and best.figure == self.figure:
            completed(lambda: _put_back(trainer, best.model))

    def _keep(self, trainer: Trainer, value: float) -> None:
        """Copy the model if this is the best value so far."""
        best = trainer.best
        known = best is not None and best.figure == self.figure
        before = best.value if known and best is not None else -math.inf if self.rising else math.inf
        if value > before if self.rising else value < before:
            trainer.best = Best(self.figure, value, trainer.history.epochs, trainer.averaged)

    def __repr__(self) -> str:
        return (
            f"EarlyStopping({self.figure!r}, patience={self.patience}, least={self.least}, rising={self.rising}, "
            f"restore_best={self.restore_best})"
        )


def _put_back(trainer: Trainer, model: Any) -> None:
    """Let the trainer's model, and the averages of its parameters where there are any, be this one."""
    copy_arrays(trainer.model, model)
    found = averages_of(trainer.state)
    if found is not None:
        copy_arrays(found.mean, map_parameters(lambda a, p: p, found.mean, model))
