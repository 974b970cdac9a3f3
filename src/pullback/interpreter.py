"""The graph, operator by operator, in NumPy: the reference for every compiled program, and what to read first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pullback.graph import PENDING, Graph, Node, Operation, Variable, computed, topological

__all__ = ["evaluate", "values_of"]

Watch = Callable[[Node, Any], None]


def evaluate(graph: Graph, arguments: Sequence[np.ndarray], watch: Watch | None = None) -> list[np.ndarray]:
    """The outputs of ``graph`` for ``arguments``; ``watch(node, value)`` sees every value as it is made.

    Each value is dropped after its last use, so memory follows lifetimes as in a compiled program.
    """
    return values_of(
        graph.outputs, {v: np.asarray(a, v.dtype) for v, a in zip(graph.inputs, arguments)}, watch
    )


def values_of(
    outputs: Sequence[Node], given: Mapping[Variable, np.ndarray], watch: Watch | None = None
) -> list[np.ndarray]:
    """The values of ``outputs``, with those ``given`` of variables; what is known already is not computed again."""
    values: dict[int, Any] = {id(variable): value for variable, value in given.items()}
    order = _needed(outputs, values)
    last_use = {id(child): position for position, node in enumerate(order) for child in node.inputs}
    keep = {id(node) for node in outputs}
    with np.errstate(all="ignore"):
        for position, node in enumerate(order):
            key = id(node)
            if key not in values:
                value = node.value
                if value is None or value is PENDING:
                    assert isinstance(node, Operation)
                    value = computed(node, [values[id(child)] for child in node.inputs])
                    for child in node.inputs:
                        if last_use[id(child)] == position and id(child) not in keep:
                            values.pop(id(child), None)
                values[key] = value
            if watch is not None:
                watch(node, values[key])
    return [values[id(node)] for node in outputs]


def _needed(outputs: Sequence[Node], values: Mapping[int, Any]) -> list[Node]:
    """What ``outputs`` are computed from, inputs before users, down to what is known."""
    return topological(
        outputs, lambda node: id(node) in values or not (node.value is None or node.value is PENDING)
    )
