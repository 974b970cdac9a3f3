"""How large the terms of sums are, which is how exact these are in any order of their additions.

``(a + b) + c`` may be computed as ``a + (b + c)``, ``(a + b) * c`` as ``a * c + b * c``, as where a pool's winners meet
the weights, and ``float32(a + b)`` as ``float32(a) + float32(b)``: what is rounded then is as large as the terms,
however small the sum is. So their sizes are followed through sums of sums, through products by one of the factors, and
all that moves and picks elements in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pullback.graph import Graph, Node, Operation, TupleType

__all__ = ["DEGREE", "sizes_of_terms"]

DEGREE = {
    "sum": 1,
    "cumsum": 1,
    "overlap_add": 1,
    "scatter_add": 1,
    "max_unpool": 1,
    "contract": 2,
    "convolve": 2,
}
"""Sums of products of so many factors: exact for small multiples of a power of two."""

CHOOSES = frozenset({
    "where", "broadcast", "reshape", "transpose", "slice", "reverse", "pad", "concatenate", "contiguous", "gather",
    "windows", "stop_gradient",
})  # fmt: skip
"""What picks and moves elements, by operands that are no floats."""


def sizes_of_terms(graph: Graph, values: Mapping[Any, Any]) -> dict[Node, np.ndarray]:
    """For each float node of ``graph`` the sum of its terms' absolute values, at the ``values`` of its nodes."""
    sizes: dict[Node, np.ndarray] = {}
    with np.errstate(all="ignore"):
        for node in graph.nodes():
            if isinstance(node.type, TupleType) or node.dtype.kind != "f":
                continue
            value = np.abs(np.asarray(values[node]))
            if isinstance(node, Operation) and value.size:
                size = _size(node, values, sizes)
                value = np.where(np.isfinite(size), np.maximum(value, size), value)
            sizes[node] = np.where(np.isfinite(value), value, 0)
    return sizes


def _size(node: Operation, values: Mapping[Any, Any], sizes: Mapping[Node, np.ndarray]) -> np.ndarray:
    name = node.operator.name
    inputs = [sizes.get(child, values[child]) for child in node.inputs]
    plain = [np.abs(values[child]) if child in sizes else values[child] for child in node.inputs]
    if name in ("add", "subtract"):
        return np.asarray(inputs[0] + inputs[1])
    if name == "divide":
        return np.asarray(inputs[0] / plain[1])
    if name == "multiply":
        return np.asarray(np.maximum(inputs[0] * plain[1], plain[0] * inputs[1]))
    if DEGREE.get(name) == 2:
        one, other = (_computed(node, x) for x in ([inputs[0], plain[1]], [plain[0], inputs[1]]))
        return np.asarray(np.maximum(one, other))
    if name == "cast":
        return np.asarray(inputs[0], node.dtype)
    if name == "negative":
        return np.asarray(inputs[0])
    if name in DEGREE or name in CHOOSES:
        return _computed(node, inputs)
    return np.asarray(np.abs(values[node]))


def _computed(node: Operation, inputs: Sequence[Any]) -> np.ndarray:
    return np.asarray(node.operator.reference(*inputs, **node.attributes), node.dtype)
