"""Sums of products that read one operand at a computed place."""

from __future__ import annotations

import numpy as np
import pytest

from pullback.compiler.schedules.indexed_contraction import find_indexed_contraction
from pullback.compiler.target import Processor
from pullback.operators.pooling import convolve_max_unpooled

SHAPES = [
    # x, before pooling, layouts, windows of the pool
    ((7, 3, 10, 11), (7, 5, 8, 9), "cb01,co01,ob01", ((2, 3), (2, 3), (2, 3), (1, 1))),
    ((9, 1, 20, 20), (9, 6, 18, 18), "cb01,co01,ob01", ((2, 3), (2, 2), (2, 2), (1, 1))),
    ((9, 1, 28, 28), (9, 6, 26, 26), "cb01,co01,ob01", ((2, 3), (2, 2), (2, 2), (1, 1))),
    ((9, 1, 8, 17), (9, 7, 6, 16), "cb01,co01,ob01", ((2, 3), (2, 1), (2, 1), (1, 1))),
    ((9, 1, 34), (9, 3, 32), "cb0,co0,ob0", ((2,), (2,), (2,), (1,))),
    ((5, 34, 50), (5, 32, 9), "c0b,c0o,ob0", ((1,), (8,), (8,), (1,))),
    ((3, 34, 130), (3, 30, 1), "c0b,c0o,ob0", ((1,), (6,), (6,), (1,))),
    ((3, 10, 700), (3, 8, 3), "c0b,c0o,ob0", ((1,), (2,), (2,), (1,))),
    ((2, 14, 12, 7), (2, 10, 10, 3), "c01b,c01o,o01b", ((1, 2), (2, 2), (2, 2), (1, 1))),
    ((1, 6, 1), (1, 4, 2), "c0b,c0o,ob0", ((1,), (2,), (2,), (1,))),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("x", "before", "layouts", "pool"), SHAPES)
def test_any_shape(x, before, layouts, pool, dtype, compiler, traced, processor):
    x_layout, w_layout, out_layout = layouts.split(",")
    ones = (1,) * len(pool[0])
    counts = list(before)
    for axis, size in zip(pool[0], pool[1]):
        counts[axis] //= size

    def function(x, y, winner):
        return 1 - convolve_max_unpooled(
            x,
            y,
            winner,
            shape=before,
            pool=pool,
            x_layout=x_layout,
            w_layout=w_layout,
            out_layout=out_layout,
            strides=ones,
            dilations=ones,
        )

    random = np.random.default_rng(0)
    arrays = [random.integers(-3, 4, shape).astype(dtype) for shape in (x, counts)]
    arrays.append(random.integers(0, np.prod(pool[1]), counts).astype(np.int32))
    compiler.assert_same(traced(function, *arrays), arrays, processor=processor)


def gradient(x, y, winner):
    """Of the weights of a convolution (5, 20, 20) → (6, 18, 18) with 3 × 3 windows, behind a pool of 2 × 2."""
    return convolve_max_unpooled(
        x,
        y,
        winner,
        shape=(5, 6, 18, 18),
        pool=((2, 3), (2, 2), (2, 2), (1, 1)),
        x_layout="cb01",
        w_layout="co01",
        out_layout="ob01",
        strides=(1, 1),
        dilations=(1, 1),
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_zero_is_left_out_and_nothing_else(dtype, compiler, traced, processor):
    random = np.random.default_rng(0)
    x, winner = np.ones((5, 1, 20, 20), dtype), random.integers(0, 4, (5, 6, 9, 9)).astype(np.int32)
    y = (random.integers(0, 2, (5, 6, 9, 9)) * random.integers(-2, 3, (5, 6, 9, 9))).astype(dtype)
    y[:, 2], y[1, 3, 4, 4], y[2, 4, 8, 8] = 0, np.nan, np.inf
    graph = traced(gradient, x, y, winner)
    (found,) = compiler.run(graph, [x, y, winner], processor=processor)
    sums = y.sum((0, 2, 3))
    np.testing.assert_array_equal(found.reshape(-1, 9), np.repeat(sums[:, None], 9, 1))
    assert np.isnan(sums[3])
    assert np.isinf(sums[4])


def test_what_lies_beside_a_window_is_not_added(compiler, traced, processor):
    """Vectors are read whole where the columns reach as far, unwanted elements before or behind them included."""
    random = np.random.default_rng(0)
    x, y = (random.integers(-3, 4, shape).astype(np.float32) for shape in ((5, 1, 20, 20), (5, 6, 9, 9)))
    winner = random.integers(0, 2, y.shape).astype(np.int32) * 2  # the first column of each window
    wanted = compiler.reference(traced(gradient, x, y, winner), [x, y, winner])
    x[..., -1] = np.nan
    found = compiler.run(traced(gradient, x, y, winner), [x, y, winner], processor=processor)
    np.testing.assert_array_equal(found, wanted)


def test_columns_in_the_order_of_memory_are_joined(compiler, traced, monkeypatch):
    found = []

    def watch(stage, lowered, kernels):
        if stage == "split":
            found.extend(
                g
                for kernel in kernels
                if (g := find_indexed_contraction(kernel, 16, Processor.host())) is not None
            )

    monkeypatch.setattr(type(compiler), "check", staticmethod(watch))
    arrays = [
        np.zeros((64, 34, 50), np.float32),
        np.zeros((64, 4, 9), np.float32),
        np.zeros((64, 4, 9), np.int32),
    ]
    pool = ((1,), (8,), (8,), (1,))

    def function(x, y, winner):
        return convolve_max_unpooled(
            x,
            y,
            winner,
            shape=(64, 32, 9),
            pool=pool,
            x_layout="c0b",
            w_layout="c0o",
            out_layout="ob0",
            strides=(1,),
            dilations=(1,),
        )

    compiler.run(traced(function, *arrays), arrays)
    (sums,) = found
    assert [axis.extent for axis in sums.columns] == [150]
    assert sums.row is not None and sums.row.extent == 9
