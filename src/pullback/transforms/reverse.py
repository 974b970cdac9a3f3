"""Reverse mode on graphs: the cotangents of the inputs as nodes of the same graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from pullback.errors import DerivativeError
from pullback.graph import (
    PENDING,
    Constant,
    Detached,
    Node,
    Operation,
    TupleType,
    dtype_kind,
    force,
    is_float,
    result,
    topological,
    written_at,
)
from pullback.operators.elementwise import summed
from pullback.operators.segments import joined_segments
from pullback.operators.shapes import padded

__all__ = ["Sums", "cotangents", "detached_cotangents", "one", "unjoined_cotangents"]

Sums = dict[Node, tuple[Node, Node]]
"""Of nodes that are sums of cotangents, the one so far and the one that was added."""


def cotangents(outputs: Sequence[Node], seeds: Sequence[Node], inputs: Sequence[Node]) -> list[Node | None]:
    r"""The cotangent of each input, given the cotangents ``seeds`` of the outputs.

    .. math:: \bar x = \sum_k \bar y_k \, \partial y_k / \partial x

    ``None`` where an input does not matter: a missing cotangent is absent, not an array of zeros.
    Contributions to a shared node are added in the order of its users, last first, so the same graph always
    gives the same sums.

    Source: Griewank & Walther, *Evaluating Derivatives*, 2nd ed., SIAM 2008, chapter 3.
    """
    bars = dict[Node, Node]()
    for output, seed in zip(outputs, seeds):
        _accumulate(bars, output, seed)
    return _swept(topological(outputs), bars, inputs, _itself)


def unjoined_cotangents(
    order: Sequence[Node], output: Node, seed: Node, inputs: Sequence[Node], sums: Sums
) -> list[Node | None]:
    """The same for one output, with cotangents of parts of an array added as they come; ``sums`` tells where.

    ``order`` is a topological order of what the output is computed from.
    """
    return _swept(order, {output: seed}, inputs, _itself, sums=sums)


def detached_cotangents(
    order: Sequence[Node], output: Node, inputs: Sequence[Node], kept: Sequence[Node]
) -> list[Node | None]:
    """The same for a scalar whose value is known, computed as the sweep goes, as numbers without a graph.

    Of each operation that the sweep has passed the value is let go, but for those of ``kept``: no pullback to come
    reads it.
    """
    seed = Detached(output.type, one(output.type.dtype))
    with np.errstate(all="ignore"):
        bars = _swept(order, {output: seed}, inputs, _settled, frozenset(kept))
        for bar in bars:
            if bar is not None:
                force(bar)
    return bars


@lru_cache
def one(dtype: np.dtype) -> np.ndarray:
    """The cotangent of a scalar with respect to itself."""
    one = np.ones((), dtype)
    one.flags.writeable = False
    return one


def _swept(
    order: Sequence[Node],
    bars: dict[Node, Node],
    inputs: Sequence[Node],
    settle: Callable[[Node], Node],
    kept: frozenset[Node] | None = None,
    sums: Sums | None = None,
) -> list[Node | None]:
    """The cotangents of ``inputs`` from those in ``bars``; ``settle`` is applied to what each pullback gives."""
    active = {x for x in inputs if is_float(x.type.dtype)}
    moving: list[Any] = []
    for node in order:
        if node in active:
            continue
        for child in node.inputs:
            if child in active:
                if _moves(node):
                    active.add(node)
                    moving.append(node)
                break
    totals = None if kept is None else _Totals()
    several: dict[Node, dict[int, Node]] = {}
    """Of operations with several results, the cotangent of each result that has one."""
    with written_at(None) as place:
        while moving:
            node = moving.pop()
            if type(node.type) is TupleType:
                found = several.pop(node, None)
                if found is None:
                    continue
                place.move(node.source)
                bar = [found.get(index) for index in range(len(node.type.types))]
                parts = node.operator.pullback(node, bar, [child in active for child in node.inputs])
            elif node not in bars:
                continue
            elif node.operator is result:
                several.setdefault(node.inputs[0], {})[node.attributes["index"]] = bars.pop(node)
                continue
            else:
                place.move(node.source)
                seen = _seen(node) if kept is not None and node.operator.elementwise else node
                parts = node.operator.pullback(seen, bars.pop(node))
            for child, part in zip(node.inputs, parts):
                if part is None or child not in active or type(child.type) is TupleType:
                    continue
                if part.type.shape != child.type.shape:
                    raise DerivativeError(
                        f"{node.operator.name}: cotangent {part.type} of an input {child.type}"
                    )
                if (
                    totals is not None
                    and child in bars
                    and (type(part) is Operation or child in totals.arrays)
                    and totals.takes(bars, child, part)
                ):
                    continue
                _accumulate(bars, child, settle(part), settle, sums)
            if kept is not None and node not in kept:
                node.value = PENDING
    return [bars.get(node) for node in inputs]


def _moves(node: Any) -> bool:
    """Whether an operation may have a cotangent that goes on to what it is computed from."""
    return node.operator.pullback is not None and (is_float(node.type.dtype) or type(node.type) is TupleType)


def _itself(node: Node) -> Node:
    return node


def _accumulate(
    bars: dict[Node, Node],
    node: Node,
    bar: Node,
    settle: Callable[[Node], Node] = _itself,
    sums: Sums | None = None,
) -> None:
    before = bars.get(node)
    if before is None:
        bars[node] = bar
    elif type(before) is Detached and type(bar) is Detached:
        bars[node] = settle(before + bar)
    elif sums is not None:
        bars[node] = total = summed(before, bar)
        sums[total] = before, bar
    else:
        joined = joined_segments(before, bar)
        bars[node] = settle(summed(before, bar) if joined is None else joined)


class _Totals:
    """Cotangents of arrays of which parts are used, as arrays that the cotangent of each part is added into.

    An array of the whole for each part would take time in proportion to both.
    """

    def __init__(self) -> None:
        self.arrays: dict[Node, np.ndarray] = {}

    def takes(self, bars: dict[Node, Node], node: Node, bar: Any) -> bool:
        """Whether ``bar`` has been added to the cotangent of ``node``, which has one."""
        is_part = type(bar) is Operation and bar.operator.name == "pad" and bar.value is PENDING
        if bar.type.dtype is not bars[node].type.dtype or not (is_part or node in self.arrays):
            return False
        total = self.arrays.get(node)
        if total is None:
            total = self.arrays[node] = np.array(force(bars[node]))
            bars[node] = Detached(node.type, total)
        if is_part:
            (part,) = bar.inputs
            total[padded(bar.attributes["low"], part.type.shape)] += force(part)
        else:
            total += force(bar)
        return True


def _settled(node: Node) -> Node:
    """``node`` as its value alone, but for the layers around it that rules look for: these are computed when needed."""
    if not isinstance(node, Operation) or node.value is not PENDING:
        return node
    if not node.operator.is_layer(node.inputs):
        value = force(node)
        return Detached(node.type, value) if is_float(node.type.dtype) else node
    inputs = tuple([_settled(child) for child in node.inputs])
    if all(new is old for new, old in zip(inputs, node.inputs)):
        return node
    return node.operator(*inputs, **node.attributes)


def _seen(node: Operation) -> Any:
    """An elementwise operation with a known value, as its pullback sees it: what that makes of it is computed."""
    return Detached(node.type, node.value, node, tuple(map(_input_seen, node.inputs)), node.attributes)


def _input_seen(node: Node) -> Node:
    # Constants, which rules look for, stay, also under a broadcast, and masks, which are shared.
    if dtype_kind(node.type.dtype) != "f" or isinstance(node, Constant):
        return node
    if isinstance(node, Operation) and node.operator.name == "broadcast":
        return node
    return Detached(node.type, force(node), node)
