"""A choice between branches that are soon computed computes them all, and picks.

A choice at run time keeps what stands before it apart from what stands behind it: each of its branches is a program of
its own, which stores what it gives. Of a few numbers that takes longer than to compute them:

>>> import numpy as np
>>> from pullback import cond
>>> from pullback.compiler.target import Processor
>>> from pullback.graph import Type, format_graph
>>> from pullback.tracing.trace import trace
>>> types = Type(np.dtype(np.bool_), ()), Type(np.dtype(np.float64), (3,))
>>> graph = trace(lambda chosen, x: cond(chosen, lambda x: 2 * x, np.negative, x), *types).graph
>>> some = Processor("generic", "+avx2,+fma", "x86_64", vector_bytes=32, vector_registers=16)
>>> print(format_graph(if_conversion(some)(graph), sources=False))
input  %0 arg0: bool[]
input  %1 arg1: float64[3]
%2 = cast(%0, dtype=int64): int64[]
%3 = constant 0: int64[]
%4 = less_equal(%2, %3): bool[]
%5 = broadcast(%4, axes=(), shape=(3,)): bool[3]
%6 = negative(%1): float64[3]
%7 = constant 2.0: float64[]
%8 = broadcast(%7, axes=(), shape=(3,)): float64[3]
%9 = multiply(%8, %1): float64[3]
%10 = where(%5, %6, %9): float64[3]
output %10

What a branch checks, calls or repeats stays in the branch. A choice by a number that is known is the branch itself,
whatever it takes:

>>> from pullback.compiler.passes.fold_constants import fold_constants
>>> graph = trace(lambda x: cond(True, lambda x: x @ x, lambda x: x[0], x), types[1]).graph
>>> print(format_graph(if_conversion(some)(fold_constants(graph)), sources=False))
input  %0 arg0: float64[3]
%1 = contract(%0, %0, a_labels=(0,), b_labels=(0,), out_labels=()): float64[]
output %1

Source: J. R. Allen, K. Kennedy, C. Porterfield and J. Warren, *Conversion of Control Dependence to Data Dependence*,
POPL 1983.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from pullback.compiler.passes.loops import rewrite_held
from pullback.compiler.passes.rewriting import GraphPass
from pullback.compiler.schedules.cost import CHOICE_CYCLES
from pullback.compiler.target import Processor
from pullback.control.choice import picked_branch, switch
from pullback.graph import Constant, Node, Operation, regions, substitute

__all__ = ["if_conversion"]


def _cycles(node: Node, target: Processor) -> float:
    """What ``node`` takes in a branch; infinitely long what is not to be computed in vain, or is never short."""
    if not isinstance(node, Operation) or node.operator.view:
        return 0.0
    if not (node.operator.elementwise or node.operator.name in _MOVES) or node.dtype.kind == "c":
        return math.inf
    lanes = target.vector_bytes // node.dtype.itemsize
    return node.operator.cost * -(-max(x.size for x in (node, *node.inputs)) // lanes)


_MOVES = frozenset({"broadcast", "slice", "concatenate", "pad", "reverse", "transpose", "sum"})


def if_conversion(target: Processor, branching: bool = False) -> GraphPass:
    """The pass for a processor; where ``branching`` all choices stay whose number is not known."""

    def converted(node: Operation) -> Sequence[Node] | None:
        if node.operator is not switch:
            return None
        index, *given = node.inputs
        branches = regions(node)
        if isinstance(index, Constant):
            branches = [branches[min(max(int(index.value), 0), len(branches) - 1)]]
        nodes = {inner for branch in branches for inner in branch.nodes()}
        stays = branching or sum(_cycles(inner, target) for inner in nodes) > CHOICE_CYCLES
        if stays and len(branches) > 1:
            return None
        made = [substitute(branch.outputs, dict(zip(branch.inputs, given))) for branch in branches]
        return picked_branch(index, made)

    return GraphPass("if_conversion", partial(rewrite_held, rule=converted))
