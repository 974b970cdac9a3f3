"""``jit(…, check_nan=True)``: the first NaN with its operator, its line and the steps of the loops around it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.errors import NaNError

Array = Any
XS = np.array([1.0, 4.0, 2.0, 9.0, 1.0])


def nan_of(function: Any, *arguments: Array, **options: Any) -> NaNError:
    with pytest.raises(NaNError) as caught:
        pb.jit(function, check_nan=True, **options)(*arguments)
    return caught.value


def falling(xs: Array, **options: Any) -> Array:
    return pb.scan(lambda c, x: (np.log(c - x) + 6, c), 6.0, xs, **options)[0]


def test_the_step_and_the_line() -> None:
    error = nan_of(falling, XS)
    assert error.steps == (3,)
    assert error.source is not None and error.source.function == "<lambda>"
    assert "log gives NaN for -" in str(error)
    assert "in step 3 of 5" in str(error)
    assert error.source.file == __file__


@pytest.mark.parametrize("checkpoint", ["sqrt", (2,), 2])
def test_the_steps_of_segments_are_those_of_the_loop(checkpoint: Any) -> None:
    assert nan_of(lambda xs: falling(xs, checkpoint=checkpoint), XS).steps == (3,)


def test_backwards_nested_and_in_a_while_loop() -> None:
    assert nan_of(lambda xs: falling(xs, reverse=True), XS[::-1]).steps == (1,)

    def outer(xs: Array) -> Array:
        return pb.scan(lambda c, k: (falling(xs * k) * 0 + c, None), 0.0, np.array([0.1, 0.2, 1.0]))[0]

    error = nan_of(outer, XS)
    assert error.steps == (2, 3)
    assert str(error).index("in step 3 of 5") < str(error).index("in step 2 of 3")

    def turns(x: Array) -> Array:
        return pb.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, np.sqrt(c[1] - 1)), (0, x))[1]

    assert nan_of(turns, np.array(3.0)).steps == (2,)


def test_a_derivative_and_a_function_without_loops() -> None:
    error = nan_of(pb.grad(lambda x: np.sqrt(x * x).sum()), np.array([1.0, 0.0]))
    assert error.steps == ()
    assert "at (1,)" in str(error)


def test_an_argument_that_has_nan() -> None:
    error = nan_of(np.sin, np.array([1.0, np.nan]))
    assert "the argument arg0 has NaN at (1,)" in str(error)


def test_no_nan_and_donated_arguments() -> None:
    step = pb.jit(lambda h, xs: pb.scan(lambda h, x: (np.sqrt(h - x), None), h, xs)[0], 0, check_nan=True)
    assert step(np.array([5.0]), np.array([1.0, 1.0])).tolist() == [1.0]
    with pytest.raises(NaNError, match="sqrt gives NaN") as caught:
        step(np.array([5.0]), np.array([4.0, 1.0, 1.0]))
    assert caught.value.steps == (2,)
