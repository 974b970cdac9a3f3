"""The orders of the epochs, each shuffled while the epoch before it is trained on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pullback.undisturbed import Job

__all__ = ["Orders"]


class Orders:
    """``order_of(epoch)``, such as an ``epoch_order``, one epoch ahead: NumPy shuffles without the interpreter lock.

    >>> orders = Orders(lambda epoch: np.arange(5) * epoch)
    >>> orders.take(0, more=True), orders.take(1, more=False)
    (array([0, 0, 0, 0, 0]), array([0, 1, 2, 3, 4]))
    """

    def __init__(self, order_of: Callable[[int], NDArray[np.int64]]) -> None:
        self._order_of = order_of
        self._ahead: dict[int, Job[NDArray[np.int64]]] = {}

    def take(self, epoch: int, more: bool) -> NDArray[np.int64]:
        """The order of ``epoch``; with ``more`` the next one is begun."""
        begun = self._ahead.pop(epoch, None)
        order = self._order_of(epoch) if begun is None else begun.result()
        if more:
            self._ahead[epoch + 1] = job = Job(lambda: self._order_of(epoch + 1))
            job.start()
        return order
