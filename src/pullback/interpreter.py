"""The graph, operator by operator, in NumPy: the reference for every compiled program, and what to read first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.errors import CallbackError, IndexRangeError, MatrixError
from pullback.graph import Constant, Graph, Node, Operation, TupleType

__all__ = ["evaluate"]


def evaluate(
    graph: Graph, arguments: Sequence[np.ndarray], watch: Callable[[Node, Any], None] | None = None
) -> list[np.ndarray]:
    """The outputs of ``graph`` for ``arguments``; ``watch(node, value)`` sees every value as it is made.

    Each value is dropped after its last use, so memory follows lifetimes as in a compiled program.
    """
    values: dict[int, Any] = {id(v): np.asarray(a, v.dtype) for v, a in zip(graph.inputs, arguments)}
    order = graph.nodes()
    last_use = {id(child): position for position, node in enumerate(order) for child in node.inputs}
    keep = {id(node) for node in graph.outputs}
    with np.errstate(all="ignore"):
        for position, node in enumerate(order):
            if isinstance(node, Constant):
                values[id(node)] = node.value
            elif isinstance(node, Operation):
                inputs = [values[id(child)] for child in node.inputs]
                try:
                    value = node.operator.reference(*inputs, **node.attributes)
                except (CallbackError, IndexRangeError, MatrixError) as error:
                    if node.source is None:
                        raise
                    source = error.source or node.source  # in a loop, of what is in it
                    raise error.extended(f"at {node.source}", source=source) from None
                several = isinstance(node.type, TupleType)
                values[id(node)] = value if several else np.asarray(value, node.dtype)
                for child in node.inputs:
                    if last_use[id(child)] == position and id(child) not in keep:
                        values.pop(id(child), None)
            if watch is not None:
                watch(node, values[id(node)])
    return [values[id(node)] for node in graph.outputs]
