"""Products are computed in the order in which they are read, once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pullback.compiler.passes import PASSES, optimise
from pullback.compiler.passes.transposed_products import transposed_products
from pullback.graph import Node

A, B = ("float64", (2, 3)), ("float64", (3, 4))
ARRAYS = [np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)]


def test_read_transposed_only(traced: Callable, names: Callable, assert_kept: Callable) -> None:
    graph = traced(lambda a, b: (a @ b).T, A, B)
    after = transposed_products(graph)
    assert names(after) == ["contract"]
    assert_kept(graph, after, ARRAYS)


def test_read_in_both_orders(traced: Callable) -> None:
    def function(a: Node, b: Node) -> tuple[Node, Node]:
        y = a @ b
        return y.T, y

    graph = traced(function, A, B)
    assert transposed_products(graph) is graph


def test_read_transposed_twice(traced: Callable, names: Callable, assert_kept: Callable) -> None:
    def function(a: Node, b: Node) -> tuple[Node, Node]:
        y = (a @ b).T
        return y * 2, y + 1

    graph = traced(function, A, B)
    after = transposed_products(graph)
    assert "transpose" not in names(after)
    assert_kept(graph, after, ARRAYS)


def test_transposes_of_products_of_transposes(
    traced: Callable, names: Callable, assert_kept: Callable
) -> None:
    graph = traced(lambda a, b: ((a @ b).T @ a).T[:, None, :], A, B)
    after = optimise(graph, PASSES)
    assert names(after) == ["contract", "contract", "reshape"]
    assert_kept(graph, after, ARRAYS)
