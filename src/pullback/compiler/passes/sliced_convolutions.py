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

from collections.abc import Sequence

from pullback.compiler.passes.rewriting import GraphPass, Range, inner, sliced, uses, with_outputs
from pullback.graph import Graph, Node, Operation, substitute
from pullback.operators.convolution import convolve

__all__ = ["sliced_convolutions"]


def _sliced_convolutions(graph: Graph) -> Graph:
    order = graph.nodes()
    cuts: dict[int, list[Node]] = {}
    for node in order:
        if (whole := _convolution_behind(node)) is not None and node.size:
            cuts.setdefault(id(whole), []).append(node)
    if not cuts:
        return graph
    count = uses(order, graph.outputs)
    hulls = {
        convolution: _hull(found)
        for convolution, found in cuts.items()
        if count[convolution] == len(found) and (len(found) == 1 or _leaves_some(found))
    }

    def rebuild(node: Operation, inputs: tuple[Node, ...]) -> Node | None:
        whole = _convolution_behind(node)
        if whole is None or id(whole) not in hulls or not node.size:
            return None
        new, ranges = inputs[0], _ranges(node)
        assert isinstance(new, Operation)
        if len(cuts[id(whole)]) == 1:
            return _part(new, ranges)
        hull = hulls[id(whole)]
        within = [(start - h[0], stop - h[0], step) for (start, stop, step), h in zip(ranges, hull)]
        return sliced(_part(new, hull), range(node.ndim), dict(enumerate(within)))

    return with_outputs(graph, substitute(graph.outputs, {}, rebuild)) if hulls else graph


def _ranges(cut: Node) -> list[Range]:
    """From where to where a slice goes along each axis, and by which steps."""
    assert isinstance(cut, Operation)
    return list(zip(*(cut.attributes[key] for key in ("starts", "stops", "steps"))))


def _hull(cuts: Sequence[Node]) -> list[Range]:
    """The smallest block that has all slices within it."""
    along = list(zip(*map(_ranges, cuts)))
    return [(min(start for start, _, _ in axis), max(stop for _, stop, _ in axis), 1) for axis in along]


def _leaves_some(cuts: Sequence[Node]) -> bool:
    """Whether there is more of the convolution than the slices of it go through."""
    whole = _convolution_behind(cuts[0])
    assert whole is not None
    return any(stop - start < extent for (start, stop, _), extent in zip(_hull(cuts), whole.shape))


def _convolution_behind(node: Node) -> Operation | None:
    cut = inner(node, "slice")
    return None if cut is None else inner(cut.inputs[0], "convolve")


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
