"""Long sums with few results are cut into parts, and the parts added."""

from __future__ import annotations

import numpy as np

from pullback.compiler.kernels.split import split_sums
from pullback.compiler.lowering.lower import lower
from pullback.compiler.target import Processor
from pullback.numpy.convolution import conv


def test_a_long_sum_is_cut_into_equal_parts(stages):
    tidied = stages(lambda x: np.sqrt((x * x).sum()), (100_000,))["split"]
    parts, total = tidied.split("\nonce:")
    assert parts.startswith("for r0<125:")
    assert "sum[r0_1<800]" in parts
    assert "sqrt(sum[r0<125]" in total


def test_long_sums_beside_others_are_cut_one_by_one(stages, compiler, traced, processor):
    def spread(x):
        return np.exp(np.mean(np.cos(x))) - np.sqrt(np.mean(x * x))

    def scaled(x):
        top = x.max()
        return top + np.log(np.sum(np.exp(x - top)))

    for function, sums in ((spread, 2), (scaled, 1)):
        assert stages(function, (100_000,))["split"].count("= sum[r0_1<800]") == sums
        x = np.linspace(-3, 5, 100_000)
        compiler.assert_same(traced(function, x), [x], processor=processor, rounding=8)
    assert "part_" not in stages(scaled, (1000,))["split"]


def test_what_equal_parts_leave_over_is_a_part(stages):
    parts, left, total = stages(lambda x: x.sum(), (1_000_003,))["split"].split("\nonce:")
    assert parts.startswith("for r0<128:")
    assert "sum[r0_1<7812]" in parts
    assert "[128] = sum[r0<67](argument0[r0 + 999936])" in left
    assert "sum[r0<129]" in total


def test_a_vector_times_a_matrix_is_cut_by_rows(stages):
    tidied = stages(lambda x, w: x @ w, (1014,), (1014, 84))["split"]
    assert "for r0<13, i<84:" in tidied
    assert "sum[r0_1<78]" in tidied
    assert "part_" not in stages(lambda w, x: w @ x, (1014, 84), (84,))["split"]


def test_a_vector_times_a_matrix_is_cut_as_the_vector_was_made(stages):
    """Three rows of the image make three parts of the sum, though thirteen would be taken of another vector."""
    tidied = stages(lambda x, w: np.tanh(x + x.sum(1, keepdims=True)).reshape(-1) @ w, (3, 338), (1014, 84))
    assert "for r0<3, i<84:" in tidied["split"]
    assert "sum[r0_1<338]" in tidied["split"]


def test_short_sums_and_sums_with_many_results_stay_whole(stages):
    assert "part_" not in stages(lambda x: (x * x).sum(), (1000,))["split"]
    assert "part_" not in stages(lambda x: x.sum(1), (100, 1000))["split"]


def test_sums_of_few_elements_are_not_cut_into_parts_of_fewer(stages):
    """Each of many results sums the nine places of a window: parts of three would be as many as is gained."""
    windows = stages(lambda x, w: (x * w).sum((1, 2)), (4, 3, 3, 1000), (4, 3, 3, 1000))
    assert "part_" not in windows["split"]


def test_other_long_reductions_are_cut_like_sums(stages, compiler, traced, processor):
    def function(x, k):
        return x.max(), x.min(0), k.sum(0), (x > 2).any(), k.max()

    parts, total = stages(lambda x: x.max(), (100_000,))["split"].split("\nonce:")
    assert parts.startswith("for r0<125:")
    assert "max[r0<125](part_result0[r0])" in total
    random = np.random.default_rng(0)
    arrays = [random.integers(-3, 4, (30_000, 3)).astype(kind) for kind in (np.float32, np.int16)]
    arrays[0][20_001, 1] = np.nan
    compiler.assert_same(traced(function, *arrays), arrays, processor=processor)


def test_few_rows_that_are_read_along_are_cut_too(stages, compiler, traced, processor):
    """A vector has a row in each lane: of one there would be a single share."""
    assert "part_" in stages(lambda x: x.sum(1), (10, 100_000))["split"]
    assert "part_" not in stages(lambda x: x.sum(1), (100, 10_000))["split"]

    def of_their_own(x):
        y = np.tanh(x)
        return y, y.sum(1)

    assert "part_" not in stages(of_their_own, (10, 100_000))["split"], "the rows are made one by one"
    x = np.random.default_rng(0).integers(-3, 4, (10, 20_001)).astype(np.float32)
    compiler.assert_same(traced(lambda x: (x.sum(1), x.max(1)), x), [x], processor=processor)


