"""Rows that are named by their numbers while tracing, of programs for every size: they must be there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.errors import NamedAxisError, TracingError

SHAPES = {"x": ("batch", ...)}
NUMBERED: dict[str, Callable[[Any], Any]] = {
    "gather": lambda x: x[np.array([2, 5])],
    "gather in two axes": lambda x: x[np.array([2, 5]), np.array([0, 1])],
    "gather a block": lambda x: x[np.array([[0], [5]]), np.array([1, 2])],
    "slice": lambda x: x[:9].sum(axis=0),
    "row": lambda x: x[5],
    "gradient of rows": pb.grad(lambda x: (x[np.array([2, 5])] ** 2).sum()),
    "slice written": lambda x: x.at[2:4].set(1.0),
    "row written": lambda x: x.at[5].set(1.0),
    "add": lambda x: x.at[np.array([5, 5])].add(1.0),
    "multiply": lambda x: x.at[np.array([5, 5])].multiply(2.0),
    "take": lambda x: np.take(x, np.array([1, 4]), axis=0),
    "take clipped": lambda x: np.take(x, np.array([1, 4]), axis=0, mode="clip"),
    "take wrapped": lambda x: np.take(x, np.array([1, 4]), axis=0, mode="wrap"),
}


def outcome(function: Callable[..., Any], x: np.ndarray) -> Any:
    try:
        return function(x)
    except IndexError as error:
        return type(error)


@pytest.mark.parametrize("sizes", [(2, 3, 5, 6, 8, 9, 20), (20, 9, 5, 2)], ids=["growing", "shrinking"])
@pytest.mark.parametrize("name", NUMBERED)
def test_rows_beyond_the_size_are_no_rows(name: str, sizes: tuple[int, ...]) -> None:
    """Padding has the numbers from the size on: what selects one is an error, and a slice ends before."""
    any_size, plain = pb.jit(NUMBERED[name], shapes=SHAPES), pb.jit(NUMBERED[name])
    for size in sizes:
        x = np.random.default_rng(size).standard_normal((size, 3))
        found, wanted = outcome(any_size, x), outcome(plain, x)
        if isinstance(wanted, type):
            assert found is wanted
        else:
            np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize(("reduce", "value"), [(np.max, -np.inf), (np.min, np.inf), (np.argmax, -np.inf)])
def test_extremes_of_infinite_halves(reduce: Callable[..., Any], value: float) -> None:
    """The fill of an extreme is beyond every number of the dtype, infinities of 16 bits among them."""
    extreme = pb.jit(lambda x: reduce(x, axis=0), shapes=SHAPES)
    x = np.full((3, 2), value, np.float16)
    np.testing.assert_array_equal(extreme(x), reduce(x, axis=0))


def test_a_direction_of_any_size() -> None:
    """The pushforward of a gradient takes tangents with a named axis."""
    along = pb.jit(lambda x: pb.jvp(pb.grad(lambda x: np.tanh(x).mean()), (x,), (x,))[1], shapes=SHAPES)
    for size in (2, 7):
        x = np.random.default_rng(size).standard_normal((size, 3))
        slope = 1 - np.tanh(x) ** 2
        np.testing.assert_allclose(along(x), -2 * np.tanh(x) * slope * x / x.size, rtol=1e-12)


@pytest.mark.parametrize(
    ("function", "error", "says"),
    [
        (lambda x: pb.eval_shape(lambda x: x, x).shape, NamedAxisError, "of any size"),
        (lambda x: x * {7: 2.0}.get(x.shape[0], 1.0), TracingError, "size of an axis of any size"),
        (lambda x: x * (x.shape[0] in {2, 3}), TracingError, "size of an axis of any size"),
        (lambda x: x * np.zeros(1 << 50), NamedAxisError, "as long as a named axis"),
    ],
    ids=["eval_shape", "a key of a dict", "an element of a set", "what there is no memory for"],
)
def test_python_is_told_no_size(function: Callable[..., Any], error: type, says: str) -> None:
    with pytest.raises(error, match=says):
        pb.jit(function, shapes=SHAPES)(np.ones((7, 3)))


@pytest.mark.parametrize("offset", [-2, -1, 0, 1])
def test_diagonals_that_are_shorter_for_few_rows(offset):
    for function in (np.diagonal, np.trace):
        call = pb.jit(lambda x, f=function: f(x, offset), shapes={"x": ("rows", 8)})
        for rows in (2, 3, 7, 8, 9, 10, 11, 20):
            x = np.arange(8.0 * rows).reshape(rows, 8)
            np.testing.assert_array_equal(call(x), function(x, offset))


@pytest.mark.parametrize(
    "places", [np.argsort, lambda x: np.argsort(-x), lambda x: np.cumsum(x * 0).astype(int)]
)
def test_places_counted_along_rows_name_rows_of_an_array_that_has_fewer(places):
    """Beyond the last row are places from the size on, which the other array does not have."""
    x, y = np.array([2.0, 1.0, 3.0]), np.array([1.0, 2.0, 4.0])

    def function(x, y):
        return np.take_along_axis(y, places(x), 0)

    gradient = pb.grad(lambda x, y: np.sum(function(x, y) ** 2), 1)
    for each in (function, gradient):
        np.testing.assert_array_equal(pb.jit(each, shapes={"x": ("rows",)})(x, y), each(x, y))
