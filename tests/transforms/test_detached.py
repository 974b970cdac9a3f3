"""Gradients of known values are computed without a graph: the same bits, less memory, and everything stays readable."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import pullback as pb
from pullback.graph import OPERATORS, constant, is_float
from pullback.numpy.arrays import boxed, plain
from pullback.testing.derivatives import OperatorCase, operator_cases
from pullback.transforms import sweeps

DTYPES = np.dtype(np.float64), np.dtype(np.complex128)


def cases() -> list[OperatorCase]:
    """The first case in doubles, and in complex numbers, of every operator that has a pullback and one result."""
    found = []
    for name, operator in OPERATORS.items():
        if operator.pullback is None or operator.forward_only or not operator.cases:
            continue
        for dtype in DTYPES:
            case = next(operator_cases(name, dtypes=[dtype], vary_shapes=False), None)
            if case is not None and case.differentiable and is_float(case.graph().outputs[0].dtype):
                found.append(case)
    return found


@pytest.mark.parametrize("case", cases(), ids=str)
def test_the_bits_are_those_of_the_graph(case: OperatorCase) -> None:
    arrays = case.arguments()

    def total(*moving):
        given = dict(zip(case.differentiable, moving))
        nodes = [plain(given[k]) if k in given else constant(x) for k, x in enumerate(arrays)]
        made = boxed(case.apply(*nodes))
        return np.sum(np.real(np.cos(np.arange(made.size)).reshape(made.shape) * made))

    moving = [arrays[k] for k in case.differentiable]
    gradient = pb.grad(total, tuple(range(len(moving))))
    traced = pb.trace(gradient, *moving).evaluate(moving)
    for _ in range(6):  # asked for again, rules and functions are not
        for one, other in zip(gradient(*moving), traced):
            assert one.tobytes() == other.tobytes() and one.dtype == other.dtype


def test_equal_masks_are_one():
    def larger_twice(s):
        x, y = np.sqrt(s), np.ones(2)
        return np.sum(np.maximum(x, y) * np.maximum(y, x))

    s = np.array([0.0, 4.0])  # the slope of the root at 0 is infinite, and that branch is not taken
    np.testing.assert_array_equal(pb.grad(larger_twice)(s), [0.0, 1.0])


def chain(x):
    for _ in range(20):
        x = np.sin(x)
    return np.sum(x)


def test_values_are_let_go_as_the_sweep_goes():
    x = np.linspace(0.0, 1.0, 100_000)
    gradient = pb.grad(lambda x: np.sum(chain(x) * x))
    gradient(x)
    tracemalloc.start()
    gradient(x)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 27 * x.nbytes  # of the function itself 21 are kept


def test_what_was_kept_is_still_there():
    kept = []

    def function(x):
        kept.append(x * x)
        return np.sin(kept[-1]) * kept[-1]

    pb.grad(function)(2.0)
    assert float(kept[0]) == 4.0 and f"{kept[0]:.1f}" == "4.0"


def test_slices_and_tables_of_one_array():
    x = np.arange(6.0)
    np.testing.assert_array_equal(pb.grad(lambda x: sum(x[k] * x[5 - k] for k in range(6)))(x), 2 * x[::-1])
    np.testing.assert_array_equal(
        pb.grad(lambda x: x[[0, 0, 3]].sum() + x[1:3].prod())(x), [2, 2, 1, 1, 0, 0]
    )


def test_many_parts_of_an_array_are_added_into_one():
    x = np.arange(2000.0).reshape(400, 5)

    def parts(x):
        return sum(np.sum(x[k] * x[k, ::-1]) for k in range(400)) + np.sum(x[1:3, 1:] ** 3) + np.sum(x * x)

    expected = 2 * x[:, ::-1] + 2 * x
    expected[1:3, 1:] += 3 * x[1:3, 1:] ** 2
    np.testing.assert_allclose(pb.grad(parts)(x), expected, rtol=1e-14)


def test_what_is_repeated_beside_other_arrays():
    x, bias = np.ones((1000, 100)), np.ones(100)
    for function in (
        lambda b: np.sum(x + b),
        lambda b: np.sum(np.where(x > 0, b, 2.0)),
        lambda b: np.sum((x * b)[:1]),
    ):
        np.testing.assert_array_equal(pb.grad(function)(bias), pb.jit(pb.grad(function))(bias))
    repeated, column = [], np.ones((1000, 1))

    def kept(b, c):
        repeated.extend([np.broadcast_to(b, x.shape), np.broadcast_to(c, x.shape)])
        return np.sum(repeated[0] * repeated[1]) + np.sum(np.exp(repeated[0]))

    pb.grad(kept)(bias, column)
    assert float(repeated[0][3, 4]) == float(repeated[1][3, 4]) == 1.0
    value, pull = pb.vjp(lambda b: (np.broadcast_to(b, (3, 100)), b), bias)
    assert value[0].shape == (3, 100) and value[0].flags.writeable
    np.testing.assert_array_equal(pull((np.ones((3, 100)), bias))[0], np.full(100, 4.0))


def test_functions_and_rules_are_asked_again_for_operands_of_other_kinds():
    def function(x, k, weights):
        y = x[k:] * weights[k:] + np.maximum(x[:-k], 0.0) ** k
        return np.sum(np.where(y > k, y * y, k * y)) - np.dot(weights, x * k)

    x, gradient = np.linspace(-2.0, 3.0, 7), pb.grad(function)
    for turn in range(4):
        for k in (1, 2, 3):
            for dtype in (np.float64, np.float32):
                for weights in (x[::-1] + turn, np.full(7, 2.0 + turn), np.zeros(7)):
                    arguments = x.astype(dtype), k, weights.astype(dtype)
                    expected = pb.trace(lambda x, a=arguments: gradient(x, *a[1:]), arguments[0])
                    (found,) = [expected.evaluate([arguments[0]])]
                    np.testing.assert_array_equal(gradient(*arguments), found, strict=True)


def test_numbers_that_are_equal_are_not_one():
    for zero, sign in ((0.0, 1.0), (-0.0, -1.0), (0, 1.0)):
        for _ in range(3):
            assert pb.value_and_grad(lambda x, zero=zero: 1 / (x * zero))(1.0)[0] == sign * np.inf


def test_what_is_remembered_looks_at_no_constants():
    def function(x, table):
        return np.sum(x**table)

    for table in (np.full(3, 2.0), np.full(3, 3.0), np.array([2.0, 3.0, 0.0]), np.array([2.0, 0.0, 1.0])):
        for _ in range(3):
            expected = table * np.array([1.0, 2.0, 3.0]) ** (table - 1)
            np.testing.assert_allclose(pb.grad(function)(np.array([1.0, 2.0, 3.0]), table), expected)


def test_errors_have_the_line_of_each_call():
    lines = []
    for _ in range(3):
        try:
            pb.grad(lambda x: np.sum(x[5]))(np.ones(3))
        except pb.errors.IndexRangeError as error:
            lines.append(str(error))
    assert len(lines) == 3 and len(set(lines)) == 1 and "test_detached.py" in lines[0]


def test_the_derivative_of_a_graph_that_comes_again_is_remembered(monkeypatch):
    def steps(x, n):
        y = x
        for _ in range(n):
            y = np.sin(y) * x
        return np.sum(y)

    x, gradient = np.linspace(0.1, 0.9, 5), pb.grad(steps)
    for _ in range(2):
        first = [gradient(x, n) for n in (2, 3)]
    monkeypatch.setattr(sweeps, "detached_cotangents", None)
    for n, expected in zip((2, 3), first):
        assert gradient(x, n).tobytes() == expected.tobytes()
        traced = pb.trace(lambda x, n=n: gradient(x, n), 2 * x).evaluate([2 * x])
        assert gradient(2 * x, n).tobytes() == traced.tobytes()


def test_totals_that_are_read_elsewhere_are_not_written_into():
    def function(x):
        y = np.sin(x)
        return np.sum(y * y) + y[1] * y[2] + np.sum(y[1:] ** 3) + y[0]

    x = np.linspace(0.5, 2.0, 4)
    expected = pb.trace(pb.grad(function), x).evaluate([x])
    for _ in range(4):
        np.testing.assert_array_equal(pb.grad(function)(x), expected)


def test_masks_of_remembered_derivatives_are_those_of_the_rules():
    """What hides the infinite slope at zero is one mask, whether the second derivative is made or remembered."""

    def loss(x):
        return np.sum(np.broadcast_to(pb.relu(np.cbrt(x)), (4, *x.shape)) ** 3)

    slope = pb.grad(lambda x: np.sum(pb.grad(loss)(x)))
    x = np.array([0.0, -0.0, 1.0, -1.0, 8.0])
    expected = pb.trace(slope, x).evaluate([x])
    assert np.isfinite(expected).all()
    for _ in range(4):
        np.testing.assert_array_equal(slope(x), expected)


def test_errors_of_a_remembered_derivative_have_the_line_of_each_call():
    def one(a):
        return np.sum(np.linalg.qr(a)[0])

    def other(a):
        return np.sum(np.linalg.qr(a)[0])

    found = []
    for _ in range(4):
        for function in (one, other):
            assert np.isfinite(pb.grad(function)(np.eye(2) + 0.1)).all()
            with pytest.raises(pb.errors.MatrixError) as error:
                pb.grad(function)(np.zeros((2, 2)))
            found.append(str(error.value))
    assert found == found[:2] * 4 and found[0] != found[1]


def test_long_indices_are_no_part_of_what_is_remembered(monkeypatch):
    x, random = np.linspace(0.5, 2.0, 40), np.random.default_rng(0)
    draws = [random.integers(0, 40, 100) for _ in range(5)]
    for turn, rows in enumerate(draws):
        if turn == 2:
            monkeypatch.setattr(sweeps, "detached_cotangents", None)
        found = pb.grad(lambda x, rows=rows: np.sum(np.sin(x[rows]) * np.where(rows > 3, 2.0, x[rows])))(x)
        traced = pb.trace(pb.grad(lambda x, r=rows: np.sum(np.sin(x[r]) * np.where(r > 3, 2.0, x[r]))), x)
        assert found.tobytes() == traced.evaluate([x]).tobytes()
