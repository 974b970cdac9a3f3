"""Short rows of maps as one, of which lanes are picked out of whole vectors."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.compiler.build import build
from pullback.compiler.regions.steps import every_region
from pullback.compiler.target import Processor
from pullback.errors import IndexRangeError
from pullback.loops.printer import format_kernel

WIDE = Processor("generic", "", "x86_64", vector_bytes=64, vector_registers=32)


@pytest.fixture
def kernels(traced):
    """The kernels of a function of arrays, as code is made of them."""

    def made(function, *shapes, dtype=np.float32) -> list[str]:
        graph = traced(function, *(np.zeros(shape, dtype) for shape in shapes))
        schedule = build(graph, {}, WIDE).schedule
        return [format_kernel(job.kernel) for region, _ in every_region(schedule) for job in region.jobs]

    return made


def pooled(x):
    return nn.max_pool(x, 3, 2)


def test_an_image_of_four_rows_of_four_is_a_vector(kernels):
    assert kernels(pooled, (4, 8, 9, 9)) == [
        """\
for j<32, l<16:
    result0[16*j + l] = max[r3<3, r5<3](argument0[9*r3 + r5 + 81*j + 2*(l % 4) + 18*(l // 4)])"""
    ]


def test_images_are_taken_together_where_there_are_many(kernels):
    (found,) = kernels(pooled, (40, 50, 9, 9))
    assert found.splitlines()[0] == "for j<2000, l<16:"


def test_padding_is_known_for_each_lane(kernels):
    (found,) = kernels(lambda x: nn.max_pool(x, 3, 2, 1), (4, 8, 8, 8))
    assert found.startswith("for j<32, l<16:")


@pytest.mark.parametrize(
    ("function", "shapes", "first"),
    [
        (pooled, [(4, 20, 33, 33)], "for j<80, k<16, l<16:"),
        (lambda x, i: x[i], [(200, 7), (64,)], "for i<64, j<7:"),
        (lambda x: nn.max_pool(x, (1, 3), (99, 2)), [(4, 20, 100, 9)], "for j<80, k<2, l<4:"),
    ],
    ids=["full rows", "rows that are looked up", "rows too far from each other"],
)
def test_what_gains_nothing_stays(kernels, function, shapes, first):
    def call(x, *places):
        return function(x, *(place.astype(np.int64) for place in places))

    assert kernels(call, *shapes)[0].splitlines()[0] == first


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.bool_])
@pytest.mark.parametrize("shape", [(3, 5, 7, 7), (64, 3, 4, 4), (2, 33, 3, 5), (1, 40, 9, 3), (5, 1, 1, 6)])
def test_what_moves_elements_of_short_rows_is_right(shape, dtype, compiler, traced, processor):
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(dtype)

    def function(x):
        sides = ((0, 0), (0, 0), (1, 2), (2, 0))
        moved = np.swapaxes(x, 2, 3), np.flip(x, (2, 3)), np.roll(x, 1, 3), np.pad(x, sides)
        return (
            *moved,
            np.repeat(np.repeat(x, 2, 2), 3, 3),
            x[:, :, :, ::2],
            x[:, :, :1] | x if dtype == np.bool_ else x,
        )

    compiler.assert_same(traced(function, x), [x], processor=processor)


@pytest.mark.parametrize("size", [4, 7, 8, 10])
@pytest.mark.parametrize(
    ("window", "step", "padding"), [(2, 2, 0), (3, 2, 1), (3, 1, 1), (5, 3, 2), (2, 1, 0)]
)
def test_pools_of_small_images_are_right(window, step, padding, size, compiler, traced, processor):
    """With their gradients, whole numbers of which all sums are exact."""
    random = np.random.default_rng(size)
    x = random.integers(-9, 9, (6, 11, size, size)).astype(np.float32)
    w = random.integers(-3, 3, (11, 1, window, window)).astype(np.float32)

    def function(x, w):
        def total(x, w):
            largest, sums = nn.max_pool(x, window, step, padding), nn.conv(x, w, step, padding, groups=11)
            return (largest * largest).sum() + (sums * sums).sum() / 2

        return pb.value_and_grad(total, argnums=(0, 1))(x, w)

    compiler.assert_same(traced(function, x, w), [x, w], processor=processor)


def test_an_index_out_of_range_is_found_where_it_was():
    table, places = np.ones((9, 3), np.float32), np.zeros((500, 3), np.int64)
    places[77, 2] = 9
    call = pb.jit(lambda table, places: table[places, 0] * 2.0)
    with pytest.raises(IndexRangeError, match=r"77, 2"):
        call(table, places)
