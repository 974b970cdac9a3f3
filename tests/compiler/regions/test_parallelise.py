"""Regions, row groups and chunks: what may run side by side, whatever the number of threads."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import pullback as pb
from pullback.compiler.build import Built, build
from pullback.compiler.kernels.order import Users
from pullback.compiler.regions.chunks import _bounded
from pullback.compiler.regions.steps import Group
from pullback.compiler.runtime.layout import MAX_CHUNKS
from pullback.compiler.runtime.threads import get_num_threads, set_num_threads
from pullback.compiler.schedules.contraction_schedules import PackedContraction
from pullback.compiler.schedules.map import MapSchedule, lane_axis
from pullback.compiler.schedules.scatter import ScatterSchedule
from pullback.compiler.target import Processor
from pullback.control.rolling import rolling
from pullback.graph import OPERATORS
from pullback.numpy.convolution import conv


@pytest.fixture
def built(traced, described) -> Callable[..., Built]:
    """What is decided for each described processor."""

    def make(function, *shapes, dtype=np.float32, donated=None) -> Built:
        graph = traced(function, *(np.zeros(shape, dtype) for shape in shapes))
        return build(graph, donated or {}, described)

    return make


def step(w, u, x, y):
    hidden = np.tanh(x @ w)
    error = hidden @ u - y
    back = (error @ u.T) * (1 - hidden * hidden)
    return w - x.T @ back, u - hidden.T @ error, (error * error).sum(1), np.sin(x[:, 0]) * 2


SHAPES = [(200, 96), (96, 10), (300, 200), (300, 10)]


def test_rows_run_through_a_group_and_sums_over_them_follow(built):
    schedule = built(step, *SHAPES).schedule
    forward = [group for group in schedule[0].groups if group.rows == 300]
    assert len(forward) == 1
    assert len(forward[0].jobs) > 2
    assert forward[0].chunks > 1
    assert len(schedule) > 1


def test_every_kernel_runs_after_what_it_reads(built):
    """In an earlier region, or earlier in the same row group where rows are the same."""
    schedule = built(step, *SHAPES, donated={0: 0, 1: 1}).schedule
    place = {
        job.kernel: (region, id(group), position)
        for region, groups in enumerate(schedule)
        for group in groups.groups
        for position, job in enumerate(group.jobs)
    }
    users = Users(place)
    needs = {kernel: users.before(kernel) for kernel in place}
    assert any(needs.values())
    for kernel, earlier in needs.items():
        for other in earlier:
            assert place[other][0] <= place[kernel][0]
            if place[other][0] == place[kernel][0]:
                assert place[other][1] == place[kernel][1]
                assert place[other][2] < place[kernel][2]


def test_arguments_are_overwritten_after_their_readers(built):
    result = built(step, *SHAPES, donated={0: 0, 1: 1})
    for result_name, argument in (("result0", "argument0"), ("result1", "argument1")):
        regions = {"write": [], "read": []}
        for position, region in enumerate(result.schedule):
            for job in region.jobs:
                names = [buffer.name for buffer in job.kernel.writes()]
                if result_name in names:
                    regions["write"].append(position)
                elif argument in [buffer.name for buffer in job.kernel.reads()]:
                    regions["read"].append(position)
        assert max(regions["read"]) < min(regions["write"])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [3, 4, 8, 15, 16])
@pytest.mark.parametrize("rows", [300, 4099])
def test_shares_are_whole_vectors(rows, columns, dtype, built, described):
    """A chunk of rows that lie along the lanes must not end inside a vector, whatever else is in its group."""

    def beside(x, w, v):
        u = np.sin(v) * np.cos(v) + np.exp(-v * v)
        for _ in range(4):
            u = u * v + np.tanh(u)
        return x @ w, u, np.transpose(x @ w), v * 2

    for region in built(beside, (rows, 60), (60, columns), (rows * 8,), dtype=dtype).schedule:
        for group in region.groups:
            assert sum(group.grains()) <= group.rows
            assert group.chunks == math.ceil(group.rows / group.grain)
            for job in group.jobs:
                if isinstance(job.schedule, MapSchedule) and job.kernel.axes and group.chunks > 1:
                    lanes = described.lanes(np.dtype(dtype).itemsize)
                    whole = job.schedule.alignment
                    assert (
                        whole % lanes == 0 if job.schedule.nest.vector is job.kernel.axes[0] else whole == 1
                    )
                    assert group.grain * job.pitch % whole == 0


def test_a_map_keeps_whole_vectors_beside_a_product_of_the_same_rows(built, described):
    """A chunk of eight rows of weights must not make eight rows of a bias one by one."""

    def gradients(x, z):
        error = np.tanh(z)
        return x.T @ error, error.sum(0)

    schedule = built(gradients, (2560, 64), (2560, 64)).schedule
    groups = {b.name: g for p in schedule for g in p.groups for j in g.jobs for b in j.kernel.writes()}
    # Where caches are small it is in blocks, which share nothing.
    if not isinstance(groups["result0"].jobs[0].schedule, PackedContraction):
        assert groups["result0"].chunks > 4
    assert groups["result1"] is not groups["result0"]
    assert all(job.schedule.nest.vector is lane_axis(job.kernel, described) for job in groups["result1"].jobs)


def variances(x):
    return ((x - x.mean(1, keepdims=True)) ** 2).sum(1)


@pytest.mark.parametrize("rows", [10, 2000])
def test_sums_over_rows_are_read_as_they_lie_however_many_there_are(built, rows):
    """The second sum needs the first of its row: lanes across the rows would gather what lies along them."""
    jobs = [job for r in built(variances, (rows, 256)).schedule for group in r.groups for job in group.jobs]
    maps = [job for job in jobs if isinstance(job.schedule, MapSchedule)]
    assert maps
    assert all(job.schedule.nest.vector is None for job in maps)


CACHES = [
    (4096, 8192),
    (24_000, 70_001),
    (49_152, 1_310_720),
    (1 << 40, 1 << 40),
]


@pytest.mark.parametrize(("sizes", "cores"), [*zip(CACHES, (1, 2, 3, 8))], ids=str)
def test_programs_are_right_for_any_caches_and_cores(sizes, cores, traced, compiler, processor):
    """Run here, but planned for a machine with other caches: products in blocks of all sizes, or in none."""
    planned = replace(processor, cores=cores, l1_bytes=sizes[0], l2_bytes=sizes[1])
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in SHAPES]
    arrays[3] = np.abs(arrays[3])
    compiler.assert_same(traced(step, *arrays), arrays, {0: 0, 1: 1}, planned, rounding=2048)


def several_tanhs(*arrays):
    return [np.tanh(x) * 2 for x in arrays]


def test_any_number_of_groups_fits_into_a_region(traced, compiler, processor):
    """40 independent groups of 32 chunks are more than the runtime can number: their shares are larger then."""
    random = np.random.default_rng(0)
    arrays = [random.standard_normal((1500 + k, 40)).astype(np.float32) for k in range(40)]
    graph = traced(several_tanhs, *arrays)
    (region,) = build(graph, {}, processor).schedule
    assert len(region.groups) == len(arrays)
    assert max(group.chunks for group in region.groups) > 1
    assert len(region.order()) <= MAX_CHUNKS
    program = compiler.program(graph, processor=processor)
    before = get_num_threads()
    try:
        bits = []
        for threads in (1, 3):
            set_num_threads(threads)
            bits.append([result.tobytes() for result in program(*arrays)])
    finally:
        set_num_threads(before)
    assert bits[0] == bits[1]
    for found, array in zip(program(*arrays), arrays):
        np.testing.assert_allclose(found, np.tanh(array) * 2, rtol=1e-6)


def test_the_gradient_of_a_long_polynomial(built, monkeypatch):
    monkeypatch.setattr(rolling, "WORTHWHILE", 10**9)  # written out

    def gradient(coefficients, x):
        def loss(coefficients):
            value = coefficients[-1]
            for position in range(2, 129):
                value = value * x + coefficients[-position]
            return np.mean(value**2)

        return pb.grad(loss)(coefficients)

    for region in built(gradient, (128,), (131_072,), dtype=np.float64).schedule:
        assert len(region.order()) <= MAX_CHUNKS


@pytest.mark.parametrize(("size", "regions"), [(131_072, 1), (160_000, 2)])
def test_sums_go_on_where_their_terms_are_made_if_these_are_whole_vectors(size, regions, traced):
    """Of 131,072 elements a block of sums is 1,024 of them, of 160,000 it is 1,250."""

    def moments(x):
        y = np.sin(x)
        return np.sum(y * x), np.sum(y * y), y

    graph = traced(moments, np.zeros(size, np.float32))
    target = Processor("x86-64-v3", "+avx2,+fma", "x86_64", 32, 16, l1_bytes=32 << 10)
    schedule = build(graph, {}, target).schedule
    assert sum(len(region.order()) > 1 for region in schedule) == regions


@pytest.mark.parametrize("most", [6, 7, 40, 100, 1000])
def test_bounded_groups_keep_their_rows(most):
    """Shares grow by whole factors, so that they still consist of whole tiles."""
    sizes = [(960, 12), (7, 7), (100, 1), (4096, 16), (33, 2), (1, 1)]
    groups = [Group(rows, grain=share) for rows, share in sizes]
    shares = [group.grain for group in groups]
    bounded = _bounded(groups, most)
    assert sum(group.chunks for group in bounded) <= most
    for group, (rows, _), share in zip(bounded, sizes, shares, strict=True):
        assert group.rows == rows
        assert group.grain == rows or group.grain % share == 0
    if most == 1000:
        assert [group.grain for group in bounded] == shares


def test_buffers_alive_together_do_not_overlap(built):
    def twice(w, u, x, y):
        first, second, *rest = step(w, u, x, y)
        return *step(first, second, x, y), *rest

    plan = built(twice, *SHAPES).plan
    placed = plan.placed
    assert len(placed) > 3
    for k, one in enumerate(placed):
        assert one.offset % 64 == 0
        assert one.offset + one.buffer.nbytes <= plan.arena_bytes
        for other in placed[:k]:
            apart = (
                one.offset + one.buffer.nbytes <= other.offset
                or other.offset + other.buffer.nbytes <= one.offset
            )
            assert apart or one.last < other.first or other.last < one.first


def test_memory_is_used_again(built):
    def chain(x, w):
        for _ in range(12):
            x = np.tanh(x @ w).sum(0, keepdims=True) + x @ w
        return x

    result = built(chain, (40, 64), (64, 64))
    assert result.plan.arena_bytes < sum(p.buffer.nbytes for p in result.plan.placed) / 2


def test_what_one_thread_does_in_turn_is_one_region(built):
    def small(x, w, v):
        y = np.tanh(x @ w)
        return np.exp(y - y.max()) / np.exp(y - y.max()).sum() @ v

    schedule = built(small, (8,), (8, 10), (10, 5)).schedule
    assert [[group.chunks for group in region.groups] for region in schedule] == [[1]]
    assert len(schedule[0].groups[0].jobs) > 3


def test_nothing_is_overwritten_in_the_region_of_a_check(built):
    def update(table, index):
        return table * 2 + table[index.astype(np.int64)].sum()

    schedule = built(update, (6,), (4,), donated={0: 0}).schedule
    checks = [any(job.kernel.has_checks for g in region.groups for job in g.jobs) for region in schedule]
    writes = [
        any("result0" in str(job.kernel.writes()) for g in region.groups for job in g.jobs)
        for region in schedule
    ]
    assert checks == [True, False]
    assert writes == [False, True]


def test_a_second_thread_is_for_work_that_can_be_shared(built):
    def chain(x, w):
        for _ in range(6):
            x = np.tanh(w @ np.tanh(x @ w))
        return x

    assert built(step, *SHAPES).saving > 0
    assert built(chain, (20,), (20, 20)).saving < 0


def table_step(table, speed, index, updates, rate):
    gradient = OPERATORS["scatter_add"](table * 0, updates * rate.sum(), index, axes=(0,))
    speed = speed * 0.5 + gradient
    return table - speed, speed


def table_arrays(dtype=np.float32, rows=3000, updates=700):
    random = np.random.default_rng(0)
    shapes = [(rows, 50), (rows, 50), (updates,), (updates, 50), (40,)]
    table, speed, _, values, rate = (random.integers(-9, 9, shape).astype(dtype) for shape in shapes)
    return [table, speed, random.integers(0, rows, updates), values, rate]


def test_a_table_s_gradient_waits_for_its_update(traced, processor):
    """Zeros, updates and what is done with the sums are one row group, though the updates come late."""
    built = build(traced(table_step, *table_arrays()), {0: 0, 1: 1}, processor)
    groups = [
        g
        for region in built.schedule
        for g in region.groups
        if any(isinstance(j.schedule, ScatterSchedule) for j in g.jobs)
    ]
    (group,) = groups
    assert group.rows == 3000
    assert group.chunks > 1
    assert [job.schedule.name for job in group.jobs] == ["map", "scatter", "map"]
    (gradient,) = group.jobs[1].kernel.writes()
    kept = built.plan.kept[gradient]
    assert kept.row_bytes == 50 * gradient.dtype.itemsize
    assert kept.offset + group.grain * kept.row_bytes <= built.emitted.scratch_bytes
    assert gradient not in [placed.buffer for placed in built.plan.placed]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_table_s_update_is_right(dtype, traced, compiler, processor):
    arrays = table_arrays(dtype)
    compiler.assert_same(traced(table_step, *arrays), arrays, {0: 0, 1: 1}, processor)


def test_parts_of_the_same_rows_are_written_together(built):
    """Every second pixel of every second line needs the window as it lies; the other pixels wait for a copy of it."""

    def by_image(image, window, cotangent):
        return pb.grad(lambda image: np.sum(conv(image, window, 2, 1) * cotangent))(image)

    groups = [
        group
        for region in built(by_image, (32, 16, 32, 32), (32, 16, 3, 3), (32, 32, 16, 16)).schedule
        for group in region.groups
        if any(buffer.name == "result0" for job in group.jobs for buffer in job.kernel.writes())
    ]
    assert [group.rows for group in groups] == [32]


def test_what_others_need_sooner_does_not_wait(traced, compiler):
    """The base of a scatter is summed over its rows for the scatter's updates; a second scatter reads the first."""

    def step(x, index, y):
        base = x * 2
        shift = base.sum(0)
        first = OPERATORS["scatter_add"](base, y * shift, index, axes=(0,))
        second = OPERATORS["scatter_add"](
            first * 3, OPERATORS["gather"](first, index, axes=(0,)), index, axes=(0,)
        )
        return first - x, second + first

    random = np.random.default_rng(0)
    arrays = [random.integers(-3, 4, (300, 40)).astype(np.float32), random.integers(0, 300, 500)]
    arrays.append(random.integers(-3, 4, (500, 40)).astype(np.float32))
    compiler.assert_same(traced(step, *arrays), arrays)


