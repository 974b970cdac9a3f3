"""Products of all shapes and orders, exact: the operands are small integers, so any order of additions is right."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import pullback as pb
from pullback.compiler.build import build, listed
from pullback.compiler.lowering.lower import lower
from pullback.compiler.schedules.contraction import find_contraction
from pullback.compiler.schedules.cost import PACKED_STEPS
from pullback.compiler.schedules.packing import _best_cut
from pullback.compiler.schedules.tiles import choose_tile
from pullback.compiler.target import Processor
from pullback.graph import OPERATORS, Graph, Type, Variable
from pullback.testing.programs.processors import compiled_for, with_cores
from pullback.testing.programs.program import Asked

EDGES = (1, 2, 3, 15, 16, 17, 31, 33, 64, 100)
contract = OPERATORS["contract"]


def integers(*shape: int, dtype: type = np.float32) -> np.ndarray:
    """Whole numbers from -3 to 3, the same for the same shape."""
    return np.random.default_rng(shape).integers(-3, 4, shape).astype(dtype)


def labelled(a: str, b: str, out: str, extents: dict[str, int], dtype: type = np.float32):
    """One product in the labels of ``einsum``, and values for it."""
    arrays = [integers(*(extents[label] for label in labels), dtype=dtype) for labels in (a, b)]
    nodes = [Variable(Type(array.dtype, array.shape)) for array in arrays]
    labels = {
        "a_labels": tuple(map(ord, a)),
        "b_labels": tuple(map(ord, b)),
        "out_labels": tuple(map(ord, out)),
    }
    return nodes, contract(*nodes, **labels), arrays


def several(compiler, processor, products: Iterator) -> None:
    """Many products, one program."""
    nodes, outputs, arrays = [], [], []
    for own, result, values in products:
        nodes += own
        outputs.append(result)
        arrays += values
    compiler.assert_same(Graph(tuple(nodes), tuple(outputs)), arrays, processor=processor)


@pytest.mark.parametrize("rows", EDGES)
def test_every_transposition_and_edge(rows, compiler, processor):
    orders = [("ik", "kj", "ij"), ("ki", "kj", "ij"), ("ik", "jk", "ij"), ("ki", "jk", "ij")]
    shapes = [(n, k) for n in EDGES for k in (1, 3, 17, 100) if (rows + n + k) % 11 == 0]
    several(
        compiler,
        processor,
        (
            labelled(a, b, out, {"i": rows, "j": n, "k": k})
            for (a, b, out), (n, k) in itertools.product(orders, shapes)
        ),
    )


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.int64])
def test_other_dtypes(dtype, compiler, processor):
    orders = [("ik", "kj", "ij"), ("ki", "jk", "ji"), ("bik", "bjk", "bij")]
    extents = [{"i": 5, "j": 9, "k": 17, "b": 2}, {"i": 33, "j": 31, "k": 4, "b": 3}]
    several(compiler, processor, (labelled(*o, e, dtype) for o, e in itertools.product(orders, extents)))


BATCHED = [
    ("bik", "bkj", "bij"),
    ("bik", "bjk", "bij"),
    ("ibk", "jkb", "bij"),
    ("bki", "kbj", "ibj"),
    ("bik", "kj", "jbi"),
    ("ik", "bkj", "bij"),
    ("bcik", "bckj", "bcij"),
    ("icbk", "kjcb", "bicj"),
    ("bikl", "bljk", "bij"),
    ("ilk", "kjl", "ij"),
    ("ikl", "jkl", "ji"),
    ("bi", "bj", "bij"),
    ("bi", "bi", "bi"),
    ("bi", "bi", "b"),
    ("i", "j", "ji"),
    ("ik", "k", "i"),
    ("k", "kj", "j"),
    ("k", "k", ""),
    ("", "ij", "ji"),
    ("ij", "ij", "ij"),
]


@pytest.mark.parametrize("size", [1, 5, 17])
def test_batches_and_several_summed_axes(size, compiler, processor):
    extents = {"b": size, "c": 3, "i": 7, "j": 19, "k": 6, "l": 5}
    turned = {"b": 4, "c": 2, "i": 16, "j": size, "k": 33, "l": 1}
    several(compiler, processor, (labelled(*o, e) for o, e in itertools.product(BATCHED, (extents, turned))))


def test_nothing_to_sum_and_nothing_to_compute(compiler, processor):
    empty = [
        ("ik", "kj", "ij", {"i": 3, "j": 4, "k": 0}),
        ("ik", "kj", "ij", {"i": 0, "j": 4, "k": 5}),
        ("bik", "bkj", "bij", {"b": 0, "i": 3, "j": 4, "k": 5}),
        ("k", "k", "", {"k": 0}),
    ]
    several(compiler, processor, (labelled(*case) for case in empty))


@pytest.mark.parametrize(
    ("shape", "order"),
    [
        ((50, 2000, 70), ("ik", "kj", "ij")),
        ((70, 700, 300), ("ik", "jk", "ij")),
        ((600, 513, 130), ("ki", "kj", "ij")),
        ((61, 5000, 65), ("ki", "jk", "ij")),
        ((600, 600, 200), ("ik", "kj", "ij")),
        ((3, 20000, 3), ("ik", "jk", "ij")),
    ],
)
def test_products_that_are_cut_into_blocks(shape, order, compiler, processor):
    extents = dict(zip("ikj", shape))
    several(compiler, processor, iter([labelled(*order, extents)]))


def test_several_pairs_with_one_epilogue(compiler, traced, processor):
    def cell(x, h, w, u, b):
        z = x @ w + h @ u + b
        return np.maximum(z, 0), (z > 0) * (x @ w)

    for rows, width in [(1, 33), (5, 16), (33, 31)]:
        arrays = [integers(*shape) for shape in [(rows, 17), (rows, 6), (17, width), (6, width), (width,)]]
        compiler.assert_same(traced(cell, *arrays), arrays, processor=processor)


def test_sums_of_products_over_time(compiler, traced, processor):
    def gradient(x, g):
        return sum((x[t].T @ g[t] for t in range(1, 5)), x[0].T @ g[0])

    arrays = [integers(5, 12, 17), integers(5, 12, 33)]
    compiler.assert_same(traced(gradient, *arrays), arrays, processor=processor)


@pytest.mark.parametrize("rows", [1, 2, 17, 100])
def test_epilogues_with_other_operands(rows, compiler, traced, processor):
    def epilogue(x, w, row, column, full, number):
        z = x @ w
        return (
            np.maximum(z * row + column[:, None], 0) - full,
            np.where(full > 0, z, number),
            (z + full).astype(np.float64) * 2,
            z > column[:, None],
            z.astype(np.int32) // 2 + 1,
        )

    shapes = [(rows, 19), (19, 37), (37,), (rows,), (rows, 37), ()]
    arrays = [integers(*shape) for shape in shapes]
    compiler.assert_same(traced(epilogue, *arrays), arrays, processor=processor)


def test_long_epilogues(compiler, traced, processor):
    def epilogue(x, w, b):
        z = x @ w / 8 + b
        for _ in range(4):
            z = np.tanh(z) * b + np.exp(-z * z)
        return z

    arrays = [integers(21, 9), integers(9, 35), integers(35) / np.float32(4)]
    compiler.assert_same(traced(epilogue, *arrays), arrays, processor=processor, rounding=256)


def test_products_of_views(compiler, traced, processor):
    def views(x, w, v):
        padded = np.concatenate([x, x[:, :3]], 1)
        return (
            x[1:7:2, ::-1] @ w,
            x[::3, 2:11] @ w[:9],
            padded @ v,
            x.reshape(-1, 3) @ w[:3],
            x.T.reshape(24, -1)[:, :4] @ w[:4, 1:],
            x @ x.T,
            x.T @ x,
            x[:, :9] @ x[:9],
        )

    arrays = [integers(10, 12), integers(12, 18), integers(15, 8)]
    compiler.assert_same(traced(views, *arrays), arrays, processor=processor)


def test_results_needed_before_and_after(compiler, traced, processor):
    def chain(x, w):
        first = x @ w
        second = first @ w
        return second @ w + first, first.sum(0), np.maximum(second, 0), (second @ w).max(1)

    arrays = [integers(33, 17), integers(17, 17)]
    compiler.assert_same(traced(chain, *arrays), arrays, processor=processor)


def test_a_product_of_what_a_row_makes(compiler, traced, processor):
    def attention(q, k, v):
        scores = np.einsum("bqd,bkd->bqk", q, k) / 4
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return np.einsum("bqk,bkd->bqd", weights / weights.sum(-1, keepdims=True), v)

    arrays = [integers(3, length, 16) for length in (9, 17, 17)]
    compiler.assert_same(traced(attention, *arrays), arrays, processor=processor, rounding=256)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("depth", [16, 17, 84, 333])
@pytest.mark.parametrize(
    ("rows", "columns"), [(2, 32), (3, 37), (4, 200), (5, 1014), (8, 33), (13, 64), (27, 300)]
)
def test_few_rows_by_a_transposed_matrix(rows, columns, depth, dtype, compiler, traced, processor):
    """Rows of the matrix are read as they lie, some together; what is left of them one by one."""

    def products(x, w, b):
        return np.tanh(x @ w.T + b), w - x.T.sum(1) * b[:, None], np.tanh(w @ x.T)

    random = np.random.default_rng([rows, columns, depth])
    shapes = ((rows, depth), (columns, depth), (columns,))
    arrays = [random.integers(-3, 4, shape).astype(dtype) for shape in shapes]
    compiler.assert_same(traced(products, *arrays), arrays, {1: 1}, processor=processor, rounding=64)


def test_a_matrix_is_turned_for_many_rows_or_many_products_only(stages):
    def twice(x, y, w):
        return np.exp(x @ w.T), np.exp(y @ w.T).sum(1)

    one = lambda x, w: np.exp(x @ w.T)  # noqa: E731
    assert "packed" not in stages(one, (4, 30), (90, 30))["pack"]
    assert "packed" in stages(one, (5, 30), (90, 30))["pack"]
    for rows, first in [(16, "j<900"), (17, "i<17")]:  # two vectors of rows of a deep sum, and more
        assert stages(one, (rows, 320), (900, 320))["few rows last"].startswith(f"for {first}")
    assert stages(twice, (4, 30), (4, 30), (90, 30))["pack"].count("packed0[") == 3


def test_a_loop_turns_its_matrix_once_for_more_than_a_few_rows(stages):
    def repeated(x, w):
        return pb.scan(lambda h, _: (np.tanh(h @ w.T), 0.0), x, None, length=9)[0]

    assert "packed" not in stages(repeated, (4, 320), (320, 320))["pack"]
    assert "packed" in stages(repeated, (16, 320), (320, 320))["pack"]
    assert "packed" not in stages(lambda x, w: np.tanh(x @ w.T), (16, 320), (320, 320))["pack"]


def test_rows_that_share_places_of_the_cache_are_few_in_a_tile(traced):
    target = Processor("generic", "", "x86_64", 64, 32)

    def height(depth):
        arrays = [np.zeros(shape, np.float32) for shape in ((300, depth), (depth, 16))]
        (kernel,) = lower(traced(lambda x, w: x @ w, *arrays), target).kernels
        return choose_tile(find_contraction(kernel), 16, target).rows

    assert height(2048) <= target.ways < height(2000)


@pytest.mark.parametrize("l2_kilobytes", [32, 256, 1024])
@pytest.mark.parametrize("shape", [(25, 700, 70), (130, 257, 530), (300, 1100, 200), (61, 513, 129)])
def test_blocks_of_large_products_for_any_cache(shape, l2_kilobytes, compiler, processor):
    described = replace(processor, l2_bytes=l2_kilobytes << 10, private_bytes=l2_kilobytes << 9)
    rows, depth, columns = shape
    orders = [("ik", "kj", "ij"), ("ki", "kj", "ij"), ("ik", "jk", "ij")]
    extents = {"i": rows, "j": columns, "k": depth}
    several(compiler, described, (labelled(*order, extents) for order in orders))


@pytest.mark.parametrize("extents", [(128, 512, 6400), (4096, 4096, 4096), (30, 64, 9000), (2048, 768, 256)])
@pytest.mark.parametrize("l2_bytes", [256 << 10, 1 << 20, 2 << 20])
def test_blocks_fit_the_cache_and_fall_evenly_to_two_threads(extents, l2_bytes):
    rows, columns, depth = extents
    width, height = 64, 6
    target = Processor("generic", "", "x86_64", 64, 32, l2_bytes=l2_bytes)
    block_rows, panels, all_panels = _best_cut(extents, height, width // 16, 16, target, 4)
    assert block_rows == rows or block_rows % height == 0
    assert 0 <= all_panels - -(-columns // width) <= 1
    blocks = -(-rows // block_rows) * -(-all_panels // panels)
    assert blocks % 2 == 0 or blocks > 8
    assert panels * width * min(depth, 256) * 4 <= l2_bytes // 2


@pytest.mark.parametrize("rounds", [1, 2, 3, 5])
@pytest.mark.parametrize("more", [0, 3])
@pytest.mark.parametrize("columns", [512, 500])
def test_rounds_of_deep_products(rounds: int, more: int, columns: int) -> None:
    """A depth that is packed in several rounds: those of one length in a loop, and the last."""
    depth, other = rounds * PACKED_STEPS + more, PACKED_STEPS + 1
    x, v, y, w = integers(64, depth), integers(depth, columns), integers(64, other), integers(other, columns)
    found = pb.jit(lambda x, v, y, w: np.abs(x @ v + y @ w) + 1)(x, v, y, w)
    np.testing.assert_array_equal(found, np.abs(x @ v + y @ w) + 1)


def test_text_of_deep_products_does_not_grow() -> None:
    def size(rounds: int) -> int:
        shapes = (64, rounds * PACKED_STEPS), (rounds * PACKED_STEPS, 512)
        return len(pb.jit(lambda x, w: x @ w).inspect(*(np.ones(shape, np.float32) for shape in shapes)).llvm)

    # Among many cores a deeper product is cut more finely.
    with compiled_for(with_cores(Processor.host(), 2)):
        assert size(40) < 1.02 * size(10)


def test_tiles_over_panels_are_written_for_all_rounds_but_the_last_and_for_widths_in_vectors(traced):
    """Of 62 vectors and a half sixteen panels have four or three; what is no whole vector matters at the end."""
    wide = Processor("generic", "", "x86_64", vector_bytes=64, vector_registers=32)
    arrays = np.ones((96, 1000), np.float32), np.ones((1000, 1000), np.float32)
    built = build(traced(lambda x, w: x @ w, *arrays), {}, wide)
    blocks = re.split(r"\n\w[\w.]*:", built.emitted.text)
    steps = Counter(block.count("fma") for block in blocks if block.count("fma") > 2)
    assert "8 rounds" in listed(built.schedule) and steps == {24: 4, 18: 4}


@pytest.mark.parametrize(
    ("rows", "depth", "asks"), [(700, 30, True), (700, 150, True), (700, 900, True), (30, 150, False)]
)
def test_tiles_ask_for_what_they_touch_of_large_arrays(rows, depth, asks, compiler, traced, processor):
    """For what epilogues read and write and what is packed next, whatever lies behind the last row and panel."""
    arrays = [integers(*shape) for shape in ((rows, 350), (depth, rows), (depth, 350))]

    def step(w, x, y):
        return w - x.T @ y

    assert ("llvm.prefetch" in pb.jit(step).inspect(*arrays).llvm) == asks
    compiler.assert_same(traced(step, *arrays), arrays, processor=processor)


def test_a_round_of_panels_may_be_a_single_step():
    """As many steps as panels have room for, and one, of an operand whose rows are the panel's columns."""
    random = np.random.default_rng(0)
    x, w = (random.uniform(-1, 1, shape).astype(np.float32) for shape in ((8, 294), (294, 165)))

    def slope(x, w):
        return sum((g * g).sum() for g in pb.grad(lambda x, w: np.tanh(x @ w).sum(), (0, 1))(x, w))

    asked = pb.grad(slope, (0, 1))
    with compiled_for(Asked(small=True, vectors=64, cores=2).processor()):
        for found, wanted in zip(pb.jit(asked)(x, w), asked(x, w)):
            np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4 * np.abs(wanted).max())
