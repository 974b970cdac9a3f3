"""The dtype of every function's result is NumPy's, whatever mixture of arrays, scalars and Python numbers it takes.

A Python number is weak: it takes the dtype of what it meets. What a function makes of Python numbers alone is not.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import pullback.numpy as pnp
from pullback import jit
from pullback.errors import PullbackError
from pullback.numpy.quantiles import PLACES
from pullback.tracing import trace


def since(version: str, name: str) -> Any:
    """A case whose dtypes NumPy has had since a version."""
    before = np.lib.NumpyVersion(np.__version__) < version
    return pytest.param(name, marks=pytest.mark.skipif(before, reason=f"a rule of NumPy {version}"))


OPERANDS: dict[str, Any] = {
    "True": True,
    "2": 2,
    "0.5": 0.5,
    **{
        f"{name} scalar": np.dtype(name).type(1)
        for name in ("bool", "int8", "int64", "uint8", "float32", "float64")
    },
    **{name: np.ones(3, name) for name in ("bool", "int8", "int64", "uint8", "uint64", "float32", "float64")},
}
UNARY = sorted(
    [
        "abs",
        "absolute",
        "acos",
        "acosh",
        "all",
        "amax",
        "amin",
        "angle",
        "any",
        "arccos",
        "arccosh",
        "arcsin",
        "arcsinh",
        "arctan",
        "arctanh",
        "argmax",
        "argmin",
        "argsort",
        "around",
        "asin",
        "asinh",
        "atan",
        "atanh",
        "bitwise_count",
        "bitwise_invert",
        "bitwise_not",
        "cbrt",
        "ceil",
        "conj",
        "conjugate",
        "cos",
        "cosh",
        "count_nonzero",
        "cumprod",
        "cumsum",
        "deg2rad",
        "degrees",
        "diff",
        "exp",
        "exp2",
        "expm1",
        "fabs",
        "fix",
        "floor",
        "invert",
        "isfinite",
        "isinf",
        "isnan",
        "isneginf",
        "isposinf",
        "log",
        "log10",
        "log1p",
        "log2",
        "logical_not",
        "max",
        "mean",
        "median",
        "min",
        "nan_to_num",
        "nancumsum",
        "nanmax",
        "nanmean",
        "nanstd",
        "nansum",
        "negative",
        "positive",
        "prod",
        "ptp",
        "rad2deg",
        "radians",
        "reciprocal",
        "rint",
        "round",
        "sign",
        "signbit",
        "sin",
        "sinc",
        "sinh",
        "sort",
        "spacing",
        "sqrt",
        "square",
        "std",
        "sum",
        "tan",
        "tanh",
        "trunc",
        "unwrap",
        "var",
    ]
)
BINARY = sorted(
    [
        "add",
        "arctan2",
        "atan2",
        "bitwise_and",
        "bitwise_left_shift",
        "bitwise_or",
        "bitwise_right_shift",
        "bitwise_xor",
        "copysign",
        "divide",
        "equal",
        "float_power",
        "floor_divide",
        "fmax",
        "fmin",
        "fmod",
        "gcd",
        "greater",
        "greater_equal",
        "heaviside",
        "hypot",
        "isclose",
        "lcm",
        "left_shift",
        "less",
        "less_equal",
        "logaddexp",
        "logaddexp2",
        "logical_and",
        "logical_or",
        "logical_xor",
        "maximum",
        "minimum",
        "mod",
        "multiply",
        "nextafter",
        "not_equal",
        "pow",
        "power",
        "remainder",
        "right_shift",
        "subtract",
        "true_divide",
    ]
)
TERNARY: dict[str, Callable[..., Any]] = {
    "where": lambda np, x, y: np.where(np.asarray([True, False, True]), x, y),
    "where by a number": lambda np, x, y: np.where(x, x, y),
    "clip": lambda np, x, y: np.clip(x, y, 2),
    "clip from below": lambda np, x, y: np.clip(x, y, None),
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: lambda np, *operands, name=name: getattr(np, name)(*operands) for name in UNARY + BINARY},
    **TERNARY,
}
PYTHON: dict[str, Callable[..., Any]] = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "/": lambda x, y: x / y,
    "//": lambda x, y: x // y,
    "%": lambda x, y: x % y,
    "**": lambda x, y: x**y,
    "<": lambda x, y: x < y,
    "==": lambda x, y: x == y,
    "&": lambda x, y: x & y,
    "<<": lambda x, y: x << y,
    "unary -": lambda x, y: -x,
    "abs": lambda x, y: abs(x),
}


def by_numpy(function: Callable[..., Any], *operands: Any) -> np.dtype | None:
    """The dtype of NumPy's result, ``float32`` for ``float16``; ``None`` where it refuses."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = np.asarray(function(*operands)).dtype
    except (TypeError, ValueError, OverflowError):
        return None
    return np.dtype(np.float32) if found == np.float16 else found


