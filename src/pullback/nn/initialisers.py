"""How parameters begin: functions ``(shape, random) -> array`` that draw from a NumPy generator.

The shape of a weight is ``(…, inputs, outputs)``; axes before these two, such as those of a convolution's
window, multiply both fans. Values are drawn in ``float64`` and cast by the layer, so one seed gives the same
parameters, up to rounding, in every dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pullback.errors import ShapeError

__all__ = [
    "Initialiser",
    "constant",
    "fan_in_uniform",
    "fans",
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "lecun_normal",
    "lecun_uniform",
    "normal",
    "ones",
    "orthogonal",
    "truncated_normal",
    "uniform",
    "zeros",
]

Array = NDArray[Any]
Shape = tuple[int, ...]
Initialiser = Callable[[Shape, np.random.Generator], Array]


def fans(shape: Shape) -> tuple[int, int]:
    """How many inputs an output has, and how many outputs an input has; of a vector, its length twice.

    >>> fans((196, 64)), fans((3, 3, 1, 6))
    ((196, 64), (9, 54))
    """
    if len(shape) < 2:
        return math.prod(shape), math.prod(shape)
    window = math.prod(shape[:-2])
    return window * shape[-2], window * shape[-1]


def zeros(shape: Shape, random: np.random.Generator) -> Array:
    """All zeros."""
    return np.zeros(shape)


def ones(shape: Shape, random: np.random.Generator) -> Array:
    """All ones."""
    return np.ones(shape)


def constant(value: float) -> Initialiser:
    """The initialiser that gives this value to all.

    >>> constant(0.5)((2,), np.random.default_rng(0))
    array([0.5, 0.5])
    """
    return lambda shape, random: np.full(shape, float(value))


def uniform(limit: float) -> Initialiser:
    """The initialiser that draws from ``[-limit, limit)``.

    >>> values = uniform(0.1)((1000,), np.random.default_rng(0))
    >>> bool((abs(values) <= 0.1).all())
    True
    """

    def draw(shape: Shape, random: np.random.Generator) -> Array:
        return random.uniform(-limit, limit, shape)

    return draw


def normal(deviation: float) -> Initialiser:
    """The initialiser that draws from the normal distribution of mean 0 and this standard deviation."""

    def draw(shape: Shape, random: np.random.Generator) -> Array:
        return random.normal(0.0, deviation, shape)

    return draw


def truncated_normal(deviation: float) -> Initialiser:
    """The initialiser that draws as ``normal`` does, and again what is further than two deviations from 0.

    What is left has 0.88 times the deviation.

    >>> values = truncated_normal(0.1)((1000,), np.random.default_rng(0))
    >>> bool((abs(values) <= 0.2).all())
    True
    """

    def draw(shape: Shape, random: np.random.Generator) -> Array:
        values = np.asarray(random.standard_normal(shape))
        while (far := np.abs(values) > 2).any():
            values[far] = random.standard_normal(int(far.sum()))
        return deviation * values

    return draw


def fan_in_uniform(shape: Shape, random: np.random.Generator) -> Array:
    r"""Uniform in :math:`\pm 1 / \sqrt{\text{inputs}}`: what PyTorch begins its dense layers with."""
    return _in_limit(1 / _root(fans(shape)[0]), shape, random)


def glorot_uniform(shape: Shape, random: np.random.Generator) -> Array:
    r"""Uniform in :math:`\pm\sqrt{6 / (\text{inputs} + \text{outputs})}`.

    Source: Glorot & Bengio, *Understanding the difficulty of training deep feedforward networks*, 2010.
    """
    return _in_limit(math.sqrt(6) / _root(sum(fans(shape))), shape, random)


def glorot_normal(shape: Shape, random: np.random.Generator) -> Array:
    r"""Normal with deviation :math:`\sqrt{2 / (\text{inputs} + \text{outputs})}`.

    Source: as ``glorot_uniform``.
    """
    return random.normal(0.0, math.sqrt(2) / _root(sum(fans(shape))), shape)


def he_uniform(shape: Shape, random: np.random.Generator) -> Array:
    r"""Uniform in :math:`\pm\sqrt{6 / \text{inputs}}`, for layers that a relu follows.

    Source: He et al., *Delving deep into rectifiers*, 2015.
    """
    return _in_limit(math.sqrt(6) / _root(fans(shape)[0]), shape, random)


def he_normal(shape: Shape, random: np.random.Generator) -> Array:
    r"""Normal with deviation :math:`\sqrt{2 / \text{inputs}}`. Source: as ``he_uniform``."""
    return random.normal(0.0, math.sqrt(2) / _root(fans(shape)[0]), shape)


def lecun_uniform(shape: Shape, random: np.random.Generator) -> Array:
    r"""Uniform in :math:`\pm\sqrt{3 / \text{inputs}}`: outputs have the inputs' variance, as ``selu`` wants it.

    Source: LeCun et al., *Efficient backprop*, 1998.
    """
    return _in_limit(math.sqrt(3) / _root(fans(shape)[0]), shape, random)


def lecun_normal(shape: Shape, random: np.random.Generator) -> Array:
    r"""Normal with deviation :math:`\sqrt{1 / \text{inputs}}`. Source: as ``lecun_uniform``."""
    return random.normal(0.0, 1 / _root(fans(shape)[0]), shape)


def orthogonal(shape: Shape, random: np.random.Generator) -> Array:
    """A random matrix with orthonormal rows or columns, whichever are fewer: it keeps lengths through time.

    Leading axes are folded into the rows. Raises ``ShapeError`` for a vector.

    Source: Saxe et al., *Exact solutions to the nonlinear dynamics of learning*, 2014; uniform over all such
    matrices by the signs of Mezzadri, *How to generate random matrices*, 2007.

    >>> q = orthogonal((3, 5), np.random.default_rng(0))
    >>> np.allclose(q @ q.T, np.eye(3))
    True
    """
    if len(shape) < 2:
        raise ShapeError(f"[orthogonal] shape {shape} is no matrix. Choose another initialiser for vectors.")
    rows, columns = math.prod(shape[:-1]), shape[-1]
    q, r = np.linalg.qr(random.standard_normal((max(rows, columns), min(rows, columns))))
    q = q * np.where(np.diagonal(r) < 0, -1.0, 1.0)
    return (q if rows >= columns else q.T).reshape(shape)


def _in_limit(limit: float, shape: Shape, random: np.random.Generator) -> Array:
    return random.uniform(-limit, limit, shape)


def _root(count: int) -> float:
    """The square root of a fan; of an empty one, 1, for then there is nothing to scale."""
    return math.sqrt(max(count, 1))