def test_rows_that_only_a_group_uses_are_in_scratch_memory(traced, compiler, processor):
    def layers(x, w, u):
        return np.tanh(np.tanh(x @ w) @ u) @ w

    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape) for shape in ((300, 96), (96, 100), (100, 96))]
    graph = traced(layers, *arrays)
    plan = build(graph, {}, processor).plan
    assert len(plan.kept) == 2
    assert plan.arena_bytes == 0
    assert 0 < plan.scratch_bytes < sum(buffer.nbytes for buffer in plan.kept)
    compiler.assert_same(graph, arrays, processor=processor, rounding=64)


def test_longer_rows_go_on_with_several_short_ones(traced, compiler, processor):
    """The pullback of a vector times a matrix gives 480 values one by one; the image's 6 rows go on with 80 each."""

    def pulled(w, back, image):
        return np.exp(image * (w @ back).reshape(6, 80)).sum(1), w - 0.5 * back

    random = np.random.default_rng(0)
    shapes = ((480, 84), (84,), (6, 80))
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    graph = traced(pulled, *arrays)
    built = build(graph, {}, processor)
    (region,) = built.schedule
    (group,) = region.groups
    assert (group.rows, [job.pitch for job in group.jobs]) == (6, [80, 1])
    assert len(built.plan.kept) == 1
    compiler.assert_same(graph, arrays, processor=processor, rounding=64)


