"""Two results of a convolution that lie side by side share products: by n elements of a window n + 1 instead of 2 n.

Along one axis, two results of a window of three elements are six products, or four:

    y0 = d0 g0 + d1 g1 + d2 g2        m0 = (d0 - d2) g0    m1 = (d1 + d2) (g0 + g1 + g2) / 2    y0 = m0 + m1 + m2
    y1 = d1 g0 + d2 g1 + d3 g2        m3 = (d3 - d1) g2    m2 = (d2 - d1) (g0 - g1 + g2) / 2    y1 = m1 - m2 + m3

An image's sums are made once for all channels of the result, a window's once for all places, and the result's once for
all channels of the image: the products are what takes the time. They are one convolution, a group for each, of windows
with one element along this axis. The gradient of a window is the same with the parts exchanged: its elements are the
results, and pairs of elements of the cotangent are the window.

A result is made of what its own window meets and of nothing beside it, but its rounding is that of the largest terms,
not of each: only ``float32`` is filtered. Of an infinity the sums may make NaN. So images whose results are not finite
are computed again, product by product, in a rare case. Of a window's gradient, though, all that belongs to a channel
with an infinity may be NaN.

Sources: Winograd, *Arithmetic complexity of computations*, 1980, chapter 5; Lavin and Gray, *Fast algorithms for
convolutional neural networks*, 2016.

>>> import numpy as np
>>> from pullback.graph import Graph, Type, Variable
>>> x = Variable(Type(np.dtype(np.float32), (32, 65, 64)), "x")
>>> w = Variable(Type(np.dtype(np.float32), (2, 64, 64)), "w")
>>> how = {"x_layout": "b0c", "w_layout": "0co", "out_layout": "b0o", "strides": (1,), "dilations": (1,)}
>>> graph = Graph((x, w), (convolve(x, w, **how),))
>>> target = Processor("any", "", "x86_64", vector_bytes=32, vector_registers=16)
>>> for node in minimal_filtering(target)(graph).nodes():
...     if isinstance(node, Operation) and node.operator.name in ("convolve", "interleave"):
...         print(node.operator.name, node.shape)
interleave (32, 3, 32, 64)
interleave (3, 1, 64, 64)
convolve (32, 3, 32, 64)
interleave (32, 1, 64, 64)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from pullback.compiler.passes.rewriting import RulePass, filled, sliced
from pullback.compiler.schedules.cost import RESULT_COST, TRANSFORM_COST
from pullback.compiler.target import Processor
from pullback.graph import Node, Operation
from pullback.operators.convolution import convolve, spatial
from pullback.operators.convolution_where_read import convolve_where_read
from pullback.operators.interleave import interleave
from pullback.operators.logic import spoilt, unlikely, where
from pullback.operators.shapes import broadcast, contiguous, framed, reshape

__all__ = ["filtered", "minimal_filtering"]

Matrix = tuple[tuple[int, ...], ...]


class _Filter(NamedTuple):
    """What image, window and products are multiplied with.

    ``results @ ((image @ d) * (scale * (window @ g)))`` are two neighbouring results.
    """

    image: Matrix
    window: Matrix
    scale: tuple[float, ...]
    results: Matrix


_FILTERS = {
    2: _Filter(
        ((1, -1, 0), (0, 1, 0), (0, -1, 1)),
        ((1, 0), (1, 1), (0, 1)),
        (1, 1, 1),
        ((1, 1, 0), (0, 1, 1)),
    ),
    3: _Filter(
        ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, -1, 0, 1)),
        ((1, 0, 0), (1, 1, 1), (1, -1, 1), (0, 0, 1)),
        (1, 0.5, 0.5, 1),
        ((1, 1, 1, 0), (0, 1, -1, 1)),
    ),
}
"""Those of windows of two and three elements: products of polynomials, found from values at 0, 1, -1 and infinity.

Longer windows need points that are no powers of two: results of whole numbers would not be whole.
"""


def filtered(target: Processor, node: Operation) -> Node | None:
    """A convolution with products shared along the last axis of the image along which that pays, if there is one."""
    how = node.attributes
    if node.dtype != np.float32 or {*how["strides"], *how["dilations"]} != {1} or not node.size:
        return None
    sizes, counts = _extents(node)
    if "g" in sizes and any(1 in (sizes[axis], counts[axis]) for axis in spatial(sizes)):
        return None  # it may be what is made here
    for axis in sorted(spatial(sizes), key=how["x_layout"].index, reverse=True):
        if _pays(node, axis, target):
            return _along(node, axis)
    return None


def _extents(node: Operation) -> tuple[dict[str, int], dict[str, int]]:
    """The extents of a convolution's window and of its result, by their labels."""
    how, w = node.attributes, node.inputs[1]
    return dict(zip(how["w_layout"], w.shape)), dict(zip(how["out_layout"], node.shape))


