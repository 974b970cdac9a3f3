"""What the forward pass keeps for the backward pass, and what that computes again.

A cotangent of a loop's body is computed from values of the body. Which of them are kept for every step decides what a
step costs in memory, and which are computed again, in time. What a step is given (an ``x``) is there already; a
product, a reduction or a costly function is never computed again; what is cheap may be, from values that are there. Of
all choices the one with the fewest bytes is taken: the values that cut what is given from what is needed, where the cut
is smallest, and of these the one that computes least again.

So of ``tanh(x @ w + h @ u)`` the activation itself is kept, which its derivative is written in terms of, and of
products of gates the gates.

Source: Ford and Fulkerson, *Maximal flow through a network*, 1956; for rematerialisation: Zheng et al., 2022.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence

from pullback.control.regions import PARTS, dependent
from pullback.graph import Node, Operation, Variable, topological

__all__ = ["chosen_to_save"]

CHEAP = 4.0
"""The cost up to which an operation may be done again rather than its result kept."""


def chosen_to_save(
    outputs: Sequence[Node],
    seeds: Sequence[Node | None],
    carries: Sequence[Variable],
    xs: Sequence[Variable],
    kept: Iterable[Node] = (),
) -> list[Node]:
    """The values of a body to keep for ``outputs``, its cotangents, which depend on ``seeds``.

    Those ``kept`` anyway cost nothing.
    """
    order = topological(outputs)
    backward = dependent(order, [seed for seed in seeds if seed is not None])
    forward = dependent(order, [*carries, *xs])
    needed: dict[int, Node] = {}
    for node in order:
        if id(node) in backward:
            for child in node.inputs:
                if id(child) not in backward and id(child) in forward:
                    needed[id(child)] = child
    for node in outputs:
        if id(node) not in backward and id(node) in forward:
            needed[id(node)] = node
    given = {id(x) for x in xs}
    free = {id(node) for node in kept} | given
    flow = _Flow()
    for node in order:
        if id(node) not in forward or id(node) in backward:
            continue
        entry, exit = (id(node), 0), (id(node), 1)
        flow.add(entry, exit, 0.0 if id(node) in free else float(node.type.nbytes))
        if id(node) in given or not _may_be_done_again(node):
            flow.add("source", entry, math.inf)
        for child in node.inputs:
            if id(child) in forward:
                flow.add((id(child), 1), entry, math.inf)
        if id(node) in needed:
            flow.add(exit, "sink", math.inf)
    before = flow.reaching_sink()
    # The cut nearest to what is needed: values whose end reaches it and whose beginning does not.
    return [
        node
        for node in order
        if (id(node), 1) in before and (id(node), 0) not in before and id(node) not in given
    ]


def _may_be_done_again(node: Node) -> bool:
    if not isinstance(node, Operation):
        return False
    if node.operator.name in PARTS:
        return True
    return node.operator.elementwise and node.operator.cost <= CHEAP


class _Flow:
    """A network from ``"source"`` to ``"sink"`` and its largest flow."""

    def __init__(self) -> None:
        self.left: dict[object, dict[object, float]] = {"source": {}, "sink": {}}

    def add(self, start: object, end: object, capacity: float) -> None:
        """An edge; what is still free of it is what may flow on."""
        self.left.setdefault(start, {}).setdefault(end, 0.0)
        self.left.setdefault(end, {}).setdefault(start, 0.0)
        self.left[start][end] += capacity

    def reaching_sink(self) -> set[object]:
        """The places from which there is still a way to the sink when as much flows as can."""
        while (path := self._path()) is not None:
            amount = min(self.left[a][b] for a, b in path)
            for a, b in path:
                self.left[a][b] -= amount
                self.left[b][a] += amount
        found: set[object] = {"sink"}
        queue: deque[object] = deque(found)
        while queue:
            end = queue.popleft()
            for start in self.left[end]:
                if start not in found and self.left[start][end] > 0:
                    found.add(start)
                    queue.append(start)
        return found

    def _path(self) -> list[tuple[object, object]] | None:
        """A shortest way along which more can flow."""
        came: dict[object, object] = {"source": None}
        queue: deque[object] = deque(["source"])
        while queue:
            place = queue.popleft()
            for following, free in self.left[place].items():
                if free > 0 and following not in came:
                    came[following] = place
                    queue.append(following)
            if "sink" in came:
                break
        if "sink" not in came:
            return None
        path: list[tuple[object, object]] = []
        end: object = "sink"
        while end != "source":
            path.append((came[end], end))
            end = came[end]
        return path[::-1]
