"""A gradient that is few rows of a table is subtracted from these rows alone: a step costs nothing for the others.

``table - rate * scatter_add(0, updates, rows)``, which the gradient of a gather and gradient descent give, is a scatter
into the table itself:

>>> import numpy as np
>>> import pullback.numpy
>>> from pullback.graph import Graph, Type, Variable, format_graph
>>> float32 = np.dtype(np.float32)
>>> table, updates = (Variable(Type(float32, (n, 8)), name) for n, name in ((100, "table"), (3, "updates")))
>>> rows = Variable(Type(np.dtype(np.int64), (3,)), "rows")
>>> gradient = scatter_add(filled(0, table), updates, rows, axes=(0,))
>>> step = Graph((table, updates, rows), (table - 0.5 * gradient,))
>>> print(format_graph(sparse_updates(step), sources=False))
input  %0 table: float32[100, 8]
input  %1 updates: float32[3, 8]
input  %2 rows: int64[3]
%3 = constant 0.0: float32[]
%4 = broadcast(%3, axes=(), shape=(3, 8)): float32[3, 8]
%5 = add(%1, %4): float32[3, 8]
%6 = constant 0.5: float32[]
%7 = broadcast(%6, axes=(), shape=(3, 8)): float32[3, 8]
%8 = multiply(%5, %7): float32[3, 8]
%9 = negative(%8): float32[3, 8]
%10 = scatter_add(%0, %9, %2, axes=(0,)): float32[100, 8]
output %10

It is done where the gradient is needed for nothing else, and for factors that are known and finite: infinity times the
zeros of the other rows would be NaN. Elements that are named once get the same bits, zeros and their signs included;
of those that are named several times each part is scaled and subtracted by itself, in the order of the updates, so that
rounding differs as it does for sums in another order. Gradients of several gathers of one table are one scatter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pullback.compiler.passes.rewriting import (
    GraphPass,
    filled,
    in_rare_cases,
    inner,
    is_zero,
    rare_case,
    remade,
    scalar,
    uses,
)
from pullback.compiler.schedules.cost import LEAST_UNTOUCHED, MOST_SPARSE_NODES
from pullback.graph import OPERATORS, Graph, Node, Operation
from pullback.operators.concatenation import concatenate
from pullback.operators.elementwise import where
from pullback.operators.scatters import scatter_add
from pullback.operators.shapes import reshape

__all__ = ["Sparse", "sparse_of", "sparse_updates"]


@dataclass(frozen=True)
class _Part:
    """A scatter into zeros, times all factors one after another."""

    scatter: Operation
    factors: tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Sparse:
    """A sum of scatters into zeros."""

    parts: tuple[_Part, ...]
    zero: np.ndarray
    """What it is where nothing is scattered: a zero, with its sign."""
    nodes: tuple[Node, ...]
    """All that it is made of, which nobody else may need."""

    @property
    def axes(self) -> tuple[int, ...]:
        """Those of the table that the indices of all parts select."""
        axes: tuple[int, ...] = self.parts[0].scatter.attributes["axes"]
        return axes


def _sparse_updates(graph: Graph) -> Graph:
    order = graph.nodes()
    if not any(inner(node, "scatter_add") is not None for node in order):
        return graph
    count = uses(order, graph.outputs)
    known: dict[Node, Sparse] = {}
    found: dict[Node, _Update] = {}
    for node in order:
        sparse = sparse_of(node, known)
        if sparse is not None:
            known[node] = sparse
        update = _update(node, known)
        if update is not None and all(count[id(each)] == 1 for each in update.sparse.nodes):
            found[node] = update
    for update in [*found.values()]:
        for each in update.sparse.nodes:
            found.pop(each, None)
    return remade(graph, found, _scattered)


@dataclass(frozen=True)
class _Update:
    """The operand on one ``side`` with something sparse added to it, or subtracted."""

    side: int
    sparse: Sparse
    subtracted: bool


def _update(node: Node, known: Mapping[Node, Sparse]) -> _Update | None:
    """``node`` as an update of few elements, if it is that."""
    if not isinstance(node, Operation) or node.operator.name not in ("subtract", "add"):
        return None
    subtracted = node.operator.name == "subtract"
    for side in (0,) if subtracted else (0, 1):
        sparse = known.get(node.inputs[1 - side])
        # x - (+0) and x + (-0) are x, whatever the sign of a zero in x
        if sparse is None or bool(np.signbit(sparse.zero)) == subtracted:
            continue
        updates = [part.scatter.inputs[1] for part in sparse.parts]
        elements = sum(each.size for each in updates if not in_rare_cases(each))
        if 0 < elements * LEAST_UNTOUCHED <= node.size:
            return _Update(side, sparse, subtracted)
    return None


def _scattered(node: Operation, update: _Update, new: Mapping[Node, Node]) -> Node:
    """The update as one scatter; ``new`` is what its parts have become."""
    base = new[node.inputs[update.side]]
    rows, places = [], []
    rare: list[tuple[Node, Sequence[Node]]] = []
    for part in update.sparse.parts:
        zeros, updates, *indices = new[part.scatter].inputs
        made = _scaled_updates(updates, scalar(zeros), part.factors, update.subtracted)
        if in_rare_cases(updates):
            rare.append((made, indices))
            continue
        rows.append(made)
        places.append(indices)
    axes = update.sparse.axes
    if len(rows) == 1:
        result = scatter_add(base, rows[0], *places[0], axes=axes)
    else:
        lines = [_line(x, indices[0].ndim) for x, indices in zip(rows, places)]
        joined = [concatenate(*(_line(x, x.ndim) for x in each), axis=0) for each in zip(*places)]
        result = scatter_add(base, concatenate(*lines, axis=0), *joined, axes=axes)
    for made, others in rare:
        result = scatter_add(result, made, *others, axes=axes)
    return result


def _scaled_updates(
    updates: Node, zero: np.ndarray | None, factors: Sequence[np.ndarray], negated: bool
) -> Node:
    """What ``updates`` of ``zero``, times all factors, add to a table; what adds nothing there adds -0."""
    case = rare_case(updates)
    if case is not None and (is_zero(case[1]) or is_zero(case[2])):
        nothing = filled(-0.0, updates)
        condition, *branches = case
        made = (
            nothing if is_zero(each) else _scaled_updates(each, zero, factors, negated) for each in branches
        )
        return where(condition, *made)
    # Added to a zero first, as in the gradient: it may be a zero of the other sign.
    made = updates if zero is None else OPERATORS["add"](updates, filled(zero, updates))
    for factor in factors:
        made = OPERATORS["multiply"](made, filled(factor, made))
    return OPERATORS["negative"](made) if negated else made


def _line(x: Node, rank: int) -> Node:
    """``x`` with its first axes as one."""
    return reshape(x, shape=(math.prod(x.shape[:rank]), *x.shape[rank:]))


def sparse_of(node: Node, known: Mapping[Node, Sparse]) -> Sparse | None:
    """``node`` as scatters into zeros times finite numbers, if it is that; ``known`` is what its inputs are."""
    found = _sparse(node, known)
    return found if found is not None and len(found.nodes) <= MOST_SPARSE_NODES else None


def _sparse(node: Node, known: Mapping[Node, Sparse]) -> Sparse | None:
    if not isinstance(node, Operation) or node.dtype.kind != "f":
        return None
    below = [known.get(each) for each in node.inputs]
    if node.operator.name == "scatter_add":
        zero, base = scalar(node.inputs[0]), below[0]
        if base is not None and in_rare_cases(node.inputs[1]):
            return Sparse((*base.parts, _Part(node, ())), base.zero, (*base.nodes, node))
        return None if zero is None or zero.any() else Sparse((_Part(node, ()),), zero, (node,))
    if node.operator.name == "negative":
        return _scaled(below[0], node, np.array(-1, node.dtype))
    if node.operator.name == "multiply":
        for side in (0, 1):
            factor = scalar(node.inputs[1 - side])
            if factor is not None and np.isfinite(factor):
                return _scaled(below[side], node, factor)
    if node.operator.name == "add":
        one, other = below
        if one is not None and other is not None and one.axes == other.axes:
            return Sparse((*one.parts, *other.parts), one.zero + other.zero, (*one.nodes, *other.nodes, node))
    return None


def _scaled(below: Sparse | None, node: Node, factor: np.ndarray) -> Sparse | None:
    if below is None:
        return None
    parts = tuple(_Part(part.scatter, (*part.factors, factor)) for part in below.parts)
    return Sparse(parts, np.asarray(below.zero * factor), (*below.nodes, node))


sparse_updates = GraphPass("sparse_updates", _sparse_updates)
"""Steps of gradient descent that touch few rows, at these rows."""
