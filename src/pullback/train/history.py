"""The history of a training: one figure of each kind per epoch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from pullback.errors import DataError

__all__ = ["COSTS", "VALIDATION", "History", "epochs_without_improvement", "watched"]

COSTS = ("steps", "seconds", "steps_per_second", "peak_memory", "learning_rate")
"""What a trainer enters beside the loss and the metrics."""

VALIDATION = "validation_"
"""What the names of figures of the validation set begin with."""


class History(Mapping[str, list[float]]):
    """Figures by name, each a list with one number per epoch; ``write_history`` and ``plot_history`` take it.

    A trainer enters ``loss`` and its metrics (means over the examples of the epoch), ``validation_…`` of
    each, ``steps``, ``seconds`` (of the training, without validation), ``steps_per_second``, ``peak_memory``
    (bytes, of the process so far) and ``learning_rate``. A figure that an epoch lacks is NaN.

    ``interrupted`` tells that the last epoch was stopped by Ctrl-C; its figures are over the steps it did.

    >>> history = History()
    >>> history.append({"loss": 1.5})
    >>> history.append({"loss": 0.7, "validation_loss": 0.6})
    >>> history
    History(2 epochs: loss 0.7, validation_loss 0.6)
    >>> history["validation_loss"]
    [nan, 0.6]
    """

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        self._rows: list[dict[str, float]] = []
        self.interrupted = False

    @property
    def epochs(self) -> int:
        """How many epochs there are figures of."""
        return len(self._rows)

    def append(self, figures: Mapping[str, float]) -> None:
        """Enter the figures of one more epoch."""
        row = {name: float(value) for name, value in figures.items()}
        self._names.update(dict.fromkeys(row))
        self._rows.append(row)  # at once: Ctrl-C leaves no epoch half entered

    def last(self) -> dict[str, float]:
        """The figures of the last epoch."""
        return {name: self._rows[-1].get(name, math.nan) for name in self._names}

    def __getitem__(self, name: str) -> list[float]:
        if name not in self._names:
            raise KeyError(name)
        return [row.get(name, math.nan) for row in self._rows]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name} {value:.4g}" for name, value in self.last().items())
        epochs = f"{self.epochs} epoch{'' if self.epochs == 1 else 's'}"
        return f"History({epochs}: {shown})" if shown else f"History({epochs})"


def epochs_without_improvement(values: Iterable[float], least: float, rising: bool) -> list[int]:
    """After each epoch, how many have passed since the figure fell (or, with ``rising``, rose) by more than ``least``.

    >>> epochs_without_improvement([3.0, 2.0, 2.5, 1.95, 1.5], least=0.1, rising=False)
    [0, 0, 1, 2, 0]
    """
    best, since = math.inf, 0
    passed = []
    for value in values:
        loss = -value if rising else value
        best, since = (loss, 0) if loss < best - least else (best, since + 1)
        passed.append(since)
    return passed


def watched(caller: str, history: Mapping[str, list[float]], figure: str) -> list[float]:
    """The values of a figure that ``caller`` judges by; raises ``DataError`` where the history has other ones only."""
    if figure not in history:
        validation = "give fit a validation set, or " if figure.startswith("validation_") else ""
        raise DataError(
            f"[{caller}] the history has no {figure}, only {', '.join(history) or 'nothing'}; {validation}name one of "
            "these."
        )
    return history[figure]
