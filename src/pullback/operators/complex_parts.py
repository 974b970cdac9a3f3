r"""Complex numbers as their parts: what an operator of the table does to the real and the imaginary part.

The compiler knows real numbers only. Before anything else it takes each complex value apart
(``compiler/legalise/parts.py``), and these are the rules by which it does: for :math:`z = x + iy` the parts of
:math:`f(z)` from those of :math:`z`. What is linear needs no rule: it does the same to both parts. The result of a rule
is ``Parts``, or a real node.

What a rule gives agrees with NumPy up to rounding relative to the size of the result. Overflow on the way is avoided
where NumPy avoids it; of infinite and NaN parts the result is what the formula gives, where a rule does not say more.

Source: Kahan, *Branch cuts for complex elementary functions*, 1987; Smith, *Algorithm 116: complex division*, 1962.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from pullback.graph import OPERATORS, Node, Operation, constant, part_dtype

__all__ = [
    "ACCURACY",
    "Parts",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctanh",
    "bilinear",
    "cast",
    "cos",
    "cosh",
    "divided",
    "each",
    "equal",
    "exp",
    "exp2",
    "expm1",
    "isfinite",
    "isinf",
    "isnan",
    "log",
    "log1p",
    "log2",
    "log10",
    "multiplied",
    "nodes",
    "not_equal",
    "power",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
]

nodes: Any = np
"""NumPy, whose functions take nodes as well as arrays."""


class Parts(NamedTuple):
    """A complex value: its real and its imaginary part, real nodes of one type."""

    real: Any
    imag: Any


# -- arithmetic


def cast(node: Operation, x: Any) -> Any:
    """To real numbers the real part, to bools the truth of either."""
    dtype = node.dtype
    if not isinstance(x, Parts):
        real = OPERATORS["cast"](x, dtype=part_dtype(dtype))
        return Parts(real, _number(0, real))
    if dtype.kind == "b":
        return (x.real != 0) | (x.imag != 0)
    if dtype.kind == "c":
        return Parts(*(OPERATORS["cast"](part, dtype=part_dtype(dtype)) for part in x))
    return OPERATORS["cast"](x.real, dtype=dtype)


def _number(value: float, like: Any) -> Any:
    """``value`` in the type of ``like``."""
    single = constant(value, like.dtype)
    return OPERATORS["broadcast"](single, shape=like.shape, axes=()) if like.shape else single


def multiplied(node: Operation, x: Parts, y: Parts) -> Parts:
    """``(a + bi)(c + di) = ac - bd + (ad + bc)i``."""
    (a, b), (c, d) = x, y
    return Parts(a * c - b * d, a * d + b * c)


def bilinear(node: Operation, x: Parts, y: Parts, *others: Node) -> Parts:
    """Four products of the same operator; the two of each part become one with two pairs of operands."""
    (a, b), (c, d) = ([node.operator(part, other, *others, **node.attributes) for other in y] for part in x)
    return Parts(a - d, b + c)


def each(node: Operation, x: Parts) -> Parts:
    """The same operator on either part."""
    return Parts(*(node.operator(part, **node.attributes) for part in x))


def divided(node: Operation, x: Parts, y: Parts) -> Parts:
    """By the larger part of the divisor first, which overflows only where the quotient does."""
    (a, b), (c, d) = x, y
    swapped = nodes.abs(c) < nodes.abs(d)
    large, small = nodes.where(swapped, d, c), nodes.where(swapped, c, d)
    ratio = small / large
    scale = 1 / (large + small * ratio)
    real = nodes.where(swapped, a * ratio + b, a + b * ratio) * scale
    imag = nodes.where(swapped, b * ratio - a, b - a * ratio) * scale
    zero = (c == 0) & (d == 0)
    size = nodes.abs(c)
    return Parts(nodes.where(zero, a / size, real), nodes.where(zero, b / size, imag))


def sqrt(node: Operation, x: Parts) -> Parts:
    """The root of ``(|z| + |x|) / 2`` is the larger part; the other one follows from the product of both."""
    a, b = x
    # An eighth of each cannot overflow when added.
    large = 2 * nodes.sqrt(nodes.abs(a) * 0.125 + nodes.hypot(a * 0.125, b * 0.125))
    known = (large == 0) | (nodes.abs(b) == math.inf)
    small = nodes.where(known, nodes.abs(b), nodes.abs(b) / (2 * nodes.where(known, 1, large)))
    right = a >= 0
    return Parts(nodes.where(right, large, small), nodes.copysign(nodes.where(right, small, large), b))


def power(node: Operation, x: Parts, y: Parts) -> Parts:
    """``exp(y log x)``; of 0 it is 1 for the exponent 0, 0 for ones of positive real part and NaN for others."""
    of_zero = (x.real == 0) & (x.imag == 0)
    safe = Parts(nodes.where(of_zero, 1, x.real), x.imag)
    real, imag = exp(node, multiplied(node, y, log(node, safe)))
    at_zero = nodes.where(y.real > 0, _number(0, y.real), _number(math.nan, y.real))
    one = (y.imag == 0) & (y.real == 0)
    at_real, at_imag = nodes.where(of_zero, at_zero, real), nodes.where(of_zero, at_zero, imag)
    return Parts(nodes.where(one, 1, at_real), nodes.where(one, 0, at_imag))


# -- questions


def equal(node: Operation, x: Parts, y: Parts) -> Any:
    return (x.real == y.real) & (x.imag == y.imag)


def not_equal(node: Operation, x: Parts, y: Parts) -> Any:
    return (x.real != y.real) | (x.imag != y.imag)


def isnan(node: Operation, x: Parts) -> Any:
    return nodes.isnan(x.real) | nodes.isnan(x.imag)


def isinf(node: Operation, x: Parts) -> Any:
    return nodes.isinf(x.real) | nodes.isinf(x.imag)


def isfinite(node: Operation, x: Parts) -> Any:
    return nodes.isfinite(x.real) & nodes.isfinite(x.imag)


# -- exponentials and logarithms


def _turned(size: Any, angle: Any) -> Parts:
    """``size e^(i angle)``; real where the angle is 0, infinite sizes too."""
    return Parts(size * nodes.cos(angle), nodes.where(angle == 0, angle, size * nodes.sin(angle)))


def exp(node: Operation, x: Parts) -> Parts:
    return _turned(nodes.exp(x.real), x.imag)


def exp2(node: Operation, x: Parts) -> Parts:
    return _turned(nodes.exp2(x.real), x.imag * math.log(2))


def expm1(node: Operation, x: Parts) -> Parts:
    """``cos y - 1`` is ``-2 sin²(y / 2)``, which loses nothing near 0."""
    half = nodes.sin(0.5 * x.imag)
    _, imag = exp(node, x)
    return Parts(nodes.expm1(x.real) * nodes.cos(x.imag) - 2 * half * half, imag)


def _log_size(a: Any, b: Any) -> Any:
    """``log |a + bi|``, near 1 of what the square of the size exceeds 1 by."""
    size = nodes.hypot(a, b)
    large, small = nodes.maximum(nodes.abs(a), nodes.abs(b)), nodes.minimum(nodes.abs(a), nodes.abs(b))
    near = (size > 0.5) & (size < 2)
    excess = nodes.where(near, (large - 1) * (large + 1) + small * small, 0)
    return nodes.where(near, 0.5 * nodes.log1p(excess), nodes.log(size))


def log(node: Operation, x: Parts) -> Parts:
    return Parts(_log_size(x.real, x.imag), nodes.arctan2(x.imag, x.real))


def log1p(node: Operation, x: Parts) -> Parts:
    """Near 0 ``|1 + z|² - 1`` is ``x (2 + x) + y²``."""
    a, b = x
    near = (nodes.abs(a) < 0.5) & (nodes.abs(b) < 0.5)
    excess = nodes.where(near, a * (2 + a) + b * b, 0)
    size = nodes.where(near, 0.5 * nodes.log1p(excess), _log_size(1 + a, b))
    return Parts(size, nodes.arctan2(b, 1 + a))


def log2(node: Operation, x: Parts) -> Parts:
    return Parts(*(part * (1 / math.log(2)) for part in log(node, x)))


def log10(node: Operation, x: Parts) -> Parts:
    return Parts(*(part * (1 / math.log(10)) for part in log(node, x)))


# -- trigonometric and hyperbolic functions


def sin(node: Operation, x: Parts) -> Parts:
    a, b = x
    return Parts(nodes.sin(a) * nodes.cosh(b), nodes.cos(a) * nodes.sinh(b))


def cos(node: Operation, x: Parts) -> Parts:
    a, b = x
    return Parts(nodes.cos(a) * nodes.cosh(b), -(nodes.sin(a) * nodes.sinh(b)))


def sinh(node: Operation, x: Parts) -> Parts:
    a, b = x
    return Parts(nodes.sinh(a) * nodes.cos(b), nodes.cosh(a) * nodes.sin(b))


def cosh(node: Operation, x: Parts) -> Parts:
    a, b = x
    return Parts(nodes.cosh(a) * nodes.cos(b), nodes.sinh(a) * nodes.sin(b))


def tanh(node: Operation, x: Parts) -> Parts:
    """``T (1 + t²)`` and ``t / cosh² x``, both over ``1 + T² t²``, with ``T = tanh x`` and ``t = tan y``.

    Where ``x`` is infinite the result is ±1 whatever ``y`` is, and a part that is zero stays zero (C99, annex G).
    """
    (a, b), zero = x, np.zeros((), x.real.dtype)
    b = nodes.where(nodes.isinf(a) & ~nodes.isfinite(b), nodes.where(b < 0, -zero, zero), b)
    along, across = nodes.tanh(a), nodes.tan(b)
    size = nodes.cosh(a)
    both = along * across
    below = 1 + both * both
    real, imag = along * (1 + across * across) / below, across / size / size / below
    return Parts(nodes.where(a == 0, a, real), nodes.where(b == 0, b, imag))


def tan(node: Operation, x: Parts) -> Parts:
    """``tan z = -i tanh iz``."""
    real, imag = tanh(node, Parts(x.imag, x.real))
    return Parts(imag, real)


# -- inverse functions, by Kahan's formulas: what a sum would cancel is a product of roots


def _is_large(x: Parts) -> Any:
    """Where squares may overflow, and ``z² + 1`` is ``z²``."""
    bound = float(np.finfo(x.real.dtype).max) ** 0.4
    return nodes.maximum(nodes.abs(x.real), nodes.abs(x.imag)) > bound


def _log_twice(x: Parts) -> Any:
    """``log |2z|``, without overflow."""
    return nodes.log(nodes.hypot(x.real * 0.5, x.imag * 0.5)) + math.log(4)


def _root(node: Operation, a: Any, b: Any) -> Parts:
    return sqrt(node, Parts(a, b))


def arcsinh(node: Operation, x: Parts) -> Parts:
    a, b = x
    above, below = _root(node, 1 + b, -a), _root(node, 1 - b, a)
    real = nodes.arcsinh(above.real * below.imag - below.real * above.imag)
    imag = nodes.arctan2(b, above.real * below.real - above.imag * below.imag)
    large = _is_large(x)
    real = nodes.where(large, nodes.copysign(_log_twice(x), a), real)
    return Parts(real, nodes.where(large, nodes.arctan2(b, nodes.abs(a)), imag))


def arcsin(node: Operation, x: Parts) -> Parts:
    """``arcsin z = -i arcsinh iz``."""
    real, imag = arcsinh(node, Parts(-x.imag, x.real))
    return Parts(imag, -real)


def arccos(node: Operation, x: Parts) -> Parts:
    a, b = x
    less, more = _root(node, 1 - a, -b), _root(node, 1 + a, b)
    real = 2 * nodes.arctan2(less.real, more.real)
    imag = nodes.arcsinh(more.real * less.imag - more.imag * less.real)
    large = _is_large(x)
    real = nodes.where(large, nodes.arctan2(nodes.abs(b), a), real)
    return Parts(real, nodes.where(large, nodes.copysign(_log_twice(x), -b), imag))


def arccosh(node: Operation, x: Parts) -> Parts:
    a, b = x
    less, more = _root(node, a - 1, b), _root(node, a + 1, b)
    real = nodes.arcsinh(less.real * more.real + less.imag * more.imag)
    imag = 2 * nodes.arctan2(less.imag, more.real)
    large = _is_large(x)
    real = nodes.where(large, _log_twice(x), real)
    return Parts(real, nodes.where(large, nodes.arctan2(b, a), imag))


def arctanh(node: Operation, x: Parts) -> Parts:
    """``log1p(4x / ((1 - x)² + y²)) / 4`` and half of the angle of ``(1 - x)(1 + x) - y² + 2iy``."""
    a, b = nodes.abs(x.real), x.imag
    large = _is_large(x)
    near_a, near_b = nodes.where(large, 1, a), nodes.where(large, 1, b)
    gap = 1 - near_a
    real = 0.25 * nodes.log1p(4 * near_a / (gap * gap + near_b * near_b))
    # Beside the pole the square of y underflows.
    tiny = float(np.finfo(a.dtype).tiny) ** 0.5
    beside = (gap == 0) & (nodes.abs(near_b) < tiny) & (near_b != 0)
    size = nodes.abs(nodes.where(beside, near_b, 1))
    real = nodes.where(beside, 0.5 * (math.log(2) - nodes.log(size)), real)
    imag = -0.5 * nodes.arctan2(-2 * near_b, gap * (1 + near_a) - near_b * near_b)
    length = nodes.hypot(a * 0.5, b * 0.5)
    far = nodes.where(nodes.isinf(length), 0, a * 0.25 / length / length)
    quarter = nodes.copysign(nodes.full_like(b, 0.5 * math.pi), b)
    real = nodes.where(large, far, real)
    return Parts(nodes.copysign(real, x.real), nodes.where(large, quarter, imag))


def arctan(node: Operation, x: Parts) -> Parts:
    """``arctan z = -i arctanh iz``."""
    real, imag = arctanh(node, Parts(-x.imag, x.real))
    return Parts(imag, -real)


ACCURACY = {
    **dict.fromkeys(("multiply", "square"), 2.0),
    **dict.fromkeys(("absolute", "reciprocal"), 2.5),
    **dict.fromkeys(("cos", "cosh", "divide", "exp", "sin", "sinh", "sqrt"), 3.0),
    **dict.fromkeys(("arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "log", "log1p"), 3.5),
    **dict.fromkeys(("exp2", "expm1", "log2", "power"), 3.5),
    **dict.fromkeys(("log10", "tan", "tanh"), 5.0),
}
"""The largest error of a complex result in units in the last place of its size; a part of it that is much smaller than
the other may have lost as much more.

Of ``power`` and ``exp2`` it is times one and the size of the exponent of ``e`` that they are.
"""
