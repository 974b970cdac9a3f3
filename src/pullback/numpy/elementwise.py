"""Elementwise functions: NumPy's ufuncs, with promotion and broadcasting made explicit.

Each function computes at once, by NumPy itself, when no argument is traced. Traced arguments become
operations. Functions that NumPy evaluates in ``float16`` for 8-bit integers and booleans give ``float32``
here.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.errors import DTypeError, TracingError
from pullback.graph import OPERATORS, Node, is_complex, is_float
from pullback.graph.protocol import vocabulary
from pullback.numpy.promotion import (
    any_traced,
    are_alike,
    array_of,
    as_array_node,
    as_node,
    broadcast_to_shape,
    broadcast_together,
    cast,
    float_dtype,
    of_python,
    operands,
    promote,
    refuse_lost_part,
    settled,
    where_written,
)

__all__ = [
    "abs",
    "absolute",
    "add",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "astype",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "ceil",
    "cos",
    "cosh",
    "divide",
    "equal",
    "exp",
    "exp2",
    "expm1",
    "float_power",
    "floor",
    "floor_divide",
    "greater",
    "greater_equal",
    "invert",
    "isfinite",
    "isinf",
    "isnan",
    "left_shift",
    "less",
    "less_equal",
    "log",
    "log1p",
    "log2",
    "log10",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "mod",
    "multiply",
    "negative",
    "not_equal",
    "positive",
    "power",
    "reciprocal",
    "remainder",
    "right_shift",
    "rint",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "stop_gradient",
    "subtract",
    "tan",
    "tanh",
    "true_divide",
    "trunc",
    "where",
]

_BITS = (np.bitwise_and, np.bitwise_or, np.bitwise_xor)
"""What Python too makes bools of, from two bools."""

UFUNCS: dict[np.ufunc, Callable[..., Any]] = {}
"""What answers each of NumPy's ufuncs on traced values."""


def no_bool(name: str, repair: str) -> Callable[[np.dtype], np.dtype]:
    """The dtype rule of a function that NumPy refuses for booleans."""

    def rule(dtype: np.dtype) -> np.dtype:
        if dtype.kind == "b":
            raise DTypeError(f"{name} takes no bool; {repair}{where_written()}")
        return dtype

    return rule


def bool_to_int8(dtype: np.dtype) -> np.dtype:
    """Booleans computed with as 8-bit integers."""
    return np.dtype(np.int8) if dtype.kind == "b" else dtype


def true_divide_dtype(dtype: np.dtype) -> np.dtype:
    """Integers and booleans divided as ``float64``."""
    return dtype if is_float(dtype) else np.dtype(np.float64)


