"""Values with mean 0 and variance 1 are computed by sums and elementwise operations, which other passes know.

Derivatives have been taken by now: their closed form is what the operator is there for.

>>> import numpy as np
>>> import pullback.numpy as pnp
>>> from pullback.graph import Graph, Type, Variable, format_graph
>>> x = Variable(Type(np.dtype(np.float32), (5,)), "x")
>>> graph = Graph((x,), (pnp.standardise(x, 0, epsilon=0.5),))
>>> print(format_graph(graph, sources=False))
input  %0 x: float32[5]
%1 = standardise(%0, axes=(0,), epsilon=0.5): float32[5]
output %1
>>> print(format_graph(standardise_in_steps(graph), sources=False))
input  %0 x: float32[5]
%1 = sum(%0, axes=(0,)): float32[]
%2 = constant 5.0: float32[]
%3 = divide(%1, %2): float32[]
%4 = broadcast(%3, axes=(), shape=(5,)): float32[5]
%5 = subtract(%0, %4): float32[5]
%6 = constant 1.0: float32[]
%7 = multiply(%5, %5): float32[5]
%8 = sum(%7, axes=(0,)): float32[]
%9 = divide(%8, %2): float32[]
%10 = constant 0.5: float32[]
%11 = add(%9, %10): float32[]
%12 = sqrt(%11): float32[]
%13 = divide(%6, %12): float32[]
%14 = broadcast(%13, axes=(), shape=(5,)): float32[5]
%15 = multiply(%5, %14): float32[5]
output %15
"""

from __future__ import annotations

from pullback.compiler.passes.rewriting import RulePass
from pullback.graph import Node, Operation
from pullback.operators import normalisation

__all__ = ["standardise_in_steps"]


def _in_steps(node: Operation) -> Node:
    (x,) = node.inputs
    return normalisation.standardise_in_steps(x, **node.attributes)


standardise_in_steps = RulePass("standardise_in_steps", {"standardise": (_in_steps,)})
"""``standardise`` in simpler operators."""
