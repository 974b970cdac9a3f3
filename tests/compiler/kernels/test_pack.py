"""Transposed copies of the operands of products: as few as there are different ones."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback import nn


def test_an_operand_along_its_rows_is_copied_before_its_first_use(stages):
    packed = stages(lambda x, w: (x @ w, x @ w.T), (9, 40), (40, 40))["pack"]
    assert (
        packed
        == """\
for i<9, j<40:
    result0[40*i + j] = sum[r0<40](argument0[40*i + r0] * argument1[j + 40*r0])
for r0<40, j<40:
    packed0[40*r0 + j] = argument1[r0 + 40*j]
for i<9, j<40:
    result1[40*i + j] = sum[r0<40](argument0[40*i + r0] * packed0[j + 40*r0])"""
    )


def test_products_share_a_copy(stages):
    packed = stages(lambda x, y, w: (x @ w.T, y @ w.T), (4, 40), (5, 40), (40, 40))["pack"]
    assert packed.count("packed0[40*r0 + j] =") == 1
    assert packed.count("packed0[j + 40*r0]") == 2
    assert "packed1" not in packed


def test_other_parts_of_an_operand_are_other_copies(stages):
    packed = stages(lambda x, w: (x @ w[:16].T, x @ w[16:].T), (4, 40), (32, 40))["pack"]
    assert "packed0" in packed
    assert "packed1" in packed


def by_steps(a, g):
    """A product with every second element of two axes, from each of the first ones: a transposed convolution's."""
    return [np.einsum("bhwi,bjhw->ij", a, g[:, :, u::2, v::2]) for u in range(2) for v in range(2)]


def test_an_array_that_is_read_in_steps_is_copied_once(stages):
    packed = stages(by_steps, (3, 4, 5, 30), (3, 40, 8, 10))["pack"]
    assert packed.count("packed0[3200*r0 + j + 40*r2] = argument1[3200*r0 + 80*j + r2]") == 1
    assert packed.count("* packed0[j + 3200*r0 + 800*r1 + 80*r2") == 4
    assert "packed1" not in packed
    only = stages(lambda a, g: by_steps(a, g)[:3], (3, 4, 5, 30), (3, 40, 8, 10))["pack"]
    assert "packed2" in only  # all of it would be more


def test_an_array_that_is_read_in_steps_is_right(traced, compiler, processor):
    """Where another product goes through it in the same order, but with steps from column to column, too."""

    def products(a, g):
        return [*by_steps(a, g), np.einsum("bhwi,bjhw->ij", a, g[:, ::2, ::2, 1::2])]

    random = np.random.default_rng(0)
    sizes = (3, 4, 5, 30), (3, 40, 8, 10)
    arrays = [random.integers(-2, 3, size).astype(np.float32) for size in sizes]
    compiler.assert_same(traced(products, *arrays), arrays, processor=processor)


def test_wide_operands_that_stay_the_same_are_copied_in_panels_once(stages):
    def turns(x, w):
        return pb.fori_loop(0, 3, lambda i, c: c + np.tanh((c @ w.T) + 1).sum(1)[:, None], x)

    _, body, _ = stages(turns, (100, 40), (500, 40))["pack"].split("\n\n")
    assert (
        body
        == """\
for j<31, r0<40, j_1<16:
    packed0[640*j + 16*r0 + j_1] = argument0[640*j + r0 + 40*j_1]
for i<100, j<31, j_1<16:
    contract2[16*j + j_1 + 500*i] = sum[r0<40](argument1[r0 + 40*i] * packed0[16*r0 + 640*j + j_1])
for i<100, j<4:
    contract2[j + 500*i + 496] = sum[r0<40](argument1[r0 + 40*i] * argument0[r0 + 40*j + 19840])
for i<100:
    s0 = sum[r1<500](tanh(contract2[r1 + 500*i] + 1.0))
    for j<40:
        result0[40*i + j] = argument1[40*i + j] + s0"""
    )


