"""What each step of a loop reads for itself, as one array with the steps along its first axis."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from pullback.control.rolling.template import distance
from pullback.graph import Constant, Node, Operation, constant
from pullback.operators.batching import moved
from pullback.operators.concatenation import concatenate
from pullback.operators.shapes import reshape, reverse, slice

__all__ = ["descends", "stacked"]


def descends(series: Sequence[Node]) -> bool | None:
    """Whether the steps read an array from its end to its begin; ``None`` where they read no array part by part."""
    apart = distance(series[0], series[1])
    moving = [step for step in apart or () if step]
    return moving[0] < 0 if len(moving) == 1 else None


def stacked(series: Sequence[Node], backwards: bool, most: int) -> Node | None:
    """The nodes of ``series``, one for each step, in one array, the last step first if ``backwards``.

    ``None`` if more than ``most`` bytes would be copied to stand side by side.
    """
    found = _parts(series, backwards)
    if found is not None:
        return found
    ordered = series[::-1] if backwards else series
    constants = [node.value for node in ordered if isinstance(node, Constant)]
    if len(constants) == len(series):
        return constant(np.stack(constants), weak=series[0].type.weak)
    if series[0].type.nbytes * len(series) > most:
        return None
    return concatenate(*[reshape(node, shape=(1, *node.shape)) for node in ordered], axis=0)


def _parts(series: Sequence[Node], backwards: bool) -> Node | None:
    """Slices that lie beside each other, or single places at equal distances, as a view of the array they are of."""
    apart = distance(series[0], series[1])
    if apart is None or any(distance(*pair) != apart for pair in pairwise(series)):
        return None
    moving = [axis for axis, step in enumerate(apart) if step]
    if len(moving) != 1:
        return None
    (axis,) = moving
    first = series[0] if apart[axis] > 0 else series[-1]
    assert isinstance(first, Operation)
    step, width = abs(apart[axis]), first.shape[axis]
    starts, stops, steps = (list(first.attributes[name]) for name in ("starts", "stops", "steps"))
    if width == 1:
        steps[axis] = step
        stops[axis] = starts[axis] + step * (len(series) - 1) + 1
    elif steps[axis] == 1 and step == width:
        stops[axis] = starts[axis] + width * len(series)
    else:
        return None
    whole = slice(first.inputs[0], starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))
    shape = (*first.shape[:axis], len(series), *first.shape[axis:])
    found = moved(reshape(whole, shape=shape), axis, 0)
    return found if (apart[axis] > 0) != backwards else reverse(found, axes=(0,))
