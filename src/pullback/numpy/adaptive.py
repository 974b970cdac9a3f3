"""Pooling to a given size: windows that share an axis as evenly as they can."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from pullback.errors import DTypeError, ShapeError
from pullback.graph import OPERATORS, Node
from pullback.numpy.elementwise import where
from pullback.numpy.indexing import take
from pullback.numpy.promotion import as_array_node, where_written
from pullback.numpy.reductions import as_float, total
from pullback.numpy.shapes import to_shape
from pullback.numpy.windows import Channels, at_once, spatial_axes, widths

__all__ = ["OutputSize", "adaptive_avg_pool", "adaptive_max_pool"]

OutputSize = int | Sequence[int | None]
"""A number of windows for all axes, or one for each; None keeps the extent of an axis."""


@at_once(arrays=1)
def adaptive_avg_pool(x: Any, /, output_size: OutputSize, channels: Channels = "first") -> Any:
    r"""The means of so many windows along each axis, as even as they can be.

    .. math:: y_{b,c,p} = \text{mean of } x_{b,c,k}, \quad \lfloor p n / m \rfloor \le k < \lceil (p + 1) n / m \rceil

    along an axis of :math:`n` elements and :math:`m` windows. ``x`` has shape (batch, channels, …), or with
    ``channels="last"`` (batch, …, channels), and the result likewise; ``output_size`` is a number for all axes or one
    for each, of which None keeps an extent. Integers become floats. An element counts in its own windows alone, NaN
    and infinity included.

    Raises ``ShapeError`` for a size that does not fit.

    >>> import numpy as np
    >>> print(adaptive_avg_pool(np.arange(5.0).reshape(1, 1, 5), 3))
    [[[0.5 2.  3.5]]]
    """
    x = as_float(as_array_node(x))
    # The mean of a window of several axes is the mean of means: one axis after the other.
    for axis, count in _sizes("adaptive_avg_pool", x, output_size, channels):
        table, seen = _table(x.shape[axis], count)
        parts = _windows(x, axis, table)
        if not seen.all():
            own = seen.reshape([*table.shape, *[1] * (parts.ndim - axis - 2)])
            parts = where(own, parts, 0)
        numbers = seen.sum(axis=1).astype(x.dtype).reshape([count, *[1] * (x.ndim - axis - 1)])
        x = total(parts, (axis + 1,)) / (numbers if not seen.all() else table.shape[1])
    return x


@at_once(arrays=1)
def adaptive_max_pool(
    x: Any, /, output_size: OutputSize, channels: Channels = "first", *, return_indices: bool = False
) -> Any:
    """The largest elements of so many windows along each axis, those of ``adaptive_avg_pool``.

    The first of equal winners in row-major order takes the cotangent. A NaN wins. With ``return_indices`` a second
    result says where the winners are, as that of ``max_pool`` does.

    >>> import numpy as np
    >>> print(*adaptive_max_pool(np.arange(5.0).reshape(1, 1, 5), 3, return_indices=True))
    [[[1. 3. 4.]]] [[[1 3 4]]]
    """
    name = "adaptive_max_pool"
    x = as_array_node(x)
    if x.dtype.kind == "b":
        raise DTypeError(f"{name} takes no bool; use .astype(np.uint8) first{where_written()}")
    axes, counts = zip(*_sizes(name, x, output_size, channels))
    tables, wide = [], x
    for axis, count in zip(axes, counts):
        tables.append(_table(x.shape[axis], count)[0])
        if tables[-1].size != x.shape[axis]:
            # A window that is shorter than others names its last element again, which so never is the first.
            wide = take(wide, tables[-1].reshape(-1), axis)
    sizes = tuple(table.shape[1] for table in tables)
    moves = {"axes": axes, "sizes": sizes, "strides": sizes, "dilations": (1,) * len(axes)}
    winner = OPERATORS["window_argmax"](wide, **moves)
    places = {}
    for axis, table in zip(axes, tables):
        along = OPERATORS["argmax_index"](winner, shape=wide.shape, axis=axis, **moves)
        places[axis] = along if wide is x else take(table.reshape(-1), along)
    if wide is x:
        largest = OPERATORS["window_max"](x, **moves)
    else:  # taken where they are, so that their pullback adds them there and no windows
        iota = partial(OPERATORS["iota"], shape=winner.shape, dtype=np.dtype(np.int64))
        index = [places[axis] if axis in places else iota(axis=axis) for axis in range(x.ndim)]
        largest = OPERATORS["gather"](x, *index, axes=tuple(range(x.ndim)))
    if not return_indices:
        return largest
    return largest, reduce(lambda flat, axis: flat * x.shape[axis] + places[axis], axes[1:], places[axes[0]])


def _windows(x: Node, axis: int, table: np.ndarray) -> Node:
    """``x`` with two axes in place of ``axis``: windows, and the elements of each."""
    if table.size == x.shape[axis]:
        return to_shape(x, (*x.shape[:axis], *table.shape, *x.shape[axis + 1 :]))
    found: Node = take(x, table, axis)
    return found


def _table(extent: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The elements of each window, the last of shorter ones several times, and which are no repetition."""
    places = np.arange(count)
    starts, stops = places * extent // count, -(-(places + 1) * extent // count)
    along = starts[:, None] + np.arange((stops - starts).max(initial=1))
    return np.minimum(along, stops[:, None] - 1), along < stops[:, None]


def _sizes(name: str, x: Node, output_size: OutputSize, channels: str) -> list[tuple[int, int]]:
    """Each axis that windows move along, with how many there shall be."""
    rank = max(x.ndim - 2, 1)
    axes = spatial_axes(name, x.shape, rank, channels)
    if isinstance(output_size, Sequence) and len(output_size) == rank:
        output_size = [x.shape[axis] if size is None else size for axis, size in zip(axes, output_size)]
    if 0 in [x.shape[axis] for axis in axes]:
        raise ShapeError(f"{name}: shape {x.shape} has nothing to pool; check for an empty array first")
    return list(zip(axes, widths(name, "output_size", output_size, rank)))