def mixtures(count: int) -> Iterator[tuple[str, ...]]:
    return itertools.product(OPERANDS, repeat=count)


def disagreements(function: Callable[..., Any], reference: Callable[..., Any], count: int) -> list[str]:
    """The mixtures whose dtype is not NumPy's, with each choice of operands that are traced."""
    found = []
    for names in mixtures(count):
        operands = [OPERANDS[name] for name in names]
        wanted = by_numpy(reference, *operands)
        for traced in itertools.product((True, False), repeat=count):
            if not any(traced):
                continue
            given = [x for x, is_traced in zip(operands, traced) if is_traced]

            def call(*nodes: Any, operands: list[Any] = operands, traced: tuple[bool, ...] = traced) -> Any:
                rest = iter(nodes)
                return function(*[next(rest) if is_traced else x for x, is_traced in zip(operands, traced)])

            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    dtype = trace(call, *given).graph.outputs[0].dtype
            except (PullbackError, TypeError, ValueError):
                dtype = None
            if dtype != wanted:
                marks = ", ".join(f"{'traced ' * t}{n}" for n, t in zip(names, traced))
                found.append(f"({marks}): {dtype}, NumPy has {wanted}")
    return found


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    function = FUNCTIONS[name]
    count = 1 if name in UNARY else 2
    for namespace in (np, pnp):
        call = lambda *operands, namespace=namespace: function(namespace, *operands)  # noqa: E731
        assert disagreements(call, lambda *operands: function(np, *operands), count) == []


@pytest.mark.parametrize(
    "name", [since("2.3.0", name) if name == "count_nonzero" else name for name in FUNCTIONS]
)
def test_what_functions_make_of_python_numbers_is_no_python_number(name):
    """Met by an array of int8 afterwards: ``np.where(mask, 300, 2) + a`` is of int64."""
    function, small = FUNCTIONS[name], np.ones(3, np.int8)
    count = 1 if name in UNARY else 2
    for operands in itertools.product((True, 2, 0.5), repeat=count):
        reference = lambda *operands: function(np, *operands) + small  # noqa: E731
        wanted = by_numpy(reference, *operands)
        if wanted is None:
            continue
        for namespace in (np, pnp):
            call = lambda *operands, namespace=namespace: function(namespace, *operands) + small  # noqa: E731
            assert trace(call, *operands).graph.outputs[0].dtype == wanted, operands


@pytest.mark.parametrize("name", [since("2.3.0", name) if name == "**" else name for name in PYTHON])
def test_operators_of_python(name):
    function, small = PYTHON[name], np.ones(3, np.int8)
    found = disagreements(function, function, 2)
    # NumPy takes ** 2 of an array of bools for np.square, in int8, where ** 3 has int64: a traced number may be any.
    by_value = ("(traced bool, traced 2)", "(bool, traced 2)") if name == "**" else ()
    assert [line for line in found if not line.startswith(by_value)] == []
    for operands in itertools.product((True, 2, 0.5), repeat=2):
        wanted = by_numpy(lambda *operands: np.multiply(function(*operands), small), *operands)
        if wanted is not None:
            found = trace(lambda *operands: np.multiply(function(*operands), small), *operands)
            assert found.graph.outputs[0].dtype == wanted, operands


KINDS = ("bool", "int8", "uint8", "float16", "float32", "float64", "complex64", "complex128")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", PYTHON)
def test_operators_of_python_of_halves_and_complex_numbers(name):
    """No function of another precision is among them: the dtypes are NumPy's own."""
    others = [True, 2, 0.5, 2j, *(make(kind) for kind in KINDS for make in (_number, _array))]
    for kind, other in itertools.product(("float16", "complex64", "complex128"), others):
        if name == "<" and "c" in (np.dtype(kind).kind, np.asarray(other).dtype.kind):
            continue  # refused: which of two complex numbers is less says nothing
        for operands in ((_array(kind), other), (other, _array(kind))):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    wanted = np.asarray(PYTHON[name](*operands)).dtype
            except TypeError:
                continue
            for traced in ((True, True), (True, False), (False, True)):
                given = [x for x, is_traced in zip(operands, traced) if is_traced]

                def call(*nodes: Any, operands: Any = operands, traced: Any = traced) -> Any:
                    rest = iter(nodes)
                    return PYTHON[name](*[next(rest) if t else x for x, t in zip(operands, traced)])

                found = trace(call, *given).graph.outputs[0].dtype
                assert found == wanted, (operands, traced)


