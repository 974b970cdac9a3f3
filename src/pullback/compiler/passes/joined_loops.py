"""Loops over the same steps of the same body are one loop that gives the results of all.

A scan and its derivative make such loops: the values that the backward pass needs are kept by another scan of the very
same body. So do checkpoints that keep some values, and functions that are traced twice, as by a value and a second
derivative: their bodies are equal, with other variables. Here ``square`` keeps the states and ``last`` does not; both
are had from one loop.

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

from collections.abc import Iterator, Sequence

from pullback.compiler.passes.loops import Rebuilt, scans
from pullback.compiler.passes.rewriting import GraphPass, with_outputs
from pullback.control.checkpoint import call
from pullback.control.regions import dependent
from pullback.control.scan import Scan
from pullback.graph import Graph, Node, Operation, Variable, pruned, result, results, substitute

__all__ = ["joined_loops"]


def _joined_loops(graph: Graph) -> Graph:
    whole = graph
    while (joined := _with_one_pair_joined(whole)) is not None:
        whole = joined
    replaced: dict[Node, Node] = {}
    for node, together, places in _joined_calls(whole):
        for k, position in enumerate(places):
            replaced[result(node, index=k)] = result(together, index=position)
    if whole is graph and not replaced:
        return graph
    # Only now what nobody uses is left out: bodies that lack other results would no longer be equal.
    return with_outputs(graph, pruned(substitute(whole.outputs, replaced)))


def _with_one_pair_joined(graph: Graph) -> Graph | None:
    """``graph`` with two of its loops as one, if there are two that fit; then others may wait for each other."""
    found: dict[object, list[Operation]] = {}
    order: Sequence[Node] = ()
    for node in scans(graph):
        same = found.setdefault((node.attributes["trips"], node.attributes["reverse"]), [])
        for other in same:
            replaced = _joined(other, node)
            if replaced is not None:
                order = order or graph.nodes()
                if id(node) not in dependent(order, [other]):
                    return Graph(graph.inputs, substitute(graph.outputs, replaced))
        same.append(node)
    return None


def _joined(first: Operation, second: Operation) -> dict[Node, Node] | None:
    """The results of two scans as those of one, if all carries of one are carries of the other."""
    nodes = sorted((first, second), key=lambda node: -node.attributes["carries"])
    inits = [Scan.of(node).inputs.carries for node in nodes]
    carries = _matched(*inits)
    if not 0 < len(carries) == len(inits[1]):
        return None
    large, small = map(Rebuilt, nodes)
    xs = _matched(large.xs, small.xs)
    places: dict[Node, Node] = {small.variables[k]: large.variables[j] for k, j in carries.items()}
    for k, (variable, x) in enumerate(zip(small.x_variables, small.xs)):
        if k in xs:
            places[variable] = large.x_variables[xs[k]]
        else:
            places[variable] = own = Variable(variable.type)
            large.x_variables.append(own)
            large.xs.append(x)
    small.replace(places)
    if any(small.carries[k] is not large.carries[j] for k, j in carries.items()):
        return None
    count, ys = len(large.carries), list(dict.fromkeys((*large.ys, *small.ys)))
    place = {y: count + k for k, y in enumerate(ys)}
    positions = [
        [*range(count), *(place[y] for y in large.ys)],
        [*carries.values(), *(place[y] for y in small.ys)],
    ]
    large.ys = ys
    whole = large.results()
    return {picked: whole[at] for node, of in zip(nodes, positions) for picked, at in zip(results(node), of)}


def _matched(large: Sequence[Node], small: Sequence[Node]) -> dict[int, int]:
    """For each number of ``small`` that of the same node in ``large``; in order where one comes several times."""
    free: dict[int, list[int]] = {}
    for j, node in enumerate(large):
        free.setdefault(id(node), []).append(j)
    return {k: free[id(node)].pop(0) for k, node in enumerate(small) if free.get(id(node))}


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
