"""Arithmetic: sums, products, quotients, powers, extremes, roundings, casts.

Integers wrap around as NumPy's do, and an integer divided by zero gives 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.errors import DTypeError
from pullback.graph import OPERATORS, Case, Node, Operation, Operator, Sample, Type, is_complex, is_float
from pullback.loops import Apply, Expression, Index, Operand
from pullback.loops.functions import converted, larger, smaller
from pullback.operators import complex_parts
from pullback.operators.batching import batch_first
from pullback.operators.elementwise import (
    SHAPE,
    constant_value,
    elementwise,
    filled,
    inside_masks,
    lower_elementwise,
    where,
    zeros_like,
)

__all__ = [
    "absolute",
    "add",
    "bitcast",
    "cast",
    "ceil",
    "divide",
    "floor",
    "floor_divide",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "power",
    "remainder",
    "rint",
    "rounded",
    "sign",
    "sqrt",
    "stop_gradient",
    "subtract",
    "trunc",
]

ANY = (-2.0, 2.0)
AWAY_FROM_ZERO = (0.5, 2.0)
BETWEEN_INTEGERS = (0.1, 0.9)

add = elementwise(
    "add", np.add, [lambda g, z, x, y: g, lambda g, z, x, y: g], [ANY, ANY], kinds="iufc", linear=True
)
"""``x + y``."""

subtract = elementwise(
    "subtract",
    np.subtract,
    [lambda g, z, x, y: g, lambda g, z, x, y: -g],
    [ANY, ANY],
    kinds="iufc",
    linear=True,
)
"""``x - y``."""

multiply = elementwise(
    "multiply",
    np.multiply,
    [lambda g, z, x, y: g * y, lambda g, z, x, y: g * x],
    [ANY, ANY],
    kinds="iufc",
    parts=complex_parts.multiplied,
    is_layer=lambda inputs: any(isinstance(x, Operation) and x.operator.name == "broadcast" for x in inputs),
)
"""``x * y``."""

divide = elementwise(
    "divide",
    np.divide,
    [lambda g, z, x, y: g / y, lambda g, z, x, y: -g * (z / y)],
    [ANY, AWAY_FROM_ZERO],
    kinds="fc",
    cost=3.0,
    parts=complex_parts.divided,
)
"""``x / y``."""

negative = elementwise("negative", np.negative, [lambda g, z, x: -g], kinds="iufc", linear=True)
"""``-x``."""

sign = elementwise("sign", np.sign, None, [AWAY_FROM_ZERO], kinds="iuf")
"""-1, 0 or 1 as ``x`` is negative, zero or positive; NaN of NaN. Its derivative is zero."""

absolute = elementwise(
    "absolute",
    np.absolute,
    [lambda g, z, x: g * sign(x)],
    cases=[Case((Sample(SHAPE, kind="int"),))],
    kinds="iuf",
)
"""``|x|``, with derivative 0 at 0."""

floor = elementwise("floor", np.floor, None, [BETWEEN_INTEGERS])
"""The largest integer that is not above ``x``. Its derivative is zero, as with every rounding."""

ceil = elementwise("ceil", np.ceil, None, [BETWEEN_INTEGERS])
"""The smallest integer that is not below ``x``."""

trunc = elementwise("trunc", np.trunc, None, [BETWEEN_INTEGERS])
"""``x`` without its fraction."""

rint = elementwise("rint", np.rint, None, [(0.6, 1.4)])
"""The nearest integer, of two equally near ones the even one."""

floor_divide = elementwise(
    "floor_divide", np.floor_divide, None, [(1.1, 1.9), (1.0, 1.1)], kinds="iuf", cost=5.0
)
"""``floor(x / y)``; 0 where integers are divided by zero."""

remainder = elementwise(
    "remainder",
    np.remainder,
    [lambda g, z, x, y: g, lambda g, z, x, y: -g * floor_divide(x, y)],
    [(2.2, 2.8), (1.0, 1.1)],
    kinds="iuf",
    cost=6.0,
    cases=[
        Case((Sample(SHAPE, -2.8, -2.2), Sample(SHAPE, 1.0, 1.1))),
        Case((Sample(SHAPE, -9, 9, "int"),) * 2),
    ],
)
"""``x - floor(x / y) * y``, with the sign of ``y``; 0 where integers are divided by zero."""


def _extreme(g: Node, x: Node, y: Node, wins: Operator) -> Node:
    # The mask is outermost, so that the loser's cotangent is 0 whatever slopes lie under it.
    shared = where(OPERATORS["equal"](x, y), 0.5 * g, g)
    return where(wins(x, y), shared, zeros_like(g))


maximum = elementwise(
    "maximum",
    larger,
    [
        lambda g, z, x, y: _extreme(g, x, y, OPERATORS["greater_equal"]),
        lambda g, z, x, y: _extreme(g, y, x, OPERATORS["greater_equal"]),
    ],
    [ANY, ANY],
    kinds="iuf",
)
"""The larger of ``x`` and ``y``, NaN if one is NaN, +0 of two zeros unless both are -0 (IEEE 754-2019).

At a tie each has half of the cotangent, as in JAX. That +0 is above -0 makes the order of operands, and of a
reduction's elements, irrelevant; processors have it as one instruction or emulate it. What NumPy gives depends on the
processor: the second operand on x86, this on ARM.
"""

minimum = elementwise(
    "minimum",
    smaller,
    [
        lambda g, z, x, y: _extreme(g, x, y, OPERATORS["less_equal"]),
        lambda g, z, x, y: _extreme(g, y, x, OPERATORS["less_equal"]),
    ],
    [ANY, ANY],
    kinds="iuf",
)
"""The smaller of ``x`` and ``y``, NaN if one is NaN, -0 of two zeros unless both are +0 (IEEE 754-2019).

