"""Updates that are scattered twice find their place at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import pullback.numpy as pnp
from pullback import nn
from pullback.compiler.passes import optimise
from pullback.compiler.passes.joined_scatters import joined_scatters
from pullback.graph import OPERATORS, Graph, Node, constant
from pullback.transforms.reverse import cotangents

broadcast, scatter_add, check_index = (
    OPERATORS[name] for name in ("broadcast", "scatter_add", "check_index")
)
RANDOM = np.random.default_rng(0)


def repeated(value: float, shape: tuple[int, ...]) -> Node:
    return broadcast(constant(value, np.dtype(np.float64)), shape=shape, axes=())


def twice(table: Node, updates: Node, first: Node, second: Node, rows: Node) -> Node:
    """Elements at ``first, second`` of an array of zeros, whose rows are then added to ``rows`` of ``table``."""
    zeros = repeated(0, (6, table.shape[1]))
    return scatter_add(table, scatter_add(zeros, updates, first, second, axes=(0, 1)), rows, axes=(0,))


ARRAYS = [
    RANDOM.standard_normal((7, 3)),
    RANDOM.standard_normal((4, 5)),
    RANDOM.integers(0, 6, (4, 5)),
    RANDOM.integers(0, 3, (4, 5)),
    RANDOM.integers(0, 7, 6),
]
TYPES = [(str(array.dtype), array.shape) for array in ARRAYS]


def test_rows_are_found_at_once(traced: Callable, names: Callable, assert_kept: Callable):
    graph = traced(twice, *TYPES)
    after = joined_scatters(graph)
    assert names(after).count("scatter_add") == 1
    assert_kept(graph, after, ARRAYS, tolerance=1e-12)


def test_several_indices_and_axes_that_are_kept(traced: Callable, names: Callable, assert_kept: Callable):
    def function(target: Node, updates: Node, a: Node, b: Node, c: Node, d: Node) -> Node:
        between = scatter_add(repeated(0, (3, 4)), updates, a, b, axes=(0, 1))
        return scatter_add(target, between, c, d, axes=(0, 2))

    extents = (None, None, 3, 4, 5, 6)
    shapes = ((5, 4, 6), (8,), (8,), (8,), (3,), (3,))
    arrays = [
        RANDOM.standard_normal(shape) if extent is None else RANDOM.integers(0, extent, shape)
        for shape, extent in zip(shapes, extents)
    ]
    graph = traced(function, *((str(array.dtype), array.shape) for array in arrays))
    after = joined_scatters(graph)
    assert names(after).count("scatter_add") == 1
    assert_kept(graph, after, arrays, tolerance=1e-12)


def test_updates_of_one_row(traced: Callable, names: Callable, assert_kept: Callable):
    def function(table: Node, updates: Node, a: Node, row: Node) -> Node:
        between = scatter_add(repeated(0, (4,)), updates, a, axes=(0,))
        return scatter_add(table, between, row, axes=(0,))

    arrays = [RANDOM.standard_normal((5, 4)), np.ones(2), np.array([3, 0]), np.array(2)]
    graph = traced(function, *((str(array.dtype), array.shape) for array in arrays))
    after = joined_scatters(graph)
    assert names(after).count("scatter_add") == 1
    assert_kept(graph, after, arrays, tolerance=1e-12)


@pytest.mark.parametrize(
    "function",
    [
        lambda t, u, i, j, r: twice(t, u, i, j, check_index(r, extent=7, what="row", wrap=False)),
        lambda t, u, i, j, r: twice(
            t, pnp.concatenate([u] * 8), *(pnp.concatenate([k] * 8) for k in (i, j)), r
        ),
        lambda t, u, i, j, r: scatter_add(
            t, scatter_add(repeated(1, (6, 3)), u, i, j, axes=(0, 1)), r, axes=(0,)
        ),
        lambda t, u, i, j, r: scatter_add(
            t,
            scatter_add(repeated(0, (6, 3)), broadcast(u, shape=(4, 5, 3), axes=(0, 1)), i, axes=(0,)),
            r,
            axes=(0,),
        ),
    ],
    ids=["indices that nobody else checks", "many updates", "not zeros", "whole rows"],
)
def test_what_stays(function, traced: Callable):
    graph = traced(function, *TYPES)
    assert joined_scatters(graph) is graph


def test_an_array_between_that_is_needed_stays(traced: Callable):
    def function(table: Node, updates: Node, first: Node, second: Node, rows: Node) -> tuple[Node, Node]:
        between = scatter_add(repeated(0, (6, 3)), updates, first, second, axes=(0, 1))
        return between, scatter_add(table, between, rows, axes=(0,))

    graph = traced(function, *TYPES)
    assert joined_scatters(graph) is graph


@pytest.mark.parametrize(
    ("extent", "channels", "window", "padding"), [(34, 5, 3, 0), (34, 3, 5, 1), (19, 1, 2, 0)]
)
def test_the_gradient_of_a_table_behind_a_pool(
    extent, channels, window, padding, traced: Callable, names: Callable, assert_kept: Callable
):
    """Tokens, vectors, convolution, largest of each window."""
    width = 17

    def function(table: Node, w: Node, tokens: Node) -> Node:
        rows = check_index(tokens, extent=9, what="token", wrap=False)
        x = OPERATORS["gather"](table, rows, axes=(0,))
        h = nn.relu(nn.conv(x, w, channels="last", padding=padding))
        return pnp.sum(pnp.tanh(nn.max_pool(h, 8, channels="last")))

    arrays = [
        RANDOM.standard_normal((9, width)),
        RANDOM.standard_normal((channels, width, window)),
        RANDOM.integers(0, 9, (3, extent)),
    ]
    graph = traced(function, *((str(array.dtype), array.shape) for array in arrays))
    (bar,) = cotangents(graph.outputs, [constant(np.ones(()))], graph.inputs[:1])
    assert bar is not None
    gradient = Graph(graph.inputs, (bar,))
    after = optimise(gradient)
    # One more for what is added where the weights are not finite.
    assert names(after).count("scatter_add") == 2 + bool(padding)
    assert_kept(gradient, after, arrays, tolerance=1e-11)
