"""The model of the best epoch so far."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Best"]


class Best(NamedTuple):
    """A copy of the model as it was after an epoch (from 1), and the figure that it was the best by."""

    figure: str
    value: float
    epoch: int
    model: Any
