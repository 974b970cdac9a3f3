"""Elementwise functions made of others and of the bits of floats: remainders, signs, exponents, neighbours."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from pullback.errors import DTypeError
from pullback.graph import OPERATORS, Node, dtype_kind, float_limits, is_complex, is_float
from pullback.graph.protocol import vocabulary
from pullback.numpy import elementwise as e
from pullback.numpy.dispatch import implements
from pullback.numpy.elementwise import UFUNCS
from pullback.numpy.promotion import (
    any_traced,
    array_of,
    as_array_node,
    cast,
    float_dtype,
    operands,
    strong,
    where_written,
)

__all__ = [
    "allclose",
    "array_equal",
    "array_equiv",
    "bitwise_count",
    "copysign",
    "divmod",
    "fabs",
    "fix",
    "fmod",
    "frexp",
    "gcd",
    "heaviside",
    "isclose",
    "isneginf",
    "isposinf",
    "lcm",
    "ldexp",
    "modf",
    "nextafter",
    "signbit",
    "sinc",
    "spacing",
]


Function = Callable[..., Any]


def answers(ufunc: np.ufunc) -> Callable[[Function], Function]:
    """Make a function answer for NumPy's ``ufunc`` on traced values; concrete ones go to NumPy."""

    def decorate(function: Function) -> Function:
        function = array_of(function)

        @wraps(function)
        def called(*arguments: Any) -> Any:
            return (function if any_traced(*arguments) else ufunc)(*arguments)

        UFUNCS[ufunc] = called
        return called

    return decorate


def _bits(x: Node) -> Node:
    """The bits of floats as integers of their size; no derivative passes."""
    return OPERATORS["bitcast"](x, dtype=np.dtype(f"int{8 * x.dtype.itemsize}"))


def _float(bits: Node, dtype: np.dtype) -> Node:
    return OPERATORS["bitcast"](bits, dtype=dtype)


def _alike(name: str, values: tuple[Any, ...], dtype: Callable[[np.dtype], np.dtype] | None) -> list[Node]:
    """Operands of one dtype, their own, and one shape."""
    return [strong(x) for x in operands(name, values, dtype)]


def _floats(x: Any) -> Node:
    """``x`` as floats of a dtype of their own."""
    node = strong(as_array_node(x))
    return cast(node, float_dtype(node.dtype))


@answers(np.fabs)
def fabs(x: Any, /) -> Any:
    """``|x|`` in floats."""
    return e.absolute(_floats(x))


@answers(np.signbit)
def signbit(x: Any, /) -> Any:
    """Whether the sign is minus, that of -0 and of NaN too."""
    node = as_array_node(x)
    if dtype_kind(node.dtype) != "f":
        return e.less(node, 0)
    return _bits(node) < 0


@answers(np.copysign)
def copysign(x: Any, y: Any, /) -> Any:
    """``|x|`` with the sign of ``y``; the derivative by ``x`` is the product of both signs, that by ``y`` zero."""
    x, y = _alike("copysign", (x, y), float_dtype)
    return e.where(e.equal(signbit(x), signbit(y)), x, -x)


@answers(np.heaviside)
def heaviside(x: Any, y: Any, /) -> Any:
    """0 below zero, 1 above, ``y`` at it."""
    x, y = _alike("heaviside", (x, y), float_dtype)
    step = e.where(x < 0, 0.0, e.where(x > 0, 1.0, y))
    return e.where(e.isnan(x), x, step)


@answers(np.fmod)
def fmod(x: Any, y: Any, /) -> Any:
    r"""``x - trunc(x / y) * y``, with the sign of ``x``.

    The derivative by ``y`` is :math:`-\operatorname{trunc}(x / y)`.
    """
    x, y = _alike("fmod", (x, y), e.bool_to_int8)
    if x.dtype.kind == "u":
        return e.remainder(x, y)
    negative = signbit(x)
    size = e.remainder(e.where(negative, -x, x), e.where(signbit(y), -y, y))
    return e.where(negative, -size, size)


@answers(np.divmod)
def divmod(x: Any, y: Any, /) -> Any:
    """``(x // y, x % y)``."""
    return e.floor_divide(x, y), e.remainder(x, y)


@answers(np.modf)
def modf(x: Any, /) -> Any:
    """The fraction and the integer part, both with the sign of ``x``."""
    node = _floats(x)
    negative = signbit(node)
    size = e.where(negative, -node, node)
    fraction = e.where(e.isinf(node), 0.0, size - e.trunc(size))
    return e.where(negative, -fraction, fraction), e.trunc(node)


