"""Activation functions and the softmax family."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.errors import DTypeError
from pullback.graph import OPERATORS, Node
from pullback.numpy import elementwise as e
from pullback.numpy.axes import Axes, normal_axes
from pullback.numpy.promotion import where_written
from pullback.numpy.reductions import as_float, finite_max
from pullback.numpy.reductions import sum as sum_

__all__ = [
    "celu",
    "elu",
    "gelu",
    "glu",
    "hard_sigmoid",
    "hard_swish",
    "hard_tanh",
    "leaky_relu",
    "log_sigmoid",
    "log_softmax",
    "mish",
    "one_hot",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "softsign",
]


def _operator(name: str, text: str) -> Callable[[Any], Any]:
    """A function that is an operator of its own, computed by the operator's reference on concrete arrays."""

    def function(x: Any, /) -> Any:
        x = as_float(x)
        return OPERATORS[name](x) if isinstance(x, Node) else OPERATORS[name].reference(x)[()]

    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return function


ACCURACY = {"gelu": 5.5, "mish": 4.0, "silu": 3.0, "softsign": 2.0}
"""The largest error in units in the last place of the result, for ``float32`` and ``float64``, where that is normal."""

sigmoid = _operator("sigmoid", "``1 / (1 + exp(-x))``, without overflow.")
softplus = _operator("softplus", "``log(1 + exp(x))``, without overflow; its derivative is the sigmoid.")
_exact_gelu = _operator("gelu", "``x`` times the probability that a normal number is below ``x``.")
relu = _operator("relu", "``max(x, 0)``; its derivative is zero at zero.")


def log_sigmoid(x: Any, /) -> Any:
    """``log(sigmoid(x)) = -softplus(-x)``."""
    return -softplus(-as_float(x))


def leaky_relu(x: Any, /, slope: float = 0.01) -> Any:
    """``x`` where positive, ``slope * x`` elsewhere. Source: Maas et al., *Rectifier nonlinearities*,
    2013.
    """
    x = as_float(x)
    return e.where(x > 0, x, slope * x)


def relu6(x: Any, /) -> Any:
    """``min(max(x, 0), 6)``; its derivative is zero at both ends. Source: Howard et al., *MobileNets*, 2017."""
    x = as_float(x)
    return e.where(x >= 6, 6.0, relu(x))


def elu(x: Any, /, alpha: float = 1.0) -> Any:
    """``x`` where positive, ``alpha * (exp(x) - 1)`` elsewhere. Source: Clevert et al., *ELU*, 2016.

    >>> round(float(elu(-1.0)), 4)
    -0.6321
    """
    x = as_float(x)
    return e.where(x > 0, x, alpha * e.expm1(_not_positive(x)))


def celu(x: Any, /, alpha: float = 1.0) -> Any:
    """``x`` where positive, ``alpha * (exp(x / alpha) - 1)`` elsewhere. Source: Barron, *CELU*, 2017."""
    x = as_float(x)
    return e.where(x > 0, x, alpha * e.expm1(_not_positive(x) / alpha))


def _not_positive(x: Any) -> Any:
    """``x`` where it is not positive, for a branch not taken elsewhere: exp of a large number would overflow.

    The slope at 0 is that of the branch, where ``minimum(x, 0)`` would halve it.
    """
    return e.where(x > 0, 0.0, x)


def selu(x: Any, /) -> Any:
    """``scale * elu(x, alpha)`` with the constants that keep mean 0 and variance 1.

    Source: Klambauer et al., *Self-normalizing neural networks*, 2017.
    """
    return 1.0507009873554805 * elu(x, 1.6732632423543772)


