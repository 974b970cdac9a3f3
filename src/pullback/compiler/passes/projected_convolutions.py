"""A convolution with few outputs is made of one product for each place, with columns for all elements of the window.

Where channels come last, the lanes of a vector lie along the outputs; eight of them leave half of a vector of sixteen
lanes empty, and that for each element of the window. The multiples of a place by all elements of the window, side by
side, fill vectors better; the result is the sum of parts of neighbouring places' multiples, which what follows can
take up. Where it is asked whether all of the image is finite, as before a pool's gradient, one column of the product
tells: what is not finite makes all multiples of its place so.

>>> import numpy as np
>>> import pullback.numpy
>>> from pullback.graph import Graph, Type, Variable, format_graph
>>> from pullback.operators.convolution import convolve
>>> x = Variable(Type(np.dtype(np.float32), (2, 9, 50)), "x")
>>> w = Variable(Type(np.dtype(np.float32), (8, 50, 2)), "w")
>>> y = convolve(x, w, x_layout="b0c", w_layout="oc0", out_layout="b0o", strides=(1,), dilations=(1,))
>>> print(format_graph(projected_convolutions(Graph((x, w), (y,)), lambda itemsize: 64 // itemsize), sources=False))
input  %0 x: float32[2, 9, 50]
input  %1 w: float32[8, 50, 2]
%2 = transpose(%1, axes=(1, 2, 0)): float32[50, 2, 8]
%3 = reshape(%2, shape=(50, 16)): float32[50, 16]
%4 = contract(%0, %3, a_labels=(0, 1, 2), b_labels=(2, 3), out_labels=(0, 1, 3)): float32[2, 9, 16]
%5 = slice(%4, starts=(0, 0, 0), steps=(1, 1, 1), stops=(2, 8, 8)): float32[2, 8, 8]
%6 = slice(%4, starts=(0, 1, 8), steps=(1, 1, 1), stops=(2, 9, 16)): float32[2, 8, 8]
%7 = add(%5, %6): float32[2, 8, 8]
output %7
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping

from pullback.compiler.passes.rewriting import inner, labelled, ordered, sliced, with_outputs
from pullback.compiler.schedules.cost import LOAD_AND_ADD, MULTIPLY_ADD, STORE, WORTH_PROJECTING
from pullback.graph import OPERATORS, Graph, Node, Operation, substitute
from pullback.operators.arithmetic import add
from pullback.operators.logic import isfinite
from pullback.operators.shapes import reshape

__all__ = ["multiples_of", "projected_convolutions", "sum_of_parts"]


def projected_convolutions(graph: Graph, lanes: Callable[[int], int]) -> Graph:
    """``graph`` with such convolutions rewritten; ``lanes(itemsize)`` is how many elements a vector holds."""

    found: dict[int, tuple[Operation, Node, Node]] = {}

    def rebuild(node: Operation, inputs: tuple[Node, ...]) -> Node | None:
        if node.operator.name == "convolve" and _fills_better(node, lanes(node.dtype.itemsize)):
            x_layout, out_layout = node.attributes["x_layout"], node.attributes["out_layout"]
            product = labelled(inputs[0], multiples_of(node, inputs[1]), x_layout, "co", out_layout)
            found[id(inputs[0])] = node, inputs[0], product
            return sum_of_parts(node, product)
        return None

    if not any(isinstance(node, Operation) and node.operator.name == "convolve" for node in graph.nodes()):
        return graph
    graph = with_outputs(graph, substitute(graph.outputs, {}, rebuild))
    if not found:
        return graph
    asked = substitute(graph.outputs, {}, lambda node, _: _asked_of_product(node, found))
    return with_outputs(graph, asked)


def _fills_better(node: Operation, lanes: int) -> bool:
    """Whether the product of all places by all elements of the window takes clearly less time."""
    x_layout, out_layout = node.attributes["x_layout"], node.attributes["out_layout"]
    if node.dtype.kind != "f" or not node.size or "g" in x_layout or out_layout[-1] != "o":
        return False
    sizes = dict(zip(node.attributes["w_layout"], node.inputs[1].shape))
    window = math.prod(size for label, size in sizes.items() if label.isdigit())
    channels, outputs = sizes["c"], sizes["o"]
    if window < 2:
        return False
    places = math.prod(extent for label, extent in zip(x_layout, node.inputs[0].shape) if label != "c")
    ratio = places * outputs / node.size
    apart, together = window * -(-outputs // lanes), -(-window * outputs // lanes)
    direct = channels * apart * MULTIPLY_ADD
    projected = ratio * together * (channels * MULTIPLY_ADD + STORE) + apart * LOAD_AND_ADD
    return bool(projected <= WORTH_PROJECTING * direct)


def _asked_of_product(node: Operation, found: Mapping[int, tuple[Operation, Node, Node]]) -> Node | None:
    """``isfinite(sum(x))`` of the first column of the product of ``x``, where all places that are summed are in it."""
    total = inner(node.inputs[0], "sum") if node.operator.name == "isfinite" else None
    known = None if total is None else found.get(id(total.inputs[0]))
    if total is None or known is None:
        return None
    convolution, _, product = known
    x_layout, out_layout = (convolution.attributes[key] for key in ("x_layout", "out_layout"))
    kept = [label for axis, label in enumerate(x_layout) if axis not in total.attributes["axes"]]
    order = [label for label in out_layout if label in kept]
    if order != kept:
        return None  # not the channels, which have no axis there, nor another order
    column = sliced(product, out_layout, {"o": (0, 1, 1)})
    axes = tuple(axis for axis, label in enumerate(out_layout) if label not in kept)
    return isfinite(OPERATORS["sum"](column, axes=axes))


def multiples_of(node: Operation, w: Node) -> Node:
    """The weights of a convolution as a matrix: a row for each channel, a column for each element and each output."""
    order = ["c", *(str(k) for k in range(len(node.attributes["strides"]))), "o"]
    arranged = ordered(w, node.attributes["w_layout"], order)
    made: Node = reshape(arranged, shape=(arranged.shape[0], math.prod(arranged.shape[1:])))
    return made


def sum_of_parts(node: Operation, product: Node) -> Node:
    """A convolution as the sum of slices of the product of all places and all elements of the window."""
    w_layout, out_layout, strides, dilations = (
        node.attributes[key] for key in ("w_layout", "out_layout", "strides", "dilations")
    )
    sizes, counts = dict(zip(w_layout, node.inputs[1].shape)), dict(zip(out_layout, node.shape))
    spatial = [str(k) for k in range(len(strides))]
    parts: list[Node] = []
    for position, turns in enumerate(itertools.product(*(range(sizes[label]) for label in spatial))):
        ranges = {"o": (position * sizes["o"], (position + 1) * sizes["o"], 1)}
        for k, turn in enumerate(turns):
            start = turn * dilations[k]
            ranges[str(k)] = (start, start + (counts[str(k)] - 1) * strides[k] + 1, strides[k])
        parts.append(sliced(product, out_layout, ranges))
    return functools.reduce(add, parts)