def _define(name: str, function: Callable[..., Any], ufunc: np.ufunc, text: str) -> Callable[..., Any]:
    """Name a function, document it and enter it in both tables; the operator of Python may give a Python number."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    vocabulary[name] = function if ufunc in _BITS else of_python(function)
    UFUNCS[ufunc] = array_of(function)
    return UFUNCS[ufunc]


def _binary(
    ufunc: np.ufunc,
    text: str,
    dtype: Callable[[np.dtype], np.dtype] | None = None,
    of_bools: str | None = None,
    name: str | None = None,
) -> Callable[[Any, Any], Any]:
    """A function of two arrays; ``of_bools`` names the operator that answers when both are boolean."""
    name = name or ufunc.__name__
    operator = OPERATORS[name]

    def function(x: Any, y: Any, /) -> Any:
        if are_alike(x, y):  # nothing to do, as mostly in derivatives
            return operator(x, y)
        if not isinstance(x, Node) and not isinstance(y, Node):
            return ufunc(x, y)
        if of_bools is None:
            nodes = operands(name, (x, y), dtype)
        else:
            nodes = operands(name, (x, y), None)
            if nodes[0].dtype.kind == "b":
                return OPERATORS[of_bools](*nodes)
            if dtype is not None:
                nodes = tuple(cast(node, dtype(node.dtype)) for node in nodes)
        return operator(*nodes)

    return _define(name, function, ufunc, text)


def _comparison(ufunc: np.ufunc, text: str) -> Callable[[Any, Any], Any]:
    """A comparison; one with a Python integer that the dtype cannot hold has one result for all elements."""
    compare = _binary(ufunc, text)

    def function(x: Any, y: Any, /) -> Any:
        for array, number in ((x, y), (y, x)):
            if isinstance(array, Node) and array.dtype.kind in "iu" and type(number) is int:
                limits = np.iinfo(array.dtype)
                if not limits.min <= number <= limits.max:
                    result = bool(ufunc(0, number) if array is x else ufunc(number, 0))
                    return broadcast_to_shape(as_array_node(np.bool_(result)), array.shape)
        return compare(x, y)

    return _define(ufunc.__name__, function, ufunc, text)


def _unary(
    ufunc: np.ufunc,
    text: str,
    dtype: Callable[[np.dtype], np.dtype] | None = None,
    of_bools: str | None = None,
    name: str | None = None,
) -> Callable[[Any], Any]:
    """A function of one array; ``of_bools`` names the operator for booleans, where it is another one."""
    name = name or ufunc.__name__

    def function(x: Any, /) -> Any:
        if not isinstance(x, Node):
            return ufunc(x)
        if of_bools is not None and x.dtype.kind == "b":
            return OPERATORS[of_bools](x)
        return OPERATORS[name](x if dtype is None else cast(x, dtype(x.dtype)))

    return _define(name, function, ufunc, text)


def _float(ufunc: np.ufunc, text: str) -> Callable[[Any], Any]:
    """A function of one array that always gives floats."""
    name = ufunc.__name__

    def function(x: Any, /) -> Any:
        if isinstance(x, Node):
            return OPERATORS[name](cast(x, float_dtype(x.dtype)))
        x = np.asarray(x)
        return ufunc(x, dtype=np.float32) if x.dtype.kind in "biu" and x.dtype.itemsize == 1 else ufunc(x)

    return _define(name, function, ufunc, text)


def _rounding(ufunc: np.ufunc, text: str) -> Callable[[Any], Any]:
    """A function of one array that leaves integers as they are."""
    name = ufunc.__name__

    def function(x: Any, /) -> Any:
        if not isinstance(x, Node):
            array = np.asarray(x)
            return ufunc(x) if is_float(array.dtype) else array[()].copy()
        return OPERATORS[name](x) if is_float(x.dtype) else x

    return _define(name, function, ufunc, text)


def _predicate(ufunc: np.ufunc, of_integers: bool, text: str) -> Callable[[Any], Any]:
    """A question about floats whose answer for integers is always ``of_integers``."""
    name = ufunc.__name__

    def function(x: Any, /) -> Any:
        if not isinstance(x, Node):
            return ufunc(x)
        if is_float(x.dtype):
            return OPERATORS[name](x)
        return broadcast_to_shape(as_array_node(np.bool_(of_integers)), x.shape)

    return _define(name, function, ufunc, text)


def as_bool(x: Node) -> Node:
    """The truth of each element."""
    if x.dtype.kind == "b":
        return x
    return OPERATORS["not_equal"](*operands("not_equal", (x, 0)))


def _logical(ufunc: np.ufunc, text: str) -> Callable[..., Any]:
    """A function of the truth of its arguments."""
    name = ufunc.__name__

    def function(*arrays: Any) -> Any:
        if not any_traced(*arrays):
            return ufunc(*arrays)
        nodes = tuple([as_bool(as_array_node(array)) for array in arrays])
        return OPERATORS[name](*operands(name, nodes))

    return _define(name, function, ufunc, text)


add = _binary(np.add, "``x + y``; of booleans, ``x or y``.", of_bools="logical_or")
subtract = _binary(
    np.subtract, "``x - y``.", no_bool("subtract", "use np.logical_xor, or cast with .astype(np.int8)")
)
multiply = _binary(np.multiply, "``x * y``; of booleans, ``x and y``.", of_bools="logical_and")
divide = true_divide = _binary(np.divide, "``x / y``, in floats.", true_divide_dtype, name="divide")
floor_divide = _binary(np.floor_divide, "The largest integer not above ``x / y``.", bool_to_int8)
remainder = mod = _binary(
    np.remainder, "``x - floor(x / y) * y``, with the sign of ``y``.", bool_to_int8, name="remainder"
)
minimum = _binary(np.minimum, "The smaller of each pair; NaN where either is.", of_bools="logical_and")
maximum = _binary(np.maximum, "The larger of each pair; NaN where either is.", of_bools="logical_or")
arctan2 = _binary(np.arctan2, "The angle of the point ``(y, x)``, in radians from -pi to pi.", float_dtype)

equal = _comparison(np.equal, "``x == y``, elementwise.")
not_equal = _comparison(np.not_equal, "``x != y``, elementwise.")
less = _comparison(np.less, "``x < y``, elementwise.")
less_equal = _comparison(np.less_equal, "``x <= y``, elementwise.")
greater = _comparison(np.greater, "``x > y``, elementwise.")
greater_equal = _comparison(np.greater_equal, "``x >= y``, elementwise.")

logical_and = _logical(np.logical_and, "Whether both are true.")
logical_or = _logical(np.logical_or, "Whether one is true.")
logical_xor = _logical(np.logical_xor, "Whether exactly one is true.")
logical_not = _logical(np.logical_not, "Whether it is false.")

bitwise_and = _binary(np.bitwise_and, "``x & y`` of integers or booleans.", of_bools="logical_and")
bitwise_or = _binary(np.bitwise_or, "``x | y`` of integers or booleans.", of_bools="logical_or")
bitwise_xor = _binary(np.bitwise_xor, "``x ^ y`` of integers or booleans.", of_bools="logical_xor")
left_shift = _binary(np.left_shift, "``x`` with its bits moved left by ``y`` places.", bool_to_int8)
right_shift = _binary(np.right_shift, "``x`` with its bits moved right by ``y`` places.", bool_to_int8)
invert = bitwise_not = _unary(
    np.invert, "Every bit flipped; of booleans, ``not x``.", of_bools="logical_not", name="invert"
)

negative = _unary(np.negative, "``-x``.", no_bool("negative", "use np.logical_not"))
_real_sign = _unary(
    np.sign, "-1, 0 or 1.", no_bool("sign", "cast it first, for instance with .astype(np.int8)")
)
sqrt = _float(np.sqrt, "The square root of each element; its derivative is ``0.5 / sqrt(x)``.")
exp = _float(np.exp, "e to the power of each element.")
expm1 = _float(np.expm1, "``exp(x) - 1``, exact near zero.")
exp2 = _float(np.exp2, "2 to the power of each element.")
log = _float(np.log, "The natural logarithm.")
log1p = _float(np.log1p, "``log(1 + x)``, exact near zero.")
log2 = _float(np.log2, "The logarithm to base 2.")
log10 = _float(np.log10, "The logarithm to base 10.")
sin = _float(np.sin, "The sine of angles in radians.")
cos = _float(np.cos, "The cosine of angles in radians.")
tan = _float(np.tan, "The tangent of angles in radians.")
arcsin = _float(np.arcsin, "The angle from -pi/2 to pi/2 whose sine is ``x``.")
arccos = _float(np.arccos, "The angle from 0 to pi whose cosine is ``x``.")
arctan = _float(np.arctan, "The angle from -pi/2 to pi/2 whose tangent is ``x``.")
sinh = _float(np.sinh, "The hyperbolic sine.")
cosh = _float(np.cosh, "The hyperbolic cosine.")
tanh = _float(np.tanh, "The hyperbolic tangent.")
arcsinh = _float(np.arcsinh, "The inverse of ``sinh``.")
arccosh = _float(np.arccosh, "The inverse of ``cosh``, for ``x`` of at least 1.")
arctanh = _float(np.arctanh, "The inverse of ``tanh``, for ``x`` between -1 and 1.")

floor = _rounding(
    np.floor, "The largest integer not above ``x``, in the dtype of ``x``; its derivative is zero."
)
ceil = _rounding(
    np.ceil, "The smallest integer not below ``x``, in the dtype of ``x``; its derivative is zero."
)
trunc = _rounding(np.trunc, "``x`` with its fraction removed; its derivative is zero.")
_real_rint = _float(np.rint, "The nearest integer, ties to even, as a float; its derivative is zero.")

isnan = _predicate(np.isnan, False, "Whether each element is NaN.")
isinf = _predicate(np.isinf, False, "Whether each element is infinite.")
isfinite = _predicate(np.isfinite, True, "Whether each element is neither infinite nor NaN.")


@array_of
def sign(x: Any, /) -> Any:
    """-1, 0 or 1; of complex numbers ``x / |x|``, the direction, whose derivative is not zero.

    A complex infinity along one axis has that direction, one along both NaN.
    """
    if not isinstance(x, Node) or not is_complex(x.dtype):
        return _real_sign(x)
    a, b = OPERATORS["real"](x), OPERATORS["imag"](x)
    ahead, across = isinf(a), isinf(b)
    special = ahead | across | (equal(a, 0) & equal(b, 0))
    ordinary = where(special, 1.0, x)
    size = OPERATORS["modulus"](ordinary)
    unit = [where(special, 0.0, OPERATORS[part](ordinary) / size) for part in ("real", "imag")]
    both = ahead & across
    parts = [
        where(both, math.nan, where(infinite, _real_sign(part), turned))
        for infinite, part, turned in ((ahead, a, unit[0]), (across, b, unit[1]))
    ]
    return OPERATORS["complex_of"](*parts)


def by_parts(function: Callable[[Any], Any], x: Any) -> Any:
    """``function`` of the real part and of the imaginary part of complex numbers."""
    return OPERATORS["complex_of"](*(function(OPERATORS[part](x)) for part in ("real", "imag")))


@array_of
def rint(x: Any, /) -> Any:
    """The nearest integer, ties to even, as a float, of either part of complex numbers; its derivative is zero."""
    if isinstance(x, Node) and is_complex(x.dtype):
        return by_parts(_real_rint, x)
    return _real_rint(x)


@array_of
def absolute(x: Any, /) -> Any:
    """``|x|``; its derivative is ``sign(x)``, of complex numbers ``conj(x) / |x|``, zero at zero."""
    if not isinstance(x, Node):
        return np.absolute(x)
    if is_complex(x.dtype):
        return OPERATORS["modulus"](x)
    return x if x.dtype.kind in "bu" else OPERATORS["absolute"](x)


def conjugated(x: Any) -> Any:
    """The factor that NumPy conjugates in products of vectors: complex numbers change, others stay as they are."""
    x = as_array_node(x)
    return OPERATORS["conjugate"](x) if is_complex(x.dtype) else x


@array_of
def positive(x: Any, /) -> Any:
    """``x`` itself."""
    if not isinstance(x, Node):
        return np.positive(x)
    no_bool("positive", "use it as it is")(x.dtype)
    return x


@array_of
def square(x: Any, /) -> Any:
    """``x * x``."""
    if not isinstance(x, Node):
        return np.square(x)
    x = cast(x, bool_to_int8(x.dtype))
    return OPERATORS["multiply"](x, x)


@array_of
def reciprocal(x: Any, /) -> Any:
    """``1 / x``, in the dtype of ``x``: of integers the integer quotient, as NumPy has it."""
    if not isinstance(x, Node):
        return np.reciprocal(x)
    if is_float(x.dtype):
        return divide(1, x)
    x = cast(x, bool_to_int8(x.dtype))
    return where(equal(absolute(x), 1), x, 0)


@array_of
def power(x: Any, y: Any, /) -> Any:
    r"""``x`` to the power ``y``.

    A small exponent that is a Python number becomes products or a root: ``x ** 2`` is ``x * x``. The
    derivative with respect to ``x`` is :math:`y x^{y-1}`, with respect to ``y`` it is :math:`x^y \log x`.

    An integer to the power of a negative integer is refused, as NumPy does: ``DTypeError`` for a known exponent,
    ``IndexRangeError`` for one that only the program finds.

    >>> import numpy as np
    >>> print(power(np.array([1.0, 2.0, 3.0]), 2))
    [1. 4. 9.]
    """
    if not isinstance(x, Node) and not isinstance(y, Node):
        return np.power(x, y)
    if isinstance(x, Node) and type(y) in (int, float):
        known = _known_power(x, y)
        if known is not None:
            return known
    base, exponent = promote((x, y), bool_to_int8)
    if exponent.dtype.kind == "i":
        exponent = _not_negative(y, exponent)
    return OPERATORS["power"](*broadcast_together("power", (base, exponent)))


def _not_negative(given: Any, exponent: Node) -> Node:
    """The exponent of an integer, refused where it is negative: now if it is known, else by the program that runs."""
    repair = "integers have no negative powers, cast the base with .astype(float)"
    if isinstance(given, Node):
        limit = int(np.iinfo(exponent.dtype).max) + 1
        checked = OPERATORS["check_index"](exponent, extent=limit, what=f"power: {repair}", wrap=False)
        return cast(checked, exponent.dtype)
    least = np.min(given, initial=0)
    if least < 0:
        raise DTypeError(f"power: the exponent {least} of an integer; {repair}{where_written()}")
    return exponent


MOST_FACTORS = 100
"""Up to this integer exponent complex powers are products, as NumPy's are."""


