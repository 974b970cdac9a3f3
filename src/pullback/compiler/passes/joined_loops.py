"""Loops over the same steps of the same body are one loop that gives the results of all.

A scan and its derivative make such loops: the values that the backward pass needs are kept by another scan of the very
same body. Here ``square`` keeps the states and ``last`` does not; both are had from one loop.

>>> import numpy as np
>>> from pullback import scan
>>> from pullback.graph import Graph, Type, format_graph, result
>>> from pullback.tracing.trace import trace
>>> last = trace(lambda x: scan(lambda h, x: (h + x, None), 0.0, x)[0], Type(np.dtype(np.float64), (3,))).graph
>>> (one,) = scans(last)
>>> other = Scan.of(one).with_outputs(Scan.of(one).carries, Scan.of(one).carries)
>>> graph = Graph(last.inputs, (*last.outputs, result(other, index=1)))
>>> len(scans(graph)), len(scans(joined_loops(graph)))
(2, 1)
"""

from __future__ import annotations

from pullback.compiler.passes.loops import scans
from pullback.compiler.passes.rewriting import GraphPass, with_outputs
from pullback.control.scan import Scan
from pullback.graph import Graph, Node, Operation, pruned, result, substitute

__all__ = ["joined_loops"]


def _joined_loops(graph: Graph) -> Graph:
    found: dict[object, list[Operation]] = {}
    for node in scans(graph):
        body = node.attributes["body"]
        key = (
            tuple(map(id, node.inputs)),
            tuple(map(id, body.inputs)),
            node.attributes["trips"],
            node.attributes["reverse"],
        )
        found.setdefault(key, []).append(node)
    replaced: dict[Node, Node] = {}
    for same in found.values():
        if len(same) == 1:
            continue
        first = Scan.of(same[0])
        ys = {id(y): y for node in same for y in Scan.of(node).ys}
        place = {key: position for position, key in enumerate(ys)}
        whole = first.with_outputs(first.carries, tuple(ys.values()))
        count = len(first.carries)
        for node in same:
            for k in range(count):
                replaced[result(node, index=k)] = result(whole, index=k)
            for k, y in enumerate(Scan.of(node).ys):
                replaced[result(node, index=count + k)] = result(whole, index=count + place[id(y)])
    if not replaced:
        return graph
    return with_outputs(graph, pruned(substitute(graph.outputs, replaced)))


joined_loops = GraphPass("joined_loops", _joined_loops)
"""One loop for all results of a body."""
