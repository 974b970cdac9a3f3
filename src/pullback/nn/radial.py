"""Radial basis functions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from pullback.nn.initialisers import Initialiser, normal
from pullback.nn.layers import Seed, check_features, drawn, sizes
from pullback.nn.module import Module
from pullback.numpy import exp, square
from pullback.numpy import sum as sum_

__all__ = ["RBF"]


class RBF(Module):
    r"""Gaussian radial basis functions, :math:`y_j = \exp(-\lVert x - c_j \rVert^2 e^{-2 s_j} / 2)`.

    (…, inputs) → (…, units): each unit answers to inputs near its centre :math:`c_j`, within a width
    :math:`e^{s_j}`, which stays positive whatever is learned. ``centres`` (units, inputs) begin normal with
    deviation 1, or by ``initialiser``; ``log_widths`` (units,) at the logarithm of ``width``, by default
    :math:`\sqrt{\text{inputs}}`, about the distance between centres.

    Raises ``ShapeError`` for inputs of another size, ``ValueError`` for a width that is not positive.

    Source: Broomhead & Lowe, *Multivariable functional interpolation and adaptive networks*, 1988.

    >>> layer = RBF(2, 3, seed=0)
    >>> layer
    RBF(2 → 3)  # 9 parameters, 36 bytes
    >>> print(layer(layer.centres).diagonal())
    [1. 1. 1.]
    """

    centres: Any
    log_widths: Any

    def __init__(
        self,
        inputs: int,
        units: int,
        *,
        width: float | None = None,
        initialiser: Initialiser | None = None,
        seed: Seed = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        if width is not None and not width > 0:
            raise ValueError(f"[RBF] width is {width}. Give a positive number.")
        inputs, units = sizes("RBF", inputs=inputs, units=units)
        random = np.random.default_rng(seed)
        self.centres = drawn("RBF", initialiser or normal(1.0), (units, inputs), random, dtype)
        self.log_widths = np.full(units, math.log(width or math.sqrt(inputs)), dtype)

    def __call__(self, x: Any) -> Any:
        check_features(self, x, self.centres.shape[1])
        # Differences rather than products of x and the centres: near a centre those would cancel.
        distances = sum_(square(x[..., None, :] - self.centres), axis=-1)
        return exp(distances * (-0.5 * exp(-2 * self.log_widths)))

    def describe(self) -> str:
        units, inputs = self.centres.shape
        return f"RBF({inputs} → {units})"
