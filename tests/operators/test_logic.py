"""Comparisons and bits at the values that surprise."""

from __future__ import annotations

import numpy as np

from pullback.operators import logic


def test_nan_is_equal_to_nothing(compute) -> None:  # type: ignore[no-untyped-def]
    x, y = np.array([np.nan, np.nan]), np.array([np.nan, 1.0])
    for operator in (logic.equal, logic.less, logic.less_equal, logic.greater, logic.greater_equal):
        assert not compute(operator, x, y).any()
    assert compute(logic.not_equal, x, y).all()


def test_questions_about_floats(compute) -> None:  # type: ignore[no-untyped-def]
    x = np.array([np.nan, np.inf, -np.inf, 0.0], np.float32)
    assert compute(logic.isnan, x).tolist() == [True, False, False, False]
    assert compute(logic.isinf, x).tolist() == [False, True, True, False]
    assert compute(logic.isfinite, x).tolist() == [False, False, False, True]


def test_shifts_beyond_the_last_bit(compute) -> None:  # type: ignore[no-untyped-def]
    x, places = np.array([5, -5], np.int8), np.array([8, 8], np.int8)
    assert compute(logic.left_shift, x, places).tolist() == [0, 0]
    assert compute(logic.right_shift, x, places).tolist() == [0, -1]


def test_where_chooses_also_among_nan(compute) -> None:  # type: ignore[no-untyped-def]
    chosen = compute(logic.where, np.array([True, False]), np.array([1.0, np.nan]), np.array([np.nan, 2.0]))
    assert chosen.tolist() == [1, 2]
