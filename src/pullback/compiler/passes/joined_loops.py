"""Loops over the same steps of the same body are one loop that gives the results of all.

A scan and its derivative make such loops: the values that the backward pass needs are kept by another scan of the very
same body. So do checkpoints that keep some values. Here ``square`` keeps the states and ``last`` does not; both are had
from one loop.

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

from collections.abc import Iterator

from pullback.compiler.passes.loops import scans
from pullback.compiler.passes.rewriting import GraphPass, with_outputs
from pullback.control.checkpoint import call
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
    for node, whole, places in _joined_calls(graph):
        for k, position in enumerate(places):
            replaced[result(node, index=k)] = result(whole, index=position)
    if not replaced:
        return graph
    return with_outputs(graph, pruned(substitute(graph.outputs, replaced)))


def _joined_calls(graph: Graph) -> Iterator[tuple[Operation, Operation, list[int]]]:
    """Calls of the same region on the same inputs, with one that gives the results of all, and their places there."""
    found: dict[object, list[Operation]] = {}
    for node in graph.nodes():
        if isinstance(node, Operation) and node.operator is call:
            key = tuple(map(id, node.inputs)), tuple(map(id, node.attributes["body"].inputs))
            found.setdefault(key, []).append(node)
    for same in found.values():
        if len(same) == 1:
            continue
        outputs = {id(output): output for node in same for output in node.attributes["body"].outputs}
        place = {key: position for position, key in enumerate(outputs)}
        region = Graph(same[0].attributes["body"].inputs, tuple(outputs.values()))
        whole = call(*same[0].inputs, body=region, saved=same[0].attributes["saved"])
        for node in same:
            yield node, whole, [place[id(output)] for output in node.attributes["body"].outputs]


joined_loops = GraphPass("joined_loops", _joined_loops)
"""One loop for all results of a body."""