def _number(kind: str) -> Any:
    return np.dtype(kind).type(1)


def _array(kind: str) -> Any:
    return np.ones(3, kind)


def test_the_square_of_bools():
    x = np.array([True, False])
    for f in (lambda x: x**2, np.square):
        for found in (jit(f)(x), trace(f, x).evaluate([x])):
            assert found.dtype == f(x).dtype == np.int8
            np.testing.assert_array_equal(found, f(x))
    assert jit(lambda x: x**2)(np.bool_(True)).dtype == np.int64


SHARES = {
    "0.3": 0.3,
    "1": 1,
    "list": [0.2, 0.5],
    "float32 scalar": np.float32(0.25),
    "float64 scalar": np.float64(0.25),
    "float32": np.array([0.25, 0.5], np.float32),
    "float64": np.array([0.25, 0.7]),
}
ARRAYS = {
    name: np.array([3, 1, 2, 5], name) for name in ("bool", "int8", "int32", "int64", "float32", "float64")
}


@pytest.mark.parametrize("method", [since("2.4.0", method) for method in PLACES])
def test_quantiles(method):
    """Their dtypes, and where the shares are no float32, in which places are rounded otherwise, their values."""
    for (kind, x), (name, q) in itertools.product(ARRAYS.items(), SHARES.items()):
        for function in (np.quantile, np.nanquantile):
            call = lambda x, q=q, f=function: f(x, q, method=method)  # noqa: E731
            try:
                wanted = call(x)
            except TypeError:  # NumPy subtracts no bools
                continue
            found = trace(call, x).evaluate([x])
            assert found.dtype == wanted.dtype, (function, kind, name)
            np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_quantiles_round_the_distance_of_two_elements_in_their_own_dtype():
    x = np.array([0.6001061201095581, -0.9572049975395203], np.float32)
    call = lambda x: np.percentile(x, [30.0, 50])  # noqa: E731
    np.testing.assert_allclose(trace(call, x).evaluate([x]), call(x), rtol=1e-15)


END = {"0": 0, "1.5": 1.5, "True": True, "list": [1], "float32": np.float32(1), "int64": np.array([1, 2])}


@pytest.mark.parametrize("name", END)
def test_what_is_put_before_or_behind(name):
    """What NumPy makes an array of has a dtype of its own, a Python number too; joined along no axis it has not."""
    end = END[name]
    calls = {
        "prepend": lambda pick, x: np.diff(x, prepend=end),
        "both": lambda pick, x: np.diff(x, n=2, prepend=end, append=end),
        "append": lambda pick, x: np.append(x, end),
        "hstack": lambda pick, x: np.hstack([x, end]),
        "insert": lambda pick, x: np.insert(x, 1, end),
        "block": lambda pick, x: np.block([x, end]) if name != "list" else x,
        "flat": lambda pick, x: np.concatenate([x, end], axis=None),
        "r_": lambda pick, x: pick.r_[x, end],
    }
    for (kind, x), (what, call) in itertools.product(ARRAYS.items(), calls.items()):
        if what in ("prepend", "both") and kind == "bool":
            continue  # differences of bools and numbers
        wanted, found = call(np, x), trace(lambda x, call=call: call(pnp, x), x).evaluate([x])
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), (what, kind)
        np.testing.assert_allclose(found, wanted)


def test_no_function_is_left_out():
    """Every ufunc of the vocabulary is in one of the lists above."""
    answered = {name for name in pnp.__all__ if isinstance(getattr(np, name, None), np.ufunc)}
    assert answered - set(UNARY) - set(BINARY) <= {
        "matmul",
        "matvec",
        "vecmat",
        "vecdot",
        "divmod",
        "ldexp",
        "frexp",
        "modf",
    }


@pytest.mark.parametrize("ufunc", [np.add, np.subtract, np.multiply, np.divide])
@pytest.mark.parametrize("method", ["accumulate", "reduce"])
@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.uint8, np.int64, np.float32])
def test_accumulated(ufunc: np.ufunc, method: str, dtype: type):
    some = np.array([[3, 1, 2], [7, 100, 3]], dtype)
    for x in (some, some[:, :0]) if method == "accumulate" else (some,):
        wanted = getattr(ufunc, method)(x, axis=1)
        found = jit(lambda x: getattr(ufunc, method)(x, axis=1))(x)
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "complex64"])
def test_vander_has_what_its_argument_and_int64_have_in_common(dtype):
    x = np.arange(3).astype(dtype)
    found = jit(lambda x: np.vander(x, 3))(x)
    assert found.dtype == np.vander(x, 3).dtype
    np.testing.assert_array_equal(found, np.vander(x, 3))