def test_large_products_pack_by_themselves(stages):
    """What they pack is read next, and never lies in memory as a whole."""
    for columns, copied in (200, True), (500, False):
        packed = stages(lambda x, w: x @ w.T, (100, 40), (columns, 40))["pack"]
        assert ("packed0" in packed) == copied


def test_left_operands_of_large_products_are_copied_for_many_panels_only(stages):
    """A weight gradient reads its left operand across memory, a line for each step of a tile."""
    for depth, columns, copied in (4000, 100, False), (400, 9000, True):
        packed = stages(lambda x, y: x.T @ y, (depth, 50), (depth, columns))["pack"]
        assert ("packed0" in packed) == copied


def test_left_operands_whose_elements_lie_apart_are_copied(stages):
    """The middles of windows, for all images; not those of few channels, which the nearest cache holds."""

    def middles(x, w):
        return nn.conv(x, w[..., w.shape[-1] // 2 :][..., :1])

    for channels, size, copied in (100, 9, True), (100, 1, False), (20, 9, False):
        packed = stages(middles, (6, channels, 32), (channels, channels, size))["pack"]
        assert ("packed0" in packed) == copied


def test_few_columns_stay_whole(stages):
    narrow = stages(lambda x, w: np.tanh((x @ w.T) + 1).sum(1), (100, 200), (30, 200))["pack"]
    assert "packed0" in narrow
    assert "packed1" not in narrow


@pytest.mark.parametrize("columns", [960, 1014, 1025])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_of_panels_are_right(columns, dtype, traced, compiler, processor):
    def both(x, y, w):
        hidden = np.tanh(x @ w.T + y)
        return (hidden * hidden).sum(1), (hidden @ w).sum(0)

    random = np.random.default_rng(0)
    arrays = [
        random.integers(-2, 3, shape).astype(dtype) for shape in ((37, 84), (37, columns), (columns, 84))
    ]
    compiler.assert_same(traced(both, *arrays), arrays, processor=processor, rounding=64)


def test_a_map_reads_a_transposed_copy_of_what_lies_across_its_lanes(stages):
    packed = stages(lambda x, y: np.tanh(x.T) + y, (50, 40), (40, 50))["pack"]
    assert (
        packed
        == """\
for i<40, j<50:
    packed0[50*i + j] = argument0[i + 40*j]
for i<40, j<50:
    result0[50*i + j] = tanh(packed0[50*i + j]) + argument1[50*i + j]"""
    )


@pytest.mark.parametrize(("size", "copied"), [(9, True), (3, False)], ids=["of many places", "of one place"])
def test_what_is_read_across_memory_again_and_again_is_copied(stages, size, copied):
    """Windows of a depthwise convolution whose channels lie last, unless they are read once."""

    def depthwise(x, w):
        return nn.conv(x, w, groups=20, channels="last")

    found = stages(depthwise, (2, size, size, 20), (20, 1, 3, 3))["pack reread"]
    assert ("reread0[60*r0 + 20*r1 + l] = argument1[3*r0 + r1 + 9*l]" in found) == copied
    assert ("reread" in found) == copied


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: x.T.reshape(-1) + 1, (30, 30)),  # too little
        (lambda x: x.T + 1, (4, 400)),  # less than a vector wide
        (lambda x: x.reshape(-1, 3)[:, 1] * 2, (60, 60)),  # picked out of whole vectors
        (lambda x: x.sum(1), (400, 20)),  # rows are read, and their sums turned round
    ],
)
def test_what_gains_nothing_is_not_copied(stages, function, shape):
    assert "packed" not in stages(function, shape)["pack"]


def test_products_of_products_are_right(compiler, traced, processor):
    random = np.random.default_rng(0)
    arrays = [random.integers(-2, 3, shape).astype(np.float32) for shape in ((300, 40), (500, 40), (40, 40))]

    def slopes(x, w, v):
        hidden = np.maximum(x @ v, 0)
        return np.maximum(hidden @ w.T, 0) @ w, hidden.sum(0)

    compiler.assert_same(traced(slopes, *arrays), arrays, processor=processor)
