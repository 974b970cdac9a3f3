"""Reverse mode on graphs: the cotangents of the inputs as nodes of the same graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback.errors import DerivativeError
from pullback.graph import Node, Operation, TupleType, is_float, result, topological, written_at
from pullback.operators.elementwise import summed
from pullback.operators.segments import joined_segments

__all__ = ["cotangents"]


def cotangents(outputs: Sequence[Node], seeds: Sequence[Node], inputs: Sequence[Node]) -> list[Node | None]:
    r"""The cotangent of each input, given the cotangents ``seeds`` of the outputs.

    .. math:: \bar x = \sum_k \bar y_k \, \partial y_k / \partial x

    ``None`` where an input does not matter: a missing cotangent is absent, not an array of zeros.
    Contributions to a shared node are added in the order of its users, last first, so the same graph always
    gives the same sums.

    Source: Griewank & Walther, *Evaluating Derivatives*, 2nd ed., SIAM 2008, chapter 3.
    """
    order = topological(outputs)
    wanted = {id(node) for node in inputs}
    active: set[int] = set()
    for node in order:
        if id(node) in wanted:
            active.add(id(node))
            continue
        for child in node.inputs:
            if id(child) in active and _moves(node):
                active.add(id(node))
                break
    bars: dict[int, Node] = {}
    several: dict[int, dict[int, Node]] = {}
    """Of operations with several results, the cotangent of each result that has one."""

    def accumulate(node: Node, bar: Node) -> None:
        before = bars.get(id(node))
        if before is not None:
            joined = joined_segments(before, bar)
            bar = summed(before, bar) if joined is None else joined
        bars[id(node)] = bar

    for output, seed in zip(outputs, seeds):
        accumulate(output, seed)
    for node in reversed(order):
        if id(node) not in active or id(node) in wanted or not isinstance(node, Operation):
            continue
        if isinstance(node.type, TupleType):
            found = several.get(id(node), {})
            bar: Any = [found.get(index) for index in range(len(node.type.types))]
            if not found:
                continue
        elif id(node) in bars:
            bar = bars[id(node)]
        else:
            continue
        if node.operator is result:
            several.setdefault(id(node.inputs[0]), {})[node.attributes["index"]] = bar
            continue
        if node.operator.pullback is None:
            continue
        with written_at(node.source):
            parts = (
                node.operator.pullback(node, bar, [id(child) in active for child in node.inputs])
                if isinstance(node.type, TupleType)
                else node.operator.pullback(node, bar)
            )
            for child, part in zip(node.inputs, parts):
                if part is None or id(child) not in active or not is_float(child.dtype):
                    continue
                if part.type.shape != child.shape:
                    raise DerivativeError(
                        f"{node.operator.name}: cotangent {part.type} of an input {child.type}"
                    )
                accumulate(child, part)
    return [bars.get(id(node)) for node in inputs]


def _moves(node: Node) -> bool:
    """Whether a node may have a cotangent that goes on to what it is computed from."""
    if not isinstance(node, Operation) or node.operator.pullback is None:
        return False
    return is_float(node.dtype) or isinstance(node.type, TupleType)
