"""Convolutions whose neighbouring results share products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.compiler.passes import optimise
from pullback.compiler.passes.minimal_filtering import minimal_filtering
from pullback.compiler.target import Processor
from pullback.graph import Graph, Operation, Type, Variable
from pullback.interpreter import evaluate
from pullback.operators.convolution import convolve
from pullback.transforms.reverse import cotangents

WIDE = Processor("generic", "", "x86_64", vector_bytes=64, vector_registers=32)
shared = minimal_filtering(WIDE)

LAYOUTS = [
    "bc0,oc0,bo0", "b0c,0co,b0o", "0bc,o0c,0ob", "bc01,oc01,bo01", "b01c,01co,b01o", "c10b,10oc,o01b",
    "bgc01,goc01,bgo01", "b01gc,01gco,b01go", "gbc0,og0c,bog0", "bc012,oc012,bo012",
]  # fmt: skip


def types_of(layouts: str, size: int, count: int, **extents: int) -> tuple[dict[str, str], list[Type]]:
    """The layouts as attributes, and the types of an image and a window by ``size`` with ``count`` results or more."""
    x_layout, w_layout, out_layout = layouts.split(",")
    given = {"b": 4, "c": 96, "o": 90, "g": 2, **extents}
    window = {label: size for label in x_layout if label.isdigit()}
    image = {label: count + size - 1 + int(label) for label in window}
    how = {"x_layout": x_layout, "w_layout": w_layout, "out_layout": out_layout}
    shapes = (
        [{**given, **own}[label] for label in layout]
        for layout, own in ((x_layout, image), (w_layout, window))
    )
    return how, [Type(np.dtype(np.float32), tuple(shape)) for shape in shapes]


def graph_of(layouts: str, size: int, count: int, gradient: bool = False, **extents: int) -> Graph:
    """A convolution, or its two gradients."""
    how, (x_type, w_type) = types_of(layouts, size, count, **extents)
    x, w = Variable(x_type, "x"), Variable(w_type, "w")
    once = (1,) * sum(label.isdigit() for label in how["x_layout"])
    y = convolve(x, w, **how, strides=once, dilations=once)
    if not gradient:
        return Graph((x, w), (y,))
    y_bar = Variable(y.type, "y_bar")
    return Graph((x, w, y_bar), tuple(cotangents([y], [y_bar], [x, w])))


def whole(graph: Graph, seed: int = 0) -> list[np.ndarray]:
    """Whole numbers for the inputs of a graph."""
    random = np.random.default_rng(seed)
    return [random.integers(-3, 4, node.shape).astype(node.dtype) for node in graph.inputs]


def convolutions(graph: Graph) -> list[Operation]:
    return [n for n in graph.nodes() if isinstance(n, Operation) and n.operator is convolve]


def products(graph: Graph) -> int:
    """How many products the convolutions of a graph are."""
    total = 0
    for node in convolutions(graph):
        layout, w = node.attributes["w_layout"], node.inputs[1]
        total += node.size * w.size // int(np.prod([w.shape[layout.index(k)] for k in layout if k in "og"]))
    return total


@pytest.mark.parametrize("layouts", LAYOUTS)
@pytest.mark.parametrize(("size", "count"), [(2, 32), (3, 32), (3, 33)])
def test_sums_of_whole_numbers_are_exact(layouts, size, count, assert_kept: Callable):
    graph = graph_of(layouts, size, count // 4 if "2" in layouts else count)
    after = shared(graph)
    assert products(after) < 0.85 * products(graph)
    assert_kept(graph, after, whole(graph))
    assert shared(after) is after


@pytest.mark.parametrize("layouts", [layout for layout in LAYOUTS if "2" not in layout])
@pytest.mark.parametrize(("size", "count"), [(2, 32), (3, 32), (3, 33)])
def test_gradients_of_whole_numbers_are_exact(layouts, size, count, assert_kept: Callable):
    graph = graph_of(layouts, size, count, gradient=True)
    after = shared(graph)
    assert all(found is not node for found, node in zip(after.outputs, graph.outputs))
    assert products(after) < 0.85 * products(graph)
    assert_kept(graph, after, whole(graph))
    assert shared(after) is after


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("size", [2, 3])
def test_rounding_is_that_of_the_largest_terms(size, gradient):
    graph = graph_of("bc01,oc01,bo01", size, 20, gradient)
    random = np.random.default_rng(1)
    arrays = [random.standard_normal(node.shape).astype(np.float32) for node in graph.inputs]
    doubled = [Variable(Type(np.dtype(np.float64), node.shape), "x") for node in graph.inputs]
    y = convolve(*doubled[:2], **convolutions(graph_of("bc01,oc01,bo01", size, 20))[0].attributes)
    exact = Graph(tuple(doubled), tuple(cotangents([y], [doubled[2]], doubled[:2])) if gradient else (y,))
    wanted = evaluate(exact, [array.astype(np.float64) for array in arrays])
    for found, direct, want in zip(evaluate(shared(graph), arrays), evaluate(graph, arrays), wanted):
        error, usual = (np.sqrt(np.mean((each - want) ** 2)) for each in (found, direct))
        assert 0 < error < 4 * usual + 2e-7 * np.sqrt(np.mean(want**2))


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 1, 2, 7, 32, 33])
def test_what_is_not_finite_stays_what_and_where_it_is(odd, place):
    graph = graph_of("bc0,oc0,bo0", 3, 32)
    x, w = whole(graph)
    x[2, 3, place] = odd
    (want,), (found,) = evaluate(graph, [x, w]), evaluate(shared(graph), [x, w])
    assert 0 < np.count_nonzero(~np.isfinite(want)) <= 3 * want.shape[1]
    np.testing.assert_array_equal(found, want)


def test_a_window_s_gradient_is_nan_where_its_channel_is_not_finite():
    graph = graph_of("bc01,oc01,bo01", 3, 16, gradient=True)
    x, w, y_bar = whole(graph)
    x[1, 4, 5, 5] = np.inf
    (_, want), (_, found) = (evaluate(each, [x, w, y_bar]) for each in (graph, shared(graph)))
    assert np.isnan(found[:, 4]).any()
    others = np.arange(x.shape[1]) != 4
    np.testing.assert_array_equal(found[:, others], want[:, others])
    np.testing.assert_array_equal(found[:, 4][np.isfinite(found[:, 4])], want[:, 4][np.isfinite(found[:, 4])])


def convolved(dtype: str = "float32", strides: int = 1, dilations: int = 1, **extents: int) -> Graph:
    _, (x_type, w_type) = types_of("bc0,oc0,bo0", 3, 40, **extents)
    x, w = (Variable(Type(np.dtype(dtype), each.shape), "x") for each in (x_type, w_type))
    how = {"x_layout": "bc0", "w_layout": "oc0", "out_layout": "bo0"}
    return Graph((x, w), (convolve(x, w, **how, strides=(strides,), dilations=(dilations,)),))


def test_what_is_left_as_it_is():
    usual = convolved()
    assert shared(usual) is not usual
    left = {
        "float64": convolved(dtype="float64"),
        "strides": convolved(strides=2),
        "dilations": convolved(dilations=2),
        "few channels": convolved(c=2),
        "a single result": convolved(o=1),
        "no images": convolved(b=0),
        "long windows": graph_of("bc0,oc0,bo0", 5, 40),
        "as many results as elements": graph_of("bc0,oc0,bo0", 3, 3),
    }
    for why, graph in left.items():
        assert shared(graph) is graph, why


def test_results_cost_more_than_what_they_are_made_of():
    """A first layer makes many channels of few, so that its sums are mostly those of its results."""
    first, last = (graph_of("bc01,oc01,bo01", 3, 32, c=c, o=o) for c, o in ((4, 64), (64, 4)))
    assert shared(first) is first
    assert shared(last) is not last


def test_vectors_along_an_image_are_to_be_full():
    short = graph_of("bc01,oc01,bo01", 3, 4, b=32)
    last = graph_of("b01c,01co,b01o", 3, 4, b=32)
    assert shared(short) is short
    assert shared(last) is not last
    assert minimal_filtering(replace(WIDE, vector_bytes=32))(short) is not short


def test_all_convolutions_of_a_network_share_products():
    """Those of its results, of its images' gradients and of its windows'."""

    def loss(w, v, x):
        y = nn.conv(pb.relu(nn.conv(x, w, padding="same")), v, padding="same")
        return (y * y).sum()

    random = np.random.default_rng(0)
    shapes = (48, 32, 3, 3), (32, 48, 3, 3), (2, 32, 13, 13)
    arrays = [random.integers(-2, 3, shape).astype(np.float32) for shape in shapes]
    graph = pb.trace(pb.grad(loss, argnums=(0, 1)), *arrays).graph
    after = optimise(graph)
    assert len(convolutions(graph)) == len(convolutions(after)) == 5
    assert all("g" in node.attributes["x_layout"] for node in convolutions(after))
    for found, want in zip(evaluate(after, arrays), evaluate(graph, arrays)):
        np.testing.assert_allclose(found, want, rtol=1e-6)


def test_compiled_for_any_length_it_is_a_plain_convolution():
    """Where it ends is known when it runs; what lies behind the end does not matter, infinite or not."""
    random = np.random.default_rng(0)
    w = random.standard_normal((16, 16, 3)).astype(np.float32)
    function = pb.jit(lambda x: nn.conv(x, w), shapes={"x": (3, 16, "length")})
    for length in (30, 31, 64):
        x = random.standard_normal((3, 16, length)).astype(np.float32)
        np.testing.assert_allclose(function(x), np.asarray(nn.conv(x, w)), rtol=1e-4, atol=1e-4)
