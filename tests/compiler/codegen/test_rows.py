"""Elementwise work and reductions, fused into rows of every length and as loops over columns."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

import pullback as pb
from pullback import jit
from pullback.compiler.kernels.fuse import fuse
from pullback.compiler.lowering.lower import lower
from pullback.compiler.schedules.map import lane_axis
from pullback.compiler.schedules.reduction import is_transposed
from pullback.compiler.target import Processor
from pullback.loops import Reduce, walk

WIDTHS = (1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 33, 64, 65, 100, 5000)
HEIGHTS = (1, 20)


def numbers(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return (np.random.default_rng(shape).standard_normal(shape) * 2).astype(dtype)


def integers(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(shape).integers(-4, 5, shape).astype(dtype)


def softmax(z):
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def log_softmax(z):
    shifted = z - z.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def layer_normalised(z):
    return (z - z.mean(-1, keepdims=True)) / np.sqrt(z.var(-1, keepdims=True) + 0.25)


def batch_normalised(z):
    return (z - z.mean(0)) / np.sqrt(z.var(0) + 0.25)


@pytest.mark.parametrize("width", WIDTHS)
def test_rows_of_every_length(width, compiler, traced, processor):
    def rows(*arrays):
        return [f(z) for z in arrays for f in (softmax, log_softmax, layer_normalised, batch_normalised)]

    arrays = [numbers(height, width) for height in HEIGHTS]
    compiler.assert_same(traced(rows, *arrays), arrays, processor=processor, rounding=512)


@pytest.mark.parametrize("width", WIDTHS[:-1])
def test_reductions_along_every_axis(width, compiler, traced, processor):
    def reductions(*arrays):
        results = []
        for z in arrays:
            for axis in (0, 1, None):
                results += [z.sum(axis), z.max(axis), z.min(axis), z.argmax(axis), z.argmin(axis)]
                results += [(z > 3).sum(axis), (z > 3).any(axis), (z < 4).all(axis)]
            results += [
                np.sign(z).prod(1),
                z - z.sum(1, keepdims=True),
                z * z.max(0),
                (z.sum(1) - z.max()).min(),
            ]
        return results

    arrays = [integers(height, width) for height in HEIGHTS]
    compiler.assert_same(traced(reductions, *arrays), arrays, processor=processor)


@pytest.mark.parametrize("columns", [1, 2, 3, 4, 5, 7, 8, 9, 15])
@pytest.mark.parametrize("rows", [1, 2, 5, 9])
def test_reductions_of_short_rows(rows, columns, compiler, traced, processor):
    """Several rows are added side by side, and several of a row where lanes lie across."""

    def reductions(x, y, rates):
        found = [f(z, axes) for z, axes in ((x, (1, 2)), (y, (0, 1))) for f in (np.sum, np.max, np.min)]
        for z in (x.reshape(6, -1), y.reshape(-1, 20).T, x[:, :, columns // 4 :].reshape(6, -1)):
            found += [z.argmax(1), z.argmin(1), np.sign(z).prod(1), (z > 1).sum(1)]
        return [*found, (x * x[:, ::-1]).sum((1, 2)), (x * rates[:, None]).sum((1, 2))]

    arrays = integers(6, rows, columns), integers(rows, columns, 20), integers(rows)
    compiler.assert_same(traced(reductions, *arrays), arrays, processor=processor)


@pytest.mark.parametrize(
    "dtype", [np.float64, np.int8, np.int16, np.int64, np.uint8, np.uint16, np.uint64, bool]
)
def test_reductions_in_other_dtypes(dtype, compiler, traced, processor):
    def reductions(*arrays):
        results = []
        for z in arrays:
            for axis in (0, 1, None):
                results += [z.max(axis), z.min(axis), z.argmax(axis), z.argmin(axis)]
                results += [z.any(axis)] if dtype is bool else [z.sum(axis), z.prod(axis)]
        return results

    information = None if dtype in (bool, np.float64) else np.iinfo(dtype)
    low, high = (
        (0, 2) if information is None else (max(information.min, -(2**40)), min(information.max, 2**40))
    )
    random = np.random.default_rng(3)
    arrays = [
        random.integers(low, high, shape).astype(dtype) for shape in [(1, 1), (3, 37), (37, 3), (19, 16)]
    ]
    compiler.assert_same(traced(reductions, *arrays), arrays, processor=processor)


AXES = [axes for count in (1, 2, 3) for axes in itertools.combinations(range(4), count)]


def test_reductions_over_several_axes(compiler, traced, processor):
    def reductions(x):
        turned = np.transpose(x, (3, 1, 0, 2))
        results = [f(axes) for axes in AXES for f in (x.sum, x.max, turned.sum, turned.min)]
        results += [x[:, :, ::2, 1:].sum(axes) for axes in AXES]
        results += [x.reshape(4, 30, 18).argmax(1), turned.reshape(18, -1).argmin(1)]
        return results

    arrays = [integers(4, 5, 6, 18)]
    compiler.assert_same(traced(reductions, *arrays), arrays, processor=processor)


def test_groups_of_axes_are_normalised(compiler, traced, processor):
    def normalised(x):
        results = []
        for axes in [(1, 3), (0, 2, 3), (2,), (0, 1, 2, 3)]:
            centred = x - x.mean(axes, keepdims=True)
            results.append(centred / np.sqrt((centred * centred).mean(axes, keepdims=True) + 0.5))
        return results

    arrays = [numbers(4, 5, 6, 18)]
    compiler.assert_same(traced(normalised, *arrays), arrays, processor=processor, rounding=512)


@pytest.mark.parametrize("width", [1, 7, 16, 33])
def test_dtypes_side_by_side(width, compiler, traced, processor):
    def mixed(pixels, x, y, count, flag):
        scaled = pixels.astype(np.float32) / np.float32(255) - np.float32(0.5)
        wide = x.astype(np.float64) * y[:, :1] + y
        chosen = np.where(count % 3 == 0, wide, scaled.astype(np.float64))
        return (
            scaled,
            wide,
            chosen.astype(np.float32),
            count > x.astype(np.int64),
            (count > 2) & flag | ~(x > 0),
            flag.astype(np.uint8) + pixels,
            (wide > 0).sum(1),
            np.where(flag, pixels, pixels // 3).astype(np.int64) * count,
        )

    random = np.random.default_rng(width)
    arrays = [
        random.integers(0, 256, (9, width)).astype(np.uint8),
        numbers(9, width),
        numbers(9, width, dtype=np.float64),
        random.integers(-9, 9, (9, width)),
        random.integers(0, 2, (9, width)).astype(bool),
    ]
    compiler.assert_same(traced(mixed, *arrays), arrays, processor=processor, rounding=16)


def test_rows_of_different_lengths_in_one_kernel(compiler, traced, processor):
    def several(x, y, z):
        best = x.argmin(1)
        total = (best * best).sum(1)
        return best, y * total[:, None], z - total[:, None], (y.sum(1) - total)[:, None] * z

    arrays = [integers(7, 5, 16, dtype=np.int32), integers(7, 9), integers(7, 3)]
    compiler.assert_same(traced(several, *arrays), arrays, processor=processor)


def test_reductions_inside_reductions(compiler, traced, processor):
    def nested(x, w):
        inner = np.einsum("ijk,k->ij", w, np.exp(x / 8)) + x
        return np.einsum("ij,j->i", inner, x), softmax(w).argmax(-1).max(-1), softmax(inner).argmax(1)

    arrays = [numbers(13, dtype=np.float64), integers(3, 13, 13, dtype=np.float64)]
    compiler.assert_same(traced(nested, *arrays), arrays, processor=processor, rounding=512)


def test_a_difference_of_equal_products_is_zero(compiler, traced, processor):
    x = numbers(500)
    found = compiler.run(
        traced(lambda a, b: (np.sqrt(a * a - b * b), a * b - b * a), x, x), [x, x], None, processor
    )
    np.testing.assert_array_equal(found, np.zeros((2, 500)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [1, 2, 3, 4, 7, 8, 16, 32, 33, 64, 200])
def test_the_sum_of_a_row_of_negative_zeros_is_positive(width, dtype, compiler, traced, processor):
    def function(x):
        total = np.sum(-np.abs(x), axis=1, keepdims=True)
        return total, np.exp(x - np.max(x, axis=1, keepdims=True)) * total

    x = np.zeros((5, width), dtype)
    for found in compiler.run(traced(function, x), [x], processor=processor):
        assert not np.signbit(found).any()


def test_values_that_are_not_finite_pass_through(compiler, traced, processor):
    def function(x, y):
        return (
            x * y - x * y,
            x - x,
            x / y,
            np.maximum(x, y),
            np.minimum(x, y),
            np.where(x > y, x, y),
            x + 0 * y,
        )

    special = np.array([np.inf, -np.inf, np.nan, 1, 0, -0.0], np.float32)
    x, y = (np.ascontiguousarray(column) for column in np.array(list(itertools.product(special, special))).T)
    compiler.assert_same(traced(function, x, y), [x, y], processor=processor)


@pytest.mark.parametrize("length", [200, 1500])
def test_long_chains(length, compiler, traced):
    def chain(x, y):
        z = x
        for k in range(length):
            z = np.tanh(z) + y if k % 7 == 0 else z * y - x
        return z

    arrays = [numbers(20, dtype=np.float64) / 4, numbers(20, dtype=np.float64) / 8]
    compiler.assert_same(traced(chain, *arrays), arrays, rounding=4096)


def test_the_longest_row_that_is_kept_together(compiler, traced):
    arrays = [numbers(2, 16384), numbers(2, 16385)]
    compiler.assert_same(traced(lambda x, y: (softmax(x), softmax(y)), *arrays), arrays, rounding=512)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_quotients_end_with_their_row(dtype, compiler, traced, processor):
    """Lanes beyond the end hold 0 / 0, which must not be added."""

    def quotients(*arrays):
        results = []
        for x, y in zip(arrays[::2], arrays[1::2]):
            ratio = x / y
            results += [ratio.sum(1), ratio.max(1), ratio.min(1), (ratio * x).sum(1), ratio.sum()]
            results += [np.where(x < y, ratio, 0).sum(1), ratio / ratio.sum(1, keepdims=True)]
            results += [np.log(x).sum(1), (x % y).sum(1), np.arctan2(x, y).sum(1), np.sqrt(1 / x).prod(1)]
        return results

    shapes = [(3, width) for width in (1, 3, 5, 6, 9, 17, 19, 33, 65, 130)]
    arrays = [np.abs(numbers(*shape, dtype=dtype)) + dtype(k + 0.5) for shape in shapes for k in (0, 1)]
    compiler.assert_same(traced(quotients, *arrays), arrays, processor=processor, rounding=256)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [7, 8, 10, 16, 33, 84])
@pytest.mark.parametrize("height", [3, 4, 15, 37, 200])
def test_matrices_times_vectors(height, width, dtype, compiler, traced, processor):
    """Rows are read as they lie, a vector's worth of them at once; columns with some accumulators each."""

    def products(w, z, x, three):
        return (
            np.tanh(w @ z),
            x @ w,
            (w * w).max(1) + x,
            np.exp(z) @ np.exp(w.T) * x,
            (three * z).sum((1, 2)),
            three.min((1, 2)) * 2,
        )

    arrays = [
        integers(*shape, dtype=dtype) for shape in ((height, width), (width,), (height,), (height, 3, width))
    ]
    compiler.assert_same(traced(products, *arrays), arrays, processor=processor, rounding=32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [7, 8, 16, 33])
