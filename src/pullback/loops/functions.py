"""The scalar functions that :class:`~pullback.loops.Apply` may name, in NumPy: what each of them computes.

Integers wrap around, and an integer divided by zero gives 0. Not here are ``check_index``, which may fail, ``bounded``,
which is its operand, and ``bitcast``, which needs to know what it makes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["COMPARISONS", "FUNCTIONS", "converted", "larger", "rectified", "smaller"]

Array = np.ndarray[Any, Any]

COMPARISONS = frozenset({"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"})

_AS_IN_NUMPY = (
    *("add", "subtract", "multiply", "divide", "floor_divide", "remainder", "negative", "absolute", "sign"),
    *("square", "sqrt", "reciprocal", "floor", "ceil", "trunc", "rint", "copysign"),
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "arcsin", "arccos"),
    *("arctan", "arctan2", "sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh"),
    *sorted(COMPARISONS),
    *("isnan", "isinf", "isfinite"),
    *("logical_and", "logical_or", "logical_xor", "logical_not", "where"),
    *("bitwise_and", "bitwise_or", "bitwise_xor", "invert", "left_shift", "right_shift"),
)

_erf = np.frompyfunc(math.erf, 1, 1)


def _sigmoid(x: Array) -> Array:
    tail = np.exp(-np.abs(x))  # of a number that is not positive: it cannot overflow
    return np.asarray(np.where(x >= 0, x.dtype.type(1), tail) / (x.dtype.type(1) + tail))


def _softplus(x: Array) -> Array:
    return np.asarray(np.maximum(x, x.dtype.type(0)) + np.log1p(np.exp(-np.abs(x))))


def _bell(x: Array, factor: float) -> Array:
    """``e ** -(factor * x * x)`` for a power of two: the square of a short part of ``x`` is exact, the rest small."""
    held = np.minimum(np.abs(x).astype(np.float64), 64.0)
    short = np.floor(held * 16.0) * 0.0625
    rest = (held - short) * (held + short)
    return np.asarray(np.exp(-factor * (short * short)) * np.exp(-factor * rest)).astype(x.dtype)


def _power(x: Array, y: Array) -> Array:
    if y.dtype.kind != "i":
        return np.asarray(np.power(x, y))
    # NumPy raises no integer to a negative power; what is left of it is an integer for bases 1 and -1 alone.
    negative = y < 0
    odd = np.where(y & 1, x, x * x)
    return np.where(
        negative, np.where(x * x == 1, odd, x.dtype.type(0)), np.power(x, np.where(negative, 0, y))
    )


def larger(x: Array, y: Array) -> Array:
    """The maximum; of two zeros +0 unless both are -0, which NumPy leaves to the processor and to its own loops."""
    x, y = np.asarray(x), np.asarray(y)
    found = np.asarray(np.maximum(x, y))
    return np.where((found == 0) & (x == y), x + y, found) if x.dtype.kind == "f" else found


def smaller(x: Array, y: Array) -> Array:
    """The minimum; of two zeros -0 unless both are +0."""
    if np.asarray(x).dtype.kind != "f":
        return np.asarray(np.minimum(x, y))
    return -larger(np.negative(x), np.negative(y))


def rectified(x: Array) -> Array:
    """``x`` where it is positive, else +0; NaN of NaN."""
    x = np.asarray(x)
    return np.where((x > 0) | np.isnan(x), x, x.dtype.type(0))


def converted(x: Array, dtype: np.dtype[Any]) -> Array:
    """``x`` cast; floats beyond an integer's range become its nearest end and NaN 0, which NumPy leaves undefined.

    Of complex numbers the real part, but for their truth.
    """
    x = np.asarray(x)
    if x.dtype.kind == "c" and dtype.kind in "iuf":
        x = x.real
    if not (x.dtype.kind == "f" and dtype.kind in "iu"):
        return x.astype(dtype)
    limits = np.iinfo(dtype)
    above, below = x >= float(limits.max) + 1, x < limits.min
    inside = np.where(np.isnan(x) | above | below, x.dtype.type(0), x).astype(dtype)
    return np.where(above, dtype.type(limits.max), np.where(below, dtype.type(limits.min), inside))


def _half_bits(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray(x).astype(np.float16).view(np.uint16)


FUNCTIONS: dict[str, Callable[..., Array]] = {
    **{name: getattr(np, name) for name in _AS_IN_NUMPY},
    "erf": lambda x: np.asarray(_erf(x)),
    "bell": lambda x: _bell(np.asarray(x), 1.0),
    "half_bell": lambda x: _bell(np.asarray(x), 0.5),
    "decay": lambda x: np.exp(-np.abs(x)),
    "rise": lambda x: -np.expm1(-np.abs(x)),
    "maximum": larger,
    "minimum": smaller,
    "relu": rectified,
    "sigmoid": _sigmoid,
    "softplus": _softplus,
    "power": _power,
    "half_bits": _half_bits,
    "half_value": lambda x: np.asarray(x).view(np.float16).astype(np.float32),
    "stop_gradient": lambda x: x,
    "rounded": lambda x: x,
    "unlikely": lambda x: x,
}
"""A function of arrays of equal dtypes for each name; the result is cast to the dtype of the expression.

``bell`` is ``e ** -(x * x)`` and ``half_bell`` its root; ``decay`` is ``e ** -|x|`` and ``rise`` what is left to 1.
``half_bits`` are those of the ``float16`` nearest to a ``float32`` or ``float64``, as ``uint16``; ``half_value`` is the
number that has them, as ``float32``.
"""
