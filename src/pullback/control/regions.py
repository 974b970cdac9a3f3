"""Regions: graphs held by an operation, closed over what they use of the graph around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pullback.graph import (
    SMALL_CONSTANT,
    Constant,
    Graph,
    Node,
    Operation,
    Variable,
    result,
    substitute,
    topological,
)
from pullback.operators.batching import is_batched
from pullback.operators.shapes import broadcast, iota

__all__ = ["PARTS", "VIEWS", "Run", "closed", "dependent", "same_for_all"]

VIEWS = frozenset({"broadcast", "reshape", "transpose"})
"""What costs nothing inside: a region takes what these are views of, not an array that repeats it."""

Run = Callable[[Graph, Sequence[np.ndarray]], list[np.ndarray]]
"""What the reference of an operator that holds graphs runs them with: the interpreter, or another in its place."""

PARTS = VIEWS | {"slice", "reverse"}
"""What is read where it is needed rather than stored for itself."""


def dependent(order: Sequence[Node], variables: Sequence[Node]) -> set[int]:
    """The nodes of a topological ``order`` that depend on ``variables``, these among them, by ``id``."""
    found = {id(variable) for variable in variables}
    for node in order:
        if any(id(child) in found for child in node.inputs):
            found.add(id(node))
    return found


def same_for_all(x: Node, one: Node, size: int) -> Node:
    """``x`` with a batch axis: the same for each of ``size`` examples if it has none."""
    if is_batched(x, one):
        return x
    return broadcast(x, shape=(size, *x.shape), axes=tuple(range(1, x.ndim + 1)))


def closed(
    outputs: Sequence[Node], variables: Sequence[Variable], since: int | None = None
) -> tuple[tuple[Node, ...], Graph]:
    """The nodes around that ``outputs`` are computed from beside ``variables``, and the region that takes them first.

    What does not depend on ``variables`` stays outside and is computed there, once. Small constants, the numbers of
    places, and what is made of nothing else, belong to the region, and so does what was made ``since`` a mark: where a
    region may not be run at all, what is written in it must not run outside.

    >>> import numpy as np
    >>> from pullback.graph import Type, format_graph
    >>> vector = Type(np.dtype(np.float64), (3,))
    >>> h, w = Variable(vector, "h"), Variable(vector, "w")
    >>> captured, region = closed([h * (w * w + 1.0)], [h])
    >>> print(*captured)
    Operation(add: float64[3])
    >>> print(format_graph(region, sources=False))
    input  %0 _: float64[3]
    input  %1 h: float64[3]
    %2 = multiply(%1, %0): float64[3]
    output %2
    """
    order = topological(outputs)
    inside = dependent(order, variables)
    for node in order:
        if isinstance(node, Operation):
            written = since is not None and node.number > since and node.operator is not result
            made = node.inputs or node.operator is iota
            if written or (made and all(id(child) in inside for child in node.inputs)):
                inside.add(id(node))
        elif isinstance(node, Constant) and node.size <= SMALL_CONSTANT:
            inside.add(id(node))
    captured: dict[int, Node] = {}

    def capture(node: Node) -> None:
        stack = [node]
        while stack:
            found = stack.pop()
            if id(found) in inside or id(found) in captured:
                continue
            if isinstance(found, Operation) and found.operator.name in VIEWS:
                stack += found.inputs
            else:
                captured[id(found)] = found

    for node in order:
        if id(node) in inside and isinstance(node, Operation):
            for child in node.inputs:
                capture(child)
    for node in outputs:
        capture(node)
    own = {node: Variable(node.type) for node in captured.values()}
    made = substitute(outputs, dict(own))
    return tuple(captured.values()), Graph((*own.values(), *variables), made)
