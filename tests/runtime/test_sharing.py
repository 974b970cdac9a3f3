"""Runs in parts, with as many threads as trials say."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import pytest

from pullback import jit
from pullback.compiler.runtime.layout import CONTEXT
from pullback.compiler.runtime.machine import machine
from pullback.compiler.runtime.threads import set_num_threads
from pullback.compiler.target.runs import (
    LEAST_BETWEEN_TRIALS,
    LONGEST_TRIED,
    PARTS_OF_ROW,
    ROW_NANOSECONDS,
    ROWS_OF_TRIAL,
)


@pytest.fixture
def trial():
    """``trial(program, times)``: the context's words after a trial in which steps take so long with each number."""
    weigh = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
        machine().code.address("pullback_weigh")
    )

    def end(program, times, steps=ROW_NANOSECONDS):
        instance, most = program._instances[0], max(times)
        word = instance.word
        begun = {
            "MOST": most,
            "THREADS": most,
            "NANOSECONDS": 1 << 62,
            "SPENT": 0,
            "TRIED": 1 << ((most - 1).bit_length() - 1),
        }
        begun |= {"TRIED_NANOSECONDS": 1 << 62, "ROWS": 0, "PARTS": 0, "PASSED": 0}
        for name, value in begun.items():
            instance._memory.set_word(instance.context + CONTEXT[name], value)
        parts = 0
        while word("TRIED"):
            threads = word("TRIED" if word("ROWS") % 2 else "THREADS")
            weigh(instance.context, steps * times[threads], steps)
            parts += 1
        return {name: word(name) for name in CONTEXT.kinds} | {"parts": parts}

    return end


SHORT, LONG = 20_000.0, 1_000_000.0


@pytest.mark.parametrize(
    ("cost", "times", "threads"),
    [
        (LONG, {16: 100, 8: 180, 4: 350, 2: 700, 1: 1400}, 16),
        (LONG, {16: 100, 8: 98, 4: 60, 2: 50, 1: 40}, 16),  # not asked: half of them are no better
        (LONG, {16: 100, 8: 80, 4: 60, 2: 50, 1: 10}, 2),
        (LONG, {16: 100, 8: 80, 4: 90, 2: 20, 1: 10}, 8),
        (SHORT, {16: 28, 8: 27, 4: 29, 2: 13, 1: 14}, 2),
        (SHORT, {16: 28, 8: 27, 4: 29, 2: 13, 1: 12}, 1),
        (SHORT, {12: 28, 8: 20, 4: 15, 2: 26, 1: 30}, 4),
        (LONG, {6: 28, 4: 20, 2: 15}, 2),
        (SHORT, {2: 10, 1: 14}, 2),
        (SHORT, {2: 14, 1: 10}, 1),
    ],
)
def test_a_trial_finds_a_better_number_of_threads(mixing, trial, cost, times, threads):
    found = trial(mixing(cost=cost, saving=1.0), times)
    assert found["THREADS"] == threads
    assert found["NANOSECONDS"] == times[threads]
    assert found["LEFT"] == LEAST_BETWEEN_TRIALS * found["SPENT"] > 0


def test_trials_are_fewer_the_longer_their_verdict_holds(mixing, trial):
    program = mixing(cost=SHORT, saving=1.0)
    factors = []
    for times in [{2: 10, 1: 14}] * 6 + [{2: 14, 1: 10}] * 2:
        found = trial(program, times)
        factors.append(found["LEFT"] // found["SPENT"])
    assert factors == [4, 8, 16, 32, 64, 64, 4, 8]


def test_a_number_that_is_clearly_slower_is_not_tried_for_long(mixing, trial):
    clear = trial(mixing(cost=LONG, saving=1.0), {4: 10, 2: 20})
    close = trial(mixing(cost=LONG, saving=1.0), {4: 10, 2: 11})
    assert clear["parts"] == 2 * PARTS_OF_ROW < close["parts"] == ROWS_OF_TRIAL * PARTS_OF_ROW


def test_a_row_of_short_parts_lasts_until_threads_are_awake(mixing, trial):
    found = trial(mixing(cost=SHORT, saving=1.0), {2: 10_000, 1: 9_900}, steps=1)
    rows = ROWS_OF_TRIAL // 2 * (math.ceil(ROW_NANOSECONDS / 10_000) + math.ceil(ROW_NANOSECONDS / 9_900))
    assert found["parts"] == rows and found["THREADS"] == 2


@pytest.mark.parametrize("threads", [2, 3, 7])
@pytest.mark.parametrize("cost", [SHORT, 150_000.0])
def test_parts_go_on_where_the_last_ended(mixing, threads, cost):
    """Each step once, in order, in whatever parts: of single calls, of short runs and of long ones."""
    set_num_threads(threads)
    program = mixing(cost=cost, saving=1.0)
    state, added = np.arange(37), np.arange(1000) * 7
    reference = mixing(cost=0.0)
    expected, wanted = state.copy(), np.zeros(1000, np.int64)
    reference.run_steps([expected, added, expected, wanted], 1000, [0, 8, 0, 8])
    totals = np.zeros(1000, np.int64)
    for start, stop in ((0, 600), (600, 603), (603, 1000)):
        arrays = [state, added[start:stop], state, totals[start:stop]]
        done = program.run_steps(arrays, stop - start, [0, 8, 0, 8])
        assert done == stop - start
    np.testing.assert_array_equal(totals, wanted)
    np.testing.assert_array_equal(state, expected)
    for _ in range(100):
        program(state, added[3])
        reference(expected, added[3])
    np.testing.assert_array_equal(state, expected)


def test_trials_are_made_of_steps_that_are_neither_unknown_nor_long(mixing):
    for cost, tried in ((SHORT, True), (2.0 * LONGEST_TRIED, False), (float("inf"), False)):
        word = mixing(cost=cost)._instances[0].word("STEP_NANOSECONDS")
        assert (word > 0) is tried


def test_a_run_ends_in_the_part_in_which_a_result_is_not_finite():
    set_num_threads(2)
    step = jit(lambda total, x: (total + x, (total * x).sum()), donate_argnums=0, watch=1)
    numbers = np.ones((100, 80_000))
    numbers[44, 7] = np.inf
    (total, sums), done = step.run_steps((np.zeros(80_000), numbers), 100, 1)
    assert done == 45 and total[7] == sums[44] == np.inf
