"""Cotangents of windows that overlap are added where their winners are, rather than looked for by every place.

``max_unpool`` asks at each place all the windows that lie over it whether they were won there: that fuses with what
follows, and where no place has several windows it is one question. Of windows that overlap much it is one for each
window and place, where a scatter has one addition for each window. No rule that moves work before ``max_unpool`` may
come after this one.

>>> import numpy as np
>>> import pullback.numpy
>>> from pullback.graph import Graph, Type, Variable, format_graph
>>> fives = {"axes": (1,), "sizes": (5,), "strides": (1,), "dilations": (1,)}
>>> g = Variable(Type(np.dtype(np.float32), (3, 6)), "g")
>>> winner = Variable(Type(np.dtype(np.int32), (3, 6)), "winner")
>>> narrow = Processor("generic", "", "aarch64", vector_bytes=16, vector_registers=32)
>>> unpooled = max_unpool(g, winner, shape=(3, 10), **fives)
>>> print(format_graph(scattered_unpools(narrow)(Graph((g, winner), (unpooled,))), sources=False))
input  %0 g: float32[3, 6]
input  %1 winner: int32[3, 6]
%2 = constant 0.0: float32[]
%3 = broadcast(%2, axes=(), shape=(3, 10)): float32[3, 10]
%4 = iota(, axis=0, dtype=int64, shape=(3, 6)): int64[3, 6]
%5 = argmax_index(%1, axes=(1,), axis=1, dilations=(1,), shape=(3, 10), sizes=(5,), strides=(1,)): int64[3, 6]
%6 = scatter_add(%3, %0, %4, %5, axes=(0, 1)): float32[3, 10]
output %6
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from pullback.compiler.passes.rewriting import RulePass, filled
from pullback.compiler.schedules.cost import ADDED_TO_PLACE, ASKED_VECTOR
from pullback.compiler.target import Processor
from pullback.graph import Node, Operation
from pullback.operators.pooling import argmax_index, max_unpool, pool_attributes
from pullback.operators.scatters import scatter_add
from pullback.operators.shapes import iota

__all__ = ["scattered_unpools"]

_INT = np.dtype(np.int64)


def _scattered(target: Processor, node: Operation) -> Node | None:
    y, winner = node.inputs
    pool = pool_attributes(node)
    if node.ndim - 1 not in pool["axes"]:
        return None  # the lanes lie along what windows do not move along: they ask one question for all
    spans = ((size - 1) * dilation + 1 for size, dilation in zip(pool["sizes"], pool["dilations"]))
    overlapping = math.prod(-(-span // stride) for span, stride in zip(spans, pool["strides"]))
    asked = ASKED_VECTOR * node.size * overlapping / target.lanes(node.dtype.itemsize)
    if overlapping == 1 or asked <= ADDED_TO_PLACE * y.size:
        return None
    places = [
        argmax_index(winner, shape=node.shape, axis=axis, **pool)
        if axis in pool["axes"]
        else iota(shape=y.shape, axis=axis, dtype=_INT)
        for axis in range(node.ndim)
    ]
    return scatter_add(filled(0, node), y, *places, axes=tuple(range(node.ndim)))


def scattered_unpools(target: Processor) -> RulePass:
    """Additions at winners' places, where they take ``target`` less time than asking all places."""
    return RulePass("scattered_unpools", {max_unpool.name: (partial(_scattered, target),)})
