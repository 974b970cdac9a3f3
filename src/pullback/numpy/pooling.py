"""Pooling: the largest or the mean of windows, or of all that a channel has."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pullback.errors import DTypeError, ShapeError
from pullback.graph import OPERATORS, Node
from pullback.numpy.promotion import as_array_node, where_written
from pullback.numpy.reductions import as_float, total
from pullback.numpy.windows import (
    Channels,
    Padding,
    Widths,
    at_once,
    check_windows,
    padded,
    padding_widths,
    reached,
    spatial_axes,
    widths,
)
from pullback.operators.convolution import window_count

__all__ = ["avg_pool", "global_avg_pool", "global_max_pool", "max_pool"]


@at_once(arrays=1)
def max_pool(
    x: Any,
    /,
    size: Widths,
    stride: Widths | None = None,
    padding: Padding = 0,
    *,
    dilation: Widths = 1,
    channels: Channels = "first",
) -> Any:
    r"""The largest element of each window, :math:`y_{b,c,p} = \max_k x_{b,c,p s + k d}`.

    ``x`` has shape (batch, channels, …) with one, two or three axes to move along, or with
    ``channels="last"`` (batch, …, channels), and the result likewise. ``size``, ``stride`` (by default the
    size) and ``dilation`` are numbers or one for each axis; ``padding`` is as in ``conv``, but never the
    largest. The cotangent goes to the winner, the first in row-major order where several are equal. A NaN
    wins.

    Along each axis there are ``(extent + padding - (size - 1) * dilation - 1) // stride + 1`` windows.
    Raises ``ShapeError`` when a window is larger than the padded image or sees nothing but padding.

    >>> import numpy as np
    >>> print(max_pool(np.arange(16.0).reshape(1, 1, 4, 4), 2)[0, 0])
    [[ 5.  7.]
     [13. 15.]]
    """
    x = as_array_node(x)
    if x.dtype.kind == "b":
        raise DTypeError(f"max_pool takes no bool; use .astype(np.uint8) first{where_written()}")
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    x, moves, _ = _moves(
        "max_pool", x, size, stride, padding, dilation=dilation, channels=channels, fill=least
    )
    return OPERATORS["window_max"](x, **moves)


@at_once(arrays=1)
def avg_pool(
    x: Any,
    /,
    size: Widths,
    stride: Widths | None = None,
    padding: Padding = 0,
    *,
    count_include_pad: bool = True,
    channels: Channels = "first",
) -> Any:
    r"""The mean of each window, :math:`y_{b,c,p} = \frac{1}{|k|} \sum_k x_{b,c,p s + k}`.

    Shapes and arguments are those of ``max_pool``. Padding counts as zeros; with ``count_include_pad=False``
    the mean is that of the elements that are no padding. Integers become floats.

    >>> import numpy as np
    >>> print(avg_pool(np.array([[[2.0, 4.0, 6.0]]]), 2, stride=1))
    [[[3. 5.]]]
    >>> print(avg_pool(np.array([[[2.0, 4.0]]]), 2, padding=1, count_include_pad=False))
    [[[2. 4.]]]
    """
    x = as_float(as_array_node(x))
    x, moves, counts = _moves("avg_pool", x, size, stride, padding, dilation=1, channels=channels, fill=0)
    view = OPERATORS["windows"](x, **moves)
    axes = _window_axes(view, channels)
    sums = total(view, axes)
    if count_include_pad:
        return sums / math.prod(view.shape[axis] for axis in axes)
    number = np.asarray(math.prod(np.ix_(*counts)), x.dtype)
    return sums / (number if channels == "first" else number[..., None])


@at_once(arrays=1)
def global_max_pool(x: Any, /, channels: Channels = "first") -> Any:
    """The largest element of each channel: (batch, channels, …) → (batch, channels).

    With ``channels="last"`` from (batch, …, channels). The first of equal winners takes the cotangent.

    >>> import numpy as np
    >>> print(global_max_pool(np.arange(6.0).reshape(1, 2, 3)))
    [[2. 5.]]
    """
    x = as_array_node(x)
    axes = _all_spatial("global_max_pool", x, channels)
    whole = tuple(x.shape[axis] for axis in axes)
    largest = OPERATORS["window_max"](x, axes=axes, sizes=whole, strides=whole, dilations=(1,) * len(axes))
    kept = tuple(extent for axis, extent in enumerate(x.shape) if axis not in axes)
    return OPERATORS["reshape"](largest, shape=kept)


@at_once(arrays=1)
def global_avg_pool(x: Any, /, channels: Channels = "first") -> Any:
    """The mean of each channel: (batch, channels, …) → (batch, channels).

    With ``channels="last"`` from (batch, …, channels). Integers become floats.

    >>> import numpy as np
    >>> print(global_avg_pool(np.arange(6.0).reshape(1, 2, 3)))
    [[1. 4.]]
    """
    x = as_float(as_array_node(x))
    axes = _all_spatial("global_avg_pool", x, channels)
    return total(x, axes) / math.prod(x.shape[axis] for axis in axes)


def _window_axes(view: Node, channels: str) -> tuple[int, ...]:
    """The axes within the windows, each behind that of the windows' places."""
    first = 2 if channels == "first" else 1
    return tuple(range(first + 1, first + view.ndim - 2, 2))


def _all_spatial(name: str, x: Node, channels: str) -> tuple[int, ...]:
    axes = spatial_axes(name, x.shape, max(x.ndim - 2, 1), channels)
    if 0 in [x.shape[axis] for axis in axes]:
        raise ShapeError(f"{name}: shape {x.shape} has nothing to pool; check for an empty array first")
    return axes


def _moves(
    name: str,
    x: Node,
    size: Widths,
    stride: Widths | None,
    padding: Padding,
    *,
    dilation: Widths,
    channels: str,
    fill: float,
) -> tuple[Node, dict[str, tuple[int, ...]], list[np.ndarray]]:
    """The padded ``x``, how windows move over it, and along each axis how many of their elements are no padding."""
    rank = x.ndim - 2
    axes = spatial_axes(name, x.shape, max(rank, 1), channels)
    sizes = widths(name, "size", size, rank)
    strides = sizes if stride is None else widths(name, "stride", stride, rank)
    dilations = widths(name, "dilation", dilation, rank)
    extents = [x.shape[axis] for axis in axes]
    low, high = padding_widths(name, padding, extents, sizes=sizes, strides=strides, dilations=dilations)
    check_windows(name, extents, low=low, high=high, sizes=sizes, dilations=dilations)
    far = reached(extents, low=low, high=high, sizes=sizes, strides=strides, dilations=dilations)
    # Windows leave what they do not reach by themselves; padding that none reaches is left out.
    shape, x = x.shape, padded(x, axes, low, [max(width, 0) for width in far], fill)
    moves = {"axes": axes, "sizes": sizes, "strides": strides, "dilations": dilations}
    counts = []
    for position, (axis, extent, before) in enumerate(zip(axes, extents, low)):
        places = np.arange(sizes[position]) * dilations[position] - before
        number = window_count(x.shape[axis], sizes[position], strides[position], dilations[position])
        starts = np.arange(number) * strides[position]
        seen = starts[:, None] + places
        counts.append(((seen >= 0) & (seen < extent)).sum(axis=1))
        if not counts[-1].all():
            raise ShapeError(
                f"{name}: window {counts[-1].argmin()} along axis {axis} of shape {shape} sees nothing but "
                f"padding ({before} before, {high[position]} after); pad less than a window{where_written()}"
            )
    return x, moves, counts
