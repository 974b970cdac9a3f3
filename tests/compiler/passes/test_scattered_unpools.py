"""Cotangents of windows that overlap: added at winners' places, where that is less than to ask all places."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.compiler.passes.scattered_unpools import scattered_unpools
from pullback.compiler.target import Processor
from pullback.operators.pooling import max_unpool

WIDE = Processor("generic", "", "x86_64", vector_bytes=64, vector_registers=32)
scattered = scattered_unpools(WIDE)


def unpooled(shape: tuple[int, ...], sizes: tuple[int, ...], strides: tuple[int, ...], axes: tuple[int, ...]):
    """An unpooling onto ``shape``, and the types of what it takes."""
    pool = {"axes": axes, "sizes": sizes, "strides": strides, "dilations": (1,) * len(axes)}
    counts = list(shape)
    for axis, size, stride in zip(axes, sizes, strides):
        counts[axis] = (shape[axis] - size) // stride + 1
    types = [(dtype, tuple(counts)) for dtype in ("float32", "int32")]
    return lambda y, winner: max_unpool(y, winner, shape=shape, **pool), types


@pytest.mark.parametrize(
    ("shape", "size", "stride", "axes", "adds"),
    [
        ((2, 3, 17, 17), 5, 2, (2, 3), True),
        ((2, 3, 9, 9, 9), 3, 1, (2, 3, 4), True),
        ((2, 3, 17, 17), 3, 2, (2, 3), False),
        ((2, 3, 18, 18), 6, 6, (2, 3), False),
        ((2, 17, 17, 3), 5, 2, (1, 2), False),
    ],
    ids=["much overlap", "three axes", "little overlap", "no overlap", "channels last"],
)
def test_windows_that_overlap_much_add(shape, size, stride, axes, adds, traced: Callable, names: Callable):
    function, types = unpooled(shape, (size,) * len(axes), (stride,) * len(axes), axes)
    assert ("scatter_add" in names(scattered(traced(function, *types)))) == adds


def test_shorter_vectors_ask_longer(traced: Callable, names: Callable):
    function, types = unpooled((2, 3, 17, 17), (3, 3), (2, 2), (2, 3))
    short = scattered_unpools(replace(WIDE, vector_bytes=16))
    assert "scatter_add" in names(short(traced(function, *types)))


@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_gradients_of_pools_that_overlap_are_exact(rank, size):
    """Also of equal elements, of which the first wins, and with padding around the image."""
    random = np.random.default_rng(rank)
    x = random.integers(-3, 4, (2, 3, *(9, 8, 7)[:rank])).astype(np.float32)

    def loss(x):
        y = nn.max_pool(x, size, 1, size // 2)
        return np.sum(y * np.arange(y.size, dtype=np.float32).reshape(y.shape))

    with pb.disable_jit():
        wanted = pb.grad(loss)(x)
    np.testing.assert_array_equal(pb.jit(pb.grad(loss))(x), wanted)
