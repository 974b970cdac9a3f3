"""Donated arguments: what passes through a step unchanged is neither read nor written."""

import numpy as np

from pullback import jit


def test_an_argument_that_is_its_own_result_is_left_alone():
    step = jit(lambda table, w, x: (table, w - x, x.sum()), donate_argnums=(0, 1))
    table, w, x = np.arange(600.0).reshape(30, 20), np.ones(3), np.array([1.0, 2.0, 3.0])
    assert "argument0" not in step.inspect(table, w, x).loops
    kept, changed, total = step(table, w, x)
    assert kept is table and changed is w and total == 6.0
    np.testing.assert_array_equal(table, np.arange(600.0).reshape(30, 20))
    np.testing.assert_array_equal(w, [0.0, -1.0, -2.0])


def test_others_may_read_what_passes_through():
    step = jit(lambda table, w: (table, w + table), donate_argnums=(0, 1))
    table, w = np.arange(5.0), np.ones(5)
    step(table, w)
    step(table, w)
    np.testing.assert_array_equal(table, np.arange(5.0))
    np.testing.assert_array_equal(w, 1 + 2 * np.arange(5.0))


def test_a_program_of_nothing_else():
    same = jit(lambda a, b: (a, b), donate_argnums=(0, 1))
    a, b = np.arange(3.0), np.arange(4, dtype=np.int32)
    found = same(a, b)
    assert found[0] is a and found[1] is b
    np.testing.assert_array_equal(a, np.arange(3.0))


def test_arguments_that_change_places_are_still_exchanged():
    swap = jit(lambda a, b: (b, a), donate_argnums=(0, 1))
    a, b = np.arange(3.0), np.arange(3.0) + 10
    swap(a, b)
    np.testing.assert_array_equal(a, [10.0, 11.0, 12.0])
    np.testing.assert_array_equal(b, [0.0, 1.0, 2.0])