@pytest.mark.parametrize("picks", [1, 4, 15, 37, 200])
def test_sums_over_rows_at_computed_places(picks, width, dtype, compiler, traced, processor):
    """Rows that are picked are read as they lie, like those of a matrix that come in order."""

    def products(w, z, i, j):
        left, right = w[i], w[j]
        return (
            (left * right).sum(1),
            np.tanh(left @ z),
            left.max(1) - right.min(1),
            (np.abs(left - right) * z).sum(1) / (1 + np.abs(left).sum(1)),
            (w[i % 5] * right).sum(1),
        )

    random = np.random.default_rng(picks)
    places = [random.integers(-50, 50, picks) for _ in range(2)]
    arrays = [integers(50, width, dtype=dtype), integers(width, dtype=dtype), *places]
    compiler.assert_same(traced(products, *arrays), arrays, processor=processor, rounding=32)


def test_rows_at_places_out_of_range_are_told_with_the_place():
    dots = jit(lambda w, i: (w[i] * w[i]).sum(1))
    w, i = numbers(30, 16), np.arange(21) % 30
    np.testing.assert_allclose(dots(w, i), (w[i] * w[i]).sum(1), rtol=1e-5)
    for wrong in (30, -31):
        i[20] = wrong
        with pytest.raises(IndexError, match=str(wrong)):
            dots(w, i)


