"""``x.at[...]`` against assignment in NumPy."""

import numpy as np
import pytest

from pullback import grad
from pullback.errors import IndexRangeError, ShapeError, TracingError
from pullback.testing import check_grads
from pullback.tracing import trace

X = np.arange(12.0).reshape(3, 4)
PICKS = np.array([2, 0, 2])
INDICES = [
    1,
    (slice(None), -1),
    slice(None, None, -2),
    PICKS,
    (slice(None), PICKS),
    (PICKS, 1),
    X > 5,
    (..., None),
    ([0, 0], [1, 1]),
]


def assigned(index, value):
    result = X.copy()
    result[index] = value
    return result


def added(index, value):
    result = X.copy()
    np.add.at(result, index, value)
    return result


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_set(index, agrees):
    agrees(lambda x: x.at[index].set(-1), X, expected=assigned(index, -1))
    values = 100 + np.arange(X[index].size).reshape(X[index].shape)
    agrees(lambda x: x.at[index].set(values), X, expected=assigned(index, values))


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_add(index, agrees):
    values = 100.0 + np.arange(X[index].size).reshape(X[index].shape)
    agrees(lambda x: x.at[index].add(values), X, expected=added(index, values))
    agrees(lambda x: x.at[index].get(), X, expected=X[index])


def test_multiply(agrees):
    agrees(lambda x: x.at[1:].multiply(2), X, expected=X * [[1], [2], [2]])


def test_add_at_traced_indices(agrees):
    agrees(lambda x, i: x.at[i].add(1), X, PICKS, expected=added(PICKS, 1))
    agrees(lambda x, i: x.at[i, i].add(x[0, 0] + 1), X, PICKS, expected=added((PICKS, PICKS), 1))
    agrees(lambda x, i: x.at[:, i].add(1), X, PICKS, expected=added((slice(None), PICKS), 1))


def test_set_at_a_traced_place(agrees):
    agrees(lambda x, i: x.at[i].set(x[0]), X, np.int64(2), expected=assigned(2, X[0]))
    agrees(lambda x, i: x.at[1:, i].set(7), X, np.int64(-1), expected=assigned((slice(1, None), -1), 7))


def test_values_take_the_dtype_of_the_array(agrees):
    agrees(lambda x: x.at[0].set(2.9), np.arange(3), expected=np.array([2, 1, 2]))


def test_derivatives():
    check_grads(lambda x, v: x.at[1:, 0].set(v) ** 2, [X / 12, np.array([0.3, 0.7])])
    check_grads(lambda x, v: x.at[:, PICKS].add(v) ** 2, [X / 12, np.array([0.3, 0.7, 0.1])])
    np.testing.assert_array_equal(grad(lambda x: x.at[1].set(0.0).sum())(X)[:, 0], [1, 0, 1])


def test_what_is_refused():
    with pytest.raises(TracingError, match="named twice"):
        trace(lambda x, i: x.at[i].set(1), X, PICKS)
    with pytest.raises(ShapeError, match=r"shape \(3,\) for elements of shape \(4,\)"):
        trace(lambda x: x.at[0].set(np.ones(3)), X)
    with pytest.raises(IndexRangeError, match="index 3"):
        trace(lambda x: x.at[3].add(1), X)
