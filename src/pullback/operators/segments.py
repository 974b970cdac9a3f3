"""Sums of arrays that are zero wherever another one is not, as one array made of their parts.

    pad(r, high=2) + pad(z, low=1, high=1) + pad(n, low=2)        →        concatenate(r, z, n)

The cotangents of the slices of an array are such: the gates of a recurrent cell, the parts of a split.
"""

from __future__ import annotations

from pullback.graph import Node, Operation, constant
from pullback.operators.concatenation import concatenate
from pullback.operators.elementwise import is_zero
from pullback.operators.shapes import broadcast

__all__ = ["joined_segments"]

Segments = dict[int, tuple[int, Node]]
"""By its start along the axis, the end of each part that is not known to be zero, and the part."""


def joined_segments(first: Node, second: Node) -> Node | None:
    """The sum of two arrays whose parts lie beside each other along one axis, or ``None`` where it is another sum."""
    if not isinstance(first, Operation) or not isinstance(second, Operation):
        return None
    for axis in range(first.ndim):
        one, other = _segments(first, axis), _segments(second, axis)
        if one is None or other is None:
            continue
        parts = sorted([*one.items(), *other.items()], key=lambda part: part[0])
        ends = [0, *(end for _, (end, _) in parts)]
        if any(start < before for (start, _), before in zip(parts, ends)):
            continue
        pieces: list[Node] = []
        for (start, (_, part)), before in zip(parts, ends):
            if start > before:
                pieces.append(_zeros(first, axis, start - before))
            pieces.append(part)
        if ends[-1] < first.shape[axis]:
            pieces.append(_zeros(first, axis, first.shape[axis] - ends[-1]))
        return concatenate(*pieces, axis=axis)
    return None


def _segments(x: Node, axis: int) -> Segments | None:
    """The parts of ``x`` along ``axis``, if it is made of parts and zeros."""
    if not isinstance(x, Operation):
        return None
    if x.operator.name == "pad":
        low, high = x.attributes["low"], x.attributes["high"]
        if any((low[k] or high[k]) and k != axis for k in range(x.ndim)) or low[axis] < 0 or high[axis] < 0:
            return None
        return {low[axis]: (x.shape[axis] - high[axis], x.inputs[0])}
    if x.operator.name != "concatenate" or x.attributes["axis"] != axis:
        return None
    found: Segments = {}
    start = 0
    for part in x.inputs:
        end = start + part.shape[axis]
        if not is_zero(part):
            found[start] = end, part
        start = end
    return found


def _zeros(like: Node, axis: int, extent: int) -> Node:
    shape = (*like.shape[:axis], extent, *like.shape[axis + 1 :])
    return broadcast(constant(0, like.dtype), shape=shape, axes=())
