"""Updates that are added to zeros, and then together to another place, are added there at once.

The gradient of a table of vectors behind a convolution and a pool has few updates, one for each winner and element of
the window, but goes through an array with a row for each position of the text, most of it zeros. Instead each winner's
updates find their rows of the table themselves.

>>> import numpy as np
>>> import pullback.numpy
>>> from pullback.compiler.passes.rewriting import filled
>>> from pullback.graph import Graph, Type, Variable, format_graph
>>> updates = Variable(Type(np.dtype(np.float32), (3,)), "updates")
>>> place, row = (Variable(Type(np.dtype(np.int64), (n,)), name) for n, name in ((3, "place"), (6, "row")))
>>> between = scatter_add(filled(0, updates, (6,)), updates, place, axes=(0,))
>>> table = scatter_add(filled(0, updates, (9,)), between, row, axes=(0,))
>>> print(format_graph(joined_scatters(Graph((updates, place, row), (table,))), sources=False))
input  %0 updates: float32[3]
input  %1 place: int64[3]
input  %2 row: int64[6]
%3 = constant 0.0: float32[]
%4 = broadcast(%3, axes=(), shape=(9,)): float32[9]
%5 = gather(%2, %1, axes=(0,)): int64[3]
%6 = scatter_add(%4, %0, %5, axes=(0,)): float32[9]
output %6

Indices that are checked must be read by somebody else as well, as by the gather whose pullback this is: an index that
no update finds would be an error still.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pullback.compiler.passes.rewriting import GraphPass, in_rare_cases, inner, is_zero, ordered, remade, uses
from pullback.compiler.schedules.cost import MOST_JOINED_UPDATES
from pullback.graph import Graph, Node, Operation
from pullback.operators.indexing import gather
from pullback.operators.scatters import scatter_add
from pullback.operators.shapes import broadcast

__all__ = ["joined_scatters"]


def _joined_scatters(graph: Graph) -> Graph:
    order = graph.nodes()
    found = [(node, before) for node in order if (before := _before(node))]
    count = uses(order, graph.outputs) if found else {}
    alone = {
        node: node.attributes["axes"]
        for node, before in found
        if all(count[id(each)] == 1 for each in before)
        and all(inner(place, "check_index") is None or count[id(place)] > 1 for place in node.inputs[2:])
    }
    return remade(graph, alone, _at_once)


def _at_once(node: Operation, axes: tuple[int, ...], new: Mapping[Node, Node]) -> Node:
    """The updates of the scatters whose result ``node`` scatters along some axes, where it puts them."""
    target, updates, *places = (new[x] for x in node.inputs)
    for before in _into_zeros(updates):
        target = _joined(target, before, places, axes)
    return target


def _before(node: Node) -> list[Operation]:
    """The scatters of single elements into zeros whose result ``node`` scatters, if their updates are few."""
    after = inner(node, "scatter_add")
    if after is None or not after.inputs[1].size:
        return []
    found = _into_zeros(after.inputs[1])
    row = int(np.prod(after.inputs[1].shape[after.inputs[2].ndim :]))
    updates = sum(each.inputs[1].size for each in found if not in_rare_cases(each.inputs[1]))
    return found if updates <= MOST_JOINED_UPDATES * row * after.inputs[2].size else []


def _into_zeros(node: Node) -> list[Operation]:
    """The scatters of single elements that ``node`` is made of, from zeros on; none if it is something else."""
    found: list[Operation] = []
    while (scatter := inner(node, "scatter_add")) is not None:
        if len(scatter.inputs) != scatter.ndim + 2 or not scatter.inputs[1].size:
            return []
        found.insert(0, scatter)
        node = scatter.inputs[0]
    return found if is_zero(node) else []


def _joined(target: Node, before: Operation, places: Sequence[Node], axes: tuple[int, ...]) -> Node:
    """``scatter_add`` of the updates of ``before`` to where its elements go."""
    _, updates, *inside = before.inputs
    rank = places[0].ndim
    row, rest = inside[:rank], iter(inside[rank:])

    def of_updates(place: Node) -> Node:
        """For each update the place of the row that it is in."""
        if rank:
            return gather(place, *row, axes=tuple(range(rank)))
        return broadcast(place, axes=(), shape=updates.shape)

    found: dict[int, Node] = {axis: of_updates(place) for axis, place in zip(axes, places)}
    indices: list[Node] = [found[axis] if axis in found else next(rest) for axis in range(target.ndim)]
    order = _order(updates.shape, row)
    updates, *indices = (ordered(each, range(updates.ndim), order) for each in (updates, *indices))
    return scatter_add(target, updates, *indices, axes=tuple(range(target.ndim)))


def _order(shape: tuple[int, ...], row: Sequence[Node]) -> tuple[int, ...]:
    """The axes of the updates: the first, those along which rows differ, longer ones later, and those within rows.

    Then the places of many updates, which are computed before, lie along a vector.
    """
    outside = sorted({axis for node in row for axis in _varying(node)})
    first, others = outside[:1], sorted(outside[1:], key=lambda axis: shape[axis])
    within = [axis for axis in range(len(shape)) if axis not in outside]
    return (*first, *others, *within)


def _varying(node: Node) -> tuple[int, ...]:
    """The axes along which ``node`` is not the same value repeated."""
    spread = inner(node, "broadcast")
    return tuple(range(node.ndim)) if spread is None else spread.attributes["axes"]


joined_scatters = GraphPass("joined_scatters", _joined_scatters)
"""Scatters of scatters, at once."""
