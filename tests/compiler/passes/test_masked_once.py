"""What is only read inside one mask is masked once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import pullback.numpy as pnp
from pullback.compiler.passes import PASSES, optimise
from pullback.compiler.passes.masked_once import masked_once
from pullback.graph import Node

A, B = ("float64", (2, 3)), ("float64", (3, 4))
X = ("float64", (2, 4))
ARRAYS = [
    np.arange(6.0).reshape(2, 3) - 2,
    np.arange(12.0).reshape(3, 4) - 5,
    np.array([[1.0, np.inf, -np.inf, np.nan], [0.0, -1.0, 2.0, -3.0]]),
]


def test_products_inside_a_mask_take_the_masked_value(
    traced: Callable, names: Callable, assert_kept: Callable
) -> None:
    def function(a: Node, b: Node, x: Node) -> tuple[Node, ...]:
        y, m = a @ b, x > 0
        return pnp.where(m, y, 0), pnp.where(m, y * x, 0).sum(0), pnp.where(m, x - y, 1)

    graph = traced(function, A, B, X)
    after = masked_once(graph)
    product = next(
        node for node in after.nodes() if getattr(node, "operator", None) and node.operator.name == "contract"
    )
    readers = [node for node in after.nodes() if any(child is product for child in node.inputs)]
    assert [node.operator.name for node in readers] == ["where"]
    assert_kept(graph, after, ARRAYS)
    assert masked_once(after) is after


def test_all_passes_together_keep_values(traced: Callable, assert_kept: Callable) -> None:
    def function(a: Node, b: Node, x: Node) -> tuple[Node, ...]:
        y, m = a @ b, x > 0
        g = pnp.where(m, y, 0)
        return g.sum(0), pnp.where(m, y * x, 0).sum(0), g @ b.T

    graph = traced(function, A, B, X)
    assert_kept(graph, optimise(graph, PASSES), ARRAYS)


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda y, x: (pnp.where(x > 0, y, 0), y * x), id="read outside as well"),
        pytest.param(lambda y, x: (pnp.where(x > 0, y, 0), pnp.where(x > 1, y * x, 0)), id="another mask"),
        pytest.param(
            lambda y, x: (pnp.where(x > 0, y, 0), pnp.where(x > 0, 0, y * x)), id="the other branch"
        ),
        pytest.param(
            lambda y, x: (pnp.where(x > 0, y, x), pnp.where(x > 0, y * x, 0)), id="no constant beside"
        ),
        pytest.param(
            lambda y, x: (pnp.where(x > 0, y, 0), pnp.where(x > 0, y.sum(0) * x, 0)), id="a sum of it"
        ),
        pytest.param(lambda y, x: (pnp.where(x > 0, y, 0), y, pnp.where(x > 0, y * x, 0)), id="a result"),
        pytest.param(lambda y, x: (pnp.where(x > 0, y, 0),), id="nobody else"),
    ],
)
def test_a_value_that_others_need_stays(traced: Callable, function: Callable) -> None:
    graph = traced(lambda a, b, x: function(a @ b, x), A, B, X)
    assert masked_once(graph) is graph


def test_a_value_behind_itself_as_mask_stays(traced: Callable) -> None:
    graph = traced(lambda a, b: (pnp.where(a > b, a > b, False), pnp.where(a > b, ~(a > b), False)), X, X)
    assert masked_once(graph) is graph
