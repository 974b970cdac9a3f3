"""Constants are computed with while compiling.

An operation on small constants is computed by its reference if its result is small too. One number repeated
over a shape is a broadcast of that number; elementwise operations on large ones are done before they are repeated
(``broadcast_late``), on the numbers.

>>> import numpy as np
>>> import pullback.numpy as pnp
>>> from pullback.graph import Graph, Type, Variable, constant, format_graph
>>> x = Variable(Type(np.dtype(np.float32), (3, 4)), "x")
>>> one = constant(np.float32(1))
>>> graph = Graph((x,), (x * (pnp.broadcast_to(one, (3, 4)) / np.float32(100)),))
>>> print(format_graph(graph, sources=False))
input  %0 x: float32[3, 4]
%1 = constant 1.0: float32[]
%2 = broadcast(%1, axes=(), shape=(3, 4)): float32[3, 4]
%3 = constant 100.0: float32[]
%4 = broadcast(%3, axes=(), shape=(3, 4)): float32[3, 4]
%5 = divide(%2, %4): float32[3, 4]
%6 = multiply(%0, %5): float32[3, 4]
output %6
>>> print(format_graph(fold_constants(graph), sources=False))
input  %0 x: float32[3, 4]
%1 = constant 0.01: float32[]
%2 = broadcast(%1, axes=(), shape=(3, 4)): float32[3, 4]
%3 = multiply(%0, %2): float32[3, 4]
output %3
"""

from __future__ import annotations

import numpy as np

from pullback.compiler.key.graph import repeats_one_value
from pullback.compiler.passes.rewriting import ANY, CONSTANT, RulePass, filled, inner
from pullback.graph import SMALL_CONSTANT, Constant, Node, Operation, constant

__all__ = ["fold_constants"]

FOLDED = frozenset({
    "reshape", "transpose", "slice", "reverse", "pad", "concatenate",
    "sum", "prod", "max", "min", "argmax", "argmin", "contract", "gather", "links",
})  # fmt: skip
"""Operators beside the elementwise ones, and those that accumulate, that are computed.

An index out of range is left to be found when the program runs (``check_index``), and what counts by itself
(``iota``) or repeats (``broadcast``) is better left so.
"""


def _computed(node: Operation) -> np.ndarray | None:
    """The value of ``node``, if those of its inputs are known; but integers have no negative powers."""
    inputs = [_known(child) for child in node.inputs]
    if any(value is None for value in inputs) or (node.operator.name == "power" and node.dtype.kind != "f"):
        return None
    with np.errstate(all="ignore"):
        return np.asarray(node.operator.reference(*inputs, **node.attributes), node.dtype)


def _known(node: Node) -> np.ndarray | None:
    """The value of a small constant, also of one that is repeated."""
    if node.size > SMALL_CONSTANT:
        return None
    if isinstance(node, Constant):
        return node.value
    repeated = inner(node, "broadcast")
    return None if repeated is None else _computed(repeated)


def _fold(node: Operation) -> Node | None:
    if node.size > SMALL_CONSTANT or not node.inputs:
        return None
    if not (node.operator.elementwise or node.operator.accumulates or node.operator.name in FOLDED):
        return None
    value = _computed(node)
    return None if value is None else constant(value)


def _uniform(node: Constant) -> Node | None:
    """A constant that repeats one number is a broadcast of it, and none is weak: types are settled by now."""
    value = node.value
    if value.size < 2:
        return constant(value, node.dtype) if node.type.weak else None
    if value.flat[0] != value.flat[-1] or not repeats_one_value(value):
        return None
    return filled(value.flat[0], node)


fold_constants = RulePass("fold_constants", {CONSTANT: (_uniform,), ANY: (_fold,)})
"""Operations on small constants become constants."""
