"""Sizes of named axes as traced numbers: what ``x.shape`` gives for them, and what is computed of them alone."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from pullback.graph import OPERATORS, Constant, Node, Operation, Variable, constant, topological
from pullback.graph.named import LEAST_SIZE, Multiple, NamedSize, multiple, sizes_under_way
from pullback.graph.values import computed

__all__ = ["comparison", "counted", "extent_of", "size_node", "size_of"]

_INT = np.dtype(np.int64)


def size_node(found: Multiple, size: Node | None = None) -> Node:
    """A multiple of a size, or of what stands for it, as a number: an ``int64`` that is weak as Python's own are."""
    node: Node = found.size.variable if size is None else size
    if found.times != 1:
        node = OPERATORS["multiply"](node, constant(found.times, _INT, weak=True))
    if found.beside:
        node = OPERATORS["add"](node, constant(found.beside, _INT, weak=True))
    return node


def counted(number: int) -> Node | None:
    """A number of elements that depends on sizes, as a number: a multiple of one, or of the product of two."""
    found = multiple(number)
    if found is not None:
        return size_node(found)
    for size in sizes_under_way():
        other = multiple(number // size.stand_in) if not number % size.stand_in else None
        if other is not None:
            return OPERATORS["multiply"](size.variable, size_node(other))
    return None


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


def comparison(name: str, node: Node, other: Any) -> bool | None:
    """Whether a number computed of a size is ``"eq"``, ``"lt"`` … another, where that is the same for all sizes."""
    mine = extent_of(node) if not node.type.shape else None
    if mine is None:
        return None
    theirs = extent_of(other.node) if hasattr(other, "node") and not other.ndim else other
    found, same = multiple(mine), multiple(theirs) if isinstance(theirs, int) else None
    if found is None or not isinstance(theirs, (int, np.integer)):
        return None
    if same is not None and (same.size, same.times) == (found.size, found.times):
        return bool(getattr(operator, name)(found.beside, same.beside))
    least = found.times * LEAST_SIZE + found.beside
    if same is None and found.times > 0 and theirs < least:
        return name in ("ne", "gt", "ge")
    return None


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
