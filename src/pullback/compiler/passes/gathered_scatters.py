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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pullback.compiler.key.graph import constant_is_code
from pullback.compiler.passes.rewriting import GraphPass, filled, is_positive_zero, ordered, remade, uses
from pullback.compiler.schedules.cost import (
    DEEPEST_FACTOR,
    FEW_GATHERED,
    LARGEST_TABLE,
    MOST_GATHERED,
    RECOMPUTE_COST,
)
from pullback.graph import Constant, Graph, Node, Operation, constant
from pullback.operators.elementwise import where
from pullback.operators.indexing import gather
from pullback.operators.reductions import sum as sum_along
from pullback.operators.shapes import broadcast, reshape

__all__ = ["gathered_scatters"]

_Table = tuple[NDArray[np.int64], NDArray[np.bool_]]
"""For each place the numbers of its updates, and which of them there are."""
Places = tuple[NDArray[np.int64], ...]
"""Where elements stand, for each of the leading axes of an array; all of one shape."""


def _gathered_scatters(graph: Graph) -> Graph:
    order = graph.nodes()
    found = {node: table for node in order if (table := _table(node)) is not None}
    count = uses(order, graph.outputs) if found else {}
    constants: dict[tuple[str, tuple[int, ...], bytes], Node] = {}

    def gathered(node: Operation, table: _Table, new: Mapping[Node, Node]) -> Node:
        return _gathered(node, table, _Moved(new, count, constants))

    return remade(graph, found, gathered)


# -- which updates an element has


def _table(node: Node) -> _Table | None:
    """The updates that ``node`` sums, if they make an even table."""
    if not isinstance(node, Operation) or node.operator.name != "scatter_add" or node.dtype.kind != "f":
        return None
    base, updates, *indices = node.inputs
    if not is_positive_zero(base) or not updates.size:
        return None
    extents = [base.shape[axis] for axis in node.attributes["axes"]]
    targets = math.prod(extents)
    # More than one update for each place on average, unless there are few: asked before places are looked at.
    if targets > max(MOST_GATHERED * indices[0].size, FEW_GATHERED) or indices[0].size > LARGEST_TABLE:
        return None
    known = _known(indices)
    if known is None:
        return None
    flat = np.ravel_multi_index([each.reshape(-1) for each in known], extents)
    counts = np.bincount(flat, minlength=targets)
    most = int(counts.max())
    if most * targets > max(MOST_GATHERED * flat.size, FEW_GATHERED):
        return None
    order = np.argsort(flat, kind="stable")
    number = np.arange(flat.size) - (np.cumsum(counts) - counts)[flat[order]]
    table = np.zeros((most, targets), np.int64)
    table[number, flat[order]] = order
    return table, np.arange(most)[:, None] < counts


def _known(indices: Sequence[Node]) -> list[NDArray[np.int64]] | None:
    """The values of indices that are constants, some that are repeated, or the numbers of the places themselves."""
    values = []
    for node in indices:
        if isinstance(node, Constant) and constant_is_code(node.value):
            values.append(node.value)
        elif isinstance(node, Operation) and node.operator.name in ("broadcast", "iota"):
            inputs = _known(node.inputs)
            if inputs is None:
                return None
            values.append(np.asarray(node.operator.reference(*inputs, **node.attributes)))
        else:
            return None
    return values


# -- the sum


def _gathered(node: Operation, known: _Table, moved: _Moved) -> Node:
    """What ``node`` sums, with the updates that are ``known`` of each place."""
    (table, there), (base, updates, *indices) = known, node.inputs
    axes = node.attributes["axes"]
    places = np.unravel_index(table, indices[0].shape) if indices[0].ndim else ()
    rest = updates.shape[indices[0].ndim :]
    if places:
        terms = moved.at(updates, places)
    else:
        terms = broadcast(
            moved.new[updates], shape=(*table.shape, *rest), axes=tuple(range(2, 2 + len(rest)))
        )
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


@dataclass(frozen=True)
class _Moved:
    """Elements of nodes at known places, taken where what they are made of is read.

    ``new`` is what has become of nodes, ``count`` how often they are read.
    """

    new: Mapping[Node, Node]
    count: Mapping[int, int]
    constants: dict[tuple[str, tuple[int, ...], bytes], Node]

    def at(self, node: Node, places: Places, depth: int = 0) -> Node:
        """``node`` at ``places`` of its leading axes."""
        made = self._inside(node, places, depth)
        if made is not None:
            return made
        return gather(self.new[node], *map(self._constant, places), axes=tuple(range(len(places))))

    def _inside(self, node: Node, places: Places, depth: int) -> Node | None:
        """What ``node`` is made of at ``places``, computed again there, if that costs little."""
        if isinstance(node, Constant) and constant_is_code(node.value):
            return self._constant(node.value[places])
        if not isinstance(node, Operation) or depth == DEEPEST_FACTOR:
            return None
        if node.operator.name == "broadcast":
            return self._broadcast(node, places, depth + 1)
        if node.operator.name == "reshape":
            return self._reshape(node, places, depth + 1)
        if node.operator.name == "gather":
            return self._gather(node, places)
        cost = node.operator.cost if self.count[id(node)] == 1 else _cost(node)
        if not node.operator.elementwise or cost > RECOMPUTE_COST:
            return None
        return node.operator(*(self.at(x, places, depth + 1) for x in node.inputs), **node.attributes)

    def _constant(self, value: NDArray[Any]) -> Node:
        """One node for equal values, so that equal operations on them are one."""
        key = (str(value.dtype), value.shape, value.tobytes())
        if key not in self.constants:
            self.constants[key] = constant(value)
        return self.constants[key]

    def _broadcast(self, node: Operation, places: Places, depth: int) -> Node | None:
        (x,), axes = node.inputs, node.attributes["axes"]
        if any(node.shape[axis] != extent for axis, extent in zip(axes, x.shape)):
            return None
        ahead, more = len(places), places[0].ndim
        own = tuple(places[axis] for axis in axes if axis < ahead)
        shape = (*places[0].shape, *node.shape[ahead:])
        behind = tuple(axis - ahead + more for axis in axes if axis >= ahead)
        if not own:
            return broadcast(self.new[x], shape=shape, axes=behind)
        part = self.at(x, own, depth)
        return part if part.shape == shape else broadcast(part, shape=shape, axes=(*range(more), *behind))

    def _gather(self, node: Operation, places: Places) -> Node | None:
        x, *indices = node.inputs
        known = _known(indices)
        if len(places) != indices[0].ndim or known is None:
            return None
        moved = [self._constant(each[places]) for each in known]
        return gather(self.new[x], *moved, axes=node.attributes["axes"])

    def _reshape(self, node: Operation, places: Places, depth: int) -> Node | None:
        """The same elements of the array before, if the axes behind are the same."""
        (x,) = node.inputs
        ahead = len(places)
        before = x.ndim - (node.ndim - ahead)
        if before < 1 or x.shape[before:] != node.shape[ahead:]:
            return None
        number = np.ravel_multi_index(places, node.shape[:ahead])
        return self.at(x, np.unravel_index(number, x.shape[:before]), depth)


def _cost(node: Node, depth: int = 0) -> float:
    """What ``node`` costs where its value is needed, read from what costs more."""
    if not isinstance(node, Operation) or not (node.operator.elementwise or node.operator.view):
        return 0.0
    if depth > RECOMPUTE_COST:
        return math.inf
    return node.operator.cost + sum(_cost(x, depth + 1) for x in node.inputs)


gathered_scatters = GraphPass("gathered_scatters", _gathered_scatters)
"""Sums at known places, each element's own updates."""
