"""A choice by a number that is known is the branch itself.

>>> import numpy as np
>>> from pullback import cond
>>> from pullback.graph import Graph, Type, Variable, format_graph
>>> from pullback.tracing.trace import trace
>>> graph = trace(lambda x: cond(True, np.sin, np.cos, x), Type(np.dtype(np.float64), (3,))).graph
>>> from pullback.compiler.passes.fold_constants import fold_constants
>>> print(format_graph(known_branches(fold_constants(graph)), sources=False))
input  %0 arg0: float64[3]
%1 = sin(%0): float64[3]
output %1
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pullback.compiler.passes.loops import rewrite_held
from pullback.compiler.passes.rewriting import GraphPass
from pullback.control.choice import switch
from pullback.graph import Constant, Node, Operation, regions, substitute

__all__ = ["known_branches"]


def _known(node: Operation) -> Sequence[Node] | None:
    if node.operator is not switch:
        return None
    index, *given = node.inputs
    branches = regions(node)
    if isinstance(index, Constant):
        number = min(max(int(index.value), 0), len(branches) - 1)
    elif len(branches) == 1:
        number = 0
    else:
        return None
    branch = branches[number]
    return substitute(branch.outputs, dict(zip(branch.inputs, given)))


known_branches = GraphPass("known_branches", partial(rewrite_held, rule=_known))
"""Choices that need not be made."""
