"""Layers whose weights are normalised: by the length of each output's weights, or by the largest singular value."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np

from pullback.counts import count
from pullback.errors import ShapeError
from pullback.nn.layers import Dense, Seed
from pullback.nn.module import Module
from pullback.nn.training import current_training
from pullback.numpy import sqrt, transpose, vdot
from pullback.numpy import sum as sum_
from pullback.tracing import buffer, static
from pullback.transforms import stop_gradient

__all__ = ["SpectralNorm", "WeightNorm"]


class WeightNorm(Module):
    r"""A layer whose weight has a direction and a length for each output: weight normalisation.

    .. math:: w_o = g_o \frac{v_o}{\lVert v_o \rVert}

    ``layer`` holds the directions :math:`v` in its field ``name``, ``scale`` the lengths :math:`g`, which begin as
    those of the layer's own weight, so that it computes what the layer did. ``axis`` is that of the outputs: by default
    the last of a ``Dense`` and the first of any other layer. Weights of zeros have no direction: they give NaN.

    Raises ``ShapeError`` where the layer has no such weight, or that no such axis.

    Source: Salimans & Kingma, *Weight normalization*, NeurIPS 2016.

    >>> from pullback import nn
    >>> layer = WeightNorm(nn.Dense(2, 3, seed=0))
    >>> layer
    WeightNorm(
      layer: Dense(2 → 3),  # 9 parameters, 36 bytes
    )  # 12 parameters, 48 bytes
    >>> x = np.ones((4, 2), np.float32)
    >>> np.allclose(layer(x), layer.layer(x))
    True
    """

    layer: Any
    scale: Any
    name: str
    axis: int

    def __init__(self, layer: Any, name: str = "weight", *, axis: int | None = None) -> None:
        weight, self.axis = _weight("WeightNorm", layer, name, axis)
        self.layer, self.name = layer, name
        self.scale = np.sqrt(np.sum(weight * weight, _others(weight, self.axis)))

    def __call__(self, x: Any, *arguments: Any, **keywords: Any) -> Any:
        weight = getattr(self.layer, self.name)
        lengths = sqrt(sum_(weight * weight, _others(weight, self.axis)))
        along = [1] * weight.ndim
        along[self.axis] = -1
        changed = _with(self.layer, self.name, weight * (self.scale / lengths).reshape(along))
        return changed(x, *arguments, **keywords)

    def parts(self) -> dict[str, Any]:
        return {"layer": self.layer}


class SpectralNorm(Module):
    r"""A layer whose weight is divided by its largest singular value: spectral normalisation.

    .. math:: \hat W = W / \sigma, \quad \sigma = u^T W v

    :math:`W` is the weight in the field ``name`` of ``layer`` as a matrix with a row for each output. The singular
    vectors :math:`u` and :math:`v` are buffers, ``left`` and ``right``: each call in training mode brings them nearer
    by ``iterations`` steps of the power method, which are not differentiated; otherwise they stay. ``axis`` is that of
    the outputs, as with ``WeightNorm``; ``seed`` is what they begin with, followed by 15 steps.

    Raises ``ShapeError`` where the layer has no such weight, or that no such axis.

    Source: Miyato et al., *Spectral normalization for generative adversarial networks*, ICLR 2018.

    >>> from pullback import nn
    >>> dense = nn.Dense(3, 3, bias=False, seed=0, dtype=np.float64)
    >>> dense.weight = np.diag([1.0, 4.0, 2.0])
    >>> layer = SpectralNorm(dense, seed=0)
    >>> layer(np.eye(3)).diagonal().round(4)
    array([0.25, 1.  , 0.5 ])
    """

    layer: Any
    left: Any = buffer()
    right: Any = buffer()
    name: str
    axis: int
    iterations: int
    epsilon: float = static()

    def __init__(
        self,
        layer: Any,
        name: str = "weight",
        *,
        axis: int | None = None,
        iterations: int = 1,
        epsilon: float = 1e-12,
        seed: Seed = None,
    ) -> None:
        iterations = count("SpectralNorm", "iterations", iterations)
        weight, self.axis = _weight("SpectralNorm", layer, name, axis)
        self.layer, self.name, self.iterations, self.epsilon = layer, name, iterations, epsilon
        matrix, random = _matrix(weight, self.axis), np.random.default_rng(seed)
        vector = random.standard_normal(matrix.shape[1]).astype(matrix.dtype)
        self.left, self.right = self._nearer(matrix, vector, 15)

    def __call__(self, x: Any, *arguments: Any, **keywords: Any) -> Any:
        weight, mode = getattr(self.layer, self.name), current_training()
        matrix = _matrix(weight, self.axis)
        left, right = self.left, self.right
        if mode is not None:
            fixed = stop_gradient(matrix)
            left, right = self._nearer(fixed, stop_gradient(mode.value(self.right)), self.iterations)
            mode.set(self.left, left)
            mode.set(self.right, right)
        changed = _with(self.layer, self.name, weight / vdot(left, matrix @ right))
        return changed(x, *arguments, **keywords)

    def _nearer(self, matrix: Any, right: Any, steps: int) -> tuple[Any, Any]:
        """Both singular vectors after some steps of the power method."""
        for _ in range(steps):
            left = self._unit(matrix @ right)
            right = self._unit(matrix.T @ left)
        return left, right

    def _unit(self, vector: Any) -> Any:
        length = sqrt(sum_(vector * vector))
        return vector / (length + self.epsilon)

    def parts(self) -> dict[str, Any]:
        return {"layer": self.layer}


def _weight(wrapper: str, layer: Any, name: str, axis: int | None) -> tuple[Any, int]:
    """The weight that is to be normalised, and the axis of the outputs."""
    weight = getattr(layer, name, None)
    if weight is None or not hasattr(weight, "shape") or not weight.shape:
        raise ShapeError(
            f"[{wrapper}] {type(layer).__name__} has no array {name!r}. Name the field of its weight."
        )
    rank = len(weight.shape)
    chosen = (rank - 1 if isinstance(layer, Dense) else 0) if axis is None else axis
    if not -rank <= chosen < rank:
        raise ShapeError(
            f"[{wrapper}] axis {axis} of a weight of shape {tuple(weight.shape)}. Give that of the outputs."
        )
    return weight, chosen % rank


def _others(weight: Any, axis: int) -> tuple[int, ...]:
    return tuple(k for k in range(weight.ndim) if k != axis)


def _matrix(weight: Any, axis: int) -> Any:
    """The weight with a row for each output."""
    rows = weight.shape[axis]
    return transpose(weight, (axis, *_others(weight, axis))).reshape(
        rows, math.prod(weight.shape) // max(rows, 1)
    )


def _with(layer: Any, name: str, weight: Any) -> Any:
    changed = copy.copy(layer)
    setattr(changed, name, weight)
    return changed
