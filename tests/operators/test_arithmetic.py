"""Conventions of arithmetic where the mathematics leaves a choice."""

from __future__ import annotations

import numpy as np
import pytest

from pullback.operators.arithmetic import floor_divide, maximum, minimum, power, remainder


def test_ties_share_the_cotangent(gradients) -> None:  # type: ignore[no-untyped-def]
    x, y = np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0])
    assert [g.tolist() for g in gradients(maximum, x, y)] == [[0.5, 0, 1], [0.5, 1, 0]]
    assert [g.tolist() for g in gradients(minimum, x, y)] == [[0.5, 1, 0], [0.5, 0, 1]]


def test_extremes_pass_nan_on(compute) -> None:  # type: ignore[no-untyped-def]
    x, y = np.array([np.nan, 1.0]), np.array([1.0, np.nan])
    assert np.isnan(compute(maximum, x, y)).all()
    assert np.isnan(compute(minimum, x, y)).all()


def test_the_slope_of_a_distance_at_zero_is_zero(gradients) -> None:  # type: ignore[no-untyped-def]
    assert gradients(np.absolute, np.array([-2.0, 0.0, 2.0]))[0].tolist() == [-1, 0, 1]
    assert gradients(np.sign, np.array([-2.0, 0.0, 2.0]))[0].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("exponent", "slopes"),
    [(0, [0, 0, 0]), (1, [1, 1, 1]), (2, [-4, 0, 4]), (3, [12, 0, 12]), (5, [80, 0, 80])],
)
def test_whole_powers_of_any_base(gradients, exponent: int, slopes: list[float]) -> None:  # type: ignore[no-untyped-def]
    assert gradients(lambda x: x**exponent, np.array([-2.0, 0.0, 2.0]))[0].tolist() == slopes


def test_powers_at_the_edges_give_no_nan(gradients) -> None:  # type: ignore[no-untyped-def]
    base, exponent = np.array([0.0, 0.0, 0.0, -2.0, -2.0]), np.array([0.0, 1.0, 2.0, 2.0, 0.0])
    by_base, by_exponent = gradients(power, base, exponent)
    assert by_base.tolist() == [0, 1, 0, -4, 0]
    assert by_exponent.tolist() == [0, 0, 0, 0, 0]


def test_second_derivatives_of_whole_powers_at_zero(gradients) -> None:  # type: ignore[no-untyped-def]
    assert gradients(lambda x: x**5, np.zeros(2), order=2)[0].tolist() == [0, 0]
    assert gradients(lambda x: x**2, np.zeros(2), order=2)[0].tolist() == [2, 2]


def test_a_root_of_zero_has_an_infinite_slope(gradients) -> None:  # type: ignore[no-untyped-def]
    assert gradients(np.sqrt, np.zeros(1))[0].tolist() == [np.inf]


def test_integers_divided_by_zero_give_zero(compute) -> None:  # type: ignore[no-untyped-def]
    x, zero = np.array([5, -5], np.int32), np.zeros(2, np.int32)
    assert compute(floor_divide, x, zero).tolist() == [0, 0]
    assert compute(remainder, x, zero).tolist() == [0, 0]


def test_remainders_have_the_sign_of_the_divisor(compute) -> None:  # type: ignore[no-untyped-def]
    x, y = np.array([7.5, -7.5, 7.5, -7.5]), np.array([2.0, 2.0, -2.0, -2.0])
    assert compute(remainder, x, y).tolist() == [1.5, 0.5, -0.5, -1.5]


def test_casts_carry_cotangents_between_floats_only(gradients) -> None:  # type: ignore[no-untyped-def]
    x = np.array([1.5, 2.5], np.float32)
    (gradient,) = gradients(lambda x: x.astype(np.float64) * 3, x)
    assert gradient.dtype == np.float32
    assert gradient.tolist() == [3, 3]
    (gradient,) = gradients(lambda x: x.astype(np.int32).astype(np.float32), x)
    assert gradient.tolist() == [0, 0]


def test_stopped_gradients(gradients, compute) -> None:  # type: ignore[no-untyped-def]
    from pullback.numpy.elementwise import stop_gradient

    x = np.array([1.5, 2.5])
    assert compute(stop_gradient, x).tolist() == [1.5, 2.5]
    assert gradients(lambda x: x * stop_gradient(x), x)[0].tolist() == [1.5, 2.5]
