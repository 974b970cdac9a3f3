"""Activations that have parameters; the others are plain functions, such as ``nn.relu``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from pullback.errors import ShapeError
from pullback.nn.layers import drawn, sizes
from pullback.nn.module import Module
from pullback.numpy import maximum, minimum
from pullback.numpy.windows import Channels, check_channels

__all__ = ["PReLU"]


class PReLU(Module):
    r"""A leaky relu whose slope is learnt, :math:`y = \max(x, 0) + w \min(x, 0)`.

    ``weight`` has shape (features,) and begins at ``slope``. One feature, the default, serves all elements of any
    shape; several belong to axis 1, or with ``channels="last"`` to the last axis. Weight decay would pull the
    slopes to zero: the paper trains them without.

    Raises ``ShapeError`` for inputs with another number of features, ``DTypeError`` for a dtype that is no float.

    Source: He et al., *Delving deep into rectifiers*, 2015.

    >>> layer = PReLU()
    >>> layer, layer(np.array([-2.0, 3.0], np.float32))
    (PReLU(1)  # 1 parameters, 4 bytes, array([-0.5,  3. ], dtype=float32))
    """

    weight: Any
    channels: Channels

    def __init__(
        self,
        features: int = 1,
        slope: float = 0.25,
        *,
        channels: Channels = "first",
        dtype: DTypeLike = np.float32,
    ) -> None:
        check_channels("[PReLU]", channels)
        (features,) = sizes("PReLU", features=features)
        self.weight = drawn(
            "PReLU", lambda shape, _: np.full(shape, slope), (features,), np.random.default_rng(0), dtype
        )
        self.channels = channels

    def __call__(self, x: Any) -> Any:
        features = self.weight.shape[0]
        along = [1] * x.ndim
        if features > 1:
            axis = 1 if self.channels == "first" else x.ndim - 1
            if x.ndim < 2 or x.shape[axis] != features:
                raise ShapeError(
                    f"[{self.describe()}] the input has shape {tuple(x.shape)}; axis {axis} must have {features} "
                    "elements. Make the layer for its number of features."
                )
            along[axis] = features
        return maximum(x, 0) + self.weight.reshape(along) * minimum(x, 0)

    def describe(self) -> str:
        last = ", channels last" * (self.channels == "last")
        return f"PReLU({self.weight.shape[0]}{last})"
