"""Convolutions of which only a part is read."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pullback import nn
from pullback.compiler.passes import optimise
from pullback.compiler.passes.sliced_convolutions import sliced_convolutions
from pullback.graph import Graph, Node, constant
from pullback.operators.convolution import convolve
from pullback.operators.shapes import slice
from pullback.transforms.reverse import cotangents

X, W = ("float64", (2, 3, 11, 9)), ("float64", (4, 3, 2, 3))
ARRAYS = [np.random.default_rng(0).standard_normal(shape) for _, shape in (X, W)]


def whole(x: Node, w: Node) -> Node:
    return convolve(
        x, w, x_layout="bc01", w_layout="oc01", out_layout="bo01", strides=(2, 1), dilations=(1, 2)
    )


@pytest.mark.parametrize(
    ("starts", "stops", "steps", "read"),
    [
        ((0, 0, 1, 2), (2, 4, 4, 4), (1, 1, 1, 1), (2, 3, 6, 6)),
        ((0, 0, 0, 0), (2, 4, 5, 4), (1, 1, 2, 3), (2, 3, 10, 8)),
        ((1, 1, 0, 0), (2, 3, 5, 5), (1, 1, 1, 1), (1, 3, 10, 9)),
        ((0, 0, 4, 4), (2, 4, 5, 5), (2, 3, 3, 1), (1, 3, 2, 5)),
    ],
)
def test_any_slice(starts, stops, steps, read, traced: Callable, names: Callable, assert_kept: Callable):
    graph = traced(lambda x, w: slice(whole(x, w), starts=starts, stops=stops, steps=steps), X, W)
    after = sliced_convolutions(graph)
    (made,) = after.outputs
    assert made.operator is convolve and made.inputs[0].shape == read
    assert_kept(graph, after, ARRAYS, tolerance=1e-12)


def test_groups(traced: Callable, assert_kept: Callable):
    types = ("float64", (2, 3, 2, 7)), ("float64", (3, 2, 2, 2))

    def function(x: Node, w: Node) -> Node:
        y = convolve(x, w, x_layout="bgc0", w_layout="goc0", out_layout="bgo0", strides=(1,), dilations=(1,))
        return y[:, 1:, :1, 2:4]

    graph = traced(function, *types)
    after = sliced_convolutions(graph)
    assert after.outputs[0].operator is convolve
    random = np.random.default_rng(1)
    assert_kept(graph, after, [random.standard_normal(shape) for _, shape in types], tolerance=1e-12)


def test_what_is_read_as_a_whole_too_stays(traced: Callable):
    def function(x: Node, w: Node) -> tuple[Node, Node]:
        y = whole(x, w)
        return y, y[:, :, 1:3]

    graph = traced(function, X, W)
    assert sliced_convolutions(graph) is graph


def test_nothing_of_a_convolution(traced: Callable):
    graph = traced(lambda x, w: whole(x, w)[:, :, 2:2], X, W)
    assert sliced_convolutions(graph) is graph


def test_the_cotangent_of_a_padded_image_has_no_border(traced: Callable, assert_kept: Callable):
    types = ("float64", (2, 3, 8, 8)), ("float64", (4, 3, 3, 3))

    def function(x: Node, w: Node) -> Node:
        y = nn.conv(x, w, padding="same")
        (bar,) = cotangents([y], [constant(np.ones(y.shape))], [x])
        return bar

    graph = traced(function, *types)
    after = optimise(graph)

    def shapes(graph: Graph) -> list[tuple[int, ...]]:
        return [node.shape for node in graph.nodes() if getattr(node, "operator", None) is convolve]

    assert shapes(graph) == [(2, 3, 10, 10)] and shapes(after) == [(2, 3, 8, 8)]
    random = np.random.default_rng(2)
    assert_kept(graph, after, [random.standard_normal(shape) for _, shape in types], tolerance=1e-12)


def test_several_slices_leave_the_block_with_all_of_them(traced: Callable, assert_kept: Callable):
    def function(x: Node, w: Node) -> tuple[Node, ...]:
        y = whole(x, w)
        return y[:, :2, 1:4, 1:3], y[:, 2:, 1:4:2, 2:4]

    graph = traced(function, X, W)
    after = sliced_convolutions(graph)
    first, second = after.outputs
    assert first.inputs[0] is second.inputs[0]
    assert first.inputs[0].shape == (2, 4, 3, 3)
    assert_kept(graph, after, ARRAYS, tolerance=1e-12)
    assert sliced_convolutions(after) is after
