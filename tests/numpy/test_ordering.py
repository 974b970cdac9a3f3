"""Tables that are searched: what NumPy makes of equal edges, and of NaN among them."""

import itertools

import numpy as np
import pytest

import pullback as pb
from pullback.errors import ShapeError
from pullback.loops import Apply, Axis, Literal
from pullback.loops.fixed import fixed_value

X = np.array([1.0, np.nan, -3.0, 5.0])
BINS = [
    *([1.0, 1.0, 2.0, np.nan], [3.0, 2.0, 1.0], [3.0, 3.0, 1.0], [1.0, 1.0, 1.0], [1.0, 2.0, 3.0]),
    *([np.nan, np.nan], [3.0, 3.0, np.nan], [np.nan, 1.0], [2.0]),
]


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("bins", BINS, ids=str)
def test_bins(bins, right):
    bins = np.array(bins)
    wanted = np.digitize(X, bins, right)
    for call, given in (
        (lambda x, bins: np.digitize(x, bins, right), (X, bins)),
        (lambda x: np.digitize(x, bins, right), (X,)),
    ):
        np.testing.assert_array_equal(pb.trace(call, *given).evaluate(list(given)), wanted)
        np.testing.assert_array_equal(pb.jit(call)(*given), wanted)


def test_bins_that_neither_rise_nor_fall():
    with pytest.raises(ShapeError, match="neither rise nor fall"):
        pb.jit(lambda x: np.digitize(x, [1.0, 3.0, 2.0]))(X)


def test_comparisons_of_fractions_are_not_index_arithmetic():
    """Cut to whole numbers, 0.25 would be as large as 0.75."""
    bool_, float64, int64 = (np.dtype(kind) for kind in (np.bool_, np.float64, np.int64))
    less = Apply("less", (Literal(0.25, float64), Literal(0.75, float64)), bool_)
    assert fixed_value(Apply("add", (less, Literal(1, int64)), int64), {Axis("i", 4): 0}) is None


def test_interp_next_to_infinite_points():
    points, x = np.array([0.0, 1, 2]), np.array([-1, 0, 0.3, 0.999, 1, 1.5, 2, 3, np.nan, np.inf, -np.inf])
    call = pb.jit(lambda x, values: np.interp(x, points, values))
    for values in itertools.product([-np.inf, np.inf, np.nan, 0.0, 1.0], repeat=3):
        np.testing.assert_array_equal(call(x, np.array(values)), np.interp(x, points, values))
