"""Layers of one step, for all steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pullback.errors import ShapeError
from pullback.nn.module import Module

__all__ = ["TimeDistributed"]


class TimeDistributed(Module):
    """The same layer for each step: (batch, time, …) → (batch, time, …), :math:`y_t = f(x_t)`.

    ``layer`` takes a batch, (batch, …) → (batch, …), and is given all steps of all sequences as one: dropout
    drops others at each step, and batch normalisation takes its statistics over all of them.

    Raises ``ShapeError`` for inputs without a time axis.

    >>> import numpy as np
    >>> from pullback import nn
    >>> layer = TimeDistributed(nn.Conv2d(1, 4, 3, seed=0))
    >>> layer(np.zeros((2, 5, 1, 8, 8), np.float32)).shape
    (2, 5, 4, 6, 6)
    """

    layer: Callable[[Any], Any]

    def __init__(self, layer: Callable[[Any], Any]) -> None:
        if not callable(layer):
            raise TypeError(
                f"[TimeDistributed] the layer is a {type(layer).__name__}, which cannot be called. "
                "Give a module or a function."
            )
        self.layer = layer

    def __call__(self, x: Any) -> Any:
        if x.ndim < 2:
            raise ShapeError(
                f"[{self.describe()}] the input has shape {tuple(x.shape)}. Give it the axes (batch, time, …)."
            )
        batch, steps = x.shape[:2]
        y = self.layer(x.reshape(batch * steps, *x.shape[2:]))
        return y.reshape(batch, steps, *y.shape[1:])

    def parts(self) -> dict[str, Any]:
        return {"0": self.layer}
