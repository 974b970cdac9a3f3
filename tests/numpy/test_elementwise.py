"""Every elementwise function against NumPy: dtypes, broadcasting, empty arrays and scalars."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pullback.numpy as pnp
from pullback import grad, jit, jvp
from pullback.errors import DTypeError, IndexRangeError, TracingError
from pullback.tracing import trace

DTYPES = ["float32", "float64", "int32", "int64", "uint8", "bool"]
BINARY = [
    "add", "arctan2", "bitwise_and", "bitwise_or", "bitwise_xor", "divide", "equal", "float_power",
    "floor_divide", "fmax", "fmin", "greater", "greater_equal", "hypot", "left_shift", "less",
    "less_equal", "logaddexp", "logaddexp2", "logical_and", "logical_or", "logical_xor", "maximum",
    "minimum", "mod", "multiply", "not_equal", "power", "remainder", "right_shift", "subtract",
    "true_divide",
]  # fmt: skip
UNARY = [
    "abs", "absolute", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "bitwise_not",
    "cbrt", "ceil", "cos", "cosh", "deg2rad", "exp", "exp2", "expm1", "floor", "invert", "isfinite",
    "isinf", "isnan", "log", "log10", "log1p", "log2", "logical_not", "nan_to_num", "negative",
    "positive", "rad2deg", "reciprocal", "rint", "round", "sign", "sin", "sinh", "sqrt", "square", "tan",
    "tanh", "trunc",
]  # fmt: skip
SHAPES = [((2, 3), (3,)), ((4, 1), (1, 3)), ((), (2,)), ((0, 3), (1, 1)), ((1,), (1,)), ((), ())]


def numpy_result(function, *arrays):
    """What NumPy gives, ``float16`` widened; ``None`` where it refuses."""
    try:
        with np.errstate(all="ignore"):
            result = np.asarray(function(*arrays))
    except (TypeError, ValueError):
        return None
    if result.dtype != np.float16:
        return result
    with np.errstate(all="ignore"):
        return np.asarray(function(*[np.asarray(array, np.float32) for array in arrays]))


def positive_where_needed(name, y):
    """Operands that NumPy takes: exponents and shifts of integers not negative, divisors not zero."""
    y = np.abs(y) if name in ("power", "left_shift", "right_shift") and y.dtype != bool else y
    divides = name in ("floor_divide", "mod", "remainder") and y.dtype.kind in "iub"
    return np.where(y == 0, np.ones_like(y), y) if divides else y


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY)
def test_one_argument(name, dtype, agrees, draw):
    for shape in ((3, 2), (), (0,)):
        x = draw(shape, dtype)
        if name == "reciprocal" and x.dtype.kind in "iub":
            x = x + x.dtype.type(4) if x.dtype.kind != "b" else np.ones_like(x)
        expected = numpy_result(getattr(np, name), x)
        if expected is None:
            with pytest.raises(DTypeError):
                trace(getattr(pnp, name), x)
            continue
        if name in ("floor", "ceil", "trunc", "round") and x.dtype.kind != "f":
            expected = expected.astype(x.dtype if name != "round" or x.dtype != bool else np.float32)
        agrees(getattr(pnp, name), x, expected=expected)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("right", ["float32", "int32", "bool"])
@pytest.mark.parametrize("left", DTYPES)
@pytest.mark.parametrize("name", BINARY)
def test_two_arguments(name, left, right, agrees, draw):
    for left_shape, right_shape in SHAPES:
        x, y = draw(left_shape, left), positive_where_needed(name, draw(right_shape, right, seed=1))
        expected = numpy_result(getattr(np, name), x, y)
        if expected is None:
            with pytest.raises(DTypeError):
                trace(getattr(pnp, name), x, y)
        else:
            agrees(getattr(pnp, name), x, y, expected=expected)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", UNARY + BINARY)
def test_numpy_itself_answers_for_arrays(name):
    arguments = [np.array([1, 2]), np.array([2, 1])][: 1 if name in UNARY else 2]
    found, wanted = getattr(pnp, name)(*arguments), getattr(np, name)(*arguments)
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, wanted, rtol=1e-15)


@pytest.mark.parametrize("exponent", [-2, -1, -1.0, 0, 0.5, 1, 2, 2.0, 3, 4, 5, 7.5])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_powers_of_numbers(exponent, dtype, agrees):
    agrees(lambda x: x**exponent, np.array([0.5, 1.0, 3.0], dtype))


def test_powers_of_integers(agrees, draw):
    agrees(lambda x: x**2 + x**0 + x**5, draw((4,), "int32"))
    agrees(lambda x: x**0.5, np.array([1, 4, 9]))
    agrees(lambda x: 2**x, np.array([1, 4, 9]))
    with pytest.raises(DTypeError, match="exponent -2 of an integer"):
        trace(lambda x: x**-2, np.array([1, 2]))
    with pytest.raises(DTypeError, match="exponent -3 of an integer"):
        trace(lambda x: x ** np.array([1, -3]), np.array([1, 2]))


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
@pytest.mark.parametrize("shape", [(), (5,), (3, 40)])
def test_a_traced_negative_power_of_an_integer_is_refused(dtype, shape):
    x, y = np.full(shape, 3, dtype), np.full(shape, 4, dtype)
    y.reshape(-1)[-1:] = np.iinfo(dtype).max
    np.testing.assert_array_equal(jit(lambda x, y: x**y)(x, y), x**y)
    y.reshape(-1)[-1:] = -2
    for run in (jit(lambda x, y: x**y), lambda x, y: trace(lambda x, y: x**y, x, y).evaluate([x, y])):
        with pytest.raises(IndexRangeError, match=r"power: integers have no negative powers.*: -2"):
            run(x, y)
    unsigned = jit(lambda x, y: x**y)(x.astype("uint8"), np.full(shape, 2, "uint8"))
    np.testing.assert_array_equal(unsigned, np.full(shape, 9, "uint8"))


def test_operators_of_python(agrees, draw):
    x, y = draw((3,), "float64"), draw((2, 3), "float64", seed=1)
    agrees(lambda x, y: ((1 + x) - y * 2) / (3 - y) // 0.5 % 0.7, x, y)
    agrees(lambda x, y: (-x, +y, abs(x), x < y, x <= y, x > y, x >= y, x == y, x != y), x, y)
    agrees(lambda x, y: (x > 2, 2.0 / y, 1 - x, 2**x, 7 // y, 7 % y), x, y)
    i, j = draw((3,), "int32"), np.abs(draw((3,), "int32", seed=1))
    agrees(lambda i, j: (i & j, i | j, i ^ j, ~i, i << j, i >> j, 3 & i, 3 | i, 3 ^ i, 1 << j, 64 >> j), i, j)


def test_arrays_on_the_left_of_an_operator(agrees, draw):
    constant = np.arange(3.0)
    agrees(
        lambda x: (constant + x, constant @ x, constant * x, constant < x, np.float32(2) * x),
        draw((3,), "float32"),
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_where(dtype, agrees, draw):
    mask, x = draw((2, 1), "bool"), draw((3,), dtype)
    agrees(np.where, mask, x, draw((2, 3), "float32"))
    wide = np.int64 if dtype == "bool" else dtype
    agrees(
        lambda m, x: np.where(m, x, 1), mask, x, expected=np.where(mask, x.astype(wide), np.ones((), wide))
    )
    agrees(lambda x: np.where(x, 1, 2), x)


def test_where_needs_both_branches():
    with pytest.raises(TracingError, match="three-argument"):
        trace(np.where, np.array([True, False]))


def test_the_branch_not_taken_passes_no_nan():
    x = np.array([0.0, 4.0])
    np.testing.assert_array_equal(grad(lambda x: np.where(x > 0, np.sqrt(x), 0.0).sum())(x), [0.0, 0.25])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("target", DTYPES)
def test_casts(dtype, target, agrees, draw):
    agrees(lambda x: x.astype(target), np.abs(draw((5,), dtype)) if dtype != "bool" else draw((5,), dtype))


@pytest.mark.parametrize(
    "compare", [np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal]
)
@pytest.mark.parametrize("number", [-1, 256, 300, -(2**70), 2**70])
def test_comparisons_with_integers_that_do_not_fit(compare, number, agrees):
    x = np.array([[0, 5, 255]], np.uint8)
    agrees(lambda x: compare(x, number), x)
    agrees(lambda x: compare(number, x), x)
    agrees(lambda x: (x > number, number >= x, x == number), x)


def test_hypot_and_cbrt_at_the_edges(agrees):
    big = np.array([3e200, np.inf, 0.0, 1e-200, np.nan])
    agrees(np.hypot, big, np.array([4e200, 1.0, 0.0, 1e-200, 1.0]))
    agrees(np.hypot, np.array([np.inf, np.nan, -np.inf]), np.array([np.nan, np.inf, np.inf]))
    roots = trace(np.cbrt, np.zeros(6)).evaluate([np.array([0.0, -0.0, 8.0, -27.0, np.inf, -np.inf])])
    # NumPy's own cube root is exact to a place, and not the same for one number as for many.
    np.testing.assert_array_max_ulp(roots, np.array([0.0, -0.0, 2.0, -3.0, np.inf, -np.inf]))
    assert np.signbit(roots[1]) and not np.signbit(roots[0])
    agrees(np.logaddexp, np.array([1000.0, -np.inf, -np.inf, 3.0]), np.array([1000.0, -np.inf, 2.0, np.inf]))
    assert grad(lambda x: np.hypot(x, 0.0))(0.0) == 0.0
    np.testing.assert_allclose(grad(lambda x: np.hypot(x, 4.0))(3.0), 0.6)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("name", "base"), [("logaddexp", np.e), ("logaddexp2", 2.0)])
def test_slopes_of_a_logarithm_of_two_powers_are_their_shares(name, base, compiled):
    """Where both are equal each has half, of infinities as well; there is no kink, so the second order is right."""
    function = getattr(np, name)
    run = jit if compiled else lambda f: f
    inf = np.inf
    x = np.array([3.0, 0.0, -700.0, inf, -inf, inf, 1.0, 1.0, 2.0])
    y = np.array([3.0, 0.0, -700.0, inf, -inf, -inf, inf, -inf, 1.0])
    first = np.array([0.5] * 5 + [1.0, 0.0, 1.0, base / (base + 1)])
    total = run(grad(lambda x, y: function(x, y).sum(), argnums=(0, 1)))
    np.testing.assert_allclose(total(x, y), [first, 1 - first], rtol=1e-15)
    forward = run(lambda x, y: jvp(function, (x, y), (np.ones_like(x), np.zeros_like(y)))[1])
    np.testing.assert_allclose(forward(x, y), first, rtol=1e-15)
    finite = slice(0, 3), slice(8, 9)
    second = run(grad(lambda x, y: grad(lambda x: function(x, y).sum())(x).sum()))(x, y)
    assert np.isfinite(second).all()
    for some in finite:
        np.testing.assert_allclose(second[some], (np.log(base) * first * (1 - first))[some], rtol=1e-14)


@pytest.mark.parametrize("decimals", [0, 1, 3, -1])
def test_round(decimals, agrees, draw):
    agrees(lambda x: np.round(x, decimals), 20 * draw((6,), "float64"))
    agrees(lambda x: np.round(x, decimals), 9 * draw((6,), "int64"))


def test_nan_to_num(agrees):
    x = np.array([np.nan, np.inf, -np.inf, 1.0], np.float32)
    agrees(np.nan_to_num, x)
    agrees(lambda x: np.nan_to_num(x, nan=1.0, posinf=2.0, neginf=-3.0), x)


def test_clip_by_either_side(agrees, draw):
    x = draw((7,), "float32")
    agrees(lambda x: np.clip(x, -0.5, 0.5), x)
    agrees(lambda x: (x.clip(0), np.clip(x, None, 1)), x)
    agrees(lambda x: x.clip(max=np.zeros(7, np.float32)), x)


def test_bounds_that_no_integer_is_beyond_need_not_fit(agrees):
    x = np.array([0, 1, 200], np.uint8)
    agrees(lambda x: (np.clip(x, -1, 3), np.clip(x, 1, 300), np.clip(x, -1, 300)), x)
    with pytest.raises(DTypeError, match="300 is outside uint8"):
        trace(lambda x: np.clip(x, 300, 400), x)


# -- Random expressions

EXPRESSIONS = st.recursive(
    st.sampled_from(["x", "y", 2, 0.5]),
    lambda inner: st.one_of(
        st.tuples(
            st.sampled_from(["add", "subtract", "multiply", "maximum", "minimum", "hypot"]), inner, inner
        ),
        st.tuples(
            st.sampled_from(["sin", "tanh", "arctan", "exp2", "square", "floor", "absolute", "negative"]),
            inner,
        ),
    ),
    max_leaves=8,
)


def compute(expression, x, y):
    if isinstance(expression, tuple):
        return getattr(np, expression[0])(*[compute(part, x, y) for part in expression[1:]])
    return {"x": x, "y": y}.get(expression, expression)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(EXPRESSIONS, st.sampled_from(["float32", "float64", "int32"]), st.sampled_from(SHAPES))
def test_random_expressions(expression, dtype, shapes):
    random = np.random.default_rng(0)
    x, y = random.uniform(-1, 1, shapes[0]).astype("float32"), random.uniform(-1, 1, shapes[1]).astype(dtype)
    with np.errstate(all="ignore"):
        wanted = np.asarray(compute(expression, x, y))
        found = trace(lambda x, y: compute(expression, x, y), x, y).evaluate([x, y])
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_forward_mode_of_a_composite_function():
    value, tangent = jvp(np.logaddexp, (1.0, 2.0), (1.0, 0.0))
    np.testing.assert_allclose([value, tangent], [np.logaddexp(1, 2), 1 / (1 + np.e)])


def test_fractions_have_a_slope_of_one_next_to_zero_too():
    x = np.array([0.0, -0.0, 0.5, -0.5, -2.0, 3.0, np.inf, -np.inf])
    fractions, wholes = jit(np.modf)(x)
    for found, wanted in zip((fractions, wholes), np.modf(x)):
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))
    np.testing.assert_array_equal(jit(grad(lambda x: np.modf(x)[0].sum()))(x), [1, 1, 1, 1, 1, 1, 0, 0])
