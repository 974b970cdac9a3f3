"""What an optimiser is: settings, and two functions without side effects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from pullback.tracing import flatten, map_tree

__all__ = ["Optimiser", "check_not_negative", "is_parameter", "map_parameters", "trained_leaves", "zeros_for"]


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
    """Whether a leaf can be trained: floats can, the integers and masks beside them cannot."""
    return not hasattr(leaf, "dtype") or leaf.dtype.kind == "f"


def trained_leaves(tree: Any) -> list[Any]:
    """The leaves of ``tree`` that are trained: floats, outside the fields made by ``pb.buffer()``.

    >>> trained_leaves({"weight": np.ones(1), "steps": np.zeros(1, int)})
    [array([1.])]
    """
    leaves, structure = flatten(tree)
    return [leaf for leaf, trained in zip(leaves, structure.trained) if trained and is_parameter(leaf)]


def map_parameters(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """``map_tree`` for the leaves of ``tree`` that are trained; the others stay what they are."""
    trained = iter(flatten(tree)[1].trained)

    def visit(leaf: Any, *more: Any) -> Any:
        return function(leaf, *more) if next(trained) and is_parameter(leaf) else leaf

    return map_tree(visit, tree, *others)


def zeros_for(parameters: Any) -> Any:
    """Zeros of each parameter's shape and dtype, as arrays even where a parameter is a NumPy scalar.

    A leaf that is not trained has one zero of its dtype: a fixed table needs no running means.
    """
    trained = iter(flatten(parameters)[1].trained)

    def zeros(leaf: Any) -> Any:
        whole = next(trained) and is_parameter(leaf)
        return np.zeros(np.shape(leaf) if whole else (), np.asarray(leaf).dtype)

    return map_tree(zeros, parameters)


def check_not_negative(optimiser: str, **settings: float) -> None:
    """Raise ``ValueError`` for a setting below zero or not a number."""
    for name, value in settings.items():
        if not value >= 0:
            raise ValueError(f"[{optimiser}] {name} is {value}. Give a number that is not negative.")
