"""Reductions against NumPy: axes, kept axes, dtypes, masks, and what an empty axis gives."""

from functools import partial

import numpy as np
import pytest

import pullback.numpy as pnp
from pullback import grad, jit
from pullback.errors import DTypeError, ShapeError
from pullback.testing import check_grads
from pullback.tracing import trace

DTYPES = ["float32", "float64", "int32", "uint8", "bool"]
AXES = [None, 0, -1, (0, 2), (), (2, 0, 1)]


@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "name", ["sum", "prod", "mean", "max", "min", "any", "all", "var", "std", "count_nonzero"]
)
def test_over_axes(name, dtype, axis, agrees, draw):
    function, x = getattr(np, name), draw((2, 3, 4), dtype)
    for keepdims in (False, True):
        agrees(partial(function, axis=axis, keepdims=keepdims), x, tolerance=1e-10)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "any", "all", "argmax", "argmin"])
def test_scalars_and_single_elements(name, dtype, agrees, draw):
    function = getattr(np, name)
    agrees(function, draw((), dtype))
    agrees(lambda x: function(x, axis=1), draw((3, 1), dtype))


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("shape", [(), (2, 1), (1, 1), (2, 3)], ids=str)
@pytest.mark.parametrize("name", ["sum", "mean", "average"])
def test_a_sum_of_negative_zeros_is_positive(name, shape, keepdims):
    x, function = np.full(shape, -0.0, np.float32), getattr(np, name)
    for axis in (None, (), -1) if shape else (None, ()):
        asked = partial(function, axis=axis, keepdims=keepdims)
        wanted = asked(x).tolist()
        assert str(trace(asked, x).evaluate([x]).tolist()) == str(jit(asked)(x).tolist()) == str(wanted)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions(name, axis, keepdims, agrees, draw):
    function = getattr(np, name)
    agrees(lambda x: function(x, axis=axis, keepdims=keepdims), draw((4, 5), "int32"))


@pytest.mark.parametrize("name", ["sum", "prod", "any", "all"])
def test_of_no_element(name, agrees):
    agrees(lambda x: getattr(np, name)(x, axis=0), np.zeros((0, 3), np.float32))


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin"])
def test_extremes_of_no_element_are_refused(name, agrees):
    with pytest.raises(ShapeError, match=rf"{name}.*\(0, 3\).*no element"):
        trace(lambda x: getattr(np, name)(x, axis=0), np.zeros((0, 3)))
    agrees(lambda x: getattr(np, name)(x, axis=0), np.zeros((3, 0)))


def test_with_an_initial_value(agrees, draw):
    x = draw((3, 4), "float64")
    agrees(lambda x: (np.max(x, 0, initial=1.0), np.min(x, initial=-0.5), np.sum(x, initial=2.0)), x)
    agrees(lambda x: (np.prod(x, axis=1, initial=3.0), np.max(x, initial=-9.0)), x)
    agrees(lambda x: np.max(x, axis=1, initial=-1.0, keepdims=True), np.zeros((2, 0)))


def test_under_a_mask(agrees, draw):
    x, mask = draw((3, 4), "float32"), draw((3, 4), "bool", seed=3)
    agrees(lambda x: (np.sum(x, 0, where=mask), np.prod(x, where=mask), np.mean(x, where=mask)), x)
    agrees(lambda x: (np.any(x, where=mask), np.all(x, axis=0, where=mask)), x)
    agrees(lambda x: np.max(x, axis=0, where=mask, initial=-5.0), x)
    with pytest.raises(DTypeError, match="initial="):
        trace(lambda x: np.max(x, where=mask), x)


def test_in_another_dtype(agrees, draw):
    agrees(lambda x: (np.sum(x, dtype=np.float32), np.mean(x, dtype=np.float32)), draw((5,), "int32"))
    agrees(lambda x: (np.prod(x, dtype=np.int64), x.sum(dtype=np.int32)), draw((5,), "int32"))


def test_small_integers_do_not_overflow(agrees):
    agrees(np.sum, np.full(10, 200, np.uint8))
    agrees(np.mean, np.full(10, 200, np.uint8))


def test_reductions_of_ufuncs(agrees, draw):
    x = draw((3, 4), "float64")
    agrees(lambda x: (np.add.reduce(x), np.multiply.reduce(x, axis=1), np.maximum.reduce(x, axis=None)), x)
    agrees(lambda x: (np.minimum.reduce(x), np.logical_and.reduce(x > 0), np.logical_or.reduce(x > 0)), x)


def test_nan_is_the_extreme(agrees):
    agrees(lambda x: (np.max(x), np.min(x), np.argmax(x), np.argmin(x)), np.array([1.0, np.nan, 3.0]))


def test_variance_with_fewer_degrees_of_freedom(agrees, draw):
    agrees(lambda x: (np.var(x, ddof=1), np.std(x, axis=0, ddof=1)), draw((4, 3), "float64"))


def test_weighted_mean(agrees, draw):
    x = draw((3, 4), "float64")
    agrees(lambda x: np.average(x, axis=1, weights=np.array([1.0, 2.0, 3.0, 4.0])), x)
    agrees(lambda x: (np.average(x), np.average(x, weights=np.abs(x) + 1)), x)
    with pytest.raises(ShapeError, match="weights"):
        trace(lambda x: np.average(x, axis=0, weights=np.ones(4)), x)


