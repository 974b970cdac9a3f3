"""Cheap maps that each row group computes for itself instead of fetching what another one has stored."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import pullback as pb
from pullback.compiler.build import build
from pullback.compiler.stages import check_stages
from pullback.numpy.convolution import conv


def step(w, shift, v, images):
    """Two convolutions whose channels lose their means, and their updates."""

    def loss(w, shift, v):
        x = conv(images, w, padding="same")
        y = np.maximum((x - x.mean((0, 2, 3), keepdims=True)) * 3 + shift[:, None, None], 0)
        z = conv(y, v, padding="same")
        return (np.maximum(z - z.mean((0, 2, 3), keepdims=True), 0) ** 3).sum()

    gradients = pb.grad(loss, argnums=(0, 1, 2))(w, shift, v)
    return tuple(x - np.float32(1e-6) * g for x, g in zip((w, shift, v), gradients))


@pytest.fixture(params=[3, 5])
def size(request):
    """Of the windows: results of the shorter ones share products, which are made of several maps' sums."""
    return request.param


@pytest.fixture
def arrays(size):
    random = np.random.default_rng(0)
    channels, maps, images = (16, 16, 4) if size == 3 else (3, 8, 8)
    shapes = (maps, channels, size, size), (maps,), (maps, maps, size, size), (images, channels, 32, 32)
    return [random.standard_normal(shape).astype(np.float32) for shape in shapes]


def made(graph, target, donated=None):
    """The buffers that the schedule writes, by the names that they had, and the memory plan."""
    built = build(graph, donated or {}, target)
    jobs = [job for region in built.schedule for job in region.jobs]
    return Counter(buffer.name for job in jobs for buffer in job.kernel.writes()), built.plan


def test_a_group_that_reads_what_an_array_is_made_of_makes_it_again(size, arrays, traced, described):
    graph = traced(step, *arrays)
    donated = {0: 0, 1: 1, 2: 2}
    few, near = made(graph, replace(described, private_bytes=1 << 20), donated)
    more, far = made(graph, replace(described, private_bytes=1 << 12), donated)
    again = {name: count for name, count in more.items() if count > few[name]}
    assert set(again.values()) == {2}
    assert any(name.startswith("pad" if size == 5 else "interleave") for name in again)
    kept = {buffer.name for buffer in far.kept}
    assert kept.issuperset(again)  # none of them is in memory as a whole
    assert far.arena_bytes < near.arena_bytes


def test_results_are_the_same_bits(arrays, traced, compiler, processor):
    graph = traced(step, *arrays)
    donated = {0: 0, 1: 1, 2: 2}
    near, far = (replace(processor, private_bytes=size) for size in (1 << 20, 1 << 12))
    wanted = compiler.run(graph, arrays, donated, near)
    for found, want in zip(compiler.run(graph, arrays, donated, far), wanted):
        np.testing.assert_array_equal(found, want)
    compiler.assert_same(graph, arrays, donated, far, rounding=4096)


def test_every_stage_is_right(arrays, traced, described):
    check_stages(traced(step, *arrays), arrays, replace(described, private_bytes=1 << 12), {0: 0, 1: 1, 2: 2})


def test_what_is_dear_or_read_by_others_is_kept(traced, described):
    """A map of a function that costs much, and one whose sources the other group does not read."""

    def costly(x):
        return pb.grad(lambda x: np.log(np.exp(x - x.max()).sum()) + x.max())(x.astype(np.float64))

    def others(x, z, w):
        y = x + z
        return (y @ w).sum(0) * 2, y * (y @ w).sum()

    for function, shapes in ((costly, [(160_000,)]), (others, [(256, 64), (256, 64), (64, 64)])):
        graph = traced(function, *(np.zeros(shape, np.float32) for shape in shapes))
        counts = [made(graph, replace(described, private_bytes=size))[0] for size in (1 << 30, 1 << 12)]
        assert all(counts[1][name] <= max(1, counts[0][name]) for name in counts[1])