def test_sums_in_parts_are_right(compiler, traced, processor):
    def function(x, y):
        return x.sum(0), (x * y).sum(0) + 1, (x[:, 0] * 2).sum(), x.max(), np.tanh(x.sum() / 100)

    def by_matrix(x, y):
        return y[:, 0] @ x, np.tanh(x[:, 1] @ x)

    random = np.random.default_rng(0)
    matrices = [random.integers(-3, 4, (rows, 84)).astype(np.float32) for rows in (1009, 1009)]
    compiler.assert_same(traced(by_matrix, *matrices), matrices, processor=processor, rounding=8)
    arrays = [random.integers(-3, 4, (30_000, 3)).astype(np.float32) for _ in range(2)]
    compiler.assert_same(traced(function, *arrays), arrays, processor=processor, rounding=8)


def test_sums_over_rows_that_a_kernel_makes_are_cut_by_these_rows(stages):
    """The statistics of channels: the parts belong to the row group that makes the array."""

    def means(x):
        y = np.tanh(x)
        return y, y.mean((0, 2))

    cut = stages(means, (20, 30, 50))["split by rows"]
    assert "for r0<20, i<30:" in cut and "sum[r2<50]" in cut and "sum[r0<20](part_" in cut
    assert "part_" not in stages(lambda x: x.mean((0, 2)), (20, 30, 50))["split by rows"], (
        "nobody makes the rows"
    )
    assert "part_" not in stages(means, (20, 30, 7))["split by rows"], "short rows"
    assert "part_" not in stages(means, (2, 30, 50))["split by rows"], "a short sum"


def test_channels_that_are_last_are_cut_by_rows_too(compiler, traced, processor, stages):
    def normal(x):
        y = np.tanh(x)
        return (y - y.mean((0, 1))) / np.sqrt(1e-3 + y.var((0, 1)))

    assert "for r0<20, i<33:" in stages(normal, (20, 50, 33))["split by rows"]
    x = np.random.default_rng(0).standard_normal((20, 50, 33)).astype(np.float32)
    compiler.assert_same(traced(normal, x), [x], processor=processor, rounding=64)


def test_sums_at_computed_places_are_not_cut_by_rows(stages):
    """They have an emitter of their own, which knows the whole sum."""

    def function(x, v):
        y = np.tanh(x).max(3)
        return y, (y * v[np.argmax(x, 3)]).sum((0, 2))

    assert "part_" not in stages(function, (20, 30, 50, 3), (3,))["split by rows"]


def test_images_are_multiplied_whole_however_many_they_are(stages):
    """Each reads its own piece, and the weight: what all of them take together need not stay near."""
    for images in (8, 128):
        text = stages(lambda x, w: conv(x, w, 1, 0), (images, 64, 12, 12), (32, 64, 3, 3))["split"]
        assert "part_" not in text


def test_deep_products_are_cut_so_that_their_operands_stay_near(stages, compiler, traced, processor):
    """Each row of a tile reads all of an operand; of a shallow one the parts would cost more than that."""

    def gradient(x, g):
        return np.einsum("bip,bjp->ij", x, g)

    assert "for r0<8, i<300, j<300" in stages(gradient, (32, 300, 64), (32, 300, 64))["split"]
    assert "part_" not in stages(gradient, (4, 300, 60), (4, 300, 60))["split"]
    random = np.random.default_rng(0)
    arrays = [random.integers(-3, 4, (32, 300, 64)).astype(np.float32) for _ in range(2)]
    compiler.assert_same(traced(gradient, *arrays), arrays, processor=processor, rounding=8)


def test_few_rows_times_a_large_matrix_go_through_it_once(stages):
    """The matrix is beyond the second-level cache: 8 of its rows side by side, or 32 where each serves several.

    From beyond the third-level cache they are 8 again.
    """
    one = stages(lambda x, w: x @ w, (2048,), (2048, 600))["split"]
    assert "for r0<16, r0_1<16, i<600:" in one
    assert "sum[r0_2<8]" in one
    few = stages(lambda x, w: x @ w, (3, 2048), (2048, 400))["split"]
    assert "for r0<16, r0_1<4, i<3, j<400:" in few
    assert "sum[r0_2<32]" in few
    far = stages(lambda x, w: x @ w, (3, 8192), (8192, 400))["split"]
    assert "for r0<64, r0_1<16, i<3, j<400:" in far
    assert "sum[r0_2<8]" in far
    assert "part_" not in stages(lambda x, w: x @ w, (12, 300), (300, 400))["split"]
    assert "part_" not in stages(lambda x, w: x @ w, (30, 2048), (2048, 400))["split"]


