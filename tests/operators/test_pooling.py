"""The largest of each window, its winner, and the sparse form of the derivative."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pullback.errors import DTypeError, ShapeError
from pullback.graph import Graph, constant
from pullback.interpreter import evaluate
from pullback.operators.pooling import (
    argmax_index,
    convolve_max_unpooled,
    gather_at_argmax,
    max_unpool,
    window_argmax,
    window_max,
)
from pullback.testing import operator_cases

FLOAT = np.dtype(np.float64)
PAIRS = {"axes": (1,), "sizes": (2,), "strides": (2,), "dilations": (1,)}
CONVOLUTION = {
    "x_layout": "cb0",
    "w_layout": "co0",
    "out_layout": "ob0",
    "strides": (1,),
    "dilations": (1,),
}


def test_the_first_of_equal_winners_takes_the_cotangent(gradients):
    x = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0], [0.0, np.nan, np.nan]])
    whole = {"sizes": (3,), "strides": (3,), "dilations": (1,)}
    (found,) = gradients(lambda x: window_max(x, axes=(1,), **whole), x)
    np.testing.assert_array_equal(found, [[0, 1, 0], [1, 0, 0], [0, 1, 0]])
    square = {"sizes": (2, 3), "strides": (2, 3), "dilations": (1, 1)}
    (found,) = gradients(lambda x: window_max(x, axes=(0, 1), **square), np.ones((2, 3)))
    np.testing.assert_array_equal(found, [[1, 0, 0], [0, 0, 0]])


def test_overlapping_windows_add_their_cotangents(gradients):
    x = np.array([[0.0, 5.0, 1.0, 2.0]])
    (found,) = gradients(lambda x: window_max(x, **PAIRS | {"strides": (1,)}), x)
    np.testing.assert_array_equal(found, [[0, 2, 0, 1]])


def test_winners_count_in_row_major_order(compute):
    x = np.random.default_rng(0).integers(0, 3, (2, 4, 6)).astype(np.float64)
    square = {"axes": (1, 2), "sizes": (2, 3), "strides": (2, 3), "dilations": (1, 1)}
    found = compute(lambda x: window_argmax(x, **square), x)
    assert found.dtype == np.int32
    for i, j, k in itertools.product(range(2), range(2), range(2)):
        assert found[i, j, k] == x[i, 2 * j : 2 * j + 2, 3 * k : 3 * k + 3].argmax()


@pytest.mark.parametrize("case", list(operator_cases("window_max", dtypes=[FLOAT])))
def test_values_at_the_winners_are_the_largest(case, compute):
    (x,) = case.arguments()
    if 0 not in x.shape:
        found = compute(
            lambda x: gather_at_argmax(x, window_argmax(x, **case.attributes), **case.attributes), x
        )
        np.testing.assert_array_equal(found, evaluate(case.graph(), [x])[0])


def test_unpool_is_the_adjoint_of_at_winners():
    random = np.random.default_rng(0)
    for case in operator_cases("max_unpool", dtypes=[FLOAT]):
        y, winner = case.arguments()
        (x,) = evaluate(case.graph(), [y, winner])
        other = random.standard_normal(x.shape)
        attributes = {key: value for key, value in case.attributes.items() if key != "shape"}
        (seen,) = evaluate(
            Graph((), (gather_at_argmax(constant(other), constant(winner), **attributes),)), []
        )
        np.testing.assert_allclose(np.vdot(x, other), np.vdot(y, seen), rtol=1e-12, atol=1e-12)


def test_winners_that_do_not_fit():
    x, winner = constant(np.zeros((3, 8))), constant(np.zeros((3, 4), np.int32))
    with pytest.raises(ShapeError, match="one winner for each window"):
        gather_at_argmax(x, constant(np.zeros((3, 3), np.int32)), **PAIRS)
    with pytest.raises(DTypeError, match="as integers"):
        gather_at_argmax(x, constant(np.zeros((3, 4))), **PAIRS)
    with pytest.raises(ShapeError, match="one number for each winner"):
        max_unpool(constant(np.zeros((3, 3))), winner, shape=(3, 8), **PAIRS)
    with pytest.raises(ShapeError, match="none of"):
        argmax_index(winner, shape=(3, 8), axis=0, **PAIRS)


def test_winners_of_other_axes_than_the_convolution_moves_along():
    y = winner = np.zeros((2, 2, 3))
    with pytest.raises(ShapeError, match="max_unpool first"):
        convolve_max_unpooled(
            constant(np.zeros((2, 3, 6))),
            constant(y),
            constant(winner.astype(np.int32)),
            shape=(2, 4, 3),
            pool=((1,), (2,), (2,), (1,)),
            **CONVOLUTION,
        )
