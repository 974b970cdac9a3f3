"""Of a convolution that is only read in part, only that part is computed.

A slice of the result is the convolution of a slice of the image: what padding adds is often cut off again by
the pullback of that padding. Where several slices are read, it is the smallest block with all of them. A convolution
that something else reads as a whole stays as it is.

>>> import numpy as np
>>> import pullback.numpy
>>> from pullback.graph import Graph, Type, Variable, format_graph
>>> from pullback.operators.convolution import convolve
>>> x = Variable(Type(np.dtype(np.float32), (2, 3, 9)), "x")
>>> w = Variable(Type(np.dtype(np.float32), (4, 3, 3)), "w")
>>> whole = convolve(
...     x, w, x_layout="bc0", w_layout="oc0", out_layout="bo0", strides=(1,), dilations=(1,)
... )
>>> print(format_graph(sliced_convolutions(Graph((x, w), (whole[:, :, 1:4],))), sources=False))
input  %0 x: float32[2, 3, 9]
input  %1 w: float32[4, 3, 3]
%2 = slice(%0, starts=(0, 0, 1), steps=(1, 1, 1), stops=(2, 3, 6)): float32[2, 3, 5]
%3 = convolve(%2, %1, dilations=(1,), out_layout=bo0, strides=(1,), w_layout=oc0, x_layout=bc0): float32[2, 4, 3]
output %3
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pullback.compiler.passes.rewriting import GraphPass, Range, cut, inner, ranges_of, remade, sliced, uses
from pullback.graph import Graph, Node, Operation
from pullback.operators.convolution import convolve

__all__ = ["sliced_convolutions"]


def _sliced_convolutions(graph: Graph) -> Graph:
    order = graph.nodes()
    cuts: dict[Node, list[Operation]] = {}
    for node in order:
        found = inner(node, "slice")
        if found is not None and found.size and inner(found.inputs[0], "convolve") is not None:
            cuts.setdefault(found.inputs[0], []).append(found)
    count = uses(order, graph.outputs)
    hulls: dict[Node, list[Range]] = {}
    for whole, own in cuts.items():
        hull = _hull(own)
        if count[id(whole)] == len(own) and hull != [(0, extent, 1) for extent in whole.shape]:
            hulls.update(dict.fromkeys(own, hull))
    return remade(graph, hulls, _sliced)


def _sliced(node: Operation, hull: list[Range], new: Mapping[Node, Node]) -> Node:
    """A slice of the ``hull`` alone of a convolution."""
    whole = new[node.inputs[0]]
    assert isinstance(whole, Operation)
    within = [
        ((start - first) // apart, -(-(stop - first) // apart), step // apart)
        for (start, stop, step), (first, _, apart) in zip(ranges_of(node), hull)
    ]
    return cut(_part(whole, hull), within)


def _hull(cuts: Sequence[Operation]) -> list[Range]:
    """The smallest block that has all slices within it; a single one is that itself."""
    if len(cuts) == 1:
        return ranges_of(cuts[0])
    along = zip(*map(ranges_of, cuts))
    return [(min(start for start, _, _ in axis), max(stop for _, stop, _ in axis), 1) for axis in along]


def _part(whole: Operation, ranges: list[Range]) -> Node:
    """The convolution of the parts of the inputs that the ranges of the result depend on."""
    (x, w), attributes = whole.inputs, whole.attributes
    x_layout, w_layout, out_layout = (attributes[key] for key in ("x_layout", "w_layout", "out_layout"))
    strides, dilations = attributes["strides"], attributes["dilations"]
    wanted: dict[str, Range] = dict(zip(out_layout, ranges))
    sizes = dict(zip(w_layout, w.shape))
    longer = list(strides)
    read: dict[str, Range] = {label: wanted[label] for label in "bg" if label in wanted}
    for k, stride in enumerate(strides):
        start, stop, step = wanted[str(k)]
        last = (stop - start - 1) // step * step + start
        read[str(k)] = start * stride, last * stride + (sizes[str(k)] - 1) * dilations[k] + 1, 1
        longer[k] = stride * step
    kept = {label: wanted[label] for label in "og" if label in wanted}
    return convolve(
        sliced(x, x_layout, read),
        sliced(w, w_layout, kept),
        **{**attributes, "strides": tuple(longer)},
    )


sliced_convolutions = GraphPass("sliced_convolutions", _sliced_convolutions)
"""Convolutions of only what is read of them."""
