"""Indexing as NumPy does it: slices, integers, ``None``, ``...`` and integer arrays, traced ones too."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.errors import DTypeError, IndexRangeError, NamedAxisError, ShapeError, TracingError
from pullback.graph import OPERATORS, Node, current_source, refuse_class
from pullback.graph.named import LEAST_STAND_IN, is_named
from pullback.graph.protocol import vocabulary
from pullback.numpy import elementwise as e
from pullback.numpy.axes import normal_axis
from pullback.numpy.dispatch import implements, refuse
from pullback.numpy.promotion import (
    as_array_node,
    broadcast_shapes,
    broadcast_to_shape,
    cast,
    settled,
    where_written,
)
from pullback.numpy.shapes import flip, permuted, to_shape

__all__ = ["getitem", "take", "take_along_axis"]

INT64 = np.dtype(np.int64)


@dataclass
class Plan:
    """What an index does: first slices, then gathering along some axes, then the shape of the result.

    ``shape`` is that of the result with ``-1`` where the axes of the index arrays go; it lists the axes made
    by ``None`` and leaves out those taken by single integers. ``origins`` are the axes of the array that its
    entries come from: ``None`` for those that are new, ``-1`` for the index arrays.
    """

    slices: list[range]
    arrays: dict[int, Any]
    shape: list[int]
    origins: list[int | None]


def getitem(x: Node, index: Any) -> Node:
    """``x[index]`` by NumPy's rules, including where the axes of index arrays go.

    Concrete integers outside an axis raise ``IndexRangeError`` at once, traced ones when the program runs.
    """
    plan = make_plan(x, index)
    node = sliced(x, plan.slices)
    if not plan.arrays:
        return to_shape(node, tuple(plan.shape))
    axes = tuple(sorted(plan.arrays))
    shape = broadcast_shapes("index", *[np.shape(plan.arrays[axis]) for axis in axes])
    indices = [broadcast_to_shape(as_array_node(plan.arrays[axis]), shape) for axis in axes]
    node = OPERATORS["gather"](node, *indices, axes=axes)
    before = plan.shape.index(-1)
    rest = [n for n in plan.shape if n != -1]
    node = to_shape(node, (*shape, *rest))
    rank = len(shape)
    return permuted(
        node, (*range(rank, rank + before), *range(rank), *range(rank + before, rank + len(rest)))
    )


def make_plan(x: Node, index: Any) -> Plan:
    """Sort the parts of an index by what they do."""
    entries = _expanded(x, index)
    # Beside an index array with axes, integers are arrays too: they share its place in the result.
    arrays_present = any(isinstance(entry, (np.ndarray, Node)) and entry.ndim for entry in entries)
    plan = Plan([range(extent) for extent in x.shape], {}, [], [])
    axis = 0
    last_array = -2
    for position, entry in enumerate(entries):
        if entry is None:
            plan.shape.append(1)
            plan.origins.append(None)
            continue
        if entry is Ellipsis:
            continue
        extent = x.shape[axis]
        if isinstance(entry, slice):
            plan.slices[axis] = _slice(entry, extent)
            plan.shape.append(len(plan.slices[axis]))
            plan.origins.append(axis)
        elif isinstance(entry, int) and not arrays_present:
            number = _in_range(entry, axis, extent, x)
            plan.slices[axis] = range(number, number + 1)
        else:
            plan.arrays[axis] = _positions(entry, axis, extent, x)
            if -1 not in plan.shape:
                plan.shape.append(-1)
                plan.origins.append(-1)
            elif last_array != position - 1:
                # Arrays apart from one another: their axes go to the front, as NumPy has it.
                plan.shape = [-1, *[n for n in plan.shape if n != -1]]
                plan.origins = [-1, *[origin for origin in plan.origins if origin != -1]]
            last_array = position
        axis += 1
    return plan


def _expanded(x: Node, index: Any) -> list[Any]:
    """The index as a list with an entry for each axis: masks as integer arrays, the ellipsis as full
    slices.
    """
    entries = [_entry(part) for part in (index if isinstance(index, tuple) else (index,))]
    used = sum(_width(entry) for entry in entries)
    if used > x.ndim:
        raise IndexRangeError(
            f"{used} indices for shape {x.shape}, which has {x.ndim} axes; leave some out{where_written()}"
        )
    dots = [position for position, entry in enumerate(entries) if entry is Ellipsis]
    if len(dots) > 1:
        raise IndexRangeError(
            f"an index with two ellipses; write one, and ':' for single axes{where_written()}"
        )
    # The ellipsis stays: even when it stands for no axis it parts the arrays at its sides.
    place = dots[0] + 1 if dots else len(entries)
    entries[place:place] = [slice(None)] * (x.ndim - used)
    return _without_masks(x, entries)


def _width(entry: Any) -> int:
    """How many axes of the array an entry is for."""
    if entry is None or entry is Ellipsis:
        return 0
    return entry.ndim if isinstance(entry, np.ndarray) and entry.dtype.kind == "b" else 1


def _without_masks(x: Node, entries: Sequence[Any]) -> list[Any]:
    """The entries with each concrete mask replaced by the integer arrays of its true places."""
    plain: list[Any] = []
    axis = 0
    for entry in entries:
        width = _width(entry)
        if isinstance(entry, np.ndarray) and entry.dtype.kind == "b":
            if entry.shape != x.shape[axis : axis + width]:
                error = NamedAxisError if any(map(is_named, x.shape)) else IndexRangeError
                raise error(
                    f"a mask of shape {entry.shape} for axes of shape {x.shape[axis : axis + width]}; "
                    f"give it that shape{where_written()}"
                )
            plain.extend(np.nonzero(entry))
        else:
            plain.append(entry)
        axis += width
    return plain


def _entry(part: Any) -> Any:
    """One part of an index as an integer, a slice, ``None``, ``...``, a traced integer or an array."""
    if part is None or part is Ellipsis or isinstance(part, slice):
        return part
    if isinstance(part, Node) and part.dtype.kind == "b":
        part = settled(part)
    if isinstance(part, Node):
        if part.dtype.kind == "b":
            raise TracingError(
                f"a traced mask {part.type} as an index would give a shape that depends on values; use "
                f"np.where(mask, x, y), or multiply by the mask and sum{where_written()}"
            )
        _integers(part.dtype)
        return part
    if isinstance(part, (list, tuple)) and any(isinstance(each, Node) for each in part):
        return vocabulary["stack"](part)
    refuse_class(part)
    array = np.asarray(part)
    if array.dtype.kind == "b":
        if array.ndim == 0:
            raise TracingError(
                f"a single {part} as an index of a traced value; use x[None] or np.where{where_written()}"
            )
        return array
    if array.size == 0 and isinstance(part, (list, tuple)):
        array = array.astype(INT64)
    _integers(array.dtype)
    return array if array.ndim else int(array)


def _integers(dtype: np.dtype) -> None:
    if dtype.kind not in "iu":
        raise DTypeError(
            f"an index of dtype {dtype}; indices are integers, slices, None, ... or masks: cast with "
            f".astype(np.int64){where_written()}"
        )


def _slice(entry: slice, extent: int) -> range:
    """The positions that a slice with concrete ends selects."""
    parts = []
    entry = settled(entry)
    for end in (entry.start, entry.stop, entry.step):
        if isinstance(end, Node):
            raise TracingError(
                "a slice with a traced end would have a shape that depends on values; index with an array "
                f"of fixed length, x[start + np.arange(n)], or mask with np.where{where_written()}"
            )
        parts.append(None if end is None else operator.index(end))
    if parts[2] == 0:
        raise IndexRangeError(f"a slice with step 0; steps are 1 or more, or negative{where_written()}")
    return range(extent)[slice(*parts)]


def _in_range(number: int, axis: int, extent: int, x: Node) -> int:
    if not -extent <= number < extent:
        raise IndexRangeError(
            f"index {number} is outside axis {axis} of shape {x.shape}, which has {extent} elements: "
            f"use one from {-extent} to {extent - 1}{where_written()}",
            what=f"axis {axis} of shape {x.shape}",
            value=number,
            low=-extent,
            extent=extent,
            source=current_source(),
        )
    return number % extent


def _positions(entry: Any, axis: int, extent: int, x: Node) -> Any:
    """Checked, non-negative positions along an axis: an array, or a node that is checked when the program
    runs.
    """
    if isinstance(entry, Node):
        return OPERATORS["check_index"](
            cast(entry, INT64), extent=extent, what=f"axis {axis} of shape {x.shape}"
        )
    array = np.asarray(entry).astype(INT64)
    outside = (array < -extent) | (array >= extent)
    if outside.any():
        _in_range(int(array[outside].reshape(-1)[0]), axis, extent, x)
    return np.where(array < 0, array + extent, array)


def sliced(x: Node, selected: Sequence[range]) -> Node:
    """``x`` at the positions selected on each axis; a negative step is a positive one and a reversal."""
    starts, stops, steps, backwards = [], [], [], []
    for axis, chosen in enumerate(selected):
        places = chosen if chosen.step > 0 else chosen[::-1]
        if chosen.step < 0:
            backwards.append(axis)
        starts.append(places.start if places else 0)
        stops.append(places[-1] + 1 if places else 0)
        steps.append(places.step if len(places) > 1 else 1)
    whole = all(
        start == 0 and stop == n and step == 1 for start, stop, step, n in zip(starts, stops, steps, x.shape)
    )
    if not whole:
        x = OPERATORS["slice"](x, starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))
    return flip(x, tuple(backwards)) if backwards else x


@implements(np.take)
def take(a: Any, indices: Any, axis: int | None = None, out: None = None, mode: str = "raise") -> Any:
    """The elements at ``indices`` along ``axis``, of the flat array for ``None``; ``mode`` as in ``np.take``.

    >>> import numpy as np
    >>> print(take(np.array([10, 20, 30]), np.array([2, 0])))
    [30 10]
    """
    x = as_array_node(a)
    if axis is None:
        x, axis = to_shape(x, (x.size,)), 0
    k = normal_axis("take", axis, x.ndim)
    if mode == "clip":
        indices = vocabulary["clip"](indices, 0, x.shape[k] - 1)
    elif mode == "wrap":
        indices = e.remainder(indices, x.shape[k])
    elif mode != "raise":
        raise TracingError(f"take in mode {mode!r}; use 'raise', 'clip' or 'wrap'{where_written()}")
    if not isinstance(indices, Node):
        refuse_class(indices)
        indices = np.asarray(indices)
        _integers(indices.dtype)
    return getitem(x, (slice(None),) * k + (indices,))


@implements(np.take_along_axis)
def take_along_axis(arr: Any, indices: Any, axis: int | None = -1) -> Any:
    """One element for each index, picked along ``axis`` at the index's own place on the other axes.

    >>> import numpy as np
    >>> x = np.array([[3, 1], [2, 5]])
    >>> print(take_along_axis(x, np.argmax(x, axis=1)[:, None], axis=1))
    [[3]
     [5]]
    """
    x, picks = as_array_node(arr), as_array_node(indices)
    _integers(picks.dtype)
    if axis is None:
        x, axis = to_shape(x, (x.size,)), 0
    if x.ndim != picks.ndim:
        raise ShapeError(
            f"take_along_axis: indices of shape {picks.shape} for shape {x.shape}; give them as many axes, "
            f"for instance with indices[..., None]{where_written()}"
        )
    k = normal_axis("take_along_axis", axis, x.ndim)
    others = broadcast_shapes("take_along_axis", *[(*z.shape[:k], 1, *z.shape[k + 1 :]) for z in (x, picks)])
    shape = (*others[:k], picks.shape[k], *others[k + 1 :])
    x = broadcast_to_shape(x, (*others[:k], x.shape[k], *others[k + 1 :]))
    places: list[Any] = [OPERATORS["iota"](shape=shape, axis=axis, dtype=INT64) for axis in range(x.ndim)]
    places[k] = broadcast_to_shape(_positions(picks, k, x.shape[k], x), shape)
    return OPERATORS["gather"](x, *places, axes=tuple(range(x.ndim)))


def length(x: Node) -> int:
    """``len(x)``: the extent of the first axis."""
    return _counted(x, "named len") if x.ndim else refuse(x, "len")


def iterate(x: Node) -> Any:
    """The parts along the first axis, one after the other."""
    return iter([x[k] for k in range(_counted(x, "named iterate"))]) if x.ndim else refuse(x, "iterate")


def _counted(x: Node, attempt: str) -> int:
    """The extent of the first axis, for Python to count to."""
    extent = x.type.shape[0]
    return extent if extent < LEAST_STAND_IN else refuse(x, attempt)


vocabulary.update(getitem=getitem, length=length, iterate=iterate)
