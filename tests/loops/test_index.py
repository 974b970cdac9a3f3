"""Affine indices: sums, replacement, bounds and exact division."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from pullback.loops import Affine, Axis

AXES = (Axis("i", 3), Axis("j", 4), Axis("k", 2))
indices = st.builds(
    lambda coefficients, constant: Affine.total(
        [Affine((), constant), *(Affine.of(axis) * c for axis, c in zip(AXES, coefficients))]
    ),
    st.lists(st.integers(-12, 12), min_size=3, max_size=3),
    st.integers(-20, 20),
)
turns = list(itertools.product(*(range(axis.extent) for axis in AXES)))


def at(index: Affine, turn: tuple[int, ...]) -> int:
    return index.constant + sum(index.coefficient(axis) * value for axis, value in zip(AXES, turn))


def test_printed_form():
    i, j, _ = AXES
    assert str(Affine.of(i) * 4 + Affine.of(j) + 1) == "4*i + j + 1"
    assert str(Affine()) == "0"


def test_axis_of_one_turn_is_zero():
    assert Affine.of(Axis("i", 1)) == Affine()


def test_equal_indices_are_equal_and_hash_alike():
    i, j, _ = map(Affine.of, AXES)
    assert i + j == j + i and hash(i + j) == hash(j + i)
    assert i + (i * -1) == Affine()
    assert Affine.of(Axis("i", 3)) != Affine.of(Axis("i", 3))


@given(indices, indices, st.integers(-3, 3))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_arithmetic_is_that_of_the_values(x, y, factor):
    for turn in turns:
        assert at(x + y, turn) == at(x, turn) + at(y, turn)
        assert at(x + factor, turn) == at(x, turn) + factor
        assert at(x * factor, turn) == at(x, turn) * factor


@given(indices)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_bounds_are_reached(x):
    values = [at(x, turn) for turn in turns]
    assert x.bounds() == (min(values), max(values))


@given(indices, st.integers(1, 12))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_division_is_exact_or_refused(x, divisor):
    parts = x.divide(divisor)
    if parts is not None:
        for turn in turns:
            assert (at(parts[0], turn), at(parts[1], turn)) == divmod(at(x, turn), divisor)


def test_division_that_fits_is_not_refused():
    i, j, k = map(Affine.of, AXES)
    assert (i * 8 + j * 2 + k).divide(8) == (i, j * 2 + k)
    assert (i * 8 + j * 2 + k + 9).divide(8) is None
    assert (i * 8 + k + 9).divide(8) == (i + 1, k + 1)


def test_replacing_axes():
    i, j, k = AXES
    index = Affine.of(i) * 2 + Affine.of(j) + 5
    assert index.replace({i: Affine.of(k) + 1}) == Affine.of(k) * 2 + Affine.of(j) + 7
    assert index.without([i]) == Affine.of(j) + 5
