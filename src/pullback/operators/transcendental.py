"""Exponentials, logarithms, trigonometric and hyperbolic functions, and the activations made of them.

Derivatives are written with the result wherever it serves: a backward pass then keeps one array, not two.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pullback.graph import Operator
from pullback.operators.arithmetic import sqrt
from pullback.operators.elementwise import elementwise, where, zeros_like

__all__ = [
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "cos",
    "cosh",
    "erf",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log1p",
    "log2",
    "log10",
    "relu",
    "sigmoid",
    "sin",
    "sinh",
    "softplus",
    "tan",
    "tanh",
]

INSIDE_ONE = (-0.9, 0.9)
POSITIVE = (0.3, 3.0)

exp = elementwise("exp", np.exp, [lambda g, y, x: g * y], cost=10.0)
"""``e ** x``."""

expm1 = elementwise("expm1", np.expm1, [lambda g, y, x: g * (y + 1)], cost=12.0)
"""``e ** x - 1``, exact to the last bits near 0."""

exp2 = elementwise("exp2", np.exp2, [lambda g, y, x: g * (math.log(2) * y)], cost=10.0)
"""``2 ** x``."""

log = elementwise("log", np.log, [lambda g, y, x: g / x], [POSITIVE], cost=12.0)
"""The natural logarithm; minus infinity at 0, NaN below."""

log1p = elementwise("log1p", np.log1p, [lambda g, y, x: g / (1 + x)], [(-0.7, 2.0)], cost=12.0)
"""``log(1 + x)``, exact to the last bits near 0."""

log2 = elementwise("log2", np.log2, [lambda g, y, x: g / (math.log(2) * x)], [POSITIVE], cost=12.0)
"""The logarithm to base 2."""

log10 = elementwise("log10", np.log10, [lambda g, y, x: g / (math.log(10) * x)], [POSITIVE], cost=12.0)
"""The logarithm to base 10."""

sin = elementwise("sin", np.sin, [lambda g, y, x: g * cos(x)], cost=12.0)
"""The sine of an angle in radians."""

cos: Operator = elementwise("cos", np.cos, [lambda g, y, x: -g * sin(x)], cost=12.0)
"""The cosine of an angle in radians."""

tan = elementwise("tan", np.tan, [lambda g, y, x: g * (1 + y * y)], [(-1.2, 1.2)], cost=20.0)
"""The tangent of an angle in radians."""

arcsin = elementwise(
    "arcsin", np.arcsin, [lambda g, y, x: g / sqrt((1 - x) * (1 + x))], [INSIDE_ONE], cost=15.0
)
"""The angle in [-pi/2, pi/2] whose sine is ``x``."""

arccos = elementwise(
    "arccos", np.arccos, [lambda g, y, x: -g / sqrt((1 - x) * (1 + x))], [INSIDE_ONE], cost=15.0
)
"""The angle in [0, pi] whose cosine is ``x``."""

arctan = elementwise("arctan", np.arctan, [lambda g, y, x: g / (1 + x * x)], cost=15.0)
"""The angle in (-pi/2, pi/2) whose tangent is ``x``."""

arctan2 = elementwise(
    "arctan2",
    np.arctan2,
    [lambda g, z, y, x: g * (x / (x * x + y * y)), lambda g, z, y, x: -g * (y / (x * x + y * y))],
    [(-2.0, 2.0), (0.3, 2.0)],
    cost=20.0,
)
"""The angle of the point ``(x, y)``, for inputs ``y`` and ``x``, in [-pi, pi]."""

sinh = elementwise("sinh", np.sinh, [lambda g, y, x: g * cosh(x)], cost=15.0)
"""``(e ** x - e ** -x) / 2``."""

cosh: Operator = elementwise("cosh", np.cosh, [lambda g, y, x: g * sinh(x)], cost=15.0)
"""``(e ** x + e ** -x) / 2``."""

tanh = elementwise("tanh", np.tanh, [lambda g, y, x: g * (1 - y * y)], cost=12.0)
"""``sinh(x) / cosh(x)``."""

arcsinh = elementwise("arcsinh", np.arcsinh, [lambda g, y, x: g / sqrt(x * x + 1)], cost=20.0)
"""The number whose hyperbolic sine is ``x``."""

arccosh = elementwise(
    "arccosh", np.arccosh, [lambda g, y, x: g / sqrt((x - 1) * (x + 1))], [(1.3, 3.0)], cost=20.0
)
"""The number from 0 on whose hyperbolic cosine is ``x``."""

arctanh = elementwise(
    "arctanh", np.arctanh, [lambda g, y, x: g / ((1 - x) * (1 + x))], [INSIDE_ONE], cost=20.0
)
"""The number whose hyperbolic tangent is ``x``."""

_erf = np.frompyfunc(math.erf, 1, 1)


def _erf_reference(x: np.ndarray) -> Any:
    x = np.asarray(x)
    return np.asarray(_erf(x)).astype(x.dtype)


erf = elementwise(
    "erf", _erf_reference, [lambda g, y, x: g * (2 / math.sqrt(math.pi) * exp(-x * x))], cost=20.0
)
"""The error function, ``2 / sqrt(pi)`` times the integral of ``exp(-t * t)`` from 0 to ``x``."""


def _sigmoid_reference(x: np.ndarray) -> Any:
    # The exponential of a number that is not positive cannot overflow.
    x = np.asarray(x)
    one = x.dtype.type(1)
    tail = np.exp(-np.abs(x))
    return np.where(x >= 0, one, tail) / (one + tail)


sigmoid = elementwise("sigmoid", _sigmoid_reference, [lambda g, y, x: g * (y * (1 - y))], cost=12.0)
"""``1 / (1 + e ** -x)``, without overflow at either end."""


def _softplus_reference(x: np.ndarray) -> Any:
    x = np.asarray(x)
    return np.maximum(x, x.dtype.type(0)) + np.log1p(np.exp(-np.abs(x)))


softplus = elementwise("softplus", _softplus_reference, [lambda g, y, x: g * sigmoid(x)], cost=22.0)
"""``log(1 + e ** x)``, without overflow."""


def _relu_reference(x: np.ndarray) -> Any:
    x = np.asarray(x)
    return np.where((x > 0) | np.isnan(x), x, x.dtype.type(0))


relu = elementwise("relu", _relu_reference, [lambda g, y, x: where(y > 0, g, zeros_like(g))])
"""``x`` where it is positive, else +0; NaN of NaN. The derivative at 0 is 0."""