def _pays(node: Operation, axis: str, target: Processor) -> bool:
    """Whether the products that are saved along an axis take longer than the sums that save them."""
    sizes, counts = _extents(node)
    few, many = sorted((sizes[axis], counts[axis]))
    if few not in _FILTERS or few == many:
        return False
    pairs = -(-many // 2)
    of_window, of_result = (
        math.prod(extents[label] for label in spatial(sizes) if label != axis) for extents in (sizes, counts)
    )
    gradient = sizes[axis] > few
    if gradient:
        elements, of_image, images, channels = of_result, of_window, sizes["c"], (counts["b"], sizes["o"])
    else:
        elements, of_image, images, channels = of_window, of_result, counts["b"], (sizes["c"], sizes["o"])
    if node.attributes["x_layout"][-1].isdigit() and pairs * of_image < target.lanes(node.dtype.itemsize):
        return False  # vectors run along the image, and would not be full
    places = images * of_image
    products = elements * math.prod(channels)
    saved = (few * many - (few + 1) * pairs) * places * products
    costs = (TRANSFORM_COST, TRANSFORM_COST if gradient else RESULT_COST)
    of_place = sum(cost * count for cost, count in zip(costs, channels))
    return saved > (few + 1) * (pairs * places * of_place + TRANSFORM_COST * products)


def _along(node: Operation, axis: str) -> Node:
    """A convolution with products shared along an axis: of its results, or, where it has few, of its window."""
    sizes, counts = _extents(node)
    few, many = sorted((sizes[axis], counts[axis]))
    of, count, odd, gradient = _FILTERS[few], few + 1, many % 2, sizes[axis] > few
    (x, w), layouts = _in_groups(node, gradient)
    x_layout, w_layout, out_layout = layouts.values()
    x = _longer(x, x_layout, axis, odd)
    images = _sums(of.image, [sliced(x, x_layout, {axis: (k, k + many + odd - 1, 2)}) for k in range(count)])
    if gradient:
        w = _longer(w, w_layout, axis, odd)
        windows = _sums(zip(*of.results), [sliced(w, w_layout, {axis: (k, many + odd, 2)}) for k in range(2)])
    else:
        windows = _sums(of.window, [sliced(w, w_layout, {axis: (k, k + 1, 1)}) for k in range(few)])
    windows = [y if scale == 1 else y * filled(scale, y) for scale, y in zip(of.scale, windows)]
    how = {**node.attributes, **layouts}
    shared = convolve(_between(images, x_layout, "g"), _between(windows, w_layout, "g"), **how)
    groups = shared.shape[out_layout.index("g")]
    products = [sliced(shared, out_layout, {"g": (k, groups, count)}) for k in range(count)]
    made = _sums(zip(*of.window) if gradient else of.results, products)
    if odd and not gradient:
        made[1] = sliced(made[1], out_layout, {axis: (0, many // 2, 1)})
    joined = reshape(_between(made, out_layout, axis), shape=node.shape)
    return joined if gradient else _unless_spoilt(joined, node)


def _unless_spoilt(made: Node, node: Operation) -> Node:
    """``made``, but for images of it that are not finite: each of their products is made, as ``node`` says."""
    kept = (node.attributes["out_layout"].index("b"),)
    rare = broadcast(unlikely(spoilt(made, kept)), shape=made.shape, axes=kept)
    again = convolve_where_read(*node.inputs, **node.attributes)
    return contiguous(where(rare, again, made))


def _in_groups(node: Operation, gradient: bool) -> tuple[list[Node], dict[str, str]]:
    """The inputs and the layouts of a convolution with an axis of groups, of a single one where there was none.

    It comes behind the first axis, which threads share out; but before that of windows, whose products read one group
    after another.
    """
    inputs = list(node.inputs)
    layouts = {key: node.attributes[key] for key in ("x_layout", "w_layout", "out_layout")}
    if "g" not in layouts["x_layout"]:
        before = {"x_layout": 1, "w_layout": int(gradient), "out_layout": 1}
        inputs = [reshape(x, shape=(*x.shape[:k], 1, *x.shape[k:])) for x, k in zip(inputs, before.values())]
        layouts = {
            key: layout[: before[key]] + "g" + layout[before[key] :] for key, layout in layouts.items()
        }
    return inputs, layouts


def _longer(node: Node, layout: str, axis: str, zeros: int) -> Node:
    """``node`` with zeros after its end along an axis."""
    return framed(node, (0,) * node.ndim, [zeros if label == axis else 0 for label in layout])


def _sums(matrix: Iterable[Sequence[int]], nodes: Sequence[Node]) -> list[Node]:
    """For each row of a matrix of ones the sum of the nodes with these signs; what is taken off comes last."""
    found = []
    for row in matrix:
        (_, total), *others = sorted(
            ((sign, node) for sign, node in zip(row, nodes) if sign), key=lambda term: -term[0]
        )
        for sign, node in others:
            total = total + node if sign > 0 else total - node
        found.append(total)
    return found


def _between(nodes: Sequence[Node], layout: str, axis: str) -> Node:
    """Arrays put between each other along an axis."""
    at, shape = layout.index(axis), nodes[0].shape
    steps = tuple(len(nodes) if k == at else 1 for k in range(len(shape)))
    extent = sum(node.shape[at] for node in nodes)
    return interleave(*nodes, strides=steps, shape=(*shape[:at], extent, *shape[at + 1 :]))


def minimal_filtering(target: Processor) -> RulePass:
    """Convolutions of fewer products, where that takes ``target`` less time."""
    return RulePass("minimal_filtering", {"convolve": (partial(filtered, target),)})
