"""Calls at the edges of what functions take: NumPy's value, dtype and shape, interpreted and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.errors import DTypeError

FALSE, TRUE = np.zeros((2, 3), bool), np.ones((2, 3), bool)
SINGLE = np.array([1, 2], np.float32)
SMALL = np.array([3, 99, 120, -3], np.int8)
NONE = np.zeros((0, 2))

CASES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "max of bools, initial": (lambda x: np.max(x, axis=0, initial=True), FALSE),
    "max of bools, initial that becomes true": (lambda x: x.max(initial=0.3), FALSE),
    "min of bools, initial": (lambda x: np.min(x, axis=1, initial=False), TRUE),
    "max of integers, initial float": (lambda x: np.max(x, initial=130.7), np.array([1, 2])),
    "max of float32, initial float64": (lambda x: np.max(x, initial=np.float64(2.7)), SINGLE),
    "max of nothing, initial float": (lambda x: np.max(x, axis=0, initial=1.3), NONE.astype(int)),
    "max where, initial": (lambda x: np.max(x, axis=1, initial=2.5, where=[True, False, True]), TRUE * 2),
    "sum of integers, initial float": (lambda x: np.sum(x, initial=2.7), SMALL),
    "sum of float32, initial float64": (lambda x: x.sum(initial=np.float64(0.1)), SINGLE),
    "prod of integers, initial float": (lambda x: np.prod(x, axis=1, initial=2.7), TRUE * 3),
    "geomspace along a spiral": (lambda x: np.geomspace(x, -2, 4), np.complex128(1j)),
    "geomspace along an arc": (lambda x: np.geomspace(x, 1j, 4, endpoint=False), np.complex128(1)),
    "geomspace of negative numbers": (lambda x: np.geomspace(x, -4, 3), np.float64(-1)),
    "geomspace through zero": (lambda x: np.geomspace(x, 4, 3), np.float64(-1)),
    "geomspace of float32": (lambda x: np.geomspace(x, 4, 3), SINGLE),
    "geomspace in float32": (lambda x: np.geomspace(x, 4, 3, dtype=np.float32), SINGLE),
    "ravel_multi_index of int8, clip": (
        lambda k: np.ravel_multi_index((k, k), (100, 100), mode="clip"),
        SMALL,
    ),
    "ravel_multi_index of int8, wrap": (
        lambda k: np.ravel_multi_index((k, k), (100, 100), mode="wrap"),
        SMALL,
    ),
    "edges of float32": (lambda x: np.histogram_bin_edges(x, bins=4, range=(0.0, 1.0)), SINGLE),
    "edges of int8": (lambda x: np.histogram_bin_edges(x, bins=4, range=(0, 1)), SMALL),
    "norm of int8": (np.linalg.norm, SMALL),
    "norm of order 3 of bools": (lambda x: np.linalg.norm(x[0], 3), TRUE),
    "vecdot of int8": (lambda x: np.linalg.vecdot(x, x), SMALL),
    "vecdot of bools": (lambda x: np.vecdot(x, x), TRUE),
    "logaddexp.reduce of nothing": (np.logaddexp.reduce, NONE),
    "logical_xor.reduce of nothing": (np.logical_xor.reduce, NONE.astype(bool)),
    "hypot.reduce of nothing": (lambda x: np.hypot.reduce(x, axis=0, keepdims=True), NONE),
    "bitwise_and.reduce of nothing": (np.bitwise_and.reduce, NONE.astype(int)),
    "logaddexp.accumulate of integers": (np.logaddexp.accumulate, np.arange(4)),
    "logaddexp.reduce of one integer": (np.logaddexp.reduce, np.arange(1)),
    "hypot.accumulate of integers": (np.hypot.accumulate, np.arange(5, dtype=np.int32)),
    "add.accumulate of bools": (lambda x: np.add.accumulate(x, axis=1), TRUE),
    "multiply.accumulate of bools": (np.multiply.accumulate, TRUE),
    "maximum.accumulate of bools": (np.maximum.accumulate, np.array([False, True, False])),
    "minimum.accumulate of bools": (np.minimum.accumulate, np.array([True, False, True])),
    "unwrap of nothing": (np.unwrap, NONE[:, 0]),
    "matrix_rank of nothing": (np.linalg.matrix_rank, NONE),
    "unique of integers, filled": (lambda x: pb.numpy.unique(x, size=5, fill_value=9.0), np.array([1, 2, 1])),
    "ediff1d of integers": (lambda x: np.ediff1d(x, to_end=[1, 2], to_begin=0), np.array([1, 5, 2])),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_the_result_is_numpys(name: str) -> None:
    function, x = CASES[name]
    expected = np.asarray(function(x))
    for found in (pb.trace(function, x).evaluate([x]), pb.jit(function)(x)):
        assert (np.asarray(found).dtype, np.shape(found)) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-12)


def test_ends_of_ediff1d_that_would_be_rounded_are_refused() -> None:
    with pytest.raises(DTypeError, match="to_begin is float64"):
        pb.jit(lambda x: np.ediff1d(x, to_begin=0.5))(np.array([1, 5, 2]))


@pytest.mark.parametrize("exponent", [0.5 + 0.2j, 2 - 1j, 2.5, 0, -1 + 0.2j, 1j])
def test_complex_zero_to_a_power_compiles_to_its_limit(exponent: complex) -> None:
    zeros = np.array([0j, complex(-0.0, 0.0), complex(0.0, -0.0)])
    expected = 1 if exponent == 0 else 0 if np.real(exponent) > 0 else np.nan
    found = pb.jit(lambda z: z**exponent)(zeros)
    np.testing.assert_array_equal(
        [found.real, np.isnan(found.imag)], [[expected] * 3, [np.isnan(expected)] * 3]
    )
    found = pb.jit(np.power)(zeros, np.full(3, exponent, complex))
    np.testing.assert_array_equal(
        [found.real, np.isnan(found.imag)], [[expected] * 3, [np.isnan(expected)] * 3]
    )


@pytest.mark.parametrize("rows", [3, 9])
def test_the_cholesky_factor_of_a_matrix_with_nan_is_numpys(rows: int) -> None:
    matrix = np.eye(rows)
    matrix[1, 1] = np.nan
    np.testing.assert_array_equal(
        pb.jit(np.linalg.cholesky)(matrix)[1:, 1], np.linalg.cholesky(matrix)[1:, 1]
    )
    with pytest.raises(np.linalg.LinAlgError):
        pb.jit(np.linalg.cholesky)(-np.eye(rows))


V, X = np.arange(4.0), np.arange(6.0).reshape(2, 3)
KEY = pb.random.key(0)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: np.repeat(X * x[0], [1, 2, 3], 0), "repeat: counts of shape \\(3,\\) for axis 0"),
        (lambda x: np.diff(x, n=-1), r"\[diff\] n is -1"),
        (lambda x: np.polyder(x, -1), r"\[polyder\] m is -1"),
        (lambda x: np.polyint(x, -1), r"\[polyint\] m is -1"),
        (lambda x: np.partition(x, 9), "partition: place 9 of 4 elements"),
        (lambda x: np.argpartition(x, -5), "argpartition: place -5 of 4 elements"),
        (lambda x: np.histogram(x, bins=0), r"\[histogram\] bins is 0"),
        (lambda x: np.histogram(x, range=(3, 1)), "falls; give the lower end first"),
        (lambda x: np.histogram(x, range=3), "give a pair"),
        (lambda x: np.histogram(x, bins=[3.0, 1.0]), "edges .* that fall"),
        (lambda x: np.histogram(x, weights=V[:2]), r"weights of shape \(2,\) for elements of shape \(4,\)"),
        (lambda x: np.histogramdd(X * x[0], bins=(2,)), "1 bins and 3 ranges for points of 3 coordinates"),
        (lambda x: np.bincount(X.astype(int) + x.astype(int)[0], minlength=9), "give it one axis"),
        (lambda x: np.bincount(x.astype(int), V[:2], minlength=9), "bincount: weights of shape"),
        (lambda x: np.add(x, x, out=X * x[0]), "do not broadcast|into an array"),
        (lambda x: np.choose(x.astype(int), [x] * 4, mode="any"), "choose in mode 'any'"),
        (lambda x: pb.random.choice(KEY, x, (2,), p=V[:2]), r"\[choice\] p has shape \(2,\)"),
        (lambda x: pb.random.categorical(KEY, x, axis=4), "categorical: axis 4"),
        (lambda x: pb.random.gamma(KEY, x, (3,)), r"\[gamma\] parameters of shape \(4,\)"),
        (lambda x: pb.random.split(KEY, -1) * x[0], r"\[split\] number is -1"),
    ],
)
@pytest.mark.parametrize("transform", [pb.jit, lambda f: lambda x: pb.vjp(f, x)[0]], ids=["jit", "vjp"])
def test_what_numpy_refuses_is_refused_with_the_line(function, message, transform):
    with pytest.raises((ValueError, TypeError), match=rf"(?s){message}.*test_edges.py:\d+"):
        transform(function)(V.copy())