def test_lanes_beyond_the_last_row_and_column_change_nothing(compiler, traced, processor):
    """What is not read is taken for zero, and zero times infinity would not be."""

    def products(w, z):
        return w @ z, (w * np.inf).max(1), (np.exp(w) * z).sum(1)

    w, z = integers(21, 19), integers(19)
    w[20] = np.inf
    z[3] = 0
    compiler.assert_same(
        traced(products, np.abs(w), np.abs(z) + 1),
        [np.abs(w), np.abs(z) + 1],
        processor=processor,
        rounding=64,
    )


def test_far_rows_come_one_by_one_and_near_ones_side_by_side(traced):
    """The third-level cache does not hold 20 MB, but their rows of 40 bytes lie in few lines each."""

    def centred(x, mean):
        return ((x - mean[:, None]) ** 2).sum(1)

    def lies_along_results(function, *shapes):
        graph = traced(function, *(np.zeros(shape, np.float32) for shape in shapes))
        target = Processor("generic", "", "x86_64", 64, 32)
        lowered = lower(graph, target)
        *_, kernel = fuse(lowered.kernels, lowered.outputs, target)
        return lane_axis(kernel, target) is not None

    for shape, near in (((5000, 1000), False), ((500, 1000), True), ((500_000, 10), True)):
        assert lies_along_results(lambda x: np.sum(x, 1), shape) is near
        assert lies_along_results(centred, shape, shape[:1]) is near
    spread = lies_along_results(lambda x, mean: ((x - mean[:, None]) ** 2).sum(2), (32, 3, 5000), (3,))
    assert not spread, "a mean is read once a row"