def _known_power(x: Node, y: float) -> Node | None:
    """``x ** y`` for exponents that need no logarithm."""
    if x.dtype.kind == "b" or (isinstance(y, float) and not is_float(x.dtype)):
        return None
    if is_complex(x.dtype) and y == int(y) and builtins.abs(y) <= MOST_FACTORS:
        return _complex_power(x, int(y))
    if y == 1:
        return x
    if y in (2, 3, 4):
        times = OPERATORS["multiply"]
        squared = times(x, x)
        return squared if y == 2 else times(squared, x if y == 3 else squared)
    if is_float(x.dtype) and y in (0.5, -1):
        return OPERATORS["sqrt"](x) if y == 0.5 else OPERATORS["divide"](*operands("divide", (1, x)))
    return None


def _complex_power(x: Node, exponent: int) -> Node:
    """Squares, and products of those that the exponent's bits name: exact where the logarithm rounds."""
    made, square = None, x
    for bit in reversed(f"{builtins.abs(exponent):b}"):
        if bit == "1":
            made = square if made is None else OPERATORS["multiply"](made, square)
        square = OPERATORS["multiply"](square, square)
    if made is None:
        return broadcast_to_shape(as_node(1, x.dtype), x.shape)
    return made if exponent > 0 else divide(1, made)


