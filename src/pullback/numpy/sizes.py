"""Sizes of named axes as traced numbers: what ``x.shape`` gives for them, and what is computed of them alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.graph import OPERATORS, Constant, Node, Operation, Variable, constant, topological
from pullback.graph.named import Multiple, NamedSize, multiple, sizes_under_way
from pullback.graph.values import computed

__all__ = ["extent_of", "size_node", "size_of"]

_INT = np.dtype(np.int64)


def size_node(found: Multiple) -> Node:
    """A multiple of a size as a number: an ``int64`` that is weak as Python's own are."""
    node: Node = found.size.variable
    if found.times != 1:
        node = OPERATORS["multiply"](node, constant(found.times, _INT, weak=True))
    if found.beside:
        node = OPERATORS["add"](node, constant(found.beside, _INT, weak=True))
    return node


def size_of(node: Node) -> NamedSize | None:
    """The size that a number is computed from, if there is one and nothing else that is not known."""
    sizes = sizes_under_way()
    if not sizes or node.type.shape or node.value is not None:
        return None
    known = {id(size.variable): size for size in sizes}
    found = None
    for part in topological([node.node]):
        if isinstance(part, Variable):
            if id(part) not in known or found not in (None, known[id(part)]):
                return None
            found = known[id(part)]
        elif part.type.shape:
            return None
    return found


def extent_of(node: Node) -> int | None:
    """The extent that a number stands for which is computed of a size by whole numbers."""
    size = None if node.dtype.kind not in "iu" else size_of(node)
    if size is None:
        return None
    values: dict[int, Any] = {id(size.variable): np.asarray(size.stand_in)}
    for part in topological([node.node]):
        if isinstance(part, Constant):
            values[id(part)] = part.value
        elif isinstance(part, Operation):
            values[id(part)] = computed(part, [values[id(child)] for child in part.inputs])
    number = int(values[id(node.node)])
    return None if multiple(number) is None else number
