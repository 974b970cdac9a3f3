"""The history of a training: one figure of each kind per epoch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

__all__ = ["History"]


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
        self._figures: dict[str, list[float]] = {}
        self._epochs = 0
        self.interrupted = False

    @property
    def epochs(self) -> int:
        """How many epochs there are figures of."""
        return self._epochs

    def append(self, figures: Mapping[str, float]) -> None:
        """Enter the figures of one more epoch."""
        for name in figures:
            self._figures.setdefault(name, [math.nan] * self._epochs)
        for name, values in self._figures.items():
            values.append(float(figures.get(name, math.nan)))
        self._epochs += 1

    def last(self) -> dict[str, float]:
        """The figures of the last epoch."""
        return {name: values[-1] for name, values in self._figures.items()}

    def __getitem__(self, name: str) -> list[float]:
        return self._figures[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._figures)

    def __len__(self) -> int:
        return len(self._figures)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name} {value:.4g}" for name, value in self.last().items())
        epochs = f"{self._epochs} epoch{'' if self._epochs == 1 else 's'}"
        return f"History({epochs}: {shown})" if shown else f"History({epochs})"
