"""What the forward pass keeps for the backward pass, and what that computes again.

A cotangent of a loop's body is computed from values of the body. Which of them are kept for every step decides what a
step costs in memory, and which are computed again, in time:

- what a step is given (an ``x``) is there already; a carry is kept, as a step cannot be computed again without it;
- a product, a reduction, or anything dear is kept, never computed again;
- what is cheap and made of values that are there is computed again;
- a view is computed again from what it is a view of.

So of ``tanh(x @ w + h @ u)`` the activation itself is kept, which its derivative is written in terms of, and of a
product of two gates the gates.
"""

from __future__ import annotations

from collections.abc import Sequence

from pullback.control.regions import VIEWS, dependent
from pullback.graph import Constant, Node, Operation, Variable, topological

__all__ = ["chosen_to_save"]

CHEAP = 4.0
"""The cost up to which an operation is done again rather than its result kept."""


def chosen_to_save(
    outputs: Sequence[Node],
    seeds: Sequence[Node | None],
    carries: Sequence[Variable],
    xs: Sequence[Variable],
) -> list[Node]:
    """The values of a body to keep for ``outputs``, its cotangents, which depend on ``seeds``."""
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
    # What a view shows is needed in its place.
    wanted: dict[int, Node] = {}
    for shown in needed.values():
        base = shown
        while isinstance(base, Operation) and base.operator.name in VIEWS:
            (base,) = base.inputs
        wanted[id(base)] = base
    there = {id(x) for x in xs}
    kept: list[Node] = []
    for node in order:
        if id(node) not in wanted:
            continue
        if isinstance(node, Operation) and _is_done_again(node, there, forward):
            there.add(id(node))
        elif id(node) not in there:
            there.add(id(node))
            kept.append(node)
    return kept


def _is_done_again(node: Operation, there: set[int], forward: set[int]) -> bool:
    """Whether a value is cheap and made of values that are there, or of nothing that changes from step to step."""
    if not node.operator.elementwise or node.operator.cost > CHEAP:
        return False
    stack, cost = list(node.inputs), node.operator.cost
    while stack:
        child = stack.pop()
        if id(child) in there or id(child) not in forward or isinstance(child, Constant):
            continue
        if not isinstance(child, Operation):
            return False
        if child.operator.name not in VIEWS:
            if not child.operator.elementwise:
                return False
            cost += child.operator.cost
            if cost > CHEAP:
                return False
        stack += child.inputs
    return True
