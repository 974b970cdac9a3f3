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
from collections.abc import Collection, Iterable, Sequence, Set

from pullback.control.regions import PARTS, VIEWS, dependent
from pullback.graph import Constant, Node, Operation, Variable, behind, topological

__all__ = ["CHEAP", "chosen_to_save"]

CHEAP = 4.0
"""The cost up to which an operation may be done again rather than its result kept."""


def chosen_to_save(
    outputs: Sequence[Node],
    seeds: Sequence[Node | None],
    carries: Sequence[Variable],
    xs: Sequence[Variable],
    results: Sequence[Node],
    kept: Iterable[Node] = (),
) -> list[Node]:
    """The values of a body to keep for ``outputs``, its cotangents, which depend on ``seeds``.

    The body itself computes ``results``. Those ``kept`` anyway cost nothing.
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
    body = [node for node in order if id(node) in forward and id(node) not in backward]
    free = {id(node) for node in kept}
    once: set[int] = set()
    while True:
        chosen = _smallest_cut(body, needed, {id(x) for x in xs}, free, once)
        there = {id(node) for node in chosen}
        again = _made_of(needed.values(), there.union(map(id, xs)))
        twice = again & _made_of([*results, *chosen])
        differing = {id(node) for node in body if id(node) in twice and _adds_product(node)}
        if not differing:
            return chosen
        once |= differing


def _made_of(nodes: Iterable[Node], there: Set[int] = frozenset()) -> set[int]:
    """What is computed for ``nodes``, by ``id``, where some values are ``there``."""
    found: set[int] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if id(node) not in found and id(node) not in there:
            found.add(id(node))
            stack += node.inputs
    return found


def _smallest_cut(
    body: Sequence[Node], needed: Collection[int], given: Set[int], free: Set[int], once: Set[int]
) -> list[Node]:
    """The values to keep of a ``body`` in order: fewest bytes, none ``once`` computed again."""
    own = {id(node) for node in body}
    free, fixed = free | given, given | once
    flow = _Flow()
    for node in body:
        entry, exit = (id(node), 0), (id(node), 1)
        flow.add(entry, exit, 0.0 if id(node) in free else float(node.type.nbytes))
        if id(node) in fixed or not _may_be_done_again(node):
            flow.add("source", entry, math.inf)
        for child in node.inputs:
            if id(child) in own:
                flow.add((id(child), 1), entry, math.inf)
        if id(node) in needed:
            flow.add(exit, "sink", math.inf)
    before = flow.reaching_sink()
    # The cut nearest to what is needed: values whose end reaches it and whose beginning does not.
    return [
        node
        for node in body
        if (id(node), 1) in before and (id(node), 0) not in before and id(node) not in given
    ]


def _may_be_done_again(node: Node) -> bool:
    if not isinstance(node, Operation):
        return False
    if node.operator.name in PARTS:
        return True
    return node.operator.elementwise and node.operator.cost <= CHEAP


def _adds_product(node: Node) -> bool:
    """Whether the node adds to a product: compiled code rounds both at once, unless others need the product.

    Others may, in only one of the two passes. The bits would not be those of before, and what is compared with its own
    row's maximum, which is kept, would be none of the largest.
    """
    if (
        not isinstance(node, Operation)
        or node.operator.name not in ("add", "subtract")
        or node.dtype.kind not in "fc"
    ):
        return False
    return any(map(_is_rounded, node.inputs))


def _is_rounded(node: Node) -> bool:
    """Whether the node is a product that may have to be rounded: one by a power of two need not."""
    node = behind(node, (*PARTS, "negative"))
    if not isinstance(node, Operation):
        return False
    exact = node.operator.name == "multiply" and any(map(_is_power_of_two, node.inputs))
    return node.operator.name in ("multiply", "one_less_square") and not exact


def _is_power_of_two(node: Node) -> bool:
    node = behind(node, VIEWS)
    if not isinstance(node, Constant) or node.value.size != 1 or node.value.dtype.kind != "f":
        return False
    return abs(math.frexp(float(node.value.item()))[0]) == 0.5


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
