"""Index arithmetic: affine where possible, integer expressions elsewhere, always the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pullback.loops import Affine, Apply, Axis, Buffer, Expression, Index, Literal, Load, Position, load_at
from pullback.loops.arithmetic import as_index, bounds, divided, plus, times, total, within
from pullback.loops.expression import as_expression, linear

INT = np.dtype("int64")
AXES = (Axis("i", 5), Axis("j", 3))


@st.composite
def indices(draw: st.DrawFn) -> tuple[Index, np.ndarray]:
    """An index built by several steps, and its value at every turn of ``AXES``."""
    i, j = np.meshgrid(*(np.arange(axis.extent) for axis in AXES), indexing="ij")
    index: Index = Affine.of(AXES[0]) * 3 + Affine.of(AXES[1])
    value = 3 * i + j
    for _ in range(draw(st.integers(0, 4))):
        step, number = (
            draw(st.sampled_from(["plus", "times", "quotient", "remainder", "total"])),
            draw(st.integers(1, 7)),
        )
        if step == "plus":
            index, value = plus(index, number - 4), value + number - 4
        elif step == "times":
            index, value = times(index, number - 4), value * (number - 4)
        elif step == "total":
            index, value = total([index, Affine.of(AXES[1]) * number]), value + j * number
        else:
            parts = divided(index, number)
            index = parts[step == "remainder"]
            value = value // number if step == "quotient" else value % number
    return index, value


@given(indices())
@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_steps_compute_what_integers_do(expression_value, case):
    index, expected = case
    np.testing.assert_array_equal(expression_value(as_expression(index), AXES), expected)


@given(indices())
@settings(max_examples=200, deadline=None, derandomize=True)
def test_bounds_enclose_every_value(case):
    index, values = case
    known = bounds(index)
    assert known is not None
    assert known[0] <= values.min() and values.max() <= known[1]


@given(indices(), st.integers(-5, 15), st.integers(0, 10))
@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_within_is_known_or_computed(expression_value, case, low, width):
    index, values = case
    condition = within(index, low, low + width)
    expected = (values >= low) & (values < low + width)
    if isinstance(condition, Expression):
        assert condition.dtype == np.bool_
        np.testing.assert_array_equal(expression_value(condition, AXES), expected)
    else:
        assert expected.all() if condition else not expected.any()


def test_within_tests_only_the_side_that_may_fail():
    i = Affine.of(AXES[0])
    assert within(i, 0, 5) is True
    assert within(i, 5, 9) is False
    below = within(i, 0, 3)
    assert isinstance(below, Apply) and below.function == "less"
    above = within(i, 2, 9)
    assert isinstance(above, Apply) and above.function == "greater_equal"


def test_gathered_indices_are_bounded_by_their_check():
    token = load_at(Buffer("tokens", INT, (5,)), [Affine.of(AXES[0])])
    assert bounds(token) is None
    attributes = (("extent", 100), ("what", "token"), ("wrap", True))
    checked = Apply("check_index", (token,), INT, attributes)
    assert bounds(checked) == (0, 99)
    assert bounds(plus(times(checked, -2), 1)) == (-197, 1)


@pytest.mark.parametrize("divisors", [(3,), (4,), (4, 3), (7, 2)])
def test_quotients_and_remainders_join_again(divisors):
    """Digits by any divisors, put together with the strides that belong to them, are the number itself."""
    flat = Affine.of(AXES[0]) * 3 + Affine.of(AXES[1])
    rest: Index = flat
    parts, stride = [], 1
    for divisor in divisors:
        rest, digit = divided(rest, divisor)
        parts.append((digit, stride))
        stride *= divisor
    assert linear([*parts, (rest, stride)]) == (flat, ())
    assert linear([*parts, (rest, stride + 1)])[1] or isinstance(rest, Affine)


def test_positions_and_constants_are_affine_again():
    position = Affine.of(AXES[0]) * 2 + 1
    assert as_index(Position(position)) == position
    assert as_index(Literal(3, INT)) == Affine((), 3)
    token = load_at(Buffer("tokens", INT, (5,)), [Affine.of(AXES[0])])
    assert as_index(token) is token


def test_linear_takes_sums_and_multiples_apart():
    token = load_at(Buffer("tokens", INT, (5,)), [Affine.of(AXES[0])])
    index = plus(times(token, 4), 3)
    assert linear([(index, 2), (Position(Affine.of(AXES[1])), 5)]) == (
        Affine.of(AXES[1]) * 5 + 6,
        ((token, 8),),
    )
    assert linear([(token, 2), (token, -2)]) == (Affine(), ())
    load = load_at(Buffer("x", INT, (9, 7)), [index, Affine.of(AXES[1])])
    assert (
        isinstance(load, Load) and load.dynamic == ((token, 28),) and load.offset == Affine.of(AXES[1]) + 21
    )
