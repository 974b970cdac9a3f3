"""Products that are added together stand together.

The code generator adds products into one accumulator. In a sum of many terms they come first, in their order,
and the other terms after them; only sums whose parts are used by nothing else are arranged. Additions in
another order round differently, within the same bound.

>>> import numpy as np
>>> from pullback.graph import Graph, Type, Variable, format_graph
>>> x, w, h, u, b = (Variable(Type(np.dtype(np.float32), (3, 3)), name) for name in "xwhub")
>>> graph = Graph((x, w, h, u, b), ((x @ w + b) + h @ u,))
>>> print("\\n".join(format_graph(graph, sources=False).splitlines()[5:]))
%5 = contract(%0, %1, a_labels=(0, 1), b_labels=(1, 2), out_labels=(0, 2)): float32[3, 3]
%6 = add(%5, %4): float32[3, 3]
%7 = contract(%2, %3, a_labels=(0, 1), b_labels=(1, 2), out_labels=(0, 2)): float32[3, 3]
%8 = add(%6, %7): float32[3, 3]
output %8
>>> print("\\n".join(format_graph(neighbouring_products(graph), sources=False).splitlines()[5:]))
%5 = contract(%0, %1, a_labels=(0, 1), b_labels=(1, 2), out_labels=(0, 2)): float32[3, 3]
%6 = contract(%2, %3, a_labels=(0, 1), b_labels=(1, 2), out_labels=(0, 2)): float32[3, 3]
%7 = add(%5, %6): float32[3, 3]
%8 = add(%7, %4): float32[3, 3]
output %8
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pullback.compiler.passes.rewriting import GraphPass, inner, same, uses, with_outputs
from pullback.graph import Graph, Node, Operation, apply, written_at
from pullback.operators.arithmetic import add

__all__ = ["neighbouring_products"]


def _neighbouring_products(graph: Graph) -> Graph:
    """Sums of products and other terms with the products first."""
    order = graph.nodes()
    sums = [node for node in order if inner(node, "add") is not None]
    if not sums:
        return graph
    count = uses(order, graph.outputs)
    parts = {
        id(child)
        for node in sums
        for child in node.inputs
        if inner(child, "add") is not None and count[id(child)] == 1
    }
    arranged = {
        id(node): terms
        for node in sums
        if id(node) not in parts and (terms := _arranged(node, parts, count)) is not None
    }
    if not arranged:
        return graph
    made: dict[int, Node] = {}
    for node in order:
        new = node
        if isinstance(node, Operation):
            with written_at(node.source):
                if id(node) in arranged:
                    new = reduce(add, [made[id(term)] for term in arranged[id(node)]])
                elif not same(inputs := [made[id(child)] for child in node.inputs], node.inputs):
                    new = apply(node.operator, tuple(inputs), node.attributes)
        made[id(node)] = new
    return with_outputs(graph, tuple([made[id(node)] for node in graph.outputs]))


def _arranged(node: Node, parts: set[int], count: Mapping[int, int]) -> list[Node] | None:
    """The terms of a sum with its products first, unless they are so few that nothing is gained."""
    terms = _terms(node, parts)
    products = [term for term in terms if inner(term, "contract") is not None and count[id(term)] == 1]
    if not 1 < len(products) < len(terms):
        return None
    chosen = set(map(id, products))
    return products + [term for term in terms if id(term) not in chosen]


def _terms(node: Node, parts: set[int]) -> list[Node]:
    """The terms of a sum from left to right."""
    terms: list[Node] = []
    waiting = [*reversed(node.inputs)]
    while waiting:
        term = waiting.pop()
        if id(term) in parts:
            waiting.extend(reversed(term.inputs))
        else:
            terms.append(term)
    return terms


neighbouring_products = GraphPass("neighbouring_products", _neighbouring_products)
"""Products beside the products that they are added to."""
