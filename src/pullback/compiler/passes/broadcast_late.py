"""What is computed from repeated values is computed once and repeated itself.

An elementwise operation on broadcasts that leave some axis of the result to repetition is done without that
axis, and so it is without axes of extent 1 that a reshape has added. The same values meet the same operation, so the
result is the same. Where the axis has been joined with another
one, as ``np.repeat`` does, it is done before the two are joined, and so are further repetitions: then one broadcast
says how all of them lie.

>>> import numpy as np
>>> import pullback.numpy as pnp
>>> from pullback.graph import Graph, Type, Variable, format_graph
>>> x = Variable(Type(np.dtype(np.float32), (5,)), "x")
>>> y = Variable(Type(np.dtype(np.float32), ()), "y")
>>> graph = Graph((x, y), (pnp.exp(pnp.broadcast_to(x, (3, 5))) / pnp.broadcast_to(y, (3, 5)),))
>>> print(format_graph(graph, sources=False))
input  %0 x: float32[5]
input  %1 y: float32[]
%2 = broadcast(%0, axes=(1,), shape=(3, 5)): float32[3, 5]
%3 = exp(%2): float32[3, 5]
%4 = broadcast(%1, axes=(), shape=(3, 5)): float32[3, 5]
%5 = divide(%3, %4): float32[3, 5]
output %5
>>> print(format_graph(broadcast_late(graph), sources=False))
input  %0 x: float32[5]
input  %1 y: float32[]
%2 = exp(%0): float32[5]
%3 = broadcast(%1, axes=(), shape=(5,)): float32[5]
%4 = divide(%2, %3): float32[5]
%5 = broadcast(%4, axes=(1,), shape=(3, 5)): float32[3, 5]
output %5
"""

from __future__ import annotations

import math

from pullback.compiler.passes.rewriting import ELEMENTWISE, RulePass, filled, inner, scalar
from pullback.compiler.passes.simplify_shapes import repeated
from pullback.graph import Node, Operation
from pullback.operators.shapes import broadcast, reshape

__all__ = ["broadcast_late"]


def _broadcast_late(node: Operation) -> Node | None:
    found = [repeated(child) for child in node.inputs]
    parts = [part for part in found if part is not None]
    axes = sorted({axis for _, own in parts for axis in own})
    if len(parts) < len(found) or len(axes) == node.ndim:
        return None
    shape = tuple(node.shape[axis] for axis in axes)
    small = [
        x if x.shape == shape else broadcast(x, shape=shape, axes=tuple(map(axes.index, own)))
        for x, own in parts
    ]
    return broadcast(node.operator(*small, **node.attributes), shape=node.shape, axes=tuple(axes))


def _joined(node: Node) -> Node | None:
    """The broadcast whose axes ``node`` has joined with others, if it is that."""
    joined = inner(node, "reshape")
    return None if joined is None else inner(joined.inputs[0], "broadcast")


def _before_joined(node: Operation) -> Node | None:
    """An elementwise operation on one repetition, and on numbers."""
    spreads = [_joined(child) for child in node.inputs]
    found = [spread for spread in dict.fromkeys(spreads) if spread is not None]
    if len(found) != 1:
        return None
    operands: list[Node] = []
    for child, own in zip(node.inputs, spreads):
        number = scalar(child)
        if own is None and number is None:
            return None
        operands.append(found[0] if number is None else filled(number, child, found[0].shape))
    return reshape(node.operator(*operands, **node.attributes), shape=node.shape)


def _repeated_again(node: Operation) -> Node | None:
    """A broadcast of a repetition: one broadcast, whose axes are joined at the end."""
    spread = _joined(node.inputs[0])
    if spread is None or (groups := _joined_axes(spread.shape, node.inputs[0].shape)) is None:
        return None
    shape: list[int] = []
    axes: list[int] = []
    places = dict(zip(node.attributes["axes"], groups))
    for axis, extent in enumerate(node.shape):
        extents = places.get(axis, ())  # nothing of an axis of one element, which may be repeated itself
        axes += range(len(shape), len(shape) + len(extents))
        shape += extents or (extent,)
    return reshape(broadcast(spread, shape=tuple(shape), axes=tuple(axes)), shape=node.shape)


def _joined_axes(before: tuple[int, ...], after: tuple[int, ...]) -> list[tuple[int, ...]] | None:
    """For each extent of ``after`` those of ``before`` that it is made of, if it only joins neighbours.

    >>> _joined_axes((4, 5, 3, 2), (4, 15, 2)), _joined_axes((4, 6), (8, 3))
    ([(4,), (5, 3), (2,)], None)
    """
    rest, groups = list(before), []
    for extent in after:
        group: list[int] = []
        while math.prod(group) < extent and rest:
            group.append(rest.pop(0))
        if math.prod(group) != extent:
            return None
        groups.append(tuple(group))
    return None if rest else groups


broadcast_late = RulePass(
    "broadcast_late", {ELEMENTWISE: (_broadcast_late, _before_joined), "broadcast": (_repeated_again,)}
)
"""Elementwise operations before repetition."""
