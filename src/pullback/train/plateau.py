"""A learning rate that is reduced when the training gets no better."""

from __future__ import annotations

from pullback.counts import count
from pullback.optim import rate_at, rate_factor
from pullback.optim.optimiser import check_not_negative
from pullback.train.history import epochs_without_improvement, watched
from pullback.train.trainer import Trainer

__all__ = ["ReduceOnPlateau"]


class ReduceOnPlateau:
    """For ``on_epoch_end``: multiplies the learning rate by ``factor`` after ``patience`` epochs without improvement.

    The optimiser has to be an ``optim.Adjustable``. ``figure``, ``least`` and ``rising`` are those of
    ``EarlyStopping``. After a reduction the next ``cooldown`` epochs do not count as being without improvement, and
    ``patience`` more are awaited. The rate does not fall below ``lowest``.

    All follows from the history, so a training that goes on from a checkpoint reduces its rate at the same epochs.

    Raises ``ValueError`` for a factor that is not between 0 and 1, a patience below 1, and negative settings; when
    called, ``TypeError`` for a trainer whose optimiser is not adjustable and ``DataError`` for a figure that the
    history does not have.

    >>> from pullback import nn, optim
    >>> from pullback.train import Trainer
    >>> optimiser = optim.Adjustable(optim.SGD(0.1))
    >>> trainer = Trainer(nn.Dense(1, 1), nn.squared_error, optimiser, metrics=())
    >>> for loss in (1.0, 0.5, 0.6, 0.7):
    ...     trainer.history.append({"validation_loss": loss})
    >>> ReduceOnPlateau(patience=2, factor=0.5)(trainer)
    >>> trainer.state.factor
    array(0.5)
    """

    def __init__(
        self,
        figure: str = "validation_loss",
        *,
        factor: float = 0.1,
        patience: int = 10,
        least: float = 0.0,
        cooldown: int = 0,
        lowest: float = 0.0,
        rising: bool = False,
    ) -> None:
        check_not_negative("ReduceOnPlateau", factor=factor, least=least, lowest=lowest)
        if not 0 < factor < 1:
            raise ValueError(f"[ReduceOnPlateau] factor is {factor}. Give a number between 0 and 1.")
        self.figure, self.factor, self.least, self.lowest, self.rising = figure, factor, least, lowest, rising
        self.patience = count("ReduceOnPlateau", "patience", patience)
        self.cooldown = count("ReduceOnPlateau", "cooldown", cooldown, least=0)

    def __call__(self, trainer: Trainer) -> None:
        """Set the factor that the history so far asks for."""
        factor = rate_factor(trainer.state)
        if factor is None:
            name = type(trainer.optimiser).__name__
            raise TypeError(
                f"[ReduceOnPlateau] the learning rate of {name} is fixed. Make the trainer with "
                f"optim.Adjustable({name}(…))."
            )
        rate = rate_at(trainer.optimiser.learning_rate, max(trainer.steps - 1, 0))
        least = self.lowest / max(rate, self.lowest) if self.lowest else 0.0
        factor[...] = max(self.factor ** self._reductions(trainer), least)

    def _reductions(self, trainer: Trainer) -> int:
        """How many times the rate is to have been reduced by now."""
        reductions, begin, cool = 0, 0, 0
        values = watched("ReduceOnPlateau", trainer.history, self.figure)
        for epoch, since in enumerate(epochs_without_improvement(values, self.least, self.rising)):
            # Epochs count from the last improvement, the last reduction or the end of its cooldown.
            if cool:
                cool, begin = cool - 1, epoch + 1
            elif min(since, epoch + 1 - begin) >= self.patience:
                reductions, begin, cool = reductions + 1, epoch + 1, self.cooldown
        return reductions
