"""Runs in parts, some shared with other threads and some not."""

from __future__ import annotations

import numpy as np
import pytest

from pullback import jit
from pullback.compiler.runtime.sharing import Sharing
from pullback.compiler.target.runs import LEAST_RUN, RUNS_BETWEEN


@pytest.fixture
def in_parts(monkeypatch):
    """``in_parts(*counts)``: runs are done in parts of so many steps, alone and shared in turns."""

    def choose(*counts):
        monkeypatch.setattr(
            Sharing, "parts", lambda self, steps: ((count, bool(k % 2)) for k, count in enumerate(counts))
        )

    return choose


def counting():
    step = jit(lambda total, x: (total + x, total * x), donate_argnums=0, watch=1)
    return step, np.zeros(()), np.arange(1.0, 101.0)


def test_parts_go_on_where_the_last_ended(in_parts):
    step, total, numbers = counting()
    (_, expected), _ = step.run_steps((total.copy(), numbers), 100, 1)
    in_parts(1, 30, 7, 62)
    (total, products), done = step.run_steps((total, numbers), 100, 1)
    assert done == 100 and total == 5050
    np.testing.assert_array_equal(products, expected)


def test_a_run_ends_with_the_part_in_which_a_result_is_not_finite(in_parts):
    step, total, numbers = counting()
    numbers[44] = np.inf
    in_parts(1, 30, 27, 42)
    (total, _), done = step.run_steps((total, numbers), 100, 1)
    assert done == 45 and total == np.inf


def test_a_trial_counts_every_step_once_and_its_verdict_is_kept():
    sharing = Sharing(cost=1000.0)
    steps = int(LEAST_RUN / 1000)
    parts = list(sharing.parts(steps))
    assert len(parts) == 5 and sum(count for count, _ in parts) == steps
    assert parts[-1][1] is sharing.shared
    for _ in range(RUNS_BETWEEN):
        assert list(sharing.parts(steps)) == [(steps, sharing.shared)]
    assert len(list(sharing.parts(steps))) == 5


def test_runs_that_are_slower_shared_are_not(monkeypatch):
    # Where each of the parts alone, shared, alone, shared begins and ends.
    now = iter([0.0, 1.0, 1.0, 4.0, 4.0, 5.0, 5.0, 8.0])
    monkeypatch.setattr("pullback.compiler.runtime.sharing.time.perf_counter", lambda: next(now))
    sharing = Sharing(cost=1000.0)
    *_, last = sharing.parts(int(LEAST_RUN / 1000))
    assert last[1] is False
