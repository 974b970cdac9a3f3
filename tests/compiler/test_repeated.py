"""What every thread does for itself: small maps and transposed copies, and when it may not."""

from __future__ import annotations

import numpy as np
import pytest

from pullback import jit
from pullback.compiler import repeated
from pullback.compiler.build import build
from pullback.compiler.runtime.threads import get_num_threads, set_num_threads
from pullback.graph import OPERATORS


@pytest.fixture
def phases(traced, described):
    def make(function, *shapes, donated=None):
        graph = traced(function, *(np.zeros(shape, np.float32) for shape in shapes))
        return build(graph, donated or {}, described).schedule

    return make


def jobs_of(phase):
    return [job for group in phase.groups for job in group.jobs]


def names(jobs):
    return [buffer.name for job in jobs for buffer in job.kernel.writes()]


def twice(picture, w, rows, place):
    """A small matrix that two phases need; everything else waits for sums over the rows, and for a check."""
    found = OPERATORS["check_index"](place, extent=300, what="place", wrap=False)
    matrix = picture * picture
    first = np.tanh(rows @ matrix)
    return w - first.sum() - OPERATORS["gather"](rows, found, axes=(0,)).sum(), (rows * first.sum(0)) @ matrix


def test_what_is_small_each_thread_computes_for_itself(traced, compiler, processor):
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in ((24, 24), (300,), (300, 24))]
    arrays.append(np.array([7, 250]))
    graph = traced(twice, *arrays)
    built = build(graph, {0: 1}, processor)
    users = [phase for phase in built.schedule if phase.first]
    assert len(users) == 2
    made = {buffer for phase in users for job in phase.first for buffer in job.kernel.writes()}
    assert (24, 24) in {buffer.shape for buffer in made}
    assert set(built.plan.own) == made
    (update,) = [
        p for p in built.schedule if any(job.kernel.writes()[0].name == "result0" for job in jobs_of(p))
    ]
    assert built.schedule.index(users[0]) < built.schedule.index(update)
    assert [phase.enters for phase in built.emitted.phases] == [bool(phase.first) for phase in built.schedule]
    compiler.assert_same(graph, arrays, {0: 1}, processor=processor, rounding=256)


def test_what_is_overwritten_nobody_computes_later(phases):
    def step(picture, rows):
        matrix = picture * picture
        first = np.tanh(rows @ matrix)
        return picture - first.sum(0), (rows * first.sum(0)) @ matrix

    kept, donated = (phases(step, (24, 24), (3000, 24), donated=given) for given in ({}, {0: 0}))
    assert any(phase.first for phase in kept)
    assert not any(phase.first for phase in donated)


def back(w, u, x):
    """A product, and the pullback through its weights."""
    hidden = np.tanh(x @ w)
    error = hidden @ u
    return w * 0.9, np.tanh(error.sum(0) + error) @ w.T


SHAPES = (200, 96), (96, 96), (300, 200)


def test_a_transposed_copy_is_made_where_it_is_read(phases):
    schedule = phases(back, *SHAPES)
    copies = [(k, name) for k, phase in enumerate(schedule) for name in names(phase.first)]
    assert [name for _, name in copies] == ["packed0"]
    assert not any("packed0" in names(jobs_of(phase)) for phase in schedule)
    readers = [
        k
        for k, phase in enumerate(schedule)
        if any(b.name == "packed0" for g in phase.groups for job in g.jobs for b in job.kernel.reads())
    ]
    assert readers == [copies[0][0]]


def test_what_is_overwritten_by_then_is_copied_before(phases):
    """The weights are overwritten in the phase that reads their copy: it is made in an earlier one."""
    schedule = phases(back, *SHAPES, donated={0: 0})
    assert not any(phase.first for phase in schedule)
    copied = next(k for k, phase in enumerate(schedule) if "packed0" in names(jobs_of(phase)))
    assert copied < next(k for k, phase in enumerate(schedule) if "result0" in names(jobs_of(phase)))


def test_what_would_not_stay_in_a_cache_is_shared(phases, monkeypatch):
    (copy,) = [
        buffer for phase in phases(back, *SHAPES) for job in phase.first for buffer in job.kernel.writes()
    ]
    for room, own in ((copy.nbytes, True), (copy.nbytes - 1, False)):
        monkeypatch.setattr(repeated, "OWN_BYTES", room)
        assert any(phase.first for phase in phases(back, *SHAPES)) == own


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_result_is_the_same_for_any_number_of_threads(threads):
    rng = np.random.default_rng(0)
    w, u, x = (rng.normal(size=shape).astype(np.float32) / 8 for shape in SHAPES)
    before = get_num_threads()
    try:
        set_num_threads(1)
        expected = jit(back)(w, u, x)
        set_num_threads(threads)
        compiled = jit(back)
        for _ in range(20):
            for found, wanted in zip(compiled(w, u, x), expected):
                np.testing.assert_array_equal(found, wanted)
    finally:
        set_num_threads(before)
    for found, wanted in zip(expected, back(w, u, x)):
        np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-5)
