"""The figures of an epoch, from those of its blocks of steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pullback.metrics import EpochMetric, Metric

__all__ = ["Totals"]


class Totals:
    """Sums of figures over batches, each weighted by its number of examples; and what an ``EpochMetric`` keeps.

    >>> totals = Totals({})
    >>> totals.add(2, {"loss": np.array([1.0, 2.0])})
    >>> totals.add(1, {"loss": np.array([4.5])})
    >>> totals.figures(), totals.steps
    ({'loss': 2.1}, 3)
    """

    def __init__(self, metrics: Mapping[str, Metric | EpochMetric]) -> None:
        self.steps = 0
        self._metrics = {name: metric for name, metric in metrics.items() if isinstance(metric, EpochMetric)}
        self._examples = 0
        self._sums: dict[str, float] = {}
        self._kept: dict[str, list[tuple[NDArray[Any], ...]]] = {name: [] for name in self._metrics}

    def add(self, batch_size: int, figures: Mapping[str, Any]) -> None:
        """Enter arrays with one figure per step, of batches of one size; tuples of arrays for an ``EpochMetric``."""
        steps = len(figures["loss"])
        for name, values in figures.items():
            if name in self._metrics:
                parts = [part.reshape(steps * part.shape[1], *part.shape[2:]) for part in values]
                self._kept[name].append(tuple(parts))
                continue
            # A running sum in float64: the same mean whatever blocks the steps came in.
            terms = np.concatenate(([self._sums.get(name, 0.0)], values.astype(np.float64) * batch_size))
            self._sums[name] = float(np.cumsum(terms)[-1])
        self.steps += steps
        self._examples += steps * batch_size

    def means(self) -> dict[str, float]:
        """The mean of each figure over all examples so far."""
        return {name: total / self._examples for name, total in self._sums.items()}

    def figures(self) -> dict[str, float]:
        """All figures, in the order in which they were entered first: the means, and those of the epoch."""
        whole = {
            name: metric.figure(*[np.concatenate(parts) for parts in zip(*self._kept[name])])
            for name, metric in self._metrics.items()
        }
        return self.means() | whole