def test_a_mean_inside_a_sum_is_computed_once_for_its_row(compiler, traced, monkeypatch):
    """Rows are not turned round when each of their vectors would have to compute the inner sum again."""
    inner = []

    def watch(stage, lowered, kernels):
        if stage == "split":
            for kernel in kernels:
                for e in kernel.expressions():
                    if isinstance(e, Reduce) and any(isinstance(part, Reduce) for part in walk(e.body)):
                        inner.append(is_transposed(e, kernel.axes[-1], Processor.host()))

    monkeypatch.setattr(type(compiler), "check", staticmethod(watch))
    x = np.random.default_rng(0).standard_normal((5, 6, 40)).astype(np.float32)
    compiler.assert_same(traced(lambda x: x.var((0, 2)), x), [x], rounding=64)
    assert inner == [False]


def sums_and_stores(x, y):
    """Sums of a row that need what is stored for it, what another sum leaves, or neither."""
    z = np.tanh(x + y)
    norm = np.sqrt((z * z).sum(1, keepdims=True) + 1)
    slope = (1 - z * z) / norm
    return (
        z,
        z.sum(1),
        (1 - z * z).max(1),
        slope * (z * y).sum(1, keepdims=True),
        (slope * z).sum(1),
        (slope * x).min(1),
        np.arctan(z.sum(1) + x[:, 0]),
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [4, 7, 63, 129, 200, 515])
def test_sums_along_a_row_that_share_functions(width, dtype, compiler, traced, processor):
    """They are made in one loop where registers do not hold the row, in those of its stores if these need none."""
    arrays = [numbers(5, width, dtype=dtype), numbers(5, width, dtype=dtype)]
    compiler.assert_same(traced(sums_and_stores, *arrays), arrays, processor=processor, rounding=64)


OVERWRITTEN = {
    "beside the sum": lambda x, y: (np.tanh(x), np.tanh(x).sum(1) + x[:, 0]),
    "beside the largest": lambda x, y: (np.tanh(x), np.tanh(x).max(1) - x.min(1)),
    "in the sum": lambda x, y: (np.tanh(x), (np.tanh(x) * x).sum(1), np.tanh(x).sum(1) * 2),
    "further on": lambda x, y: (np.tanh(x), (np.tanh(x) * np.roll(np.tanh(x), -1, 1)).sum(1)),
    "backwards": lambda x, y: (
        (np.tanh(x) * (y * y).sum(1, keepdims=True))[:, ::-1],
        (np.tanh(x) * y).sum(1),
    ),
}


