"""The checks check: wrong rules are found, and the table's cases are what they say."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from pullback import vmap
from pullback.errors import DerivativeError
from pullback.graph import OPERATORS, Operator
from pullback.operators.elementwise import elementwise
from pullback.testing import check_grads, operator_cases


@pytest.fixture
def wrong_sine() -> Iterator[Operator]:
    """A sine with a wrong derivative, in the table for the length of a test."""
    yield elementwise("wrong_sine", np.sin, [lambda g, y, x: g * y])
    del OPERATORS["wrong_sine"]


@pytest.fixture
def wrong_square() -> Iterator[Operator]:
    """A square whose first derivative is right and whose second is not."""
    stop = OPERATORS["stop_gradient"]
    yield elementwise("wrong_square", lambda x: x * x, [lambda g, y, x: g * (stop(x) + stop(x))])
    del OPERATORS["wrong_square"]


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_a_wrong_derivative_is_found(wrong_sine: Operator, mode: str) -> None:
    with pytest.raises(AssertionError, match=f"{mode} mode, .*left to check: 1.*finite differences"):
        check_grads(wrong_sine, [np.array([0.3, 0.9])], order=1, modes=[mode])


def test_a_wrong_second_derivative_is_found(wrong_square: Operator) -> None:
    check_grads(wrong_square, [np.array([0.3, 0.9])], order=1)
    with pytest.raises(AssertionError, match="left to check: 1"):
        check_grads(wrong_square, [np.array([0.3, 0.9])], order=2)


def test_functions_of_several_arrays_with_several_results() -> None:
    check_grads(lambda x, n, y: (x * y, np.exp(x) + n), [np.ones(3), np.arange(3), np.full(3, 0.5)], order=3)


def test_functions_that_trace_others_around_their_arguments() -> None:
    check_grads(lambda x: vmap(lambda row: row * np.sin(x))(np.ones((3, 2))), [np.array([0.3, 0.9])])


def test_inputs_may_be_held_constant() -> None:
    stop = OPERATORS["stop_gradient"]
    check_grads(lambda x, y: x * stop(y), [np.ones(3), np.ones(3)], active=[0])
    with pytest.raises(AssertionError):
        check_grads(lambda x, y: x * stop(y), [np.ones(3), np.ones(3)])


@pytest.mark.parametrize("argument", [np.zeros(3, np.int32), np.zeros(3, np.float32)])
def test_arguments_that_cannot_vary_are_refused(argument: np.ndarray) -> None:
    with pytest.raises(
        DerivativeError, match=f"float64 or complex128 arguments to vary, not {argument.dtype}"
    ):
        check_grads(lambda x: x, [argument])


def test_cases_come_in_every_dtype_that_is_taken() -> None:
    def dtypes(name: str) -> set[str]:
        return {str(case.dtypes[-1]) for case in operator_cases(name)}

    floats = {"float16", "float32", "float64", "complex64", "complex128"}
    signed, unsigned = {"int8", "int16", "int32", "int64"}, {"uint8", "uint16", "uint32", "uint64"}
    assert dtypes("exp") == floats
    assert dtypes("add") == floats | signed | unsigned
    assert dtypes("where") == floats | signed | unsigned | {"bool"}
    assert dtypes("invert") == signed | unsigned
    assert dtypes("logical_not") == {"bool"}


def test_elementwise_cases_come_in_every_kind_of_shape() -> None:
    shapes = {case.types[0].shape for case in operator_cases("exp")}
    assert {(), (1,), (0,), (2, 0, 3), (1, 3, 1)} < shapes
    assert {case.types[0].shape for case in operator_cases("exp", vary_shapes=False)} == {(3, 2)}


def test_arguments_are_the_same_each_time() -> None:
    first, second = (next(operator_cases("add")).arguments() for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert not np.array_equal(first[0], first[1])