def test_range_of_values(agrees, draw):
    agrees(lambda x: np.ptp(x, axis=0), draw((5, 2), "float64"))


@pytest.mark.parametrize("axis", [None, 0, (0, 1), -1])
def test_logsumexp(axis, agrees, draw):
    x = draw((3, 4), "float64")
    agrees(lambda x: pnp.logsumexp(x, axis), x, expected=np.log(np.exp(x).sum(axis)))
    agrees(
        lambda x: pnp.logsumexp(x, axis, keepdims=True),
        x,
        expected=np.log(np.exp(x).sum(axis, keepdims=True)),
    )
    np.testing.assert_allclose(pnp.logsumexp(x, axis), np.log(np.exp(x).sum(axis)))
    check_grads(lambda x: pnp.logsumexp(x, axis), [x])


def test_logsumexp_of_large_and_infinite_numbers(agrees):
    agrees(pnp.logsumexp, np.array([1e4, 1e4]), expected=np.float64(1e4 + np.log(2)))
    agrees(pnp.logsumexp, np.array([-np.inf, -np.inf]), expected=np.float64(-np.inf))
    agrees(pnp.logsumexp, np.array([np.inf, 1.0]), expected=np.float64(np.inf))


@pytest.mark.parametrize("name", ["mean", "var", "std", "average", "ptp"])
def test_derivatives(name, draw):
    check_grads(lambda x: getattr(np, name)(x, axis=1), [draw((3, 4), "float64")])


def test_the_derivative_of_a_vanishing_deviation_is_zero():
    np.testing.assert_array_equal(grad(np.std)(np.ones(4)), np.zeros(4))


def test_an_axis_that_is_not_there():
    with pytest.raises(ShapeError, match="axis 2 of an array of 2 axes"):
        trace(lambda x: np.sum(x, axis=2), np.ones((2, 2)))
    with pytest.raises(ShapeError, match="twice"):
        trace(lambda x: np.sum(x, axis=(0, -2)), np.ones((2, 2)))
    with pytest.raises(ShapeError, match="scalar"):
        trace(lambda x: np.sum(x, axis=1), 1.0)


@pytest.mark.parametrize("axis", [0, -1, (0, 2), None])
def test_standardise(axis, agrees, draw):
    x = draw((3, 4, 5), "float64") + 100.0
    expected = (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + 0.01)
    agrees(lambda x: pnp.standardise(x, axis, epsilon=0.01), x, expected=expected)
    np.testing.assert_allclose(pnp.standardise(x, axis, epsilon=0.01), expected)
    check_grads(lambda x: pnp.standardise(x, axis, epsilon=0.01), [x])


def test_standardise_of_equal_and_of_integer_values(agrees):
    agrees(pnp.standardise, np.full((2, 3), 7.0), expected=np.zeros((2, 3)))
    assert pnp.standardise(np.array([1, 3])).dtype == np.float64
    slopes = grad(lambda x: pnp.standardise(x, epsilon=0.25)[0])(np.full(4, 2.0))
    np.testing.assert_allclose(slopes, [1.5, -0.5, -0.5, -0.5])
    with pytest.raises(ValueError, match="epsilon is 0"):
        pnp.standardise(np.ones(3), epsilon=0)


def test_standardise_of_one_element_keeps_its_sign():
    x = np.array([[-0.0], [0.0]])
    asked = partial(pnp.standardise, axis=1)
    for found in (asked(x), trace(asked, x).evaluate([x]), jit(asked)(x)):
        assert str(found.tolist()) == "[[-0.0], [0.0]]"


def test_medians_of_infinite_numbers():
    inf, nan = np.inf, np.nan
    x = np.array(
        [[-inf, 1, 2, nan, 5], [-inf, -inf, 2, nan, 5], [inf, inf, 2, 1, nan], [-inf, inf, nan, nan, nan]]
    )
    wanted = [1.5, -inf, inf, nan]
    np.testing.assert_array_equal(jit(lambda x: np.nanmedian(x, axis=1))(x), wanted)


@pytest.mark.parametrize("function", [np.median, np.nanmedian])
def test_medians_are_means_and_so_never_minus_zero(function):
    x = np.array([[-0.0, -0.0, -1.0], [-1.0, -0.0, 2.0], [np.nan, -0.0, -0.0]])
    np.testing.assert_array_equal(np.signbit(jit(lambda x: function(x, axis=1))(x[:2])), [False, False])
    np.testing.assert_array_equal(np.signbit(jit(np.nanmedian)(x[2])), np.signbit(np.nanmedian(x[2])))


@pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:invalid value", "ignore:All-NaN")
@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3), (2, 0, 3)])
@pytest.mark.parametrize("function", [np.median, np.nanmedian, np.trapezoid])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_of_nothing(function, shape, dtype):
    x = np.zeros(shape, dtype)
    for axis in range(x.ndim):
        wanted = function(x, axis=axis)
        found = jit(lambda x, axis=axis: function(x, axis=axis))(x)
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_array_equal(found, wanted)
