"""Orders, and tables that are searched: what NumPy makes of equal edges, and of NaN among them."""

import itertools

import numpy as np
import pytest

import pullback as pb
from pullback.compiler.schedules.cost import MERGED_FOR_A_DIGIT
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


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("k", [0, 1, 7, 16, np.int64(17), 40])
@pytest.mark.parametrize("dtype", ["float32", "int8", "bool"])
def test_the_largest_few(k, axis, dtype):
    """Equal ones and NaN among them, in few rows and in many, held and sorted."""
    random = np.random.default_rng(0)
    x = random.integers(-9, 9, (40, 600)).astype(dtype)
    if dtype == "float32":
        x[random.random(x.shape) < 0.1] = np.nan
    back = np.flip(np.argsort(np.flip(x, axis), axis, kind="stable"), axis)
    places = x.shape[axis] - 1 - np.take(back, np.arange(k), axis)
    for run in (lambda f: f, pb.jit):
        found, where = run(lambda x: pb.top_k(x, k, axis))(x)
        np.testing.assert_array_equal(where, places)
        np.testing.assert_array_equal(found, np.take_along_axis(x, places, axis))


def test_how_many_of_the_largest_there_may_be():
    with pytest.raises(
        ShapeError, match=r"top_k: 5 of the 4 elements .*give a number from 0 to 4 \(at .*test_ordering"
    ):
        pb.jit(lambda x: pb.top_k(x, 5))(X)
    for k in (2.0, "2"):
        with pytest.raises(TypeError, match="integer"):
            pb.jit(lambda x, k=k: pb.top_k(x, k))(X)
    with pytest.raises(TypeError, match="integer"):
        pb.jit(pb.top_k)(X, 2)


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


@pytest.mark.parametrize("dtype", ["f4", "f8", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_rows_that_are_merged_and_rows_that_are_sorted_by_digits(dtype):
    """On both sides of where digits begin, with equal ones, infinities, NaN and zeros of both signs."""
    random, kind = np.random.default_rng(3), np.dtype(dtype).kind
    longest = MERGED_FOR_A_DIGIT * np.dtype(dtype).itemsize
    for extent in (1, 8, longest, longest + 1, 3 * longest, 600):
        x = random.integers(0, 2**63, (4, extent)).astype(dtype)
        if kind == "f":
            x = random.standard_normal((4, extent)).astype(dtype)
            special = random.choice([0.0, -0.0, np.inf, -np.inf, np.nan], x.shape)
            x = np.where(random.random(x.shape) < 0.2, special, x).astype(dtype)
        x[:, ::3] = x[:, :1]
        order = pb.jit(lambda x: np.argsort(x, axis=1, kind="stable"))(x)
        np.testing.assert_array_equal(order, np.argsort(x, axis=1, kind="stable"))
        np.testing.assert_array_equal(pb.jit(lambda x: np.sort(x, axis=1))(x), np.sort(x, axis=1))
