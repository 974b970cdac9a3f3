"""Pooling: the largest or the mean of windows, or of all that a channel has."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from pullback.errors import DTypeError, ShapeError
from pullback.graph import OPERATORS, Node, dtype_kind
from pullback.numpy.creation import zeros_like
from pullback.numpy.elementwise import where
from pullback.numpy.promotion import as_array_node, where_written
from pullback.numpy.reductions import as_float, total
from pullback.numpy.updates import at
from pullback.numpy.windows import (
    Channels,
    Padding,
    Widths,
    at_once,
    beyond,
    check_windows,
    padded,
    padding_widths,
    reached,
    spatial_axes,
    widths,
)
from pullback.operators.convolution import window_count
from pullback.operators.elementwise import refuse_complex

__all__ = ["avg_pool", "global_avg_pool", "global_max_pool", "max_pool", "max_unpool"]


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
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    r"""The largest element of each window, :math:`y_{b,c,p} = \max_k x_{b,c,p s + k d}`.

    ``x`` has shape (batch, channels, …) with one, two or three axes to move along, or with
    ``channels="last"`` (batch, …, channels), and the result likewise. ``size``, ``stride`` (by default the
    size) and ``dilation`` are numbers or one for each axis; ``padding`` is as in ``conv``, but never the
    largest. The cotangent goes to the winner, the first in row-major order where several are equal. A NaN
    wins.

    Along each axis there are ``(extent + padding - (size - 1) * dilation - 1) // stride + 1`` windows; with
    ``ceil_mode`` the quotient is rounded up, so that the last window may reach beyond the padding, unless it would
    begin there. With ``return_indices`` a second result says where the winners are: ``int64`` of the shape of the
    first, each a place in its channel, counted in row-major order without the padding, as in PyTorch.

    Raises ``ShapeError`` when a window is larger than the padded image or sees nothing but padding.

    >>> import numpy as np
    >>> print(max_pool(np.arange(16.0).reshape(1, 1, 4, 4), 2)[0, 0])
    [[ 5.  7.]
     [13. 15.]]
    >>> y, places = max_pool(np.array([[[3.0, 1.0, 2.0]]]), 2, ceil_mode=True, return_indices=True)
    >>> print(y, places)
    [[[3. 2.]]] [[[0 2]]]
    """
    name = "max_pool"
    x = as_array_node(x)
    if x.dtype.kind == "b":
        raise DTypeError(f"{name} takes no bool; use .astype(np.uint8) first{where_written()}")
    refuse_complex(name, x.type)
    least = -np.inf if dtype_kind(x.dtype) == "f" else np.iinfo(x.dtype).min
    windows = _Windows.of(name, x, size, stride, padding, dilation, channels=channels, ceil_mode=ceil_mode)
    wide = windows.padded(x, least)
    largest = OPERATORS["window_max"](wide, **windows.moves)
    return (largest, windows.places(wide)) if return_indices else largest


@at_once(arrays=1)
def avg_pool(
    x: Any,
    /,
    size: Widths,
    stride: Widths | None = None,
    padding: Padding = 0,
    *,
    dilation: Widths = 1,
    count_include_pad: bool = True,
    channels: Channels = "first",
    ceil_mode: bool = False,
) -> Any:
    r"""The mean of each window, :math:`y_{b,c,p} = \frac{1}{|k|} \sum_k x_{b,c,p s + k d}`.

    Shapes and arguments are those of ``max_pool``. Padding counts as zeros; with ``count_include_pad=False``
    the mean is that of the elements that are no padding. What windows reach beyond the padding with ``ceil_mode``
    never counts. Integers become floats.

    >>> import numpy as np
    >>> print(avg_pool(np.array([[[2.0, 4.0, 6.0]]]), 2, stride=1))
    [[[3. 5.]]]
    >>> print(avg_pool(np.array([[[2.0, 4.0]]]), 2, padding=1, count_include_pad=False))
    [[[2. 4.]]]
    """
    name = "avg_pool"
    x = as_float(as_array_node(x))
    windows = _Windows.of(name, x, size, stride, padding, dilation, channels=channels, ceil_mode=ceil_mode)
    view = OPERATORS["windows"](windows.padded(x, 0), **windows.moves)
    axes = _window_axes(view, channels)
    sums = total(view, axes)
    number = np.asarray(math.prod(np.ix_(*windows.counts(count_include_pad))))
    if (number == number.flat[0]).all():
        return sums / int(number.flat[0])
    return sums / (number if channels == "first" else number[..., None]).astype(x.dtype)


@at_once(arrays=2)
def max_unpool(
    x: Any,
    indices: Any,
    /,
    size: Widths,
    stride: Widths | None = None,
    padding: Padding = 0,
    *,
    output_size: Widths | None = None,
    channels: Channels = "first",
) -> Any:
    """Zeros, and each element of ``x`` at its index: what ``max_pool`` took, where it took it from.

    ``x`` and ``indices`` are of the shapes and meaning of the results of ``max_pool(…, return_indices=True)``;
    ``size``, ``stride`` and ``padding`` are those of the pool, and say how large the result is: ``(extent - 1) *
    stride - 2 * padding + size`` along each axis, unless ``output_size`` says so itself. Of several elements with
    one index the last in row-major order stays, and takes the cotangent.

    Raises ``IndexRangeError`` for an index outside of the result (in a compiled function: when it runs),
    ``ShapeError`` for shapes that do not fit, ``DTypeError`` for indices that are no integers.

    >>> import numpy as np
    >>> y, places = max_pool(np.array([[[3.0, 1.0, 2.0, 4.0]]]), 2, return_indices=True)
    >>> print(max_unpool(y, places, 2))
    [[[3. 0. 0. 4.]]]
    """
    name = "max_unpool"
    x, indices = as_array_node(x), as_array_node(indices)
    if indices.shape != x.shape:
        raise ShapeError(
            f"{name}: {indices.shape} indices for elements of shape {x.shape}; give one for each{where_written()}"
        )
    if indices.dtype.kind not in "iu":
        raise DTypeError(f"{name}: indices of {indices.dtype}; give those of max_pool{where_written()}")
    rank = x.ndim - 2
    axes = spatial_axes(name, x.shape, max(rank, 1), channels)
    sizes = widths(name, "size", size, rank)
    strides = sizes if stride is None else widths(name, "stride", stride, rank)
    if isinstance(padding, str) and padding != "valid":
        raise ValueError(f"{name}: padding={padding!r}; give the numbers of the pool{where_written()}")
    ones = (1,) * rank
    low, high = padding_widths(name, padding, ones, sizes=sizes, strides=strides, dilations=ones)
    if output_size is None:
        output_size = [
            (x.shape[axis] - 1) * step - before - after + width
            for axis, step, before, after, width in zip(axes, strides, low, high, sizes)
        ]
    plane = widths(name, "output_size", output_size, rank)
    shape = list(x.shape)
    for axis, extent in zip(axes, plane):
        shape[axis] = extent
    indices = OPERATORS["check_index"](indices, extent=math.prod(plane), what="index", wrap=False)
    target: list[Any] = []
    rest = indices
    for extent in reversed(plane):
        target.insert(0, rest % extent)
        rest = rest // extent
    for axis in (0, 1 if channels == "first" else x.ndim - 1):
        target.insert(axis, OPERATORS["iota"](shape=x.shape, axis=axis, dtype=np.dtype(np.int64)))
    return at(zeros_like(x, shape=tuple(shape)))[tuple(target)].set(x)


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


@dataclass(frozen=True)
class _Windows:
    """Windows that move over an array: where, how, and what lies around it."""

    axes: tuple[int, ...]
    extents: tuple[int, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    """The padding that users ask for."""
    far: tuple[int, ...]
    """How far the last window reaches; negative where the end of the array itself is not reached."""

    @classmethod
    def of(
        cls,
        name: str,
        x: Node,
        size: Widths,
        stride: Widths | None,
        padding: Padding,
        dilation: Widths,
        *,
        channels: str,
        ceil_mode: bool,
    ) -> _Windows:
        rank = x.ndim - 2
        axes = spatial_axes(name, x.shape, max(rank, 1), channels)
        sizes = widths(name, "size", size, rank)
        strides = sizes if stride is None else widths(name, "stride", stride, rank)
        moves = {"sizes": sizes, "strides": strides, "dilations": widths(name, "dilation", dilation, rank)}
        extents = tuple(x.shape[axis] for axis in axes)
        low, high = padding_widths(name, padding, extents, **moves)
        end = high
        if ceil_mode:
            end = tuple(map(operator.add, high, beyond(extents, low=low, high=high, **moves)))
        check_windows(name, extents, low=low, high=end, sizes=sizes, dilations=moves["dilations"])
        far = reached(extents, low=low, high=end, **moves)
        windows = cls(axes, extents, **moves, low=low, high=high, far=far)
        for axis, before, after, seen in zip(axes, low, high, windows.counts(False)):
            if not seen.all():
                raise ShapeError(
                    f"{name}: window {seen.argmin()} along axis {axis} of shape {x.shape} sees nothing but "
                    f"padding ({before} before, {after} after); pad less than a window{where_written()}"
                )
        return windows

    @property
    def moves(self) -> dict[str, tuple[int, ...]]:
        """The attributes of operators on windows."""
        return {
            "axes": self.axes,
            "sizes": self.sizes,
            "strides": self.strides,
            "dilations": self.dilations,
        }

    def padded(self, x: Node, fill: float) -> Node:
        """``x`` with as much around it as windows see; they leave what they do not reach by themselves."""
        return padded(x, self.axes, self.low, [max(width, 0) for width in self.far], fill)

    def counts(self, padding: bool) -> list[np.ndarray]:
        """Along each axis, how many elements each window sees, those of the ``padding`` too."""
        counts = []
        for extent, size, stride, dilation, low, high, far in zip(
            self.extents, self.sizes, self.strides, self.dilations, self.low, self.high, self.far
        ):
            number = window_count(extent + low + max(far, 0), size, stride, dilation)
            seen = (np.arange(number) * stride - low)[:, None] + np.arange(size) * dilation
            first, last = (-low, extent + high) if padding else (0, extent)
            counts.append(((seen >= first) & (seen < last)).sum(axis=1))
        return counts

    def places(self, wide: Node) -> Node:
        """Where in its channel, without the padding, each window of the padded array has its largest element."""
        winner = OPERATORS["window_argmax"](wide, **self.moves)
        flat: Any = 0
        for axis, extent, low, dilation in zip(self.axes, self.extents, self.low, self.dilations):
            along = OPERATORS["argmax_index"](winner, shape=wide.shape, axis=axis, **self.moves)
            if low:
                # Padding wins only where all is the least there is: then the first element behind it does.
                along = where(along < low, (along - low) % dilation, along - low)
            flat = flat * extent + along
        return cast(Node, flat)
