"""What an optimiser is: settings, and two functions without side effects."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

__all__ = ["Optimiser", "check_not_negative", "zeros_like"]


class Optimiser(Protocol):
    """Anything with a learning rate, ``init`` and ``update``; all else are trees of floats.

    ``update`` works on NumPy arrays and on traced values alike: it can stand in a user's own compiled step.
    """

    @property
    def learning_rate(self) -> float:
        """The size of a step."""

    def init(self, parameters: Any) -> Any:
        """The state before the first step: arrays of its own, which may be donated."""

    def update(self, gradients: Any, state: Any, parameters: Any) -> tuple[Any, Any]:
        """The parameters and the state after a step; trees of the same structures as before."""


def zeros_like(leaf: Any) -> Any:
    """Zeros of a parameter's shape and dtype, as an array even where the parameter is a NumPy scalar."""
    return np.zeros(np.shape(leaf), np.asarray(leaf).dtype)


def check_not_negative(optimiser: str, **settings: float) -> None:
    """Raise ``ValueError`` for a setting below zero or not a number."""
    for name, value in settings.items():
        if not value >= 0:
            raise ValueError(f"[{optimiser}] {name} is {value}. Give a number that is not negative.")