@pytest.mark.parametrize("donated", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("step", OVERWRITTEN.values(), ids=OVERWRITTEN.keys())
def test_what_sums_read_is_not_overwritten_by_the_stores_beside_them(step, donated):
    x, y = numbers(40, 300), numbers(40, 300)
    wanted = step(x.astype(np.float64), y.astype(np.float64))
    for found, right in zip(jit(step, donate_argnums=donated)(x.copy(), y.copy()), wanted, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("width", [129, 200, 515])
def test_sums_beside_stores_that_ask_for_their_place_or_their_neighbours(width, compiler, traced, processor):
    def function(x):
        z = np.tanh(x)
        first = np.where(np.arange(width) < 1, z, 2 * z)
        apart = np.concatenate([z[:, :1], z[:, 1:] - z[:, :-1]], 1)
        return first, apart, z.sum(1), (z - x).max(1), z + np.roll(x, 1, 1)

    x = numbers(17, width, dtype=np.float64)
    compiler.assert_same(traced(function, x), [x], processor=processor, rounding=64)


def sums_of_slopes(x):
    z = np.tanh(x)
    return z.sum(1) + x[:, 0], (z - x).mean(1)


def test_sums_beside_slopes_of_single_elements():
    def both(x):
        return sums_of_slopes(x), pb.grad(lambda x: sum(map(np.sum, sums_of_slopes(x))))(x)

    x = numbers(17, 200, dtype=np.float64)
    for found, right in zip(jit(both)(x)[0], sums_of_slopes(x)):
        np.testing.assert_allclose(found, right, rtol=1e-12)


def test_sums_that_share_functions_evaluate_them_once():
    def energy(a, b):
        return np.sum(np.tanh(a[:, None] + b))

    slopes = jit(pb.value_and_grad(energy, (0, 1)))
    text = slopes.inspect(numbers(600), numbers(600)).llvm
    blocks = re.findall(r"(loop\d+):\n(.*?)(?=\n\w+:\n|$)", text, re.DOTALL)
    assert sum("fdiv" in body and f"label %{name}," in body for name, body in blocks) == 1


def test_vectors_that_all_rows_use_are_read_before_the_loop_over_rows():
    width = 4 * Processor.host().lanes(4)
    w, h, z = numbers(512, width), numbers(512), numbers(width)
    swept = jit(lambda w, h, z: (w @ z, w - h[:, None] * z))
    text = swept.inspect(w, h, z).llvm
    (body,) = re.findall(r"(loop\d+):\n(.*?)br i1 %v\d+, label %\1,", text, re.DOTALL)
    assert len(re.findall(r"load <\d+ x float>", body[1])) == 4
    for found, wanted in zip(swept(w, h, z), (w @ z, w - h[:, None] * z)):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def tanh_rows(z):
    return layer_normalised(np.tanh(z))


CHAINS = {
    "softmax of softmax": lambda z: softmax(softmax(z)),
    "normalised twice": lambda z: layer_normalised(layer_normalised(z)),
    "normalised thrice": lambda z: tanh_rows(tanh_rows(tanh_rows(z))),
    "deviation of an activation": lambda z: pb.selu(z).std(-1),
    "normalised activation": lambda z: layer_normalised(pb.gelu(z)),
    "softmax of a normalised row": lambda z: log_softmax(layer_normalised(z) * 3),
}


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS.keys())
def test_reductions_behind_reductions_over_the_same_rows(chain, compiler, traced, processor):
    """Loops that share an axis close over it each by itself: what moves into one keeps its own."""

    def values_and_gradients(*arrays):
        return [g(z) for z in arrays for g in (chain, pb.grad(lambda z: (chain(z) ** 3).sum()))]

    arrays = [numbers(*shape, dtype=np.float64) for shape in [(2, 3), (5, 16), (3, 130)]]
    compiler.assert_same(traced(values_and_gradients, *arrays), arrays, processor=processor, rounding=1 << 14)
