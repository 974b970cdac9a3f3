"""Factors that a mask has made zero are left out of sums at computed places, and no bit tells."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback.compiler.build import build
from pullback.compiler.runtime.threads import get_num_threads, set_num_threads
from pullback.compiler.stages import run_stages
from pullback.compiler.target import Processor
from pullback.operators.logic import spoilt
from pullback.operators.pooling import convolve_max_unpooled

WIDE = Processor(
    "x86-64-v4", "+avx512f,+avx512vl,+avx512bw,+avx512dq,+avx2,+fma", "x86_64", 64, 32, l1_bytes=32 << 10
)
NARROW = Processor("x86-64-v3", "+avx2,+fma", "x86_64", 32, 16, l1_bytes=32 << 10)


def slope(x, y, mask, winner):
    """Of the weights of a convolution (5, 20, 20) → (6, 18, 18) with 3 × 3 windows, behind a pool and a relu."""
    return of_weights(x, np.where(mask > 0, y, 0), winner, spoilt(x, (0,)))


def of_weights(x, y, winner, *flags):
    return convolve_max_unpooled(
        x,
        y,
        winner,
        *flags,
        shape=(5, 6, 18, 18),
        pool=((2, 3), (2, 2), (2, 2), (1, 1)),
        x_layout="cb01",
        w_layout="co01",
        out_layout="ob01",
        strides=(1, 1),
        dilations=(1, 1),
    )


def expected(x, y, mask, winner):
    """The definition, place by place, those of no winner among them: zero times infinity counts."""
    made, placed = np.zeros((6, 1, 3, 3), x.dtype), np.zeros((5, 6, 18, 18), y.dtype)
    n, o, i, j = np.indices(y.shape)
    placed[n, o, 2 * i + winner // 2, 2 * j + winner % 2] = np.where(mask > 0, y, 0)
    with np.errstate(all="ignore"):
        for n, o, k, m in np.ndindex(5, 6, 3, 3):
            made[o, 0, k, m] += (placed[n, o] * x[n, 0, k : k + 18, m : m + 18]).sum()
    return made


def operands(dtype=np.float32, share=0.5):
    """Small whole numbers, whose sums are exact in any order; ``share`` of them pass the mask."""
    random = np.random.default_rng(0)
    x, y = (random.integers(-3, 4, shape).astype(dtype) for shape in ((5, 1, 20, 20), (5, 6, 9, 9)))
    mask = (random.random(y.shape) < share).astype(dtype)
    return [x, y, mask, random.integers(0, 4, y.shape).astype(np.int32)]


def schedules(graph, processor) -> str:
    found = {}
    build(graph, {}, processor, watch=lambda stage: found.update({stage.name: str(stage)}))
    return found["regions"]


def test_masked_factors_are_compacted_where_the_target_can(traced):
    x, y, _, winner = arrays = operands()
    unmasked = traced(lambda x, y, winner: of_weights(x, y, winner, spoilt(x, (0,))), x, y, winner)
    assert "sums at computed places, compacted" in schedules(traced(slope, *arrays), WIDE)
    assert "compacted" not in schedules(traced(slope, *arrays), NARROW)
    assert "compacted" not in schedules(unmasked, WIDE)


def without_flags(x, y, mask, winner):
    return of_weights(x, np.where(mask > 0, y, 0), winner)


def test_nothing_is_left_out_of_sums_that_do_not_say_what_is_infinite(traced):
    assert "compacted" not in schedules(traced(without_flags, *operands()), WIDE)


def of_bytes(images, y, mask, winner):
    return without_flags(images * np.float32(1 / 4), y, mask, winner)


def test_what_is_finite_whatever_the_arguments_hold_needs_no_flags(traced, compiler, processor):
    x, *others = operands()
    images = np.abs(x).astype(np.uint8)
    graph = traced(of_bytes, images, *others)
    assert "sums at computed places, compacted" in schedules(graph, WIDE)
    others[0][2, 0, 0, 0] = np.inf
    others[1][2, 0, 0, 0] = 1
    wanted = expected(images * np.float32(1 / 4), *others)
    assert not np.isfinite(wanted).all()
    (made,) = compiler.run(graph, [images, *others], processor=processor)
    np.testing.assert_array_equal(made, wanted)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_share_of_zeros(share, dtype, compiler, traced, processor):
    arrays = operands(dtype, share)
    (found,) = compiler.run(traced(slope, *arrays), arrays, processor=processor)
    np.testing.assert_array_equal(found, expected(*arrays))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("operand", [0, 1, 2])
def test_zero_meets_infinity_and_nan(value, operand, compiler, traced, processor):
    """Beside a zero that the mask has made, beside one that was there, and in the mask itself."""
    arrays = operands()
    arrays[1][1, :3] = 0
    for place in ((1, 0, 0, 4), (2, 0, 0, 8)):
        arrays[operand][place] = value
    graph, wanted = traced(slope, *arrays), expected(*arrays)
    assert not np.isfinite(wanted).all() or operand == 2
    assert np.isfinite(wanted).any()
    np.testing.assert_array_equal(compiler.run(graph, arrays, processor=processor)[0], wanted)
    made = run_stages(graph, arrays, WIDE)
    for _, (found,) in made[[stage.name for stage, _ in made].index("compact") :]:
        np.testing.assert_array_equal(found, wanted)


def test_one_infinite_pixel_spoils_what_meets_it_and_nothing_else(compiler, traced, processor):
    """In a corner it meets the first weight of each output alone, most often as zero times infinity."""
    arrays = operands()
    arrays[0][3, 0, 0, 0] = np.inf
    arrays[3][3, :, 0, 0] = 0
    graph = traced(slope, *arrays)
    (found,) = compiler.run(graph, arrays, processor=processor)
    spoilt = ~np.isfinite(found.reshape(6, 9))
    assert spoilt[:, 0].all()
    assert not spoilt[:, 1:].any()
    passing = (arrays[1] * (arrays[2] > 0))[3, :, 0, 0]
    np.testing.assert_array_equal(np.isnan(found.reshape(6, 9)[:, 0]), passing == 0)


def test_sums_of_zeros_of_either_sign_are_positive(compiler, traced, processor):
    x, y, mask, winner = operands()
    x, y = -np.abs(x), np.where(mask > 0, -0.0, 0.0).astype(np.float32)
    graph = traced(slope, x, y, mask, winner)
    (found,) = compiler.run(graph, [x, y, mask, winner], processor=processor)
    assert not found.any()
    assert not np.signbit(found).any()


def test_bits_are_those_of_any_number_of_threads(traced):
    random = np.random.default_rng(1)
    x, _, mask, winner = operands()
    x, y = (random.standard_normal(shape).astype(np.float32) for shape in (x.shape, mask.shape))
    compiled, found, before = pb.jit(slope), [], get_num_threads()
    try:
        for threads in (1, 3):
            set_num_threads(threads)
            found.append(compiled(x, y, mask, winner))
    finally:
        set_num_threads(before)
    np.testing.assert_array_equal(*found)
