"""Operations that hold equal graphs, on the same inputs, are one.

Equal operations are one node from the moment they are made, but two graphs are two, whatever is in them. A function
with a derivative of its own, for one, is traced by itself and once more by its rule:

>>> import numpy as np
>>> from pullback import cond
>>> from pullback.graph import Type
>>> from pullback.tracing.trace import trace
>>> choose = lambda x: cond(x.sum() > 0, np.sin, np.cos, x)
>>> graph = trace(lambda x: choose(x) + choose(x), Type(np.dtype(np.float64), (3,))).graph
>>> [sum(bool(regions(node)) for node in each.nodes()) for each in (graph, equal_regions(graph))]
[2, 1]
"""

from __future__ import annotations

from pullback.compiler.key.graph import check_sites, held_text
from pullback.compiler.passes.rewriting import GraphPass, rebuilt
from pullback.control.host import host_functions
from pullback.graph import Graph, Node, Operation, apply, every_node, regions

__all__ = ["equal_regions"]


def _equal_regions(graph: Graph) -> Graph:
    holding = [node for node in graph.nodes() if isinstance(node, Operation) and regions(node)]
    if len(holding) < 2:
        return graph
    nodes = every_node(graph)
    sites, functions = check_sites(nodes), host_functions(nodes)
    known: dict[object, Operation] = {}

    def rebuild(node: Operation, inputs: tuple[Node, ...]) -> Node | None:
        if not regions(node):
            return None
        new = apply(node.operator, inputs, node.attributes)
        text = held_text(new, sites, functions)
        return new if text is None else known.setdefault((new.operator, tuple(map(id, inputs)), text), new)

    return rebuilt(graph, rebuild)


equal_regions = GraphPass("equal_regions", _equal_regions)
"""What is traced twice is done once."""