@pytest.mark.parametrize("rows", [1, 7, 90])
def test_updates_of_each_sample_s_own_row_belong_to_its_group(rows, traced, compiler, processor):
    """Places that are known to stay within the sample need no search, and what follows needs not wait."""

    def pulled(x, index, y):
        sample = OPERATORS["iota"](shape=(rows, 20), axis=0, dtype=np.dtype(np.int64))
        place = OPERATORS["check_index"](index, extent=30, what="place", wrap=False)
        spread = OPERATORS["scatter_add"](x * 0, np.tanh(y), sample, place, axes=(0, 1))
        return np.sin(spread) + x

    random = np.random.default_rng(rows)
    arrays = [random.standard_normal((rows, 30, 17)), random.integers(0, 30, (rows, 20))]
    arrays.append(random.standard_normal((rows, 20, 17)))
    graph = traced(pulled, *arrays)
    groups = [g for p in build(graph, {}, processor).schedule for g in p.groups]
    if rows > 1:
        (group,) = [g for g in groups if any(isinstance(j.schedule, ScatterSchedule) for j in g.jobs)]
        assert group.rows == rows
        assert [job.schedule.name for job in group.jobs][-3:] == ["map", "scatter", "map"]
    compiler.assert_same(graph, arrays, processor=processor, rounding=8)


