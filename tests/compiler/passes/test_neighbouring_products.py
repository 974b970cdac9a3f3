"""Products that are added stand together, and no partial sum that is needed is lost."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pullback.compiler.passes import neighbouring_products
from pullback.graph import Node, Operation

SQUARES = [("float64", (2, 2))] * 3
ARRAYS = [np.arange(4.0).reshape(2, 2) + k for k in range(3)]


def terms(node: Node) -> list[Node]:
    """The terms of a sum from left to right."""
    if isinstance(node, Operation) and node.operator.name == "add":
        return [term for child in node.inputs for term in terms(child)]
    return [node]


def kinds(node: Node) -> str:
    """``p`` for each product among the terms of a sum and ``o`` for each other one."""
    return "".join(
        "p" if isinstance(term, Operation) and term.operator.name == "contract" else "o"
        for term in terms(node)
    )


def test_products_come_first(traced: Callable, assert_kept: Callable) -> None:
    graph = traced(lambda a, b, c: (a + a @ b) + (b + (a @ c + (c + b @ c))), *SQUARES)
    after = neighbouring_products(graph)
    assert kinds(graph.outputs[0]) == "opopop"
    assert kinds(after.outputs[0]) == "pppooo"
    assert_kept(graph, after, ARRAYS)


def test_sums_that_are_in_order_stay(traced: Callable) -> None:
    for function in (
        lambda a, b, c: (a @ b + b @ c) + c,
        lambda a, b, c: a @ b + b @ c,
        lambda a, b, c: c + a @ b + c,
        lambda a, b, c: (a @ b) * c + b @ c + a,
    ):
        graph = traced(function, *SQUARES)
        assert neighbouring_products(graph) is graph


def test_partial_sums_that_are_needed_stay(traced: Callable, assert_kept: Callable) -> None:
    def function(a: Node, b: Node, c: Node) -> tuple[Node, Node]:
        part = a @ b + c
        return part + b @ c, part * 2

    graph = traced(function, *SQUARES)
    assert neighbouring_products(graph) is graph


def test_products_that_are_needed_stay(traced: Callable) -> None:
    def function(a: Node, b: Node, c: Node) -> tuple[Node, Node]:
        product = a @ b
        return (product + c) + b @ c, product

    graph = traced(function, *SQUARES)
    assert neighbouring_products(graph) is graph


def test_sums_inside_sums(traced: Callable, assert_kept: Callable) -> None:
    def function(a: Node, b: Node, c: Node) -> Node:
        h = (a @ b + c) + b @ c
        return ((h @ a + c) + b @ h) * 2

    graph = traced(function, *SQUARES)
    after = neighbouring_products(graph)
    (scaled,) = after.outputs
    assert kinds(scaled.inputs[0]) == "ppo"
    assert kinds(terms(scaled.inputs[0])[0].inputs[0]) == "ppo"
    assert_kept(graph, after, ARRAYS)
