"""Exponentials, logarithms, trigonometric and hyperbolic functions, and the activations made of them.

Derivatives are written with the result wherever it serves: a backward pass then keeps one array, not two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.graph import OPERATORS, Node, Operation, Operator, float_limits, is_complex
from pullback.loops import Apply, Expression, Index, Literal, Operand, fused
from pullback.loops.functions import FUNCTIONS, rectified
from pullback.operators import complex_parts
from pullback.operators.arithmetic import sqrt
from pullback.operators.elementwise import elementwise, filled, lower_elementwise, where, zeros_like
from pullback.operators.steps import Body, in_doubles, lower_in_steps

__all__ = [
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "cbrt",
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
    "logaddexp",
    "logaddexp2",
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

exp = elementwise("exp", np.exp, [lambda g, y, x: g * y], kinds="fc", cost=10.0, parts=complex_parts.exp)
"""``e ** x``."""

expm1 = elementwise(
    "expm1", np.expm1, [lambda g, y, x: g * exp(x)], kinds="fc", cost=12.0, parts=complex_parts.expm1
)
"""``e ** x - 1``, exact to the last bits near 0."""

exp2 = elementwise(
    "exp2", np.exp2, [lambda g, y, x: g * (math.log(2) * y)], kinds="fc", cost=10.0, parts=complex_parts.exp2
)
"""``2 ** x``."""

log = elementwise(
    "log", np.log, [lambda g, y, x: g / x], [POSITIVE], kinds="fc", cost=12.0, parts=complex_parts.log
)
"""The natural logarithm; minus infinity at 0, NaN below; of complex numbers its principal value."""

log1p = elementwise(
    "log1p",
    np.log1p,
    [lambda g, y, x: g / (1 + x)],
    [(-0.7, 2.0)],
    kinds="fc",
    cost=12.0,
    parts=complex_parts.log1p,
)
"""``log(1 + x)``, exact to the last bits near 0."""

log2 = elementwise(
    "log2",
    np.log2,
    [lambda g, y, x: g / (math.log(2) * x)],
    [POSITIVE],
    kinds="fc",
    cost=12.0,
    parts=complex_parts.log2,
)
"""The logarithm to base 2."""

log10 = elementwise(
    "log10",
    np.log10,
    [lambda g, y, x: g / (math.log(10) * x)],
    [POSITIVE],
    kinds="fc",
    cost=12.0,
    parts=complex_parts.log10,
)
"""The logarithm to base 10."""

sin = elementwise("sin", np.sin, [lambda g, y, x: g * cos(x)], kinds="fc", cost=12.0, parts=complex_parts.sin)
"""The sine of an angle in radians."""

cos: Operator = elementwise(
    "cos", np.cos, [lambda g, y, x: -g * sin(x)], kinds="fc", cost=12.0, parts=complex_parts.cos
)
"""The cosine of an angle in radians."""

tan = elementwise(
    "tan",
    np.tan,
    [lambda g, y, x: g * (1 + y * y)],
    [(-1.2, 1.2)],
    kinds="fc",
    cost=20.0,
    parts=complex_parts.tan,
)
"""The tangent of an angle in radians."""


def _shifted(x: Any, by: float) -> Any:
    """``x + by`` of complex ``x``, whose imaginary part keeps the sign of its zero."""
    return OPERATORS["complex_of"](OPERATORS["real"](x) + by, OPERATORS["imag"](x))


one_less_square = elementwise(
    "one_less_square",
    lambda x: (1 - x) * (1 + x),
    [lambda g, y, x: g * (-2 * x)],
    lower=lambda node, operands, index: _one_less_square(operands[0](index)),
)
"""``1 - x * x`` as a product, exact to the last bits near 1, whose own derivative does not cancel near 0."""


def _one_less_square(x: Expression) -> Expression:
    one = Literal(1, x.dtype)
    less, more = Apply("subtract", (one, x), x.dtype), Apply("add", (one, x), x.dtype)
    return Apply("multiply", (less, more), x.dtype)


def _root_within_one(x: Any) -> Any:
    """``sqrt(1 - x²)``, on a branch cut on the side that the sign of zero says."""
    if not is_complex(x.dtype):
        return sqrt(one_less_square(x))
    return sqrt(_shifted(-x, 1) * _shifted(x, 1))


def _root_beside_zero(x: Any) -> Any:
    """``sqrt(1 + x²)``, likewise."""
    if not is_complex(x.dtype):
        # Beyond, the one is lost, and the square would overflow.
        size = OPERATORS["absolute"](x)
        reach = 2.0 ** (float_limits(x.dtype).nmant // 2 + 2)
        far = OPERATORS["greater"](size, filled(reach, x.dtype, x.shape))
        held = where(far, zeros_like(x), x)
        return where(far, size, sqrt(held * held + 1))
    return _root_within_one(OPERATORS["complex_of"](-OPERATORS["imag"](x), OPERATORS["real"](x)))


def _root_beyond_one(x: Any) -> Any:
    """``sqrt(x² - 1)``, with the sign of ``x``, likewise."""
    if not is_complex(x.dtype):
        return sqrt(x - 1) * sqrt(x + 1)
    return sqrt(_shifted(x, -1)) * sqrt(_shifted(x, 1))


arcsin = elementwise(
    "arcsin",
    np.arcsin,
    [lambda g, y, x: g / _root_within_one(x)],
    [INSIDE_ONE],
    kinds="fc",
    cost=15.0,
    parts=complex_parts.arcsin,
)
"""The angle in [-pi/2, pi/2] whose sine is ``x``; of complex numbers cut beyond 1 and -1."""

arccos = elementwise(
    "arccos",
    np.arccos,
    [lambda g, y, x: -g / _root_within_one(x)],
    [INSIDE_ONE],
    kinds="fc",
    cost=15.0,
    parts=complex_parts.arccos,
)
"""The angle in [0, pi] whose cosine is ``x``; of complex numbers cut beyond 1 and -1."""

arctan = elementwise(
    "arctan",
    np.arctan,
    [lambda g, y, x: g / (1 + x * x)],
    kinds="fc",
    cost=15.0,
    parts=complex_parts.arctan,
)
"""The angle in (-pi/2, pi/2) whose tangent is ``x``; of complex numbers cut beyond i and -i."""


def _per_square(g: Node, length: Node, y: Node, x: Node) -> Node:
    """``g * length / (x * x + y * y)``, and 0 at the origin."""
    square = x * x + y * y
    origin = OPERATORS["equal"](square, zeros_like(square))
    return where(origin, zeros_like(g), g * (length / where(origin, filled(1, x.dtype, x.shape), square)))


arctan2 = elementwise(
    "arctan2",
    np.arctan2,
    [lambda g, z, y, x: _per_square(g, x, y, x), lambda g, z, y, x: -_per_square(g, y, y, x)],
    [(-2.0, 2.0), (0.3, 2.0)],
    cost=20.0,
)
"""The angle of the point ``(x, y)``, for inputs ``y`` and ``x``, in [-pi, pi]. The derivatives at the origin are 0."""

sinh = elementwise(
    "sinh", np.sinh, [lambda g, y, x: g * cosh(x)], kinds="fc", cost=15.0, parts=complex_parts.sinh
)
"""``(e ** x - e ** -x) / 2``."""

cosh: Operator = elementwise(
    "cosh", np.cosh, [lambda g, y, x: g * sinh(x)], kinds="fc", cost=15.0, parts=complex_parts.cosh
)
"""``(e ** x + e ** -x) / 2``."""


def _is_double(x: Node) -> bool:
    return bool(x.dtype == np.float64)


decay = elementwise(
    "decay", FUNCTIONS["decay"], [lambda g, y, x: g * (OPERATORS["sign"](x) * -y)], [POSITIVE], cost=9.0
)
"""``e ** -|x|``, which ``tanh``, ``sigmoid`` and their derivatives of ``float64`` are made of."""

rise = elementwise(
    "rise", FUNCTIONS["rise"], [lambda g, y, x: g * (OPERATORS["sign"](x) * decay(x))], [POSITIVE], cost=9.0
)
"""``1 - e ** -|x|``, exact to the last bits near 0."""


def _in_steps(body: Body) -> Callable[..., Expression]:
    """A lowering by ``body`` of ``float64``, whose derivative has steps in common with it; otherwise by the name."""
    in_steps = lower_in_steps(body)

    def lower(node: Operation, operands: Sequence[Operand], index: Sequence[Index]) -> Expression:
        return (in_steps if _is_double(node) else lower_elementwise)(node, operands, index)

    return lower


def _tanh(m: Any, x: Any) -> Any:
    return m.copysign(_tanh_of_size(m, x), x)


def _tanh_of_size(m: Any, x: Any) -> Any:
    return m.rise(x + x) / (1.0 + m.decay(x + x))


def _over_cosh_squared(m: Any, x: Any) -> Any:
    more = 1.0 + _tanh_of_size(m, x)
    return m.decay(x + x) * more * more


def _tanh_slope(g: Node, y: Node, x: Node) -> Node:
    """By the result, which a network keeps anyway, but where all digits are wanted: far out these are lost in it."""
    return g * (tanh_slope(x) if _is_double(x) else 1 - y * y)


tanh = elementwise(
    "tanh",
    np.tanh,
    [_tanh_slope],
    kinds="fc",
    cost=12.0,
    lower=_in_steps(_tanh),
    parts=complex_parts.tanh,
)
"""``sinh(x) / cosh(x)``."""

tanh_slope = in_doubles(
    "tanh_slope", _over_cosh_squared, [lambda g, y, x: g * (-2 * y * tanh(x))], [(-2.0, 2.0)], 16.0
)
"""``1 / cosh(x) ** 2``, the derivative of ``tanh``."""

arcsinh = elementwise(
    "arcsinh",
    np.arcsinh,
    [lambda g, y, x: g / _root_beside_zero(x)],
    kinds="fc",
    cost=20.0,
    parts=complex_parts.arcsinh,
)
"""The number whose hyperbolic sine is ``x``; of complex numbers cut beyond i and -i."""

arccosh = elementwise(
    "arccosh",
    np.arccosh,
    [lambda g, y, x: g / _root_beyond_one(x)],
    [(1.3, 3.0)],
    kinds="fc",
    cost=20.0,
    parts=complex_parts.arccosh,
)
"""The number from 0 on whose hyperbolic cosine is ``x``; of complex numbers cut below 1."""

arctanh = elementwise(
    "arctanh",
    np.arctanh,
    [lambda g, y, x: g / (one_less_square(x) if not is_complex(x.dtype) else (1 - x) * (1 + x))],
    [INSIDE_ONE],
    kinds="fc",
    cost=20.0,
    parts=complex_parts.arctanh,
)
"""The number whose hyperbolic tangent is ``x``; of complex numbers cut beyond 1 and -1."""

_erf = np.frompyfunc(math.erf, 1, 1)


def _erf_reference(x: np.ndarray) -> Any:
    x = np.asarray(x)
    return np.asarray(_erf(x)).astype(x.dtype)


erf = elementwise(
    "erf", _erf_reference, [lambda g, y, x: g * (2 / math.sqrt(math.pi) * OPERATORS["bell"](x))], cost=20.0
)
"""The error function, ``2 / sqrt(pi)`` times the integral of ``exp(-t * t)`` from 0 to ``x``."""


def _sigmoid_reference(x: np.ndarray) -> Any:
    # The exponential of a number that is not positive cannot overflow.
    x = np.asarray(x)
    one = x.dtype.type(1)
    tail = np.exp(-np.abs(x))
    return np.where(x >= 0, one, tail) / (one + tail)


def _sigmoid_slope(g: Node, y: Node, x: Node) -> Node:
    return g * (sigmoid_slope(x) if _is_double(x) else y * (1 - y))


def _sigmoid(m: Any, x: Any) -> Any:
    falling = m.decay(x)
    inverse = 1.0 / (1.0 + falling)
    return m.where(x < 0.0, falling * inverse, inverse)


def _sigmoid_times_its_rest(m: Any, x: Any) -> Any:
    falling = m.decay(x)
    inverse = 1.0 / (1.0 + falling)
    return falling * inverse * inverse


sigmoid = elementwise("sigmoid", _sigmoid_reference, [_sigmoid_slope], cost=12.0, lower=_in_steps(_sigmoid))
"""``1 / (1 + e ** -x)``, without overflow at either end."""

sigmoid_slope = in_doubles(
    "sigmoid_slope",
    _sigmoid_times_its_rest,
    [lambda g, y, x: g * (-y * tanh(0.5 * x))],
    [(-2.0, 2.0)],
    16.0,
)
"""``sigmoid(x) * sigmoid(-x)``, the derivative of ``sigmoid``."""


def _softplus_reference(x: np.ndarray) -> Any:
    x = np.asarray(x)
    return np.maximum(x, x.dtype.type(0)) + np.log1p(np.exp(-np.abs(x)))


softplus = elementwise("softplus", _softplus_reference, [lambda g, y, x: g * sigmoid(x)], cost=22.0)
"""``log(1 + e ** x)``, without overflow."""


relu = elementwise("relu", rectified, [lambda g, y, x: where(y > 0, g, zeros_like(g))])
"""``x`` where it is positive, else +0; NaN of NaN. The derivative at 0 is 0."""


def _cbrt_lower(node: Operation, operands: Sequence[Operand], index: Sequence[Index]) -> Expression:
    """``t - (t - |x| / t²) / 3`` with ``t = |x| ** (1/3)`` and the sign of ``x``.

    The power alone misses by ``log |x|`` times what 1/3 misses, the step of Newton's method makes that good.
    """
    (x,), dtype = (operand(index) for operand in operands), node.dtype

    def of(function: str, *operands: Expression) -> Expression:
        return fused(Apply(function, operands, dtype))

    size = of("absolute", x)
    near = of("power", size, Literal(1 / 3, dtype))
    excess = of("subtract", near, of("divide", size, of("multiply", near, near)))
    root = of("subtract", near, of("divide", excess, Literal(3, dtype)))
    negative = Apply("less", (x, Literal(0, dtype)), np.dtype(np.bool_))
    # Zeros and infinities, and nothing else, are their own doubles; their roots are they themselves.
    double = Apply("equal", (of("add", x, x), x), np.dtype(np.bool_))
    return of("where", double, x, of("where", negative, of("negative", root), root))


cbrt = elementwise(
    "cbrt", np.cbrt, [lambda g, y, x: g / (3 * (y * y))], [POSITIVE], cost=22.0, lower=_cbrt_lower
)
"""The cube root, of negative numbers too. The derivative at 0 is infinite."""


def _sum_of_powers(name: str, reference: np.ufunc, base: float, exponential: str) -> Operator:
    """The logarithm of ``base ** x + base ** y``; its slopes are the shares of the two in the sum."""
    rate = math.log(base)

    def share(g: Node, x: Node, y: Node) -> Node:
        # Equal infinities have equal shares; only there a difference would be NaN.
        isinf, equal = OPERATORS["isinf"], OPERATORS["equal"]
        ahead = where(isinf(x) & equal(x, y), zeros_like(x), x - y)
        return g * sigmoid(ahead if rate == 1 else ahead * rate)

    def lower(node: Operation, operands: Sequence[Operand], index: Sequence[Index]) -> Expression:
        """``max(x, y) + log(1 + base ** -|x - y|)``, with what rounding takes from the difference.

        That is found as by Knuth's sum of two numbers. Of infinite operands there is none.
        """
        (x, y), dtype = (operand(index) for operand in operands), node.dtype

        def of(function: str, *operands: Expression) -> Expression:
            return fused(Apply(function, operands, dtype))

        most, least = of("maximum", x, y), of("minimum", x, y)
        apart = of("subtract", most, least)
        back = of("subtract", apart, most)
        lost = of("subtract", of("subtract", most, of("subtract", apart, back)), of("add", least, back))
        is_number = Apply("equal", (lost, lost), np.dtype(np.bool_))
        lost = of("where", is_number, of("multiply", lost, Literal(rate, dtype)), Literal(0, dtype))
        smaller = of(exponential, of("negative", apart))
        smaller = of("subtract", smaller, of("multiply", smaller, lost))
        total = of("add", most, of("multiply", of("log1p", smaller), Literal(1 / rate, dtype)))
        same = Apply("equal", (x, y), np.dtype(np.bool_))
        twice = of("add", x, Literal(math.log(2) / rate, dtype))
        return of("where", same, twice, total)

    rules = [lambda g, z, x, y: share(g, x, y), lambda g, z, x, y: share(g, y, x)]
    return elementwise(name, reference, rules, [(-2.0, 2.0)] * 2, cost=28.0, lower=lower)


logaddexp = _sum_of_powers("logaddexp", np.logaddexp, math.e, "exp")
"""``log(e ** x + e ** y)`` without overflow. Equal infinities have half of the cotangent each."""

logaddexp2 = _sum_of_powers("logaddexp2", np.logaddexp2, 2.0, "exp2")
"""``log2(2 ** x + 2 ** y)`` without overflow. Equal infinities have half of the cotangent each."""
