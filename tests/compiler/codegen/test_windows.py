"""A convolution and the pool that follows it in one sweep."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
import pullback.numpy as pnp
from pullback import nn
from pullback.operators.pooling import window_argmax, window_max

SHAPES = [
    # image, weights, convolution, window of the pool, stride of the pool
    ((3, 1, 16, 28), (6, 1, 3, 3), {}, (2, 2), (2, 2)),
    ((2, 3, 9, 31), (4, 3, 2, 4), {"dilation": (1, 2)}, (1, 2), (2, 2)),
    ((2, 17, 12, 40), (9, 17, 5, 5), {}, (2, 3), (2, 3)),
    ((2, 2, 11, 66), (3, 2, 3, 3), {"stride": (1, 2)}, (3, 2), (4, 2)),
    ((2, 4, 53), (6, 2, 3), {"groups": 2}, (3,), (3,)),
    ((1, 1, 9, 33), (2, 1, 3, 3), {"padding": 1}, (2, 2), (2, 2)),
    ((4, 1, 6, 8, 34), (3, 1, 2, 2, 2), {}, (1, 2, 2), (1, 2, 2)),
]


def pooled(options: dict, size: tuple[int, ...], stride: tuple[int, ...]):
    windows = {
        "axes": tuple(range(2, 2 + len(size))),
        "sizes": size,
        "strides": stride,
        "dilations": (1,) * len(size),
    }

    def function(x, w, b):
        y = nn.relu(nn.conv(x, w, **options) + pnp.reshape(b, (-1,) + (1,) * len(size)))
        return window_max(y, **windows) * 2, window_argmax(y, **windows)

    return function


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("image", "weights", "options", "size", "stride"), SHAPES)
def test_any_shape(image, weights, options, size, stride, dtype, compiler, traced, processor):
    random = np.random.default_rng(0)
    arrays = [random.integers(-3, 4, shape).astype(dtype) for shape in (image, weights, weights[:1])]
    graph = traced(pooled(options, size, stride), *arrays)
    compiler.assert_same(graph, arrays, processor=processor)


def test_a_nan_wins(compiler, traced):
    random = np.random.default_rng(0)
    arrays = [
        random.standard_normal(shape).astype(np.float32) for shape in ((2, 1, 8, 34), (3, 1, 3, 3), (3,))
    ]
    arrays[0][1, 0, 4, 11] = np.nan
    compiler.assert_same(traced(pooled({}, (2, 2), (2, 2)), *arrays), arrays, rounding=8)


def test_a_sum_beside_the_largest_is_none_of_theirs(compiler, traced, processor):
    """A pool's derivatives in one kernel with the convolution that brings their cotangent."""
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape) for shape in ((2, 1, 20, 20), (1, 1, 5, 5), (1, 1, 2, 2))]

    def loss(x, w, v):
        return np.sum(nn.conv(nn.sigmoid(nn.max_pool(nn.relu(nn.conv(x, w)), 3, 2)), v))

    graph = traced(pb.grad(loss, (0, 1, 2)), *arrays)
    compiler.assert_same(graph, arrays, processor=processor, rounding=64)


@pytest.mark.parametrize(
    ("function", "one_sweep"),
    [
        (lambda y: (nn.max_pool(y, 2),), True),
        (lambda y: (nn.max_pool(nn.relu(y), 2),), True),
        (lambda y: (nn.max_pool(y, 2), y), False),
        (lambda y: (nn.max_pool(y, 3, 2),), False),
        (lambda y: (nn.max_pool(y, 2), nn.max_pool(y, (1, 2))), False),
        (lambda y: (nn.max_pool(y, 4),), False),
    ],
    ids=["pool", "relu", "needed as well", "overlapping", "two windows", "large windows"],
)
def test_only_what_nobody_else_needs_is_computed_where_it_is_pooled(function, one_sweep, stages):
    shown = stages(lambda x, w: function(nn.conv(x, w)), (2, 1, 18, 34), (3, 1, 3, 3))["fuse"]
    assert any("max[" in kernel and "sum[" in kernel for kernel in shown.split("\nfor ")) is one_sweep
