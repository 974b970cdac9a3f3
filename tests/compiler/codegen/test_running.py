"""Running totals: of one row, of several that are made side by side, and of what is left over."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb

RANDOM = np.random.default_rng(0)


def same(function, x):
    """Compiled, bit for bit what NumPy gives."""
    np.testing.assert_array_equal(pb.jit(function)(x), function(x))


@pytest.mark.parametrize(
    "shape", [(1, 7), (3, 7), (4, 7), (9, 7), (9, 1), (5, 7, 3), (6, 7, 19), (0, 7), (2, 0)]
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "bool"])
def test_totals_of_rows_are_numpys(shape, dtype):
    x = (RANDOM.standard_normal(shape) * 10).astype(dtype)
    same(lambda x: np.cumsum(x, 1), x)
    same(lambda x: np.cumprod(x, 1), x)
    same(lambda x: np.flip(np.cumsum(np.flip(x, 1), 1), 1), x)


@pytest.mark.parametrize("rows", [1, 4, 7])
@pytest.mark.parametrize("function", [np.maximum, np.minimum])
def test_extremes_of_rows_are_numpys(rows, function):
    """With NaN, which stays, and its derivative at the first of equals."""
    x = RANDOM.integers(-3, 4, (rows, 9)).astype(np.float32)
    x[rows // 2, 4] = np.nan
    same(lambda x: function.accumulate(x, 1), x)
    x[rows // 2, 4] = 0
    weights = RANDOM.integers(1, 5, x.shape).astype(np.float32)
    gradient = pb.grad(lambda x: np.sum(function.accumulate(x, 1) * weights))
    np.testing.assert_array_equal(pb.jit(gradient)(x), gradient(x))


@pytest.mark.parametrize("rows", [1, 4, 6])
def test_gradients_of_totals_are_the_other_way_round(rows):
    x = RANDOM.integers(-3, 4, (rows, 9)).astype(np.float64)
    weights = RANDOM.integers(1, 5, x.shape).astype(np.float64)
    gradient = pb.jit(pb.grad(lambda x: np.sum(np.cumsum(x, 1) * weights)))
    np.testing.assert_array_equal(gradient(x), np.cumsum(weights[:, ::-1], 1)[:, ::-1])
