"""A product that is only read transposed is computed transposed.

That is another order of its labels; the code generator takes whichever operand then runs along the vectors as
the right one. A product that is read in both ways is computed once and transposed.

>>> import numpy as np
>>> import pullback.numpy as pnp
>>> from pullback.graph import Graph, Type, Variable, format_graph
>>> x = Variable(Type(np.dtype(np.float32), (5, 7)), "x")
>>> w = Variable(Type(np.dtype(np.float32), (7, 3)), "w")
>>> graph = Graph((x, w), ((x @ w).T,))
>>> print(format_graph(graph, sources=False))
input  %0 x: float32[5, 7]
input  %1 w: float32[7, 3]
%2 = contract(%0, %1, a_labels=(0, 1), b_labels=(1, 2), out_labels=(0, 2)): float32[5, 3]
%3 = transpose(%2, axes=(1, 0)): float32[3, 5]
output %3
>>> print(format_graph(transposed_products(graph), sources=False))
input  %0 x: float32[5, 7]
input  %1 w: float32[7, 3]
%2 = contract(%0, %1, a_labels=(0, 1), b_labels=(1, 2), out_labels=(2, 0)): float32[3, 5]
output %2
"""

from __future__ import annotations

from collections.abc import Mapping

from pullback.compiler.passes.rewriting import GraphPass, inner, remade, uses
from pullback.graph import Graph, Node, Operation
from pullback.operators.products import contract

__all__ = ["transposed_products"]


def _transposed_products(graph: Graph) -> Graph:
    """Products in the order in which their results are read."""
    order = graph.nodes()
    behind = {node: product for node in order if (product := _product_behind(node)) is not None}
    count = uses(order, graph.outputs) if behind else {}
    found = {node: product for node, product in behind.items() if count[id(product)] == 1}
    return remade(graph, found, _transposed)


def _transposed(node: Operation, product: Operation, new: Mapping[Node, Node]) -> Node:
    labels = product.attributes["out_labels"]
    out = tuple(labels[axis] for axis in node.attributes["axes"])
    return contract(*new[product].inputs, **{**product.attributes, "out_labels": out})


def _product_behind(node: Node) -> Operation | None:
    turned = inner(node, "transpose")
    return None if turned is None else inner(turned.inputs[0], "contract")


transposed_products = GraphPass("transposed_products", _transposed_products)
"""Products in the order in which they are read."""
