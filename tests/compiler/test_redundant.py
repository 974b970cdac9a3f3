"""What every thread does for itself: small maps and transposed copies, and when it may not."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest

from pullback import jit
from pullback.compiler.build import build
from pullback.compiler.runtime.threads import get_num_threads, set_num_threads
from pullback.graph import OPERATORS


@pytest.fixture
def regions(traced, described):
    """The schedule for a processor that waits long for lines of another core: all that may be repeated pays there."""

    waiting = replace(described, exchange_line_cycles=1e3)

    def make(function, *shapes, donated=None, target=waiting):
        graph = traced(function, *(np.zeros(shape, np.float32) for shape in shapes))
        return build(graph, donated or {}, target).schedule

    return make


def jobs_of(region):
    return [job for group in region.groups for job in group.jobs]


def names(jobs):
    return [buffer.name for job in jobs for buffer in job.kernel.writes()]


def twice(picture, w, rows, place):
    """A small matrix that two regions need; everything else waits for sums over the rows, and for a check."""
    found = OPERATORS["check_index"](place, extent=300, what="place", wrap=False)
    matrix = picture * picture
    first = np.tanh(rows @ matrix)
    return w - first.sum() - OPERATORS["gather"](rows, found, axes=(0,)).sum(), (rows * first.sum(0)) @ matrix


def test_what_is_small_each_thread_computes_for_itself(traced, compiler, processor):
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in ((24, 24), (300,), (300, 24))]
    arrays.append(np.array([7, 250]))
    graph = traced(twice, *arrays)
    waiting = replace(processor, exchange_line_cycles=1e3)  # so that it pays for vectors of any length
    built = build(graph, {0: 1}, waiting)
    users = [region for region in built.schedule if region.first]
    assert len(users) == 2
    made = {buffer for region in users for job in region.first for buffer in job.kernel.writes()}
    assert (24, 24) in {buffer.shape for buffer in made}
    assert set(built.plan.own) == made
    (update,) = [
        p for p in built.schedule if any(job.kernel.writes()[0].name == "result0" for job in jobs_of(p))
    ]
    assert built.schedule.index(users[0]) < built.schedule.index(update)
    assert [region.enters for region in built.emitted.regions] == [
        bool(region.first) for region in built.schedule
    ]
    compiler.assert_same(graph, arrays, {0: 1}, processor=waiting, rounding=256)


def test_what_is_overwritten_nobody_computes_later(regions):
    def step(picture, rows):
        matrix = picture * picture
        first = np.tanh(rows @ matrix)
        return picture - first.sum(0), (rows * first.sum(0)) @ matrix

    kept, donated = (regions(step, (24, 24), (3000, 24), donated=given) for given in ({}, {0: 0}))
    assert any(region.first for region in kept)
    assert not any(region.first for region in donated)


def back(w, u, x):
    """A product, and the pullback through its weights."""
    hidden = np.tanh(x @ w)
    error = hidden @ u
    return w * 0.9, np.tanh(error.sum(0) + error) @ w.T


SHAPES = (80, 96), (96, 96), (300, 80)


def test_a_transposed_copy_is_made_where_it_is_read(regions):
    schedule = regions(back, *SHAPES)
    copies = [(k, name) for k, region in enumerate(schedule) for name in names(region.first)]
    assert [name for _, name in copies] == ["packed0"]
    assert not any("packed0" in names(jobs_of(region)) for region in schedule)
    readers = [
        k
        for k, region in enumerate(schedule)
        if any(b.name == "packed0" for g in region.groups for job in g.jobs for b in job.kernel.reads())
    ]
    assert readers == [copies[0][0]]


def test_a_c_function_computes_it_before_the_first_chunk():
    random = np.random.default_rng(1)
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in SHAPES]
    expected = jit(back)(*arrays)
    function = jit(back).c_function(*arrays).ctypes
    results = [np.empty_like(value) for value in expected]
    pointer = ctypes.POINTER(ctypes.c_float)
    assert function(*(array.ctypes.data_as(pointer) for array in (*arrays, *results))) == 0
    for found, wanted in zip(results, expected):
        np.testing.assert_array_equal(found, wanted)


def test_what_is_overwritten_by_then_is_copied_before(regions):
    """The weights are overwritten in the region that reads their copy: it is made in an earlier one."""
    schedule = regions(back, *SHAPES, donated={0: 0})
    assert not any(region.first for region in schedule)
    copied = next(k for k, region in enumerate(schedule) if "packed0" in names(jobs_of(region)))
    assert copied < next(k for k, region in enumerate(schedule) if "result0" in names(jobs_of(region)))


def test_what_would_not_stay_in_a_cache_is_shared(regions, described):
    (copy,) = [
        buffer for region in regions(back, *SHAPES) for job in region.first for buffer in job.kernel.writes()
    ]
    for room, own in ((copy.nbytes, True), (copy.nbytes - 1, False)):
        small = replace(described, private_bytes=room, exchange_line_cycles=1e3)
        assert any(region.first for region in regions(back, *SHAPES, target=small)) == own


def test_what_would_not_be_seen_is_not_repeated(regions, described):
    """The same copy beside a hundred times the work: what is gained is no share of it."""
    w, u, (rows, width) = SHAPES
    few, many = (regions(back, w, u, (rows * times, width), target=described) for times in (1, 100))
    assert any(region.first for region in few)
    assert not any(region.first for region in many)


def test_a_region_less_pays_however_long_its_users_take(regions, described):
    """All threads wait once less: what is alone in its region is moved beside any amount of work."""
    for rows in (300, 100_000):
        schedule = regions(
            lambda picture, x: np.tanh(x @ (picture * picture)), (24, 24), (rows, 24), target=described
        )
        (region,) = schedule
        assert [job.kernel.writes()[0].shape for job in region.first] == [(24, 24)]


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