def gelu(x: Any, /, approximate: bool = False) -> Any:
    r""":math:`x \Phi(x)` with the normal distribution's :math:`\Phi(x) = \tfrac12 (1 + \mathrm{erf}(x /
    \sqrt 2))`; at :math:`-\infty` its limit, 0.

    ``approximate`` takes :math:`\tfrac12 (1 + \tanh(\sqrt{2/\pi} (x + 0.044715 x^3)))` for :math:`\Phi`.
    Source: Hendrycks & Gimpel, *Gaussian error linear units*, 2016.

    >>> round(float(gelu(1.0)), 6)
    0.841345
    """
    x = as_float(x)
    if approximate:
        # As 1 + tanh(z) = 2 sigmoid(2 z), which is exact to the last bits where it is small.
        return x * sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    return _exact_gelu(x)


def silu(x: Any, /) -> Any:
    """``x * sigmoid(x)``, also named swish. Source: Elfwing et al., *SiLU*, 2018."""
    x = as_float(x)
    return x * sigmoid(x)


def mish(x: Any, /) -> Any:
    """``x * tanh(softplus(x))``. Source: Misra, *Mish*, 2019."""
    x = as_float(x)
    return x * e.tanh(softplus(x))


def softsign(x: Any, /) -> Any:
    """``x / (1 + |x|)``."""
    x = as_float(x)
    size = e.absolute(x)
    far = size > 1
    near = e.where(far, 0.0, x)
    # Of the quotient the derivative would cancel far out.
    return e.where(far, e.sign(x) * (1 - 1 / (1 + size)), near / (1 + e.absolute(near)))


def hard_tanh(x: Any, /) -> Any:
    """``x`` kept between -1 and 1; its derivative is zero at both ends."""
    x = as_float(x)
    return e.where(x >= 1, 1.0, e.where(x <= -1, -1.0, x))


def hard_sigmoid(x: Any, /) -> Any:
    """``min(max(x + 3, 0), 6) / 6``. Source: Howard et al., *MobileNetV3*, 2019."""
    return relu6(as_float(x) + 3) / 6


def hard_swish(x: Any, /) -> Any:
    """``x * hard_sigmoid(x)``. Source: Howard et al., *MobileNetV3*, 2019."""
    x = as_float(x)
    return x * hard_sigmoid(x)


def glu(x: Any, /, axis: int = -1) -> Any:
    """The first half of ``axis`` times the sigmoid of the second. Source: Dauphin et al., *GLU*, 2017."""
    from pullback.numpy.shapes import split

    value, gate = split(as_float(x), 2, axis)
    return value * sigmoid(gate)


def softmax(x: Any, /, axis: Axes = -1) -> Any:
    r""":math:`e^{x_i} / \sum_k e^{x_k}` over ``axis``, without overflow.

    >>> print(softmax(np.array([1000.0, 1000.0])))
    [0.5 0.5]
    """
    x = as_float(x)
    axes = normal_axes("softmax", axis, x.ndim)
    powers = e.exp(x - finite_max(x, axes))
    return powers / sum_(powers, axes, keepdims=True)


def log_softmax(x: Any, /, axis: Axes = -1) -> Any:
    r""":math:`x_i - \log \sum_k e^{x_k}` over ``axis``, without overflow.

    >>> print(log_softmax(np.array([0.0, 0.0])).round(4))
    [-0.6931 -0.6931]
    """
    x = as_float(x)
    shifted = x - finite_max(x, normal_axes("log_softmax", axis, x.ndim))
    return shifted - e.log(sum_(e.exp(shifted), axis, keepdims=True))


def one_hot(labels: Any, classes: int, dtype: Any = np.float32) -> Any:
    """A last axis of ``classes`` elements: one at the label's place, zero elsewhere; labels outside are all
    zeros.

    >>> print(one_hot(np.array([1, 0]), 3))
    [[0. 1. 0.]
     [1. 0. 0.]]
    """
    labels = labels if isinstance(labels, Node) else np.asarray(labels)
    if labels.dtype.kind not in "iu":
        raise DTypeError(
            f"one_hot of {labels.dtype}; labels are integers: cast with .astype(np.int64){where_written()}"
        )
    return e.astype(e.equal(labels[..., None], np.arange(classes)), dtype)
