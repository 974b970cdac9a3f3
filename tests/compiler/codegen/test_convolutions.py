"""Convolutions and their cotangents in compiled code, exact: the operands are small whole numbers."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback.graph import Graph, Type, Variable
from pullback.operators.convolution import convolve
from pullback.transforms.reverse import cotangents

FIRST, LAST = ("bc01", "oc01", "bo01"), ("b01c", "oc01", "b01o")
LINE_FIRST, LINE_LAST = ("bc0", "oc0", "bo0"), ("b0c", "oc0", "b0o")


def integers(*shape: int, dtype: str) -> np.ndarray:
    return np.random.default_rng(shape).integers(-2, 3, shape).astype(dtype)


@pytest.mark.parametrize(
    ("layouts", "x", "w", "stride"),
    [
        (FIRST, (10, 3, 12, 11), (5, 3, 3, 3), 1),  # few channels: rows of several axes
        (FIRST, (4, 16, 9, 9), (20, 16, 3, 3), 1),  # bands, and their rest
        (FIRST, (16, 1, 18, 21), (6, 1, 5, 5), 1),
        (FIRST, (8, 4, 13, 14), (8, 4, 3, 2), 2),
        (FIRST, (1, 9, 7, 40), (33, 9, 2, 2), 1),
        (FIRST, (12, 2, 5, 5), (3, 2, 5, 5), 1),  # one place
        (LAST, (9, 8, 10, 12), (7, 12, 3, 3), 1),
        (LAST, (8, 9, 9, 3), (17, 3, 2, 2), 2),
        (LINE_LAST, (16, 30, 50), (8, 50, 3), 1),  # outputs that fill half of a vector
        (LINE_LAST, (12, 33, 10), (40, 10, 5), 1),
        (LINE_LAST, (1, 70, 33), (1, 33, 4), 3),
        (LINE_FIRST, (16, 10, 65), (12, 10, 3), 1),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_convolutions_and_their_cotangents(layouts, x, w, stride, dtype, compiler, processor):
    x_layout, w_layout, out_layout = layouts
    rank = len(x) - 2
    nodes = [Variable(Type(np.dtype(dtype), shape)) for shape in (x, w)]
    y = convolve(
        *nodes,
        x_layout=x_layout,
        w_layout=w_layout,
        out_layout=out_layout,
        strides=(stride,) * rank,
        dilations=(1,) * rank,
    )
    g = Variable(y.type)
    outputs = (y, *cotangents([y], [g], nodes))
    arrays = [integers(*node.shape, dtype=dtype) for node in (*nodes, g)]
    compiler.assert_same(Graph((*nodes, g), outputs), arrays, processor=processor)


def test_a_tile_of_one_place_whose_epilogue_needs_the_product_twice(compiler, traced, processor):
    x, w = integers(2, 2, 3, dtype="float64"), integers(1, 2, 2, dtype="float64")

    def loss(x, w):
        return np.sum(pb.nn.conv(x + x, w) ** 3)

    def slope(x, w):
        weights = [np.arange(1.0, x.size + 1).reshape(x.shape), np.arange(1.0, w.size + 1).reshape(w.shape)]
        return sum(np.sum(g * weight) for g, weight in zip(pb.grad(loss, (0, 1))(x, w), weights))

    compiler.assert_same(traced(pb.grad(slope, (0, 1)), x, w), [x, w], processor=processor)
