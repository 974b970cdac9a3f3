"""Pooling layers: they have no parameters, only windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pullback.nn.module import Module
from pullback.nn.windows import by, plain, window_options
from pullback.numpy.adaptive import OutputSize, adaptive_avg_pool, adaptive_max_pool
from pullback.numpy.pooling import avg_pool, global_avg_pool, global_max_pool, max_pool, max_unpool
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
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "GlobalAvgPool",
    "GlobalMaxPool",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
]


class _Pool(Module):
    """What layers with pooling windows have in common."""

    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: Any
    dilation: tuple[int, ...]
    channels: Channels
    ceil_mode: bool

    rank = 0

    def _take(
        self,
        kernel_size: Widths,
        stride: Widths | None,
        padding: Padding,
        dilation: Widths,
        *,
        channels: Channels,
        ceil_mode: bool,
    ) -> None:
        name = f"[{type(self).__name__}]"
        check_channels(name, channels)
        self.kernel_size = widths(name, "kernel_size", kernel_size, self.rank)
        self.stride = self.kernel_size if stride is None else widths(name, "stride", stride, self.rank)
        self.dilation = widths(name, "dilation", dilation, self.rank)
        ones = (1,) * self.rank
        padding_widths(name, padding, ones, sizes=ones, strides=ones, dilations=ones)
        self.padding, self.channels, self.ceil_mode = plain(padding), channels, ceil_mode

    def _pooled(self, function: Callable[..., Any], x: Any, **options: bool) -> Any:
        """What ``function`` makes; raises ``ShapeError`` for an input with too few axes or too many."""
        spatial_axes(f"[{self.describe()}]", x.shape, self.rank, self.channels)
        return function(
            x,
            self.kernel_size,
            self.stride,
            self.padding,
            dilation=self.dilation,
            channels=self.channels,
            ceil_mode=self.ceil_mode,
            **options,
        )

    def describe(self) -> str:
        options = window_options(
            stride=self.stride,
            usual_stride=self.kernel_size,
            padding=self.padding,
            dilation=self.dilation,
            channels=self.channels,
        )
        options += ["ceil mode"] * self.ceil_mode
        return f"{type(self).__name__}({', '.join([by(self.kernel_size), *options])})"


class _MaxPool(_Pool):
    return_indices: bool

    def __init__(
        self,
        kernel_size: Widths,
        stride: Widths | None = None,
        padding: Padding = 0,
        dilation: Widths = 1,
        *,
        channels: Channels = "first",
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> None:
        self._take(kernel_size, stride, padding, dilation, channels=channels, ceil_mode=ceil_mode)
        self.return_indices = return_indices

    def __call__(self, x: Any) -> Any:
        return self._pooled(max_pool, x, return_indices=self.return_indices)


class _AvgPool(_Pool):
    count_include_pad: bool

    def __init__(
        self,
        kernel_size: Widths,
        stride: Widths | None = None,
        padding: Padding = 0,
        dilation: Widths = 1,
        *,
        count_include_pad: bool = True,
        channels: Channels = "first",
        ceil_mode: bool = False,
    ) -> None:
        self._take(kernel_size, stride, padding, dilation, channels=channels, ceil_mode=ceil_mode)
        self.count_include_pad = count_include_pad

    def __call__(self, x: Any) -> Any:
        return self._pooled(avg_pool, x, count_include_pad=self.count_include_pad)


class _MaxUnpool(Module):
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: Any
    channels: Channels

    rank = 0

    def __init__(
        self,
        kernel_size: Widths,
        stride: Widths | None = None,
        padding: Widths = 0,
        *,
        channels: Channels = "first",
    ) -> None:
        name = f"[{type(self).__name__}]"
        check_channels(name, channels)
        self.kernel_size = widths(name, "kernel_size", kernel_size, self.rank)
        self.stride = self.kernel_size if stride is None else widths(name, "stride", stride, self.rank)
        self.padding, self.channels = widths(name, "padding", padding, self.rank, 0), channels

    def __call__(self, x: Any, indices: Any, output_size: Widths | None = None) -> Any:
        spatial_axes(f"[{self.describe()}]", x.shape, self.rank, self.channels)
        return max_unpool(
            x,
            indices,
            self.kernel_size,
            self.stride,
            self.padding,
            output_size=output_size,
            channels=self.channels,
        )

    def describe(self) -> str:
        options = window_options(
            stride=self.stride,
            usual_stride=self.kernel_size,
            padding=self.padding if any(self.padding) else 0,
            dilation=(1,),
            channels=self.channels,
        )
        return f"{type(self).__name__}({', '.join([by(self.kernel_size), *options])})"


class _AdaptivePool(Module):
    output_size: tuple[int | None, ...]
    channels: Channels

    rank = 0

    def __init__(self, output_size: OutputSize, *, channels: Channels = "first") -> None:
        name = f"[{type(self).__name__}]"
        check_channels(name, channels)
        given = output_size if isinstance(output_size, Sequence) else (output_size,) * self.rank
        widths(name, "output_size", [1 if size is None else size for size in given], self.rank)
        self.output_size, self.channels = tuple(map(plain, given)), channels

    def _checked(self, x: Any) -> Any:
        spatial_axes(f"[{self.describe()}]", x.shape, self.rank, self.channels)
        return x

    def describe(self) -> str:
        sizes = " × ".join("as it is" if size is None else str(size) for size in self.output_size)
        return f"{type(self).__name__}({sizes}{', channels last' * (self.channels == 'last')})"


class _AdaptiveMaxPool(_AdaptivePool):
    return_indices: bool

    def __init__(
        self, output_size: OutputSize, *, channels: Channels = "first", return_indices: bool = False
    ) -> None:
        super().__init__(output_size, channels=channels)
        self.return_indices = return_indices

    def __call__(self, x: Any) -> Any:
        return adaptive_max_pool(
            self._checked(x), self.output_size, self.channels, return_indices=self.return_indices
        )


class _AdaptiveAvgPool(_AdaptivePool):
    __init__ = _AdaptivePool.__init__

    def __call__(self, x: Any) -> Any:
        return adaptive_avg_pool(self._checked(x), self.output_size, self.channels)


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
    reach beyond the padded image, unless it would begin there: the number of windows is rounded up, not down. With
    ``return_indices`` a second result says where the winners are, for ``MaxUnpool2d``.

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


class MaxUnpool1d(_MaxUnpool):
    """What a pool along one axis took, where it took it from; see ``MaxUnpool2d``.

    >>> import numpy as np
    >>> MaxUnpool1d(2)(np.array([[[3.0, 4.0]]]), np.array([[[1, 2]]]))
    array([[[0., 3., 4., 0.]]])
    """

    rank = 1
    __init__ = _MaxUnpool.__init__


class MaxUnpool2d(_MaxUnpool):
    """Zeros, and what a ``MaxPool2d`` of the same arguments took, where it took it from.

    ``layer(x, indices, output_size=None)`` takes both results of a pool with ``return_indices=True``; the output is
    (extent - 1) * stride - 2 * padding + size long along each axis, or as ``output_size`` says. Of several elements
    with one index the last stays.

    Raises ``ShapeError`` for shapes that do not fit, ``IndexRangeError`` for an index outside of the output.

    >>> import numpy as np
    >>> pool, unpool = MaxPool2d(2, return_indices=True), MaxUnpool2d(2)
    >>> y, indices = pool(np.arange(16.0).reshape(1, 1, 4, 4))
    >>> unpool(y, indices)[0, 0]
    array([[ 0.,  0.,  0.,  0.],
           [ 0.,  5.,  0.,  7.],
           [ 0.,  0.,  0.,  0.],
           [ 0., 13.,  0., 15.]])
    """

    rank = 2
    __init__ = _MaxUnpool.__init__


class MaxUnpool3d(_MaxUnpool):
    """What a pool of volumes took, where it took it from; see ``MaxUnpool2d``.

    >>> import numpy as np
    >>> y, indices = MaxPool3d(2, return_indices=True)(np.zeros((1, 2, 4, 6, 8)))
    >>> MaxUnpool3d(2)(y, indices).shape
    (1, 2, 4, 6, 8)
    """

    rank = 3
    __init__ = _MaxUnpool.__init__


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The largest of each of so many windows along one axis; see ``AdaptiveAvgPool2d``.

    >>> import numpy as np
    >>> AdaptiveMaxPool1d(2)(np.array([[[1.0, 3.0, 2.0]]]))
    array([[[3., 3.]]])
    """

    rank = 1
    __init__ = _AdaptiveMaxPool.__init__


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The largest of each of so many windows of an image; see ``AdaptiveAvgPool2d``.

    With ``return_indices`` a second result says where they are, as that of ``MaxPool2d`` does.

    >>> import numpy as np
    >>> AdaptiveMaxPool2d((3, None))(np.zeros((2, 4, 8, 8), np.float32)).shape
    (2, 4, 3, 8)
    """

    rank = 2
    __init__ = _AdaptiveMaxPool.__init__


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """The largest of each of so many windows of a volume; see ``AdaptiveAvgPool2d``.

    >>> import numpy as np
    >>> AdaptiveMaxPool3d(2)(np.zeros((1, 2, 4, 6, 7), np.float32)).shape
    (1, 2, 2, 2, 2)
    """

    rank = 3
    __init__ = _AdaptiveMaxPool.__init__


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """The mean of each of so many windows along one axis; see ``AdaptiveAvgPool2d``.

    >>> import numpy as np
    >>> AdaptiveAvgPool1d(2)(np.array([[[1.0, 3.0, 2.0]]]))
    array([[[2. , 2.5]]])
    """

    rank = 1
    __init__ = _AdaptiveAvgPool.__init__


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    r"""The mean of each of so many windows of an image, whatever its size.

    (batch, channels, height, width) → (batch, channels, \*output_size); with ``channels="last"`` channels are the
    last axis. ``output_size`` is a number for both axes or one for each, of which None keeps an extent. Of an axis of
    n elements window p of m has those from floor(p n / m) to ceil((p + 1) n / m), without the last.

    Raises ``ShapeError`` for images of another rank and sizes below 1.

    >>> import numpy as np
    >>> layer = AdaptiveAvgPool2d(7)
    >>> layer, layer(np.zeros((2, 64, 10, 14), np.float32)).shape
    (AdaptiveAvgPool2d(7 × 7), (2, 64, 7, 7))
    """

    rank = 2
    __init__ = _AdaptiveAvgPool.__init__


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """The mean of each of so many windows of a volume; see ``AdaptiveAvgPool2d``.

    >>> import numpy as np
    >>> AdaptiveAvgPool3d(2)(np.zeros((1, 2, 4, 6, 7), np.float32)).shape
    (1, 2, 2, 2, 2)
    """

    rank = 3
    __init__ = _AdaptiveAvgPool.__init__


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