def _layout(dtype: np.dtype) -> tuple[int, int]:
    """The bits of a mantissa, and what is added to an exponent."""
    limits = float_limits(dtype)
    return int(limits.nmant), int(limits.maxexp) - 1


def _power_of_two(k: Node, dtype: np.dtype) -> Node:
    """``2 ** k`` for exponents of numbers that are normal."""
    mantissa_bits, bias = _layout(dtype)
    return _float(e.left_shift(cast(k, f"int{8 * dtype.itemsize}") + bias, mantissa_bits), dtype)


@answers(np.ldexp)
def ldexp(x: Any, i: Any, /) -> Any:
    """``x * 2 ** i`` for integers ``i``; the derivative by ``x`` is that power."""
    k = as_array_node(i)
    if is_float(k.dtype) or k.dtype == np.uint64:
        raise DTypeError(f"ldexp: the exponent is {k.dtype}; cast it with .astype(np.int64){where_written()}")
    node = _floats(x)
    least = _layout(node.dtype)[1] - 1
    k = vocabulary["clip"](cast(k, np.int64), -3 * least, 3 * least)
    for _ in range(3):  # steps that are normal numbers; the last one alone may round
        step = vocabulary["clip"](k, -least, least)
        node = node * _power_of_two(step, node.dtype)
        k = k - step
    return node


@answers(np.frexp)
def frexp(x: Any, /) -> Any:
    """A mantissa from 1/2 to 1 and an exponent with ``x = m * 2 ** k``.

    The derivative of the mantissa is ``2 ** -k``.
    """
    node = _floats(x)
    mantissa_bits, bias = _layout(node.dtype)
    odd = ~e.isfinite(node) | e.equal(node, 0)
    size = e.absolute(node)
    tiny = size < 2.0 ** (1 - bias)
    scaled = e.where(tiny, node * 2.0 ** (mantissa_bits + 2), node)
    raw = e.right_shift(_bits(e.absolute(scaled)), mantissa_bits)
    own = raw - (bias - 1)
    exponent = own - e.where(tiny, mantissa_bits + 2, 0)
    least = bias - 1  # of a power that is normal
    first = vocabulary["clip"](-own, -least, least)
    mantissa = scaled * _power_of_two(first, node.dtype) * _power_of_two(-own - first, node.dtype)
    return e.where(odd, node, mantissa), cast(e.where(odd, 0, exponent), np.int32)


def _neighbour(x: Node, up: Node) -> Node:
    """The next float in the direction ``up`` or down, for numbers that are not NaN."""
    raw = _bits(x)
    one, lowest = np.asarray(1, raw.dtype), np.asarray(np.iinfo(raw.dtype).min + 1, raw.dtype)
    step = e.where(e.equal(up, x > 0), one, -one)  # away from zero, or towards it
    return e.where(e.equal(x, 0), _float(e.where(up, one, lowest), x.dtype), _float(raw + step, x.dtype))  # type: ignore[no-any-return]


@answers(np.nextafter)
def nextafter(x: Any, y: Any, /) -> Any:
    """The float beside ``x`` in the direction of ``y``; its derivative by ``x`` is 1."""
    x, y = _alike("nextafter", (x, y), float_dtype)
    fixed = e.stop_gradient(x)
    near = _neighbour(fixed, y > fixed)
    moved = x + e.where(e.isfinite(fixed), near - fixed, 0.0)
    exact = e.where(e.isfinite(fixed) & e.isfinite(near), moved, near)
    nan = e.isnan(x) | e.isnan(y)
    return e.where(nan, x + y, e.where(e.equal(x, y), y + (x - fixed), exact))


@answers(np.spacing)
def spacing(x: Any, /) -> Any:
    """The distance to the next float away from zero, with the sign of ``x``."""
    node = e.stop_gradient(_floats(x))
    distance = _neighbour(node, ~signbit(node)) - node
    return e.where(e.isfinite(node), distance, math.nan)


@answers(np.bitwise_count)
def bitwise_count(x: Any, /) -> Any:
    """How many bits of ``|x|`` are set, as ``uint8``."""
    node = strong(as_array_node(x))
    if node.dtype.kind == "b":
        return cast(node, np.uint8)
    if is_float(node.dtype):
        raise DTypeError(
            f"bitwise_count takes no {node.dtype}; cast it with .astype(np.int64){where_written()}"
        )
    wide = np.dtype(f"uint{8 * node.dtype.itemsize}")
    left = cast(e.absolute(node), wide)
    pattern = [
        sum(step << k for k in range(0, 64, 8)) & (2 ** (8 * wide.itemsize) - 1)
        for step in (0x55, 0x33, 0x0F)
    ]
    odd, pairs, nibbles = (as_array_node(np.asarray(each, wide)) for each in pattern)
    left = left - (e.right_shift(left, 1) & odd)
    left = (left & pairs) + (e.right_shift(left, 2) & pairs)
    left = (left + e.right_shift(left, 4)) & nibbles
    total: Any = left & 15
    for byte in range(1, wide.itemsize):
        total = total + (e.right_shift(left, 8 * byte) & 15)
    return cast(total, np.uint8)


