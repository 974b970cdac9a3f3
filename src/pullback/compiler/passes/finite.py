"""Which nodes are finite whatever the arguments of the program hold, such as an image of bytes times a constant.

What an operator makes of its operands, in the loop program, is asked what it makes of the largest ones:

>>> import numpy as np
>>> import pullback.numpy
>>> from pullback.graph import Type, Variable
>>> image, x = (Variable(Type(np.dtype(kind), (2, 3))) for kind in ("uint8", "float32"))
>>> is_finite(pullback.numpy.transpose(image) * np.float32(0.5)), is_finite(x), is_finite(x * 0)
(True, False, False)
"""

from __future__ import annotations

import math

import numpy as np

from pullback.compiler.schedules.cost import DEEPEST_FACTOR
from pullback.graph import Constant, Node, Operation
from pullback.loops import Affine, Axis, Literal
from pullback.loops.magnitudes import largest

__all__ = ["is_finite"]


def is_finite(node: Node) -> bool:
    """Whether ``node`` has no infinity and no NaN."""
    return _largest(node, DEEPEST_FACTOR) < math.inf


def _largest(node: Node, depth: int) -> float:
    """A bound of its magnitude, as far as operations on elements and views tell."""
    if node.dtype.kind not in "fiub":
        return math.inf
    if node.dtype.kind != "f":
        return largest(Literal(0, node.dtype), {})
    if isinstance(node, Constant):
        found = float(np.abs(node.value).max(initial=0))
        return found if math.isfinite(found) else math.inf
    if not isinstance(node, Operation) or not depth or node.operator.lower is None:
        return math.inf
    if not (
        node.operator.elementwise
        or node.operator.view
        or node.operator.selects
        or node.operator.name in _MOVES
    ):
        return math.inf
    operands = [
        Literal(_largest(x, depth - 1), x.dtype) if x.dtype.kind == "f" else Literal(0, x.dtype)
        for x in node.inputs
    ]
    index = [Affine.of(Axis("i", extent)) for extent in node.shape]
    value = node.operator.lower(node, [lambda _, x=x: x for x in operands], index)
    return largest(value, {})


_MOVES = frozenset({"broadcast", "concatenate", "contiguous", "pad"})
