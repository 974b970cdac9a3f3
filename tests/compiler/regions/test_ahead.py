"""What a product asks for while it multiplies: the rows of large arrays that its group's next chunk goes through."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.compiler.build import build
from pullback.compiler.regions.ahead import asked_ahead
from pullback.compiler.schedules.contraction_schedules import TiledContraction


def normalised(x):
    mean = x.mean((0, 2, 3), keepdims=True)
    return (x - mean) / np.sqrt(x.var((0, 2, 3), keepdims=True) + np.float32(1e-5))


def blocks(x, v, w):
    """Two convolutions, the second of what is normalised over the whole batch: between them all images are done."""
    return nn.conv(np.maximum(normalised(nn.conv(x, v, padding=2)), 0), w, padding=2)


def arrays(batch):
    random = np.random.default_rng(0)
    shapes = (batch, 16, 20, 20), (16, 16, 5, 5), (16, 16, 5, 5)
    return [random.standard_normal(shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize(("batch", "asks"), [(64, True), (4, False)])
def test_the_product_of_a_chunk_asks_for_what_its_next_rows_read_and_write(traced, described, batch, asks):
    made = build(traced(blocks, *arrays(batch)), {}, described)
    groups = [group for region in made.schedule for group in region.groups]
    found = [asked for g in groups for asked in asked_ahead(g, made.plan.kept, described).items()]
    assert bool(found) == asks == ("%ahead0" in made.emitted.text)
    for job, rows in found:
        assert isinstance(job.schedule, TiledContraction)
        assert all(buffer.nbytes >= described.private_bytes for buffer in rows)
    assert all(row == 4 * 16 * 20 * 20 for _, rows in found for row in rows.values())
    # What they read, and what they write.
    names = [[buffer.name.rstrip("0123456789") for buffer in rows] for _, rows in found]
    assert names == ([["argument", "convolve"], ["convolve", "result"]] if asks else [])


@pytest.mark.parametrize(
    ("batch", "stride", "channels", "size"), [(5, 1, 16, 3), (33, 2, 3, 3), (40, 1, 7, 3), (9, 1, 32, 1)]
)
def test_nothing_is_there_behind_the_last_rows(traced, compiler, processor, batch, stride, channels, size):
    """Arrays that end where memory ends, on a processor that asks for all of them: what is beyond is not read."""
    random = np.random.default_rng(0)
    shapes = (batch, 16, 20, 20), (16, 16, 3, 3), (channels, 16, size, size)
    given = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    near = replace(processor, private_bytes=1 << 10, far_line_cycles=1.0)

    def step(x, v, w):
        y = np.maximum(normalised(nn.conv(x, v, padding=1)), 0)
        return (nn.conv(y, w, stride, padding=size // 2) ** 2).sum()

    def gradients(*weights):
        return pb.grad(step, argnums=(0, 1, 2))(*weights)

    graph = traced(gradients, *given)
    assert any(
        asked_ahead(group, (), near) for region in build(graph, {}, near).schedule for group in region.groups
    )
    compiler.assert_same(graph, given, {}, near, rounding=1 << 14)
