"""The scalar functions that :class:`~pullback.loops.Apply` may name, in NumPy: what each of them computes.

Integers wrap around, and an integer divided by zero gives 0. Not here are ``check_index``, which may fail, ``bounded``,
which is its operand, and ``bitcast``, which needs to know what it makes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["FUNCTIONS"]

Array = np.ndarray[Any, Any]

_AS_IN_NUMPY = (
    *("add", "subtract", "multiply", "divide", "floor_divide", "remainder", "negative", "absolute", "sign"),
    *("square", "sqrt", "reciprocal", "floor", "ceil", "trunc", "rint", "copysign", "minimum", "maximum"),
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "arcsin", "arccos"),
    *("arctan", "arctan2", "sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh"),
    *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "isnan", "isinf", "isfinite"),
    *("logical_and", "logical_or", "logical_xor", "logical_not", "where"),
    *("bitwise_and", "bitwise_or", "bitwise_xor", "invert", "left_shift", "right_shift"),
)

_erf = np.frompyfunc(math.erf, 1, 1)


def _sigmoid(x: Array) -> Array:
    tail = np.exp(-np.abs(x))  # of a number that is not positive: it cannot overflow
    return np.asarray(np.where(x >= 0, x.dtype.type(1), tail) / (x.dtype.type(1) + tail))


def _softplus(x: Array) -> Array:
    return np.asarray(np.maximum(x, x.dtype.type(0)) + np.log1p(np.exp(-np.abs(x))))


def _power(x: Array, y: Array) -> Array:
    if y.dtype.kind != "i":
        return np.asarray(np.power(x, y))
    # NumPy raises no integer to a negative power; what is left of it is an integer for bases 1 and -1 alone.
    negative = y < 0
    odd = np.where(y & 1, x, x * x)
    return np.where(
        negative, np.where(x * x == 1, odd, x.dtype.type(0)), np.power(x, np.where(negative, 0, y))
    )


FUNCTIONS: dict[str, Callable[..., Array]] = {
    **{name: getattr(np, name) for name in _AS_IN_NUMPY},
    "erf": lambda x: np.asarray(_erf(x)),
    "relu": lambda x: np.maximum(x, x.dtype.type(0)),
    "sigmoid": _sigmoid,
    "softplus": _softplus,
    "power": _power,
    "cast": lambda x: x,
    "stop_gradient": lambda x: x,
    "rounded": lambda x: x,
}
"""A function of arrays of equal dtypes for each name; the result is cast to the dtype of the expression."""