def test_columns_of_a_large_matrix_are_summed_row_by_row(stages):
    """Rows shorter than half a page, and those of a matrix that a cache holds, come soon enough in any order."""
    for function, kind in (
        (lambda x: x.sum(0), "sum"),
        (lambda x: x.max(0), "max"),
        (lambda x: np.cos(x).sum(0), "sum"),
    ):
        assert f"{kind}[r0_2<8]" in stages(function, (2048, 600))["split"]
        for shape in ((4096, 300), (200, 600)):
            assert "r0_2" not in stages(function, shape)["split"]
        assert "part_" not in stages(function, (24, 60_000))["split"], "all its rows go side by side"
    assert stages(lambda x: x.var(0), (2048, 600))["split"].count("sum[r0_2<8]") == 2
    assert "part_" not in stages(lambda x: (x.sum(0), x.var(1)), (600, 600))["split"]


def test_pieces_of_far_rows_are_summed_row_by_row(stages):
    """The third-level cache does not hold the images: their channels are met in the order in which they lie."""
    text = stages(lambda x: x.sum((0, 2)), (100, 30, 1000))["split"]
    assert "for r0<100, i<30:" in text and "sum[r2<1000]" in text
    assert "part_" not in stages(lambda x: x.sum((0, 2)), (20, 30, 1000))["split"]
    text = stages(lambda x: x.max((0, 2)), (200, 30, 1000))["split"]
    assert "for r0<100, r0_1<2, i<30:" in text and "max[r2<1000]" in text


def test_columns_of_many_far_matrices_are_summed_by_some_rows(stages, compiler, traced, processor):
    """Means over time of sequences, say; those that were made just before are in a cache."""

    def made(x):
        y = np.tanh(x) * x.sum(2, keepdims=True)
        return y, y.max(1)

    assert "for i<20, r1<12, j<3000:" in stages(lambda x: x.max(1), (20, 100, 3000))["split"]
    for function, shape in (
        (lambda x: x.max(1), (20, 10, 3000)),
        (lambda x: x.max(1), (20, 100, 300)),
        (made, (20, 100, 3000)),
    ):
        assert "r1<12" not in stages(function, shape)["split"]
    x = np.random.default_rng(0).integers(-9, 9, (9, 75, 6200)).astype(np.float32)
    compiler.assert_same(traced(lambda x: x.sum(1) * 2, x), [x], processor=processor)


def test_columns_that_are_summed_row_by_row_are_right(compiler, traced, processor):
    random = np.random.default_rng(0)
    for depth in (1031, 300):
        x = random.integers(-3, 4, (depth, 513)).astype(np.float32)
        x[5, 3], x[7, 4], x[:, 5], x[9, 5] = np.nan, -np.inf, -0.0, 0.0
        for kind in ("sum", "max", "min", "prod"):
            graph = traced(lambda x, kind=kind: getattr(x, kind)(0), x)
            compiler.assert_same(graph, [x], processor=processor)
        compiler.assert_same(traced(lambda x: (x.max(0), x.sum(0)), x), [x], processor=processor)
        finite = random.standard_normal((depth, 513)).astype(np.float32)
        compiler.assert_same(traced(lambda x: x.var(0), finite), [finite], processor=processor, rounding=64)


def test_rows_by_a_large_matrix_that_lies_along_the_sum_are_packed_from_five_on(stages):
    """Its transposed copy would be read and written as a whole; of fewer rows the sums go along it."""
    for rows in (2, 12):
        assert "packed" not in stages(lambda x, w: x @ w.T, (rows, 2048), (400, 2048))["pack"]
    assert "packed" in stages(lambda x, w: x @ w.T, (12, 64), (64, 64))["pack"]