@array_of
def float_power(x: Any, y: Any, /) -> Any:
    """``x`` to the power ``y``, in ``float64``, or in ``complex128`` where one of them is complex."""
    if not any_traced(x, y):
        return np.float_power(x, y)
    x, y = as_array_node(x), as_array_node(y)
    dtype = np.complex128 if is_complex(x.dtype) or is_complex(y.dtype) else np.float64
    return power(cast(x, dtype), cast(y, dtype))


@array_of
def where(condition: Any, x: Any = None, y: Any = None, /) -> Any:
    """``x`` where ``condition`` holds, ``y`` elsewhere; the branch not taken passes no gradient, not even a
    NaN.

    >>> import numpy as np
    >>> print(where(np.array([True, False]), 1.0, 2.0))
    [1. 2.]
    """
    if x is None or y is None:
        condition = settled(as_bool(condition) if isinstance(condition, Node) else condition)
        if not any_traced(condition):
            return np.where(condition)
        raise TracingError(
            "np.where(condition) would give arrays whose shapes depend on values, which a traced function "
            f"cannot have; use the three-argument np.where(condition, x, y){where_written()}"
        )
    if not any_traced(condition, x, y):
        return np.where(condition, x, y)
    mask = as_bool(as_array_node(condition))
    x, y = promote((x, y))
    return OPERATORS["where"](*broadcast_together("where", (mask, x, y)))


