"""Pooling layers: they have no parameters, only windows."""

from __future__ import annotations

from typing import Any

from pullback.nn.module import Module
from pullback.nn.windows import by, window_options
from pullback.numpy import pad
from pullback.numpy.pooling import avg_pool, global_avg_pool, global_max_pool, max_pool
from pullback.numpy.windows import (
    Channels,
    Padding,
    Widths,
    check_channels,
    padding_widths,
    spatial_axes,
    widths,
)

__all__ = [
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "GlobalAvgPool",
    "GlobalMaxPool",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
]


class _Pool(Module):
    """What layers with pooling windows have in common."""

    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: Any
    channels: Channels
    ceil_mode: bool

    rank = 0

    def _take(
        self,
        kernel_size: Widths,
        stride: Widths | None,
        padding: Padding,
        *,
        channels: Channels,
        ceil_mode: bool,
    ) -> None:
        name = f"[{type(self).__name__}]"
        check_channels(name, channels)
        self.kernel_size = widths(name, "kernel_size", kernel_size, self.rank)
        self.stride = self.kernel_size if stride is None else widths(name, "stride", stride, self.rank)
        ones = (1,) * self.rank
        padding_widths(name, padding, ones, sizes=ones, strides=ones, dilations=ones)
        self.padding, self.channels, self.ceil_mode = padding, channels, ceil_mode

    def _axes(self, x: Any) -> tuple[int, ...]:
        """Where the windows move; raises ``ShapeError`` for an input with too few axes or too many."""
        return spatial_axes(f"[{self.describe()}]", x.shape, self.rank, self.channels)

    def _widths(self, x: Any, dilation: tuple[int, ...]) -> tuple[list[tuple[int, int]], list[int]]:
        """The padding before and after each axis, and how far beyond it the last window may reach.

        A window that would begin behind the input and its first padding is none.
        """
        extents = [x.shape[axis] for axis in self._axes(x)]
        low, high = padding_widths(
            f"[{self.describe()}]",
            self.padding,
            extents,
            sizes=self.kernel_size,
            strides=self.stride,
            dilations=dilation,
        )
        beyond = []
        for extent, before, after, size, stride, apart in zip(
            extents, low, high, self.kernel_size, self.stride, dilation
        ):
            whole, reach = extent + before + after, (size - 1) * apart + 1
            last = -(-(whole - reach) // stride) * stride
            last -= stride * (last >= extent + before)
            beyond.append(max(last + reach - whole, 0))
        return list(zip(low, high)), beyond

    def _described(self, dilation: tuple[int, ...]) -> str:
        options = window_options(
            stride=self.stride,
            usual_stride=self.kernel_size,
            padding=self.padding,
            dilation=dilation,
            channels=self.channels,
        )
        options += ["ceil mode"] * self.ceil_mode
        return f"{type(self).__name__}({', '.join([by(self.kernel_size), *options])})"


class _MaxPool(_Pool):
    dilation: tuple[int, ...]

    def __init__(
        self,
        kernel_size: Widths,
        stride: Widths | None = None,
        padding: Padding = 0,
        dilation: Widths = 1,
        *,
        channels: Channels = "first",
        ceil_mode: bool = False,
    ) -> None:
        self._take(kernel_size, stride, padding, channels=channels, ceil_mode=ceil_mode)
        self.dilation = widths(f"[{type(self).__name__}]", "dilation", dilation, self.rank)

    def __call__(self, x: Any) -> Any:
        self._axes(x)
        padding = self.padding
        if self.ceil_mode:
            around, beyond = self._widths(x, self.dilation)
            padding = [(low, high + more) for (low, high), more in zip(around, beyond)]
        return max_pool(
            x, self.kernel_size, self.stride, padding, dilation=self.dilation, channels=self.channels
        )

    def describe(self) -> str:
        return self._described(self.dilation)


class _AvgPool(_Pool):
    count_include_pad: bool

    def __init__(
        self,
        kernel_size: Widths,
        stride: Widths | None = None,
        padding: Padding = 0,
        *,
        count_include_pad: bool = True,
        channels: Channels = "first",
        ceil_mode: bool = False,
    ) -> None:
        self._take(kernel_size, stride, padding, channels=channels, ceil_mode=ceil_mode)
        self.count_include_pad = count_include_pad

    def __call__(self, x: Any) -> Any:
        axes = self._axes(x)
        padding, counted = self.padding, self.count_include_pad
        if self.ceil_mode:
            around, beyond = self._widths(x, (1,) * self.rank)
            if counted and any(map(max, around)):
                # Padding counts, what is beyond it does not: the padding becomes part of the input.
                widths = dict(zip(axes, around))
                x = pad(x, [widths.get(axis, (0, 0)) for axis in range(x.ndim)])
                around = [(0, 0)] * self.rank
            padding, counted = [(low, high + more) for (low, high), more in zip(around, beyond)], False
        return avg_pool(
            x, self.kernel_size, self.stride, padding, count_include_pad=counted, channels=self.channels
        )

    def describe(self) -> str:
        return self._described((1,) * self.rank)


class MaxPool1d(_MaxPool):
    """The largest of each window along one axis: (batch, channels, length) → (batch, channels, places).

    See ``MaxPool2d`` for the arguments.

    >>> import numpy as np
    >>> MaxPool1d(8)(np.zeros((64, 8, 128), np.float32)).shape
    (64, 8, 16)
    """

    rank = 1
    __init__ = _MaxPool.__init__


class MaxPool2d(_MaxPool):
    r"""The largest of each window of an image, :math:`y_{b,c,p} = \max_k x_{b,c,p s + k d}`.

    (batch, channels, height, width) → (batch, channels, rows, columns); with ``channels="last"`` channels are
    the last axis. ``kernel_size``, ``stride`` (by default the size) and ``dilation`` are numbers or one for
    each axis; ``padding`` is ``"valid"``, ``"same"``, a number, one for each axis or pairs, and never the
    largest. The first of equal winners takes the cotangent. With ``ceil_mode`` the last window of each axis may
    reach beyond the padded image, unless it would begin there: the number of windows is rounded up, not down.

    Raises ``ShapeError`` for a window larger than the padded image, or one that sees nothing but padding.

    >>> import numpy as np
    >>> layer = MaxPool2d(2)
    >>> layer, layer(np.zeros((100, 6, 26, 26), np.float32)).shape
    (MaxPool2d(2 × 2), (100, 6, 13, 13))
    """

    rank = 2
    __init__ = _MaxPool.__init__


class MaxPool3d(_MaxPool):
    """The largest of each window of a volume: (batch, channels, depth, height, width), as ``MaxPool2d``.

    >>> import numpy as np
    >>> MaxPool3d(2)(np.zeros((1, 2, 4, 6, 8), np.float32)).shape
    (1, 2, 2, 3, 4)
    """

    rank = 3
    __init__ = _MaxPool.__init__


class AvgPool1d(_AvgPool):
    """The mean of each window along one axis: (batch, channels, length) → (batch, channels, places).

    See ``AvgPool2d`` for the arguments.

    >>> import numpy as np
    >>> AvgPool1d(2)(np.array([[[1.0, 3.0, 5.0, 7.0]]]))
    array([[[2., 6.]]])
    """

    rank = 1
    __init__ = _AvgPool.__init__


class AvgPool2d(_AvgPool):
    r"""The mean of each window of an image, :math:`y_{b,c,p} = \frac{1}{|k|} \sum_k x_{b,c,p s + k}`.

    Shapes and arguments are those of ``MaxPool2d``. Padding counts as zeros; with
    ``count_include_pad=False`` the mean is that of the elements that are no padding. What windows reach beyond the
    padding with ``ceil_mode`` never counts.

    Raises ``ShapeError`` for a window larger than the padded image, or one that sees nothing but padding.

    >>> import numpy as np
    >>> layer = AvgPool2d(3, stride=2, padding=1)
    >>> layer, layer(np.zeros((2, 4, 8, 8), np.float32)).shape
    (AvgPool2d(3 × 3, stride 2, padding 1), (2, 4, 4, 4))
    """

    rank = 2
    __init__ = _AvgPool.__init__


class AvgPool3d(_AvgPool):
    """The mean of each window of a volume: (batch, channels, depth, height, width), as ``AvgPool2d``.

    >>> import numpy as np
    >>> AvgPool3d(2)(np.zeros((1, 2, 4, 6, 8), np.float32)).shape
    (1, 2, 2, 3, 4)
    """

    rank = 3
    __init__ = _AvgPool.__init__


class GlobalMaxPool(Module):
    """The largest of each channel: (batch, channels, …) → (batch, channels).

    With ``channels="last"`` from (batch, …, channels). The first of equal winners takes the cotangent.

    >>> import numpy as np
    >>> GlobalMaxPool("last")(np.zeros((64, 126, 100), np.float32)).shape
    (64, 100)
    """

    channels: Channels = "first"

    def __call__(self, x: Any) -> Any:
        return global_max_pool(x, self.channels)

    def describe(self) -> str:
        return f"{type(self).__name__}({'channels last' * (self.channels == 'last')})"


class GlobalAvgPool(Module):
    """The mean of each channel: (batch, channels, …) → (batch, channels).

    With ``channels="last"`` from (batch, …, channels).

    >>> import numpy as np
    >>> GlobalAvgPool()(np.zeros((2, 32, 7, 7), np.float32)).shape
    (2, 32)
    """

    channels: Channels = "first"

    def __call__(self, x: Any) -> Any:
        return global_avg_pool(x, self.channels)

    def describe(self) -> str:
        return f"{type(self).__name__}({'channels last' * (self.channels == 'last')})"
