"""Gradient accumulation: one update for the gradients of several batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pullback.counts import count
from pullback.numpy import floor, where
from pullback.optim.optimiser import LearningRate, Optimiser, check_inner, map_parameters, zeros_for
from pullback.tracing import map_tree, static

__all__ = ["Accumulate", "Accumulated"]


class Accumulated(NamedTuple):
    """Batches since the last update (a ``float64`` without axes), the sum of their gradients, the inner state."""

    count: Any
    total: Any
    state: Any


@dataclass(frozen=True)
class Accumulate:
    r"""Another optimiser's update after every ``batches`` batches, by the mean of their gradients.

    .. math:: g = \frac{1}{k} \sum_{i=1}^{k} g_i

    With batches of one size this is the update of a batch ``batches`` times as large, in the memory of a small
    one. Between two updates parameters stay as they are, and schedules stand still. The mean is what a
    ``Trainer`` clips. Gradients of a group that an epoch leaves incomplete count in the next epoch.

    Raises ``ValueError`` for ``batches`` below 1, ``TypeError`` for a line search, whose steps are trials, and for what
    is no optimiser.

    >>> from pullback import optim
    >>> optimiser = Accumulate(optim.SGD(0.5), 2)
    >>> weights = np.array([1.0])
    >>> state = optimiser.init(weights)
    >>> for gradient in (2.0, 4.0):
    ...     weights, state = optimiser.update(np.array([gradient]), state, weights)
    ...     print(weights)
    [1.]
    [-0.5]
    """

    optimiser: Optimiser = static()
    batches: int = static()

    def __post_init__(self) -> None:
        count("Accumulate", "batches", self.batches)
        check_inner("Accumulate", self.optimiser)

    @property
    def learning_rate(self) -> LearningRate:
        """That of the other optimiser, by the number of batches done."""
        rate = self.optimiser.learning_rate
        return (lambda step: rate(floor(step / self.batches))) if callable(rate) else rate

    def init(self, parameters: Any) -> Accumulated:
        """No batches yet."""
        return Accumulated(np.zeros(()), zeros_for(parameters), self.optimiser.init(parameters))

    def update(self, gradients: Any, state: Accumulated, parameters: Any) -> tuple[Any, Accumulated]:
        """The parameters and the state after a batch."""
        batches = state.count + 1.0
        full = batches >= self.batches
        total = map_parameters(lambda t, g: t + g, state.total, gradients)
        means = map_parameters(lambda t: t / self.batches, total)
        # The update is computed for every batch and kept for one: a program without branches.
        moved, inner = self.optimiser.update(means, state.state, parameters)

        def kept(new: Any, old: Any) -> Any:
            return old if new is old else where(full, new, old)

        total = map_parameters(lambda t: where(full, 0.0, t), total)
        state = Accumulated(where(full, 0.0, batches), total, map_tree(kept, inner, state.state))
        return map_tree(kept, moved, parameters), state