def test_rows_that_are_handed_on_stay_in_the_nearest_cache(traced, described):
    """Chunks of two rows where the cache holds what they gather and multiply, of one where it does not."""

    def features(table, words, w):
        return np.maximum(np.tanh((table[words] * 2) @ w).max(1), 0)

    table, w = np.zeros((12_000, 50), np.float32), np.zeros((50, 24), np.float32)
    graph = traced(features, table, np.zeros((64, 130), np.int32), w)

    def grain(cache: int) -> int:
        schedule = build(graph, {}, replace(described, l1_bytes=cache)).schedule
        return min(group.grain for region in schedule for group in region.groups if group.rows == 64)

    assert grain(1 << 20) == 2
    assert grain(32 << 10) == 1


def test_chunks_are_few_where_each_reads_a_large_window(traced, described):
    """A window that is the left operand of its product; where the second cache holds it, each image is a chunk."""
    graph = traced(conv, *(np.zeros(shape, np.float32) for shape in ((16, 512, 2, 4), (512, 512, 1, 1))))

    def chunks(cache: int) -> int:
        schedule = build(graph, {}, replace(described, l2_bytes=cache)).schedule
        return max(group.chunks for region in schedule for group in region.groups if group.rows == 16)

    assert chunks(8 << 20) == 16
    assert chunks(128 << 10) < 16
