"""Steps that leave rows without a gradient alone read and write no other rows than those that have one.

Where ``g = scatter_add(0, updates, rows)`` is the gradient of a table of which few rows were gathered,

    where(any(g != 0), step(p, g, …), p)
    →
    scatter_set(p, where(any(g_r != 0), step(p_r, g_r, …), p_r), rows)

with ``p_r`` the gathered rows of the table and ``g_r`` the rows of the gradient. Rows that are named several times are
added up in a small array first: each position finds in ``last``, a number for each row of the table, the last position
that names its row, and adds to the place of that one, in the order in which the gradient would.

>>> import numpy as np
>>> import pullback.numpy as pnp
>>> from pullback.graph import Graph, Type, Variable, format_graph
>>> from pullback.operators.scatters import scatter_add
>>> float32 = np.dtype(np.float32)
>>> table, updates = (Variable(Type(float32, (n, 8)), name) for n, name in ((100, "table"), (3, "updates")))
>>> rows = Variable(Type(np.dtype(np.int64), (3,)), "rows")
>>> gradient = scatter_add(filled(0, table), updates, rows, axes=(0,))
>>> touched = pnp.broadcast_to((gradient != 0).any(1, keepdims=True), (100, 8))
>>> step = Graph((table, updates, rows), (pnp.where(touched, table - gradient / 4, table),))
>>> [node for node in lazy_updates(step).nodes() if node.shape == (100, 8)]
[Variable(table: float32[100, 8]), Operation(scatter_set: float32[100, 8])]

It is done where the gradient is needed for nothing else. The steps have the same values: what is zero in all places of
a row stays out of it, whether the row was named or not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

import numpy as np

from pullback.compiler.passes.rewriting import GraphPass, filled, inner, rebuilt, scalar
from pullback.compiler.passes.sparse_updates import Sparse, sparse_of
from pullback.compiler.schedules.cost import LEAST_UNTOUCHED
from pullback.graph import Graph, Node, Operation, apply, topological
from pullback.operators.concatenation import concatenate
from pullback.operators.indexing import gather
from pullback.operators.scatters import scatter_add, scatter_set
from pullback.operators.shapes import iota, reshape

__all__ = ["lazy_updates"]


def _lazy_updates(graph: Graph) -> Graph:
    if not any(inner(node, "scatter_add") is not None for node in graph.nodes()):
        return graph
    known: dict[Node, Sparse] = {}
    picked: list[Sparse] = []

    def rebuild(node: Operation, inputs: tuple[Node, ...]) -> Node:
        result = apply(node.operator, inputs, node.attributes)
        sparse = sparse_of(result, known)
        if sparse is not None:
            known[result] = sparse
        found = _condition(result, known)
        if found is None:
            return result
        picked.append(found)
        return _at_rows(result, found)

    made = rebuilt(graph, rebuild)
    gradients = {part.scatter for sparse in picked for part in sparse.parts}
    return made if picked and gradients.isdisjoint(made.nodes()) else graph


def _condition(node: Node, known: Mapping[Node, Sparse]) -> Sparse | None:
    """The gradient, if ``node`` chooses by whether something in a row of a sparse one is not zero."""
    if inner(node, "where") is None or node.ndim < 2:
        return None
    test = inner(node.inputs[0], "broadcast")
    while test is not None and test.operator.name in ("broadcast", "cast", "max", "reshape"):
        if test.operator.name == "reshape" and test.shape[:1] != test.inputs[0].shape[:1]:
            return None
        if test.operator.name == "broadcast" and test.attributes["axes"][:1] != (0,):
            return None
        test = test.inputs[0] if isinstance(test.inputs[0], Operation) else None
    if test is None or test.operator.name != "not_equal" or test.shape != node.shape:
        return None
    for value, other in (test.inputs, test.inputs[::-1]):
        sparse, zero = known.get(value), scalar(other)
        if sparse is None or zero is None or zero.any():
            continue
        places = sum(part.scatter.inputs[2].size for part in sparse.parts)
        if sparse.axes == (0,) and 0 < places * LEAST_UNTOUCHED <= node.shape[0]:
            return sparse
    return None


def _at_rows(node: Node, gradient: Sparse) -> Node:
    """``node``, a choice by whether the gradient is zero, computed for the rows that the gradient names alone."""
    places = {part.scatter: part.scatter.inputs[2] for part in gradient.parts}
    lines: dict[Node, Node] = {s: reshape(place, shape=(place.size,)) for s, place in places.items()}
    rows = concatenate(*lines.values(), axis=0) if len(lines) > 1 else next(iter(lines.values()))
    count, extent = rows.size, node.shape[0]
    numbers = iota(shape=(count,), axis=0, dtype=np.dtype(np.int64))
    last = scatter_set(filled(0, numbers, (extent,)), numbers, rows, axes=(0,))
    own = gather(last, rows, axes=(0,))
    known: dict[Node, Node] = {}
    read_by_rows = partial(_read_by_rows, scatters=lines, extent=extent)

    def at_rows(part: Node) -> Node:
        """The rows of a value that has as many as the table."""
        if part in lines:
            updates = reshape(part.inputs[1], shape=(lines[part].size, *part.shape[1:]))
            zero = scalar(part.inputs[0])
            assert zero is not None
            zeros = filled(zero, part, (count, *part.shape[1:]))
            numbered = gather(last, lines[part], axes=(0,))
            return gather(scatter_add(zeros, updates, numbered, axes=(0,)), own, axes=(0,))
        by_rows = read_by_rows(part)
        if not isinstance(part, Operation) or not (by_rows or part.operator.name == "broadcast"):
            return gather(part, rows, axes=(0,))
        inputs = tuple(known[each] for each in by_rows) or part.inputs
        shape = {"shape": (count, *part.shape[1:])} if part.operator.name in ("broadcast", "reshape") else {}
        return apply(part.operator, inputs, {**part.attributes, **shape})

    for part in topological([node], lambda each: not read_by_rows(each)):
        known[part] = at_rows(part)
    return scatter_set(node.inputs[2], known[node], rows, axes=(0,))


def _read_by_rows(node: Node, scatters: Collection[Node], extent: int) -> tuple[Node, ...]:
    """The inputs of whose rows those of ``node`` are made; none where it is gathered itself."""
    if not isinstance(node, Operation) or node in scatters:
        return ()
    name, inputs = node.operator.name, node.inputs
    if name == "broadcast":
        whole = node.attributes["axes"][:1] == (0,) and inputs[0].shape[0] == extent
        return inputs if whole else ()
    if name == "max":
        return inputs if 0 not in node.attributes["axes"] else ()
    if name == "reshape":
        return inputs if inputs[0].shape[:1] == node.shape[:1] else ()
    return inputs if node.operator.elementwise or name == "cast" else ()


lazy_updates = GraphPass("lazy_updates", _lazy_updates)
"""Steps of optimisers that leave untouched rows alone, at the touched ones."""
