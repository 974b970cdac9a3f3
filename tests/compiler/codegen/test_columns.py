"""Rows of a few elements as columns, and back."""

from __future__ import annotations

import pytest

from pullback.compiler.codegen.columns import mixed, separated


class Counted:
    """Shuffles of tuples, counted."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, first, second, lanes):
        self.count += 1
        both = (*first, *second)
        assert len(both) == 2 * len(first) == 2 * len(lanes)
        return tuple(both[lane] for lane in lanes)


def rows(step, lanes):
    """Vectors of ``lanes`` rows of ``step`` elements, each the pair of its row and column."""
    flat = [(row, column) for row in range(lanes) for column in range(step)]
    return [tuple(flat[k * lanes : (k + 1) * lanes]) for k in range(step)]


SIZES = [(step, lanes) for lanes in (2, 4, 8, 16) for step in range(1, 2 * lanes)]


@pytest.mark.parametrize(("step", "lanes"), SIZES)
def test_columns_and_back(step, lanes):
    mix, vectors = Counted(), rows(step, lanes)
    column = separated(step, lanes, vectors.__getitem__, mix)
    columns = [column(c) for c in range(step)]
    assert columns == [tuple((row, c) for row in range(lanes)) for c in range(step)]
    taken = mix.count
    assert mixed(columns, lanes, mix) == vectors
    assert mix.count == 2 * taken <= 2 * step * (step - 1).bit_length()


def test_nothing_is_computed_twice_or_for_nobody():
    mix = Counted()
    column = separated(8, 8, rows(8, 8).__getitem__, mix)
    column(3)
    assert mix.count == 7
    column(3)
    assert mix.count == 7
    column(7)
    assert mix.count == 8