At a tie each has half of the cotangent, as in JAX.
"""

sqrt = elementwise(
    "sqrt",
    np.sqrt,
    [lambda g, y, x: g / (y + y)],
    [(0.3, 3.0)],
    kinds="fc",
    cost=4.0,
    parts=complex_parts.sqrt,
)
"""The square root; NaN of negative numbers, of complex ones that of the right half plane."""


def _power_by_base(g: Node, z: Node, x: Node, y: Node) -> Node | None:
    exponent = constant_value(y)
    if exponent is None:
        # Where y is 0 the power is 1 whatever x is; the formula would be 0 * inf at x = 0.
        return where(OPERATORS["equal"](y, zeros_like(y)), zeros_like(g), g * (y * power(x, y - 1)))
    if exponent == 0:
        return None
    return g if exponent == 1 else g * (exponent * x ** (exponent - 1))


def _power_by_exponent(g: Node, z: Node, x: Node, y: Node) -> Node:
    if is_complex(x.dtype):
        zero = OPERATORS["equal"](x, zeros_like(x))
        safe = where(zero, filled(1, x.dtype, x.shape), x)
        return where(zero, zeros_like(g), g * (z * OPERATORS["log"](safe)))
    # Only powers of positive bases are a smooth function of the exponent.
    positive = OPERATORS["greater"](x, zeros_like(x))
    safe = where(positive, x, filled(1, x.dtype, x.shape))
    return where(positive, g * (z * OPERATORS["log"](safe)), zeros_like(g))


power = elementwise(
    "power",
    np.power,
    [_power_by_base, _power_by_exponent],
    [(0.3, 2.5), (0.2, 2.8)],
    kinds="iufc",
    cost=20.0,
    parts=complex_parts.power,
    cases=[Case((Sample(SHAPE, 0.3, 2.5), Sample(SHAPE, -2.0, 2.0)))],
)
"""``x ** y``. The derivative by ``y`` is 0 where ``x <= 0``, or a complex ``x`` is 0; integers take no negative
exponents.
"""


def _cast_type(x: Type, dtype: np.dtype, weak: bool = False) -> Type:
    return Type(np.dtype(dtype), x.shape, weak)


def _cast_reference(x: np.ndarray, dtype: np.dtype, weak: bool = False) -> np.ndarray:
    return converted(x, dtype)


def _cast_pullback(node: Operation, cotangent: Node) -> list[Node | None]:
    source = node.inputs[0].dtype
    if not (is_float(source) and is_float(node.dtype)):
        return [None]
    if source is node.dtype:
        return [cotangent]
    return [inside_masks(cotangent, lambda g: cast(g, dtype=source))]


def _cast_lower(node: Operation, operands: Sequence[Operand], index: Sequence[Index]) -> Expression:
    return Apply("cast", [operands[0](index)], node.dtype)


cast = Operator(
    "cast",
    _cast_type,
    _cast_reference,
    _cast_pullback,
    batch_first,
    _cast_lower,
    tuple(
        Case((Sample(SHAPE, 0.1, 3.9, kind="any"),), {"dtype": np.dtype(name)})
        for name in ("float32", "float64", "int32", "int64", "uint8", "bool", "complex64", "complex128")
    ),
    linear=True,
    elementwise=True,
    parts=complex_parts.cast,
)
"""``x`` in another dtype; ``weak`` where it stays a Python number. Of complex numbers to others the real part.

On the way to integers floats lose their fraction; those outside the range become its nearest end and NaN 0 (what
NumPy gives differs between processors). Integers wrap around. Only floats and complex numbers have derivatives.
"""


def _bitcast_type(x: Type, dtype: np.dtype) -> Type:
    if x.dtype.kind in "bc" or dtype.kind in "bc" or x.dtype.itemsize != dtype.itemsize:
        raise DTypeError(f"bitcast: {x.dtype} as {dtype}; take a number of as many bits")
    return Type(dtype, x.shape)


def _bitcast_reference(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return np.asarray(x).view(dtype)


bitcast = Operator(
    "bitcast",
    _bitcast_type,
    _bitcast_reference,
    None,
    batch_first,
    lower_elementwise,
    tuple(
        Case((Sample(SHAPE, kind=kind),), {"dtype": np.dtype(name)})
        for kind, name in (
            ("float", "int32"),
            ("float", "int64"),
            ("int", "float32"),
            ("int", "float64"),
            ("int", "uint8"),
        )
    ),
    elementwise=True,
)
"""The bits of ``x`` read as another dtype of the same size."""

rounded = elementwise("rounded", lambda x: x, [lambda g, z, x: g], cost=0.0, linear=True)
"""``x``, rounded as if it were stored.

Compiled code computes ``a * b + c`` by one instruction that rounds once; ``rounded(a * b) + c`` is rounded twice, as
NumPy's is. So the bits of what is made of ``+ - * /`` and roots alone are the same interpreted and compiled.
"""


def _same_type(x: Type) -> Type:
    return x


def _identity(x: np.ndarray) -> np.ndarray:
    return x


def _lower_identity(node: Operation, operands: Sequence[Operand], index: Sequence[Index]) -> Any:
    return operands[0](index)


stop_gradient = Operator(
    "stop_gradient",
    _same_type,
    _identity,
    None,
    batch_first,
    _lower_identity,
    (Case((Sample(SHAPE, kind="any"),), differentiable=()),),
    cost=0.0,
    elementwise=True,
    parts=complex_parts.each,
)
"""``x`` itself, taken for a constant by every derivative."""
