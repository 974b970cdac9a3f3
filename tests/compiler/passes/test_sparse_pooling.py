"""Derivatives of maxima, done for the winners alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import pullback as pb
import pullback.numpy as pnp
from pullback import nn
from pullback.compiler.passes import optimise
from pullback.compiler.passes.sparse_pooling import sparse_pooling
from pullback.compiler.stages import run_stages
from pullback.compiler.target import Processor
from pullback.graph import Graph, Node, Variable, constant
from pullback.interpreter import evaluate
from pullback.operators.pooling import max_unpool, window_argmax, won
from pullback.transforms.reverse import cotangents

WIDE = Processor("generic", "", "x86_64", vector_bytes=64, vector_registers=32)
sparse = sparse_pooling(WIDE)

PAIRS = {"axes": (1,), "sizes": (2,), "strides": (2,), "dilations": (1,)}
X, G = ("float64", (3, 8, 2)), ("float64", (3, 4, 2))
RANDOM = np.random.default_rng(0)
ARRAYS = [RANDOM.standard_normal(shape) for _, shape in (X, G)]


def placed(x: Node, g: Node) -> Node:
    return max_unpool(g, window_argmax(x, **PAIRS), shape=x.shape, **PAIRS)


def masked(x: Node, g: Node, made: Callable[[Node], Node]) -> Node:
    """What a pullback makes of a pool's cotangent, inside the mask of its winners."""
    return pnp.where(won(placed(x, g)), made(placed(x, g)), 0.0)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, g: pnp.where(x > 0, placed(x, g), 0.0),
        lambda x, g: pnp.where(x > 0, 0.0, placed(x, g)),
        lambda x, g: pnp.where(x > 0, placed(x, g), placed(x, g * 2.0)),
        lambda x, g: masked(x, g, lambda y: y * x),
        lambda x, g: masked(x, g, lambda y: pnp.tanh(x - 1) * y),
        lambda x, g: masked(x, g, lambda y: y * pnp.sum(x, axis=(0, 1))),
        lambda x, g: masked(x, g, lambda y: y * 3.0),
        lambda x, g: masked(x, g, lambda y: x * pnp.where(x > 0, y * 3.0, 0.0)),
        lambda x, g: placed(x, g) + placed(x, -g),
    ],
    ids=["masked", "masked out", "chosen", "factor", "elementwise", "by channel", "number", "masks", "added"],
)
def test_what_follows_is_done_before(function, traced: Callable, names: Callable, assert_kept: Callable):
    graph = traced(function, X, G)
    after = sparse(graph)
    assert names(after)[-1] == "max_unpool" and names(after).count("max_unpool") == 1
    assert_kept(graph, after, ARRAYS)


def test_a_mask_of_the_pooled_array_needs_nothing_but_the_maximum(traced: Callable, names: Callable):
    after = sparse(traced(lambda x, g: pnp.where(x > 0, placed(x, g), 0.0), X, G))
    assert "gather_at_argmax" not in names(after) and "window_max" in names(after)


def test_outside_of_the_mask_zeros_are_multiplied(traced: Callable, compiler):
    """What did not win is 0 for good inside the mask of winners alone: a factor behind it may be infinite."""
    graph = traced(lambda x, g: masked(x, g, lambda y: y) * pnp.log(abs(x)), X, G)
    x = ARRAYS[0].copy()
    x[0, :3, 0], x[1, 5, 1] = 0, np.nan
    (wanted,) = evaluate(graph, [x, ARRAYS[1]])
    assert np.isnan(wanted).sum() > 1
    np.testing.assert_allclose(compiler.run(graph, [x, ARRAYS[1]])[0], wanted, rtol=1e-14)


def test_windows_that_overlap_keep_their_factors(traced: Callable, compiler):
    """The sum of two cotangents is multiplied: 0 and 2 times infinity each would be NaN."""
    windows = {"axes": (1,), "sizes": (2,), "strides": (1,), "dilations": (1,)}

    def function(x: Node, g: Node, slope: Node) -> Node:
        like = max_unpool(g, window_argmax(x, **windows), shape=x.shape, **windows)
        return pnp.where(won(like), like * slope, 0.0)

    x, g = np.array([[1.0, 5.0, 2.0, 3.0]]), np.array([[0.0, 2.0, 1.0]])
    slope = np.array([[np.inf, np.inf, 1.0, 3.0]])
    graph = traced(function, *(("float64", each.shape) for each in (x, g, slope)))
    (found,) = compiler.run(graph, [x, g, slope])
    np.testing.assert_array_equal(found, [[0, np.inf, 0, 3]])
    np.testing.assert_array_equal(found, evaluate(graph, [x, g, slope])[0])


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
    ((3, 43, 6), (4, 6, 3), {}, (8, {}), "last"),
]
"""The last one has places behind its last window, and two have windows that overlap."""


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


