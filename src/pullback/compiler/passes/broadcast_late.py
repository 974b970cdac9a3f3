"""What is computed from repeated values is computed once and repeated itself.

An elementwise operation on broadcasts that leave some axis of the result to repetition is done without that
axis. The same values meet the same operation, so the result is the same.

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

from pullback.compiler.passes.rewriting import ELEMENTWISE, RulePass, inner
from pullback.graph import Node, Operation
from pullback.operators.shapes import broadcast

__all__ = ["broadcast_late"]


def _broadcast_late(node: Operation) -> Node | None:
    spreads = []
    needed: set[int] = set()
    for child in node.inputs:
        spread = inner(child, "broadcast")
        if spread is None or 1 in spread.inputs[0].shape:
            return None
        spreads.append(spread)
        needed.update(spread.attributes["axes"])
    if all(extent == 1 or axis in needed for axis, extent in enumerate(node.shape)):
        return None
    axes = sorted(needed)
    shape = tuple(node.shape[axis] for axis in axes)
    small = []
    for spread in spreads:
        (x,) = spread.inputs
        own = tuple(axes.index(axis) for axis in spread.attributes["axes"])
        small.append(x if x.shape == shape else broadcast(x, shape=shape, axes=own))
    return broadcast(node.operator(*small, **node.attributes), shape=node.shape, axes=tuple(axes))


broadcast_late = RulePass("broadcast_late", {ELEMENTWISE: (_broadcast_late,)})
"""Elementwise operations before repetition."""
