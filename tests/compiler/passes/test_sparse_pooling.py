"""Derivatives of maxima, done for the winners alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import pullback as pb
import pullback.numpy as pnp
from pullback import nn
from pullback.compiler.passes import optimise, sparse_pooling
from pullback.compiler.target import Processor
from pullback.graph import Graph, Node, Variable, constant
from pullback.operators.pooling import max_unpool, window_argmax
from pullback.transforms.reverse import cotangents

sparse = sparse_pooling(Processor("generic", "", "x86_64", vector_bytes=64, vector_registers=32))

PAIRS = {"axes": (1,), "sizes": (2,), "strides": (2,), "dilations": (1,)}
X, G = ("float64", (3, 8, 2)), ("float64", (3, 4, 2))
RANDOM = np.random.default_rng(0)
ARRAYS = [RANDOM.standard_normal(shape) for _, shape in (X, G)]


def placed(x: Node, g: Node) -> Node:
    return max_unpool(g, window_argmax(x, **PAIRS), shape=x.shape, **PAIRS)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, g: pnp.where(x > 0, placed(x, g), 0.0),
        lambda x, g: pnp.where(x > 0, 0.0, placed(x, g)),
        lambda x, g: pnp.where(x > 0, placed(x, g), placed(x, g * 2.0)),
        lambda x, g: placed(x, g) * x,
        lambda x, g: pnp.tanh(x - 1) * placed(x, g),
        lambda x, g: placed(x, g) * pnp.sum(x, axis=(0, 1)),
        lambda x, g: placed(x, g) * 3.0,
        lambda x, g: placed(x, g) + placed(x, -g),
    ],
    ids=["masked", "masked out", "chosen", "factor", "elementwise", "by channel", "number", "added"],
)
def test_what_follows_is_done_before(function, traced: Callable, names: Callable, assert_kept: Callable):
    graph = traced(function, X, G)
    after = sparse(graph)
    assert names(after)[-1] == "max_unpool" and names(after).count("max_unpool") == 1
    assert_kept(graph, after, ARRAYS)


def test_a_mask_of_the_pooled_array_needs_nothing_but_the_maximum(traced: Callable, names: Callable):
    after = sparse(traced(lambda x, g: pnp.where(x > 0, placed(x, g), 0.0), X, G))
    assert "gather_at_argmax" not in names(after) and "window_max" in names(after)


def test_a_sum_over_windows(traced: Callable, names: Callable, assert_kept: Callable):
    graph = traced(lambda x, g: pnp.sum(placed(x, g), axis=(0, 1)), X, G)
    after = sparse(graph)
    assert "max_unpool" not in names(after)
    assert_kept(graph, after, ARRAYS, tolerance=1e-12)
    channels = traced(lambda x, g: pnp.sum(placed(x, g), axis=2), X, G)
    assert sparse(channels) is channels


IMAGES = [
    # images, weights, window, stride, options of the convolution, options of the pool, channels
    ((2, 1, 12, 11), (3, 1, 3, 3), {}, (2, {}), "first"),
    ((2, 1, 14, 13), (3, 1, 5, 5), {"stride": 2}, (2, {}), "first"),
    ((2, 3, 12, 12), (2, 3, 3, 3), {"dilation": 2}, ((2, 3), {"stride": 3}), "first"),
    ((3, 40, 6), (4, 6, 3), {}, (8, {}), "last"),
    ((3, 40, 6), (4, 6, 5), {"padding": "same"}, (8, {}), "last"),
    ((2, 21, 17), (4, 17, 3), {}, (6, {"stride": 3}), "last"),
    ((2, 9, 8, 5), (4, 5, 3, 3), {"padding": 1}, (3, {}), "last"),
]


def network(options: dict, pool: tuple, channels: str) -> Callable:
    def function(x: Node, w: Node) -> Node:
        h = nn.relu(nn.conv(x, w, channels=channels, **options))
        return pnp.sum(pnp.tanh(nn.max_pool(h, pool[0], channels=channels, **pool[1])))

    return function


def gradient_graph(function: Callable, x: np.ndarray, w: np.ndarray, traced: Callable) -> Graph:
    graph = traced(function, *((str(a.dtype), a.shape) for a in (x, w)))
    inputs: tuple[Variable, ...] = graph.inputs
    bars = cotangents(graph.outputs, [constant(np.ones(()), x.dtype)], list(inputs))
    return Graph(inputs, tuple(bar for bar in bars if bar is not None))


@pytest.mark.parametrize(("image", "weight", "options", "pool", "channels"), IMAGES)
def test_gradients_of_convolutions(
    image, weight, options, pool, channels, traced: Callable, assert_kept: Callable, names: Callable
):
    random = np.random.default_rng(1)
    arrays = [random.standard_normal(image), random.standard_normal(weight)]
    graph = gradient_graph(network(options, pool, channels), *arrays, traced)
    after = optimise(graph)
    assert "convolve_max_unpooled" in names(after)
    assert channels == "first" or "scatter_add" in names(after)
    assert_kept(graph, after, arrays, tolerance=1e-11)


def test_a_convolution_with_little_between_its_winners_stays(traced: Callable, names: Callable):
    random = np.random.default_rng(1)
    x, w = random.standard_normal((2, 1, 9, 9)), random.standard_normal((2, 1, 2, 2))
    graph = gradient_graph(network({}, (1, {}), "first"), x, w, traced)
    assert "convolve_max_unpooled" not in names(optimise(graph))


@pytest.mark.parametrize("stride", [1, 2])
def test_places_that_did_not_win_are_masked(stride: int):
    """A slope of NaN or infinity is met where nothing has won: beside all windows, and beside a winner."""
    x = np.random.default_rng(0).uniform(0.1, 1.0, (2, 1, 6, 3))
    x[1, 0, 5, 2] = np.nan
    x[0, 0, 0, 0] = 0.0
    gradient = pb.grad(lambda x: np.sum(nn.max_pool(np.log(x), 2, stride) * 3))
    found, wanted = gradient(x), pb.trace(gradient, x).evaluate([x])
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_allclose(pb.jit(gradient)(x), wanted, rtol=1e-14)
    assert found[0, 0, 0, 0] == 0
    assert stride == 1 or found[1, 0, 5, 2] == 0
