"""Indexing against NumPy: every kind of index by itself, and random mixtures of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pullback.numpy as pnp
from pullback import grad
from pullback.errors import DTypeError, IndexRangeError, ShapeError, TracingError
from pullback.testing import check_grads
from pullback.tracing import trace

X = np.arange(60.0).reshape(3, 4, 5)
PICKS, J = np.array([2, 0]), np.array([[1], [-1]])

INDICES = {
    "integer": 1,
    "negative integer": -1,
    "NumPy integer": np.int32(2),
    "array without axes": np.array(1),
    "integers": (0, -1, 2),
    "slice": slice(1, None),
    "steps": (slice(None, None, 2), slice(3, 0, -1), slice(None, None, -2)),
    "empty slices": (slice(2, 1), slice(9, None), slice(0, 3, -1)),
    "slices out of bounds": (slice(-9, 9), slice(None, -9, -1)),
    "ellipsis": (Ellipsis, 0),
    "ellipsis in between": (0, Ellipsis, slice(1, 3)),
    "ellipsis for nothing": (0, 1, Ellipsis, 2),
    "new axes": (None, 0, None, slice(None), None),
    "nothing": (),
    "array": PICKS,
    "list": [0, 2, -1],
    "empty list": [],
    "array at the end": (Ellipsis, PICKS),
    "two arrays": (PICKS, PICKS),
    "arrays that broadcast": (PICKS, J),
    "arrays apart": (PICKS, slice(None), PICKS),
    "arrays apart by an ellipsis": (PICKS, Ellipsis, PICKS),
    "arrays apart by nothing": (slice(None), PICKS, Ellipsis, PICKS),
    "arrays apart by a new axis": (PICKS, None, PICKS),
    "integer beside an array": (0, PICKS),
    "integer apart from an array": (0, slice(None), PICKS),
    "integer between": (slice(None), 0, PICKS),
    "array and slices": (slice(None, None, -1), J, slice(1, 4, 2)),
    "mask": X > 30,
    "mask of one axis": (slice(None), np.array([True, False, True, False])),
    "mask and array": (np.array([True, False, True]), PICKS),
}


@pytest.mark.parametrize("name", INDICES)
def test_concrete_indices(name, agrees):
    agrees(lambda x: x[INDICES[name]], X)


@pytest.mark.parametrize("name", INDICES)
def test_derivatives(name):
    index = INDICES[name]
    counts = np.zeros_like(X)
    np.add.at(counts, index, 1.0)
    np.testing.assert_array_equal(grad(lambda x: x[index].sum())(X), counts)


TRACED = {
    "one": lambda x, i: x[i],
    "scalar": lambda x, i: x[i[0]],
    "scalar beside a slice": lambda x, i: (
        x[i[0], 1:],
        x[1:, i[1]],
        x[i[0], :, i[1]],
        x[i[0], 2],
        x[2, i[0]],
    ),
    "last": lambda x, i: x[..., i],
    "two": lambda x, i: (x[i, i], x[i, :, i], x[:, i, i[:, None]]),
    "beside integers": lambda x, i: (x[i, 0], x[0, :, i], x[:, -1, i]),
    "beside arrays": lambda x, i: (x[i, np.array([0, 1, 1])], x[i, None, J]),
    "in a list": lambda x, i: x[[i[0], 1]],
}


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
@pytest.mark.parametrize("name", TRACED)
def test_traced_indices(name, dtype, agrees):
    agrees(TRACED[name], X, np.array([1, 0, 2], dtype))


def test_traced_indices_from_the_end(agrees):
    agrees(lambda x, i: x[:, i], X, np.array([-1, -4, 3]))


def test_derivatives_by_traced_indices():
    i = np.array([1, 1, 2])
    np.testing.assert_array_equal(grad(lambda x: x[i].sum())(X)[:, 0, 0], [0, 2, 1])
    check_grads(lambda x, i: x[i, :, i[0]] ** 2, [X / 60, i])


ENTRIES = st.one_of(
    st.integers(-2, 1),
    st.just(None),
    st.just(Ellipsis),
    st.builds(slice, *[st.none() | st.integers(-4, 4)] * 2, st.none() | st.sampled_from([-3, -1, 1, 2])),
    st.sampled_from(
        [np.array([0, -1]), np.array([[1], [0]]), np.array([1]), np.array(0), np.zeros((0, 1), int)]
    ),
    st.sampled_from([np.array([True, False])]),
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(ENTRIES, max_size=6))
def test_random_indices(entries):
    x, index = np.arange(16.0).reshape(2, 2, 2, 2), tuple(entries)
    try:
        wanted = x[index]
    except IndexError:
        with pytest.raises((IndexRangeError, ShapeError)):
            trace(lambda x: x[index], x)
        return
    found = trace(lambda x: x[index], x).evaluate([x])
    np.testing.assert_array_equal(found, wanted)
    assert np.shape(found) == np.shape(wanted)


# -- take, take_along_axis, len and iteration


@pytest.mark.parametrize("axis", [None, 0, -1])
def test_take(axis, agrees):
    agrees(lambda x: np.take(x, J, axis), X)
    agrees(lambda x, i: (np.take(x, i, axis), x.take(i, axis)), X, PICKS)
    agrees(
        lambda x, i: (np.take(x, i, axis, mode="clip"), np.take(x, i, axis, mode="wrap")),
        X,
        np.array([9, -7]),
    )


def test_a_concrete_table_at_traced_indices(agrees):
    agrees(lambda i: pnp.take(X, i, axis=1), PICKS)
    with pytest.raises(TracingError, match=r"pullback\.numpy\.take\(table, index, axis\)"):
        trace(lambda i: X[i], PICKS)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_take_along_axis(axis, agrees):
    picks = np.expand_dims(np.argmax(np.sin(X), axis=axis), axis)
    agrees(lambda x, i: np.take_along_axis(x, i, axis), np.sin(X), picks)
    agrees(lambda x: np.take_along_axis(x, picks, axis), X)


def test_take_along_axis_broadcasts_and_flattens(agrees):
    agrees(lambda x, i: np.take_along_axis(x, i, 1), X, np.array([[[0], [-1]]]))
    agrees(lambda x, i: np.take_along_axis(x, i, None), X, np.array([3, 1]))


def test_length_and_iteration(agrees):
    agrees(lambda x: [row * len(x) for row in x], X)
    first, *rest = trace(list, X).evaluate([X])
    assert len(rest) == 2
    np.testing.assert_array_equal(first, X[0])


# -- What is refused


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x[3], r"index 3 is outside axis 0 of shape \(3, 4, 5\), which has 3 elements"),
        (lambda x: x[:, -5], "index -5 is outside axis 1"),
        (lambda x: x[[0, 7]], "index 7 is outside axis 0"),
        (lambda x: x[0, 0, 0, 0], "4 indices"),
        (lambda x: x[..., ...], "two ellipses"),
        (lambda x: x[::0], "step 0"),
        (lambda x: x[np.array([True, False])], r"a mask of shape \(2,\) for axes of shape \(3,\)"),
        (lambda x: np.take(x, 5, axis=1), "index 5 is outside axis 1"),
    ],
)
def test_out_of_range(function, message):
    with pytest.raises(IndexRangeError, match=message):
        trace(function, X)


def test_traced_indices_are_checked_when_the_program_runs():
    traced = trace(lambda x, i: x[:, i], X, PICKS)
    with pytest.raises(IndexRangeError, match=r"axis 1 of shape \(3, 4, 5\): 4 at position \(1,\)"):
        traced.evaluate([X, np.array([0, 4])])


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda x: x[x > 0], TracingError, "np.where"),
        (lambda x: x[True], TracingError, "np.where"),
        (lambda x: x[: x[0, 0, 0].astype(int)], TracingError, "traced end"),
        (lambda x: x[0.5], DTypeError, "float64; indices are integers"),
        (lambda x: x[x], DTypeError, "astype"),
        (lambda x: x[PICKS, np.array([0, 1, 2])], ShapeError, "do not broadcast"),
        (lambda x: np.take(x, 0, mode="mad"), TracingError, "'raise', 'clip' or 'wrap'"),
        (lambda x: np.take_along_axis(x, PICKS, 0), ShapeError, "as many axes"),
        (lambda x: len(x[0, 0, 0]), TracingError, "no length"),
        (lambda x: sum(x[0, 0, 0]), TracingError, "no axes to iterate"),
    ],
)
def test_refusals(function, error, message):
    with pytest.raises(error, match=message):
        trace(function, X)
