"""Reductions: nothing to reduce, ties, NaN, zeros of products, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from pullback import jit
from pullback.errors import DTypeError, ShapeError
from pullback.graph import OPERATORS, Operator, Type, Variable
from pullback.operators import reductions
from pullback.testing import check_grads


def variable(dtype: str, *shape: int) -> Variable:
    return Variable(Type(np.dtype(dtype), shape))


def over(operator: Operator, *axes: int):  # type: ignore[no-untyped-def]
    return lambda x: operator(x, axes=axes)


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin"])
def test_extremes_of_nothing_are_refused(name: str) -> None:
    with pytest.raises(ShapeError, match=rf"{name} over axes \(0,\) of shape \(0, 3\): no element.*empty"):
        OPERATORS[name](variable("float32", 0, 3), axes=(0,))


@pytest.mark.parametrize("axes", [(1, 0), (0, 0), (2,), (-1,)])
def test_axes_are_sorted_and_known(axes: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match=r"sum: axes .* of an array of shape \(2, 3\)"):
        reductions.sum(variable("float32", 2, 3), axes=axes)


def test_sums_of_bools_are_refused() -> None:
    with pytest.raises(DTypeError, match="sum takes no bool"):
        reductions.sum(variable("bool", 3), axes=(0,))


def test_winners_share_the_cotangent(gradients) -> None:  # type: ignore[no-untyped-def]
    x = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    assert gradients(over(reductions.max, 1), x)[0].tolist() == [[0, 0.5, 0.5], [1 / 3, 1 / 3, 1 / 3]]
    assert gradients(over(reductions.min, 1), x)[0].tolist() == [[1, 0, 0], [1 / 3, 1 / 3, 1 / 3]]


def test_first_winner_and_first_nan(compute) -> None:  # type: ignore[no-untyped-def]
    x = np.array([[1.0, 3.0, 3.0], [2.0, np.nan, np.nan]])
    assert compute(over(reductions.argmax, 1), x).tolist() == [1, 1]
    assert compute(over(reductions.argmin, 1), x).tolist() == [0, 1]
    assert np.isnan(compute(over(reductions.max, 0, 1), x))


def test_positions_count_in_row_major_order_of_the_axes(compute) -> None:  # type: ignore[no-untyped-def]
    x = np.arange(24.0).reshape(2, 3, 4) % 23
    assert compute(over(reductions.argmax, 0, 2), x).tolist() == [7, 7, 6]
    assert compute(over(reductions.argmax), x).tolist() == np.zeros((2, 3, 4)).tolist()


@pytest.mark.parametrize("kind", ["float32", "float64", "int32", "int8", "bool"])
@pytest.mark.parametrize("shape", [(300,), (3, 257), (2, 5, 70)])
def test_the_first_extreme_of_a_long_row_is_found(kind: str, shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    x = random.integers(-3, 4, shape).astype(kind)
    rows = [x, np.zeros_like(x)]
    if x.dtype.kind == "f":
        rows += [np.where(random.random(shape) < 0.02, np.nan, x), np.full_like(x, -np.inf), -0.0 * np.abs(x)]
    for name in (np.argmax, np.argmin):
        for axis in (-1, None):
            found = jit(lambda x, name=name, axis=axis: name(x, axis=axis))
            for row in rows:
                np.testing.assert_array_equal(found(row.astype(kind)), name(row.astype(kind), axis=axis))


@pytest.mark.parametrize("zeros", [[], [2], [0, 3], [0, 1, 2, 3, 4]])
def test_products_with_zeros(gradients, zeros: list[int]) -> None:  # type: ignore[no-untyped-def]
    x = np.array([2.0, -3.0, 0.5, 4.0, 1.5])
    x[zeros] = 0
    expected = [np.prod(np.delete(x, k)) for k in range(5)]
    assert gradients(over(reductions.prod, 0), x)[0].tolist() == expected
    check_grads(over(reductions.prod, 0), [x], order=3)


@pytest.mark.parametrize("length", range(1, 10))
def test_products_of_every_length(gradients, length: int) -> None:  # type: ignore[no-untyped-def]
    x = np.arange(1.0, length + 1)
    expected = [np.prod(np.delete(x, k)) for k in range(length)]
    assert gradients(over(reductions.prod, 0), x)[0].tolist() == expected


def test_products_over_several_axes_with_zeros() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (2, 3, 4))
    x[0, 1, 2] = x[1, 1, 0] = x[1, 2, 3] = 0
    check_grads(over(reductions.prod, 0, 2), [x])
