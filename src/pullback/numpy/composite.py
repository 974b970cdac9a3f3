"""Functions made of others: they need no derivative rule of their own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pullback.graph import OPERATORS, Node, float_limits, is_complex, is_float
from pullback.graph.protocol import vocabulary
from pullback.numpy import elementwise as e
from pullback.numpy.dispatch import enter, implements
from pullback.numpy.elementwise import UFUNCS
from pullback.numpy.promotion import any_traced, array_of, as_array_node, float_dtype, operands, strong
from pullback.operators.elementwise import refuse_complex

__all__ = [
    "ACCURACY",
    "cbrt",
    "clip",
    "deg2rad",
    "erf",
    "fmax",
    "fmin",
    "hypot",
    "logaddexp",
    "logaddexp2",
    "nan_to_num",
    "rad2deg",
    "round",
]


@array_of
def clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    """``a`` kept between ``a_min`` and ``a_max``; the derivative is one inside and zero outside.

    >>> import numpy as np
    >>> print(clip(np.array([-1.0, 0.5, 2.0]), 0.0, 1.0))
    [0.  0.5 1. ]
    """
    low, high = (a_min if min is None else min), (a_max if max is None else max)
    a = strong(as_array_node(a)) if any_traced(a, low, high) else a
    if isinstance(a, Node) and a.dtype.kind in "iu":
        # A Python integer that no element is beyond needs not fit the dtype, as in NumPy.
        limits = np.iinfo(a.dtype)
        low = None if type(low) is int and low <= limits.min else low
        high = None if type(high) is int and high >= limits.max else high
    if low is not None:
        a = e.maximum(a, low)
    return a if high is None else e.minimum(a, high)


enter(clip, np.clip)
vocabulary["clip"] = clip


@implements(np.round, np.around)
def round(a: Any, decimals: int = 0) -> Any:
    """The nearest number with so many decimals, ties to even, in either part; its derivative is zero."""
    x = as_array_node(a)
    if is_complex(x.dtype):
        return e.by_parts(lambda part: round(part, decimals), x)
    if x.dtype.kind == "b":
        return e.rint(x)
    if not is_float(x.dtype):
        return x if decimals >= 0 else e.astype(round(e.astype(x, np.float64), decimals), x.dtype)
    scale = 10.0 ** abs(decimals)
    if decimals == 0:
        return e.rint(x)
    return e.rint(x * scale) / scale if decimals > 0 else e.rint(x / scale) * scale


@implements(np.nan_to_num)
def nan_to_num(x: Any, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    """NaN replaced by ``nan``, infinities by the largest and the smallest number of the dtype, in either part."""
    node = as_array_node(x)
    if is_complex(node.dtype):
        return e.by_parts(lambda part: nan_to_num(part, copy, nan, posinf, neginf), node)
    if not is_float(node.dtype):
        return node
    limits = float_limits(node.dtype)
    high = float(limits.max) if posinf is None else posinf
    low = float(limits.min) if neginf is None else neginf
    finite = e.where(e.isnan(node), nan, node)
    finite = e.where(e.equal(node, math.inf), high, finite)
    return e.where(e.equal(node, -math.inf), low, finite)


ACCURACY = {"cbrt": 1.0, "hypot": 2.0, "logaddexp": 6.0, "logaddexp2": 6.0}
"""The largest error, compiled, in units in the last place of the result, for ``float32`` and ``float64``.

Of ``logaddexp`` and ``logaddexp2`` in those of the larger operand, where that is larger than the result: near zero
the two cancel, as in NumPy.
"""


@array_of
def hypot(x: Any, y: Any, /) -> Any:
    r"""The length :math:`\sqrt{x^2 + y^2}` without overflow; its derivative is zero at the origin.

    >>> print(hypot(3.0, 4.0))
    5.0
    """
    if not any_traced(x, y):
        return np.hypot(x, y)
    x, y = operands("hypot", (x, y), float_dtype)
    refuse_complex("hypot", x.type)
    longest = e.stop_gradient(e.maximum(e.absolute(x), e.absolute(y)))
    zero, infinite = e.equal(longest, 0), e.isinf(x) | e.isinf(y)  # beside an infinity a NaN does not matter
    scale = e.where(zero | infinite, 1.0, longest)
    squares = e.square(x / scale) + e.square(y / scale)
    length = e.where(zero, 0.0, e.sqrt(e.where(zero, 1.0, squares)) * scale)
    return e.where(infinite, math.inf, length)


@array_of
def logaddexp(x: Any, y: Any, /) -> Any:
    r""":math:`\log(e^x + e^y)` without overflow; its slopes are :math:`e^x` and :math:`e^y` over their sum.

    >>> print(logaddexp(0.0, 0.0).round(4))
    0.6931
    """
    if not any_traced(x, y):
        return np.logaddexp(x, y)
    return OPERATORS["logaddexp"](*operands("logaddexp", (x, y), float_dtype))


@array_of
def logaddexp2(x: Any, y: Any, /) -> Any:
    r""":math:`\log_2(2^x + 2^y)` without overflow; its slopes are :math:`2^x` and :math:`2^y` over their sum."""
    if not any_traced(x, y):
        return np.logaddexp2(x, y)
    return OPERATORS["logaddexp2"](*operands("logaddexp2", (x, y), float_dtype))


@array_of
def cbrt(x: Any, /) -> Any:
    """The cube root, of negative numbers too; its derivative at 0 is infinite, as that of the square root."""
    if not isinstance(x, Node):
        return np.cbrt(x)
    return OPERATORS["cbrt"](e.astype(x, float_dtype(x.dtype)))


@array_of
def fmax(x: Any, y: Any, /) -> Any:
    """The larger of each pair; where one is NaN, the other."""
    return e.where(e.isnan(x), y, e.where(e.isnan(y), x, e.maximum(x, y)))


@array_of
def fmin(x: Any, y: Any, /) -> Any:
    """The smaller of each pair; where one is NaN, the other."""
    return e.where(e.isnan(x), y, e.where(e.isnan(y), x, e.minimum(x, y)))


@array_of
def deg2rad(x: Any, /) -> Any:
    """Degrees as radians: ``x * pi / 180``."""
    return np.deg2rad(x) if not isinstance(x, Node) else e.astype(x, float_dtype(x.dtype)) * (math.pi / 180)


@array_of
def rad2deg(x: Any, /) -> Any:
    """Radians as degrees: ``x * 180 / pi``."""
    return np.rad2deg(x) if not isinstance(x, Node) else e.astype(x, float_dtype(x.dtype)) * (180 / math.pi)


@array_of
def erf(x: Any, /) -> Any:
    r"""The error function :math:`\tfrac{2}{\sqrt\pi} \int_0^x e^{-t^2} dt`.

    >>> print(f"{erf(1.0):.6f}")
    0.842701
    """
    if isinstance(x, Node):
        return OPERATORS["erf"](e.astype(x, float_dtype(x.dtype)))
    x = np.asarray(x)
    return OPERATORS["erf"].reference(x.astype(float_dtype(x.dtype)))[()]


UFUNCS.update(
    {
        np.cbrt: cbrt,
        np.fmax: fmax,
        np.fmin: fmin,
        np.hypot: hypot,
        np.logaddexp: logaddexp,
        np.logaddexp2: logaddexp2,
        np.deg2rad: deg2rad,
        np.radians: deg2rad,
        np.rad2deg: rad2deg,
        np.degrees: rad2deg,
    }
)
