"""The orders of the epochs, each shuffled while the epoch before it is trained on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pullback.data import epoch_order
from pullback.undisturbed import Job

__all__ = ["Orders"]


class Orders:
    """``epoch_order`` of one data set, one epoch ahead: NumPy shuffles without the interpreter lock.

    >>> orders = Orders(5, seed=1, shuffle=False)
    >>> orders.take(0, more=True), orders.take(1, more=False)
    (array([0, 1, 2, 3, 4]), array([0, 1, 2, 3, 4]))
    """

    def __init__(
        self, rows: int, seed: int, shuffle: bool, bucketed: Callable[[int], NDArray[np.int64]] | None = None
    ) -> None:
        """``bucketed`` gives the order of an epoch where another one is wanted."""
        self._rows, self._seed, self._shuffle, self._bucketed = rows, seed, shuffle, bucketed
        self._ahead: dict[int, Job[NDArray[np.int64]]] = {}

    def take(self, epoch: int, more: bool) -> NDArray[np.int64]:
        """The order of ``epoch``; with ``more`` the next one is begun."""
        begun = self._ahead.pop(epoch, None)
        order = self._of(epoch) if begun is None else begun.result()
        if more:
            self._ahead[epoch + 1] = job = Job(lambda: self._of(epoch + 1))
            job.start()
        return order

    def _of(self, epoch: int) -> NDArray[np.int64]:
        if self._bucketed is not None:
            return self._bucketed(epoch)
        return epoch_order(self._rows, self._seed, epoch, self._shuffle)