@answers(np.gcd)
def gcd(x: Any, y: Any, /) -> Any:
    """The greatest common divisor of integers, by Euclid's steps, as many as the dtype can need."""
    x, y = _integers("gcd", x, y)
    x, y = e.absolute(x), e.absolute(y)
    for _ in range({1: 12, 2: 24, 4: 47, 8: 92}[x.dtype.itemsize]):  # Fibonacci numbers take most steps
        done = e.equal(y, 0)
        x, y = e.where(done, x, y), e.where(done, 0, e.remainder(x, y))
    return x


@answers(np.lcm)
def lcm(x: Any, y: Any, /) -> Any:
    """The least common multiple of integers."""
    x, y = _integers("lcm", x, y)
    divisor = gcd(x, y)
    return e.absolute(e.floor_divide(x, e.maximum(divisor, 1)) * y)


def _integers(name: str, x: Any, y: Any) -> tuple[Node, Node]:
    x, y = _alike(name, (x, y), None)
    if x.dtype.kind not in "iu":
        raise DTypeError(f"{name} takes no {x.dtype}; cast it with .astype(np.int64){where_written()}")
    return x, y


@implements(np.fix)
def fix(x: Any) -> Any:
    """``x`` with its fraction removed: ``trunc``."""
    return e.trunc(x)


@implements(np.sinc)
def sinc(x: Any) -> Any:
    r""":math:`\sin(\pi x) / (\pi x)`, 1 at 0, with derivatives of every order there.

    Near zero it is its Taylor series. Of real numbers the sine is that of what they are beyond the nearest integer, so
    that zeros are exact.
    """
    node = cast(as_array_node(x), e.true_divide_dtype(as_array_node(x).dtype))
    y = e.multiply(node, math.pi)
    near = e.absolute(y) < 0.3
    square = e.square(e.where(near, y, 0.0))
    series: Any = 0.0
    for k in range(9, -1, -1):
        series = series * square + (-1) ** k / math.factorial(2 * k + 1)
    far = e.where(near, 1.0, y)
    if is_complex(node.dtype):
        return e.where(near, series, e.sin(far) / far)
    whole = e.rint(node)
    sine = e.sin((node - whole) * math.pi)
    half = whole * 0.5
    return e.where(near, series, e.where(e.floor(half) == half, sine, -sine) / far)


@implements(np.isposinf)
def isposinf(x: Any) -> Any:
    """Whether each element is infinity."""
    return e.equal(x, math.inf)


@implements(np.isneginf)
def isneginf(x: Any) -> Any:
    """Whether each element is minus infinity."""
    return e.equal(x, -math.inf)


@implements(np.isclose)
def isclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Any:
    r"""Whether :math:`|a - b| \le \mathrm{atol} + \mathrm{rtol}\,|b|`, or both are the same infinity."""
    x, y = _alike("isclose", (a, b), e.true_divide_dtype)
    close = e.less_equal(e.absolute(x - y), atol + rtol * e.absolute(y))
    found = e.where(e.isfinite(y) & e.isfinite(x), close, e.equal(x, y))
    return found | (e.isnan(x) & e.isnan(y)) if equal_nan else found


@implements(np.allclose)
def allclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Any:
    """Whether all elements are close to each other; see ``isclose``."""
    return vocabulary["all"](isclose(a, b, rtol, atol, equal_nan))


@implements(np.array_equal)
def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    """Whether both arrays have one shape and equal elements."""
    x, y = as_array_node(a1), as_array_node(a2)
    if x.shape != y.shape:
        return as_array_node(np.False_)
    same = e.equal(x, y)
    return vocabulary["all"](same | (e.isnan(x) & e.isnan(y)) if equal_nan else same)


@implements(np.array_equiv)
def array_equiv(a1: Any, a2: Any) -> Any:
    """Whether both arrays broadcast to one shape and have equal elements there."""
    x, y = as_array_node(a1), as_array_node(a2)
    try:
        np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        return as_array_node(np.False_)
    return vocabulary["all"](e.equal(x, y))


vocabulary["divmod"] = divmod
