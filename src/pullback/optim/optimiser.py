"""What an optimiser is: settings, and two functions without side effects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from pullback.tracing import map_tree

__all__ = ["Optimiser", "check_not_negative", "is_parameter", "map_parameters", "zeros_like"]


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


def is_parameter(leaf: Any) -> bool:
    """Whether a leaf of a model is trained: floats are, the integers and masks beside them are not."""
    return not hasattr(leaf, "dtype") or leaf.dtype.kind == "f"


def map_parameters(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """``map_tree`` for the leaves of ``tree`` that are trained; the others stay what they are."""

    def visit(leaf: Any, *more: Any) -> Any:
        return function(leaf, *more) if is_parameter(leaf) else leaf

    return map_tree(visit, tree, *others)


def zeros_like(leaf: Any) -> Any:
    """Zeros of a parameter's shape and dtype, as an array even where the parameter is a NumPy scalar."""
    return np.zeros(np.shape(leaf), np.asarray(leaf).dtype)


def check_not_negative(optimiser: str, **settings: float) -> None:
    """Raise ``ValueError`` for a setting below zero or not a number."""
    for name, value in settings.items():
        if not value >= 0:
            raise ValueError(f"[{optimiser}] {name} is {value}. Give a number that is not negative.")