@pytest.mark.parametrize("value", [-np.inf, np.nan])
@pytest.mark.parametrize("operand", ["image", "weight", "slope"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("image", "weight", "options", "pool", "channels"), IMAGES)
def test_zeros_between_winners_meet_what_is_not_finite(
    image, weight, options, pool, channels, dtype, operand, value, traced: Callable, compiler
):
    """Zero times infinity is NaN where nothing has won, too: in what the interpreter computes, and NumPy."""
    random = np.random.default_rng(2)
    arrays = [random.standard_normal(shape).astype(dtype) for shape in (image, weight)]
    if operand != "slope":
        array = arrays[operand == "weight"]
        array.reshape(-1)[array.size // 3] = value
    slope = dtype(value if operand == "slope" else 1)

    def function(x: Node, w: Node) -> Node:
        h = nn.relu(nn.conv(x, w, channels=channels, **options))
        return pnp.sum(nn.max_pool(h, pool[0], channels=channels, **pool[1]) * slope)

    graph = gradient_graph(function, *arrays, traced)
    with np.errstate(invalid="ignore"):
        wanted = evaluate(graph, arrays)
    assert operand == "slope" or any(np.isnan(each).any() for each in wanted)
    for found, bar in zip(compiler.run(graph, arrays), wanted):
        np.testing.assert_allclose(found, bar, rtol=1e-4 if dtype is np.float32 else 1e-11, atol=1e-4)


def test_every_stage_meets_them(traced: Callable):
    """One review in which a number is infinite, and one weight that is."""
    random = np.random.default_rng(3)
    x, w = (random.standard_normal(shape).astype(np.float32) for shape in ((3, 40, 6), (4, 6, 3)))
    graph = gradient_graph(network({}, (8, {}), "last"), x, w, traced)
    for array in (x, w):
        array[1, 5, 2], before = np.inf, array[1, 5, 2]
        for stage, outputs in run_stages(graph, [x, w], WIDE):
            for found, wanted in zip(outputs, evaluate(graph, [x, w])):
                np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5, err_msg=stage.name)
        array[1, 5, 2] = before


def test_what_is_finite_whatever_the_arguments_hold_is_not_asked(traced: Callable, names: Callable):
    image, weight, options, pool, channels = IMAGES[0]
    images = traced(
        lambda x, w: network(options, pool, channels)(x.astype(np.float32) * np.float32(1 / 255), w),
        ("uint8", image),
        ("float32", weight),
    )
    (bar,) = cotangents(images.outputs, [constant(np.ones((), np.float32))], images.inputs[1:])
    assert bar is not None
    made = names(optimise(Graph(images.inputs, (bar,))))
    assert "convolve_max_unpooled" in made and "isfinite" not in made


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


@pytest.mark.parametrize("odd", ["", "table", "weight"])
def test_steps_of_a_table_stay_sparse(odd: str):
    """What is added where weights are not finite goes to the rows of the table by itself, and in that case alone."""

    def step(table, w, rows):
        def loss(table):
            h = nn.relu(nn.conv(table[rows], w, channels="last"))
            return np.sum(np.tanh(nn.max_pool(h, 8, channels="last")))

        return table - 0.1 * pb.grad(loss)(table)

    random = np.random.default_rng(4)
    table, w = (random.standard_normal(shape).astype(np.float32) for shape in ((20_000, 17), (3, 17, 3)))
    rows = random.integers(0, 20_000, (2, 34))
    compiled = pb.jit(step, donate_argnums=0)
    assert "for j<340000" not in compiled.inspect(table, w, rows).stages["canonicalise"]
    if odd:
        array = table[rows[0]] if odd == "table" else w
        array[1, 2] = -np.inf
        table[rows[0, 1]] = array[1] if odd == "table" else table[rows[0, 1]]
    wanted = pb.trace(step, table, w, rows).evaluate([table, w, rows])
    assert np.isfinite(wanted).all() == (not odd)
    np.testing.assert_allclose(compiled(table.copy(), w, rows), wanted, rtol=1e-4, atol=1e-6)
