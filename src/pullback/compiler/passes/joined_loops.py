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

from pullback.compiler.passes.loops import scans
from pullback.compiler.passes.rewriting import GraphPass, with_outputs
from pullback.control.checkpoint import call
from pullback.control.regions import dependent
from pullback.control.scan import Scan, scan
from pullback.graph import Graph, Node, Operation, Variable, pruned, result, substitute

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
    one, two = Scan.of(first), Scan.of(second)
    large, small = (one, two) if len(one.carries) >= len(two.carries) else (two, one)
    if not small.carries:
        return None
    consts = _matched(large.inputs.consts, small.inputs.consts)
    xs = _matched(large.inputs.xs, small.inputs.xs)
    carries = _matched(large.inputs.carries, small.inputs.carries)
    if len(carries) < len(small.carries):
        return None
    places: dict[Node, Node] = {}
    for own, theirs, pairs in (
        (large.variables.consts, small.variables.consts, consts),
        (large.variables.carries, small.variables.carries, carries),
        (large.variables.xs, small.variables.xs, xs),
    ):
        places.update((theirs[k], own[j]) for k, j in pairs.items())
    more_consts = [k for k in range(len(small.inputs.consts)) if k not in consts]
    more_xs = [k for k in range(len(small.inputs.xs)) if k not in xs]
    const_variables = [Variable(small.variables.consts[k].type) for k in more_consts]
    x_variables = [Variable(small.variables.xs[k].type) for k in more_xs]
    places.update((small.variables.consts[k], own) for k, own in zip(more_consts, const_variables))
    places.update((small.variables.xs[k], own) for k, own in zip(more_xs, x_variables))
    outputs = substitute((*small.carries, *small.ys), places)
    count = len(small.carries)
    if any(outputs[k] is not large.carries[j] for k, j in carries.items()):
        return None
    ys = list({id(y): y for y in (*large.ys, *outputs[count:])}.values())
    whole = scan(
        *large.inputs.consts,
        *(small.inputs.consts[k] for k in more_consts),
        *large.inputs.carries,
        *large.inputs.xs,
        *(small.inputs.xs[k] for k in more_xs),
        body=Graph(
            (
                *large.variables.consts,
                *const_variables,
                *large.variables.carries,
                *large.variables.xs,
                *x_variables,
            ),
            (*large.carries, *ys),
        ),
        consts=len(large.inputs.consts) + len(more_consts),
        carries=len(large.carries),
        trips=large.trips,
        reverse=large.reverse,
    )
    of_large, of_small = (first, second) if large is one else (second, first)
    place = {id(y): len(large.carries) + k for k, y in enumerate(ys)}
    replaced: dict[Node, Node] = {}
    for node, positions in (
        (of_large, [*range(len(large.carries)), *(place[id(y)] for y in large.ys)]),
        (of_small, [*(carries[k] for k in range(count)), *(place[id(y)] for y in outputs[count:])]),
    ):
        replaced.update((result(node, index=k), result(whole, index=at)) for k, at in enumerate(positions))
    return replaced


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