def test_few_rows_times_a_matrix_that_a_cache_holds_share_its_columns_out(traced):
    """Where all rows are one tile, that is, which many registers hold."""

    def product(registers, rows, depth, columns):
        arrays = [np.zeros(shape, np.float32) for shape in ((rows, depth), (depth, columns))]
        target = Processor("generic", "", "x86_64", 2 * registers, registers, l2_bytes=1 << 20)
        lowered = lower(traced(lambda x, w: x @ w, *arrays), target)
        return [str(kernel.axes) for kernel in split_sums(lowered.kernels, target)]

    assert product(32, 9, 500, 256) == ["(j<8, i<9, j<32)"]
    assert product(32, 9, 500, 260) == ["(j<8, i<9, j<32)", "(i<9, j<4)"]
    assert product(32, 9, 500, 32) == ["(i<9, j<32)"]  # too little work
    assert product(32, 40, 500, 256) == product(16, 40, 500, 256) == ["(i<40, j<256)"]
    assert product(16, 9, 500, 256) == ["(i<9, j<256)"]


def test_products_of_few_rows_are_right(compiler, traced, processor):
    random = np.random.default_rng(0)
    for depth in (2048, 1031, 300):
        matrix = random.integers(-3, 4, (depth, 513)).astype(np.float32)
        for rows in (1, 2, 3, 7, 8, 12):
            x = random.integers(-3, 4, (rows, depth)).astype(np.float32)
            plain, along = [x, matrix], [x, np.ascontiguousarray(matrix.T)]
            compiler.assert_same(
                traced(lambda x, w: np.maximum(x @ w, 0) + 1, *plain), plain, processor=processor
            )
            compiler.assert_same(traced(lambda x, w: x @ w.T + 1, *along), along, processor=processor)


def test_squared_distances_are_taken_from_the_mean_of_each_row(stages):
    """So one exchange between the rows gives mean and variance, and each row is read while it is there."""

    def normal(x):
        x = np.tanh(x)
        centred = x - x.mean((0, 2), keepdims=True)
        return centred / np.sqrt((centred * centred).mean((0, 2), keepdims=True) + 1e-5)

    by_rows = stages(normal, (32, 8, 600))["split by rows"]
    assert by_rows.count("<600]") == 2
    assert "t0 * t0" in by_rows
    assert "600.0 * (t2 * t2)" in by_rows


def test_a_mean_that_a_kernel_of_its_own_divides_is_one_too(stages):
    def moments(x):
        x = np.tanh(x)
        mean = x.mean((0, 2), keepdims=True)
        return mean, ((x - mean) * (x - mean)).mean((0, 2))

    assert "600.0 * (" in stages(moments, (32, 8, 600))["split by rows"]


def test_distances_from_what_may_be_finite_where_the_mean_is_not(compiler, traced, processor):
    def distances(x):
        x = np.exp(x)
        centred = x - x.mean((0, 2), keepdims=True)
        from_elsewhere = x - np.minimum(x.mean((0, 2), keepdims=True), 1)
        return (centred * centred).mean((0, 2)), (from_elsewhere * from_elsewhere).mean((0, 2))

    x = np.random.default_rng(0).standard_normal((30, 5, 400)).astype(np.float32)
    x[3, 2, 1] = np.inf
    with np.errstate(all="ignore"):
        compiler.assert_same(traced(distances, x), [x], processor=processor, rounding=200)


def test_variances_by_rows_are_right(compiler, traced, processor):
    """Of values far from zero too, and where samples differ more than what is in them."""
    random = np.random.default_rng(0)
    near = random.normal(size=(24, 5, 40, 9)).astype(np.float32)
    far = near + 1000 + 100 * np.arange(24, dtype=np.float32)[:, None, None, None]

    def statistics(x):
        y = np.maximum(x, -2) * 3
        return y.var((0, 2, 3)), (y - y.mean((0, 2, 3), keepdims=True)).std((0, 2, 3))

    for x in (near, far, far[:21, :, :13]):
        compiler.assert_same(traced(statistics, x), [x], processor=processor, rounding=40)
        wide = np.var(np.maximum(x.astype(np.float64), -2) * 3, (0, 2, 3))
        (found, _) = compiler.run(traced(statistics, x), [x], processor=processor)
        np.testing.assert_allclose(found, wide, rtol=2e-5)


def test_variances_by_rows_of_what_adds_up_to_infinity_are_infinite(compiler, traced, processor):
    x = np.full((24, 5, 400), 3e38, np.float32)
    with np.errstate(all="ignore"):
        compiler.assert_same(traced(lambda x: np.maximum(x, -2).var((0, 2)), x), [x], processor=processor)
        (found,) = compiler.run(traced(lambda x: np.maximum(x, -2).var((0, 2)), x), [x], processor=processor)
    assert np.isposinf(found).all()
