"""Sums of updates at places that are known are gathered: each element of the result finds its own updates.

The pullback of ``x[places]`` with constant places visits one update after another. Where all elements have about as
many of them, a table says which, and their sum is a reduction like any other: lanes lie along the elements, chunks are
shares of them, and what the updates are made of is computed where it is read.

>>> import numpy as np
>>> import pullback.numpy
>>> from pullback.compiler.passes.rewriting import filled
>>> from pullback.graph import Graph, Type, Variable, constant, format_graph
>>> from pullback.operators.scatters import scatter_add
>>> updates = Variable(Type(np.dtype(np.float32), (6,)), "updates")
>>> places = constant(np.array([2, 0, 1, 1, 2, 0]))
>>> summed = scatter_add(filled(0, updates, (3,)), updates, places, axes=(0,))
>>> print(format_graph(gathered_scatters(Graph((updates,), (summed,))), sources=False))
input  %0 updates: float32[6]
%1 = constant ...: int64[2, 3]
%2 = gather(%0, %1, axes=(0,)): float32[2, 3]
%3 = sum(%2, axes=(0,)): float32[3]
output %3

Each sum begins with zero and has its terms in the order of the updates, with zeros behind them where other elements
have more, so that all have one shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from pullback.compiler.key.graph import constant_is_code
from pullback.compiler.passes.rewriting import GraphPass, filled, inner, ordered, rebuilt, scalar, uses
from pullback.compiler.schedules.cost import (
    DEEPEST_FACTOR,
    FEW_GATHERED,
    LARGEST_TABLE,
    MOST_GATHERED,
    RECOMPUTE_COST,
)
from pullback.graph import Constant, Graph, Node, Operation, apply, constant
from pullback.operators.elementwise import where
from pullback.operators.indexing import gather
from pullback.operators.reductions import sum as sum_along
from pullback.operators.shapes import broadcast, reshape

__all__ = ["gathered_scatters"]

Selection = Callable[[Node, Sequence[Node]], Node]
"""From an array and places of its leading axes to what it holds there."""


def _gathered_scatters(graph: Graph) -> Graph:
    order = graph.nodes()
    found = {node: table for node in order if (table := _table(node)) is not None}
    if not found:
        return graph
    count = uses(order, graph.outputs)
    made: dict[Node, Node] = {}

    def at(node: Node, places: Sequence[Node], depth: int = 0) -> Node:
        """``node`` at ``places``; what costs little is computed again there."""
        if isinstance(node, Operation) and node.operator.elementwise and depth < DEEPEST_FACTOR:
            cost = node.operator.cost if count[id(node)] == 1 else _cost(node)
            if cost <= RECOMPUTE_COST:
                operands = [at(x, places, depth + 1) for x in node.inputs]
                return node.operator(*operands, **node.attributes)
        if inner(node, "broadcast") is not None and node.ndim == len(places):
            (x,), axes = node.inputs, node.attributes["axes"]
            if axes and 1 not in x.shape:
                return at(x, [places[axis] for axis in axes], depth + 1)
        return gather(made.get(node, node), *places, axes=tuple(range(len(places))))

    def rebuild(node: Operation, inputs: tuple[Node, ...]) -> Node:
        table = found.get(node)
        again = apply(node.operator, inputs, node.attributes)
        made[node] = again if table is None else _gathered(node, inputs[1], *table, at)
        return made[node]

    return rebuilt(graph, rebuild)


# -- which updates an element has


def _table(node: Node) -> tuple[NDArray[np.int64], NDArray[np.bool_]] | None:
    """For each place the numbers of its updates, and which of them there are, if they make an even table."""
    if not isinstance(node, Operation) or node.operator.name != "scatter_add" or node.dtype.kind != "f":
        return None
    base, updates, *indices = node.inputs
    zero = scalar(base)
    if zero is None or zero.any() or np.signbit(zero) or not updates.size:
        return None
    extents = [base.shape[axis] for axis in node.attributes["axes"]]
    targets = math.prod(extents)
    # More than one update for each place on average, unless there are few: asked before places are looked at.
    if targets > max(MOST_GATHERED * indices[0].size, FEW_GATHERED) or indices[0].size > LARGEST_TABLE:
        return None
    known = [_known(index) for index in indices]
    if any(each is None for each in known):
        return None
    flat = np.ravel_multi_index([each.reshape(-1) for each in known if each is not None], extents)
    counts = np.bincount(flat, minlength=targets)
    most = int(counts.max())
    if most * targets > max(MOST_GATHERED * flat.size, FEW_GATHERED):
        return None
    order = np.argsort(flat, kind="stable")
    number = np.arange(flat.size) - (np.cumsum(counts) - counts)[flat[order]]
    table = np.zeros((most, targets), np.int64)
    table[number, flat[order]] = order
    return table, np.arange(most)[:, None] < counts


def _known(node: Node) -> NDArray[np.int64] | None:
    """The value of an index that is a constant, one that is repeated, or the number of the place itself."""
    if isinstance(node, Constant):
        return node.value if constant_is_code(node.value) else None
    if not isinstance(node, Operation) or node.operator.name not in ("broadcast", "iota"):
        return None
    inputs = [_known(child) for child in node.inputs]
    if any(each is None for each in inputs):
        return None
    return np.asarray(node.operator.reference(*inputs, **node.attributes))


# -- the sum


def _gathered(
    node: Operation, updates: Node, table: NDArray[np.int64], there: NDArray[np.bool_], at: Selection
) -> Node:
    """What ``node`` sums, with the ``updates`` that ``table`` names for each place."""
    base, before, *indices = node.inputs
    axes = node.attributes["axes"]
    if indices[0].ndim:
        terms = at(before, list(map(constant, np.unravel_index(table, indices[0].shape))))
    else:
        shape = (*table.shape, *updates.shape)
        terms = broadcast(updates, shape=shape, axes=tuple(range(2, len(shape))))
    if not there.all():
        mask = broadcast(constant(there), shape=terms.shape, axes=(0, 1))
        terms = where(mask, terms, filled(0, terms))
    kept = [axis for axis in range(base.ndim) if axis not in axes]
    extents = [base.shape[axis] for axis in axes]
    if len(axes) > 1:
        terms = reshape(terms, shape=(len(table), *extents, *terms.shape[2:]))
    # As the result lies, so that the sum is made where it stays.
    terms = ordered(terms, [-1, *axes, *kept], range(-1, base.ndim))
    if len(table) > 1:
        return sum_along(terms, axes=(0,))
    found: Node = reshape(terms, shape=base.shape)
    return found + filled(0, found)  # to zero, that of a negative zero too


def _cost(node: Node, depth: int = 0) -> float:
    """What ``node`` costs where its value is needed, read from what costs more."""
    if not isinstance(node, Operation) or not (node.operator.elementwise or node.operator.view):
        return 0.0
    if depth > RECOMPUTE_COST:
        return math.inf
    return node.operator.cost + sum(_cost(x, depth + 1) for x in node.inputs)


gathered_scatters = GraphPass("gathered_scatters", _gathered_scatters)
"""Sums at known places, each element's own updates."""
