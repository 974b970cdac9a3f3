"""Operations that count from the end of a named axis, or leave its rows in another order: written with its size.

Where the last row is, or in which order merged axes lie, the capacity does not tell, and no fill helps. Such an
operation is written as a choice of places that are computed from the size: ``x[-1]`` is ``x[size - 1]``, merged axes
are read at the quotient and the remainder of each place. Derivatives are made before, of the operation itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pullback.graph import OPERATORS, Node, Operation, constant
from pullback.graph.named import is_named
from pullback.operators.elementwise import filled
from pullback.operators.varying import AtCapacity

__all__ = ["joined", "padded_in_front", "regrouped", "reversed_rows", "sliced"]

_INT = np.dtype(np.int64)


def reversed_rows(node: Operation, inputs: Sequence[Node], at: AtCapacity) -> Node:
    """``reverse`` along named axes, among others."""
    (x,) = inputs
    axes = node.attributes["axes"]
    for axis in axes:
        extent = node.shape[axis]
        if is_named(extent):
            x = _taken(x, axis, _minus(at.number(extent - 1), _count((x.shape[axis],), 0)))
    others = tuple([axis for axis in axes if not is_named(node.shape[axis])])
    return OPERATORS["reverse"](x, axes=others) if others else x


def sliced(node: Operation, inputs: Sequence[Node], at: AtCapacity) -> Node:
    """``slice`` that begins at a place which depends on a size, along some axes."""
    (x,) = inputs
    how, starts, stops, steps = node.attributes, [], [], []
    for axis, (start, stop, step) in enumerate(zip(how["starts"], how["stops"], how["steps"])):
        if is_named(start):
            count = at.extent(node.shape[axis])
            places = _times(_count((count,), 0), _same(constant(step, _INT), (count,)))
            x = _taken(x, axis, _plus(places, at.number(start)))
        starts.append(0 if is_named(start) else start)
        stops.append(count if is_named(start) else at.extent(stop))
        steps.append(1 if is_named(start) else step)
    return OPERATORS["slice"](x, starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))


def padded_in_front(node: Operation, inputs: Sequence[Node], at: AtCapacity) -> Node:
    """``pad`` by as many zeros in front as depend on a size, along some axes."""
    (x,) = inputs
    low, high = (list(map(at.extent, node.attributes[side])) for side in ("low", "high"))
    for axis, (extent, zeros) in enumerate(zip(node.inputs[0].shape, node.attributes["low"])):
        if not is_named(zeros):
            continue
        count = at.extent(node.shape[axis])
        row, first = _count((count,), 0), at.number(zeros)
        x = _taken(x, axis, _minus(row, first))
        behind = at.number(zeros + extent)
        inside = OPERATORS["logical_and"](
            OPERATORS["greater_equal"](row, _same(first, row.shape)),
            OPERATORS["less"](row, _same(behind, row.shape)),
        )
        inside = OPERATORS["broadcast"](inside, shape=x.shape, axes=(axis,))
        x = OPERATORS["where"](inside, x, filled(0, x.dtype, x.shape))
        low[axis] = high[axis] = 0
    return OPERATORS["pad"](x, low=tuple(low), high=tuple(high))


def joined(node: Operation, inputs: Sequence[Node], at: AtCapacity) -> Node:
    """``concatenate`` along a named axis: each part begins where the true end of the one before it is."""
    axis = node.attributes["axis"]
    count = at.extent(node.shape[axis])
    row, begin = _count((count,), 0), 0
    found: Node | None = None
    for x, old in zip(inputs, node.inputs):
        if not old.shape[axis]:
            continue
        first = at.number(begin)
        part = _taken(x, axis, _minus(row, first))
        if found is not None:
            reached = OPERATORS["greater_equal"](row, _same(first, row.shape))
            reached = OPERATORS["broadcast"](reached, shape=part.shape, axes=(axis,))
            part = OPERATORS["where"](reached, part, found)
        found, begin = part, begin + old.shape[axis]
    assert found is not None
    return found


def regrouped(
    node: Operation,
    inputs: Sequence[Node],
    at: AtCapacity,
    groups: Sequence[tuple[Sequence[int], Sequence[int]]],
) -> Node:
    """``reshape`` that merges or splits, in ``groups`` of axes before and after, named axes that are not outermost."""
    (x,) = inputs
    old, new = node.inputs[0].shape, node.shape
    shift = 0
    for before, after in groups:
        shape = tuple([at.extent(new[axis]) for axis in after])
        place: Node = _same(constant(0, _INT), shape)
        for k, axis in enumerate(after):
            place = _plus(_times(place, _same(at.number(new[axis]), shape)), _count(shape, k))
        indices: list[Node] = []
        for axis in reversed(before):
            extent = _same(at.number(old[axis]), shape)
            indices.insert(0, OPERATORS["remainder"](place, extent))
            place = OPERATORS["floor_divide"](place, extent)
        axes = tuple([axis + shift for axis in before])
        front = len(shape)
        x = OPERATORS["gather"](x, *[_within(i, x.shape[a]) for i, a in zip(indices, axes)], axes=axes)
        order = [*range(front, front + axes[0]), *range(front), *range(front + axes[0], x.ndim)]
        x = OPERATORS["transpose"](x, axes=tuple(order))
        shift += len(after) - len(before)
    return OPERATORS["reshape"](x, shape=tuple(map(at.extent, new)))


def _taken(x: Node, axis: int, places: Node) -> Node:
    """The elements of ``x`` at ``places`` along ``axis``; at its ends for places beyond."""
    found = OPERATORS["gather"](x, _within(places, x.shape[axis]), axes=(axis,))
    order = [*range(1, axis + 1), 0, *range(axis + 1, x.ndim)]
    return OPERATORS["transpose"](found, axes=tuple(order)) if axis else found


def _within(places: Node, extent: int) -> Node:
    low = OPERATORS["maximum"](places, _same(constant(0, _INT), places.shape))
    return OPERATORS["minimum"](low, _same(constant(extent - 1, _INT), places.shape))


def _count(shape: tuple[int, ...], axis: int) -> Node:
    return OPERATORS["iota"](shape=shape, axis=axis, dtype=_INT)


def _same(x: Node, shape: tuple[int, ...]) -> Node:
    return OPERATORS["broadcast"](x, shape=shape, axes=()) if not x.shape and shape else x


def _plus(x: Node, y: Node) -> Node:
    return OPERATORS["add"](_same(x, y.shape), _same(y, x.shape))


def _minus(x: Node, y: Node) -> Node:
    return OPERATORS["subtract"](_same(x, y.shape), _same(y, x.shape))


def _times(x: Node, y: Node) -> Node:
    return OPERATORS["multiply"](x, y)