def astype(x: Any, dtype: Any, /) -> Any:
    """``x`` in another dtype; gradients pass between floats and stop at integers and booleans.

    Where an imaginary part would be lost, of which NumPy warns, ``DTypeError``: take ``x.real``.
    """
    dtype = np.dtype(dtype)
    if not isinstance(x, Node):
        return np.asarray(x).astype(dtype)
    refuse_lost_part(x.type, dtype)
    return x if x.dtype == dtype and not x.type.weak else OPERATORS["cast"](x, dtype=dtype)


def stop_gradient(x: Any) -> Any:
    """``x`` as a constant: derivatives do not pass.

    >>> stop_gradient(3.0)
    3.0
    """
    return OPERATORS["stop_gradient"](x) if isinstance(x, Node) else x


def _power(x: Any, y: Any) -> Any:
    """``x ** y``, for which NumPy takes the square of an array where ``y`` is Python's 2: of bools in ``int8``."""
    is_square = type(y) is int and y == 2 and isinstance(x, Node) and x.ndim and x.dtype.kind == "b"
    return square(x) if is_square else power.__wrapped__(x, y)  # type: ignore[attr-defined]


abs = absolute
vocabulary.update(
    absolute=of_python(absolute.__wrapped__),  # type: ignore[attr-defined]
    positive=of_python(positive.__wrapped__),  # type: ignore[attr-defined]
    square=square,
    reciprocal=reciprocal,
    power=of_python(_power),
    float_power=float_power,
    where=where,
    astype=astype,
)
UFUNCS.update(
    {
        np.absolute: absolute,
        np.fabs: absolute,
        np.rint: rint,
        np.sign: sign,
        np.positive: positive,
        np.square: square,
        np.reciprocal: reciprocal,
        np.power: power,
        np.float_power: float_power,
    }
)
