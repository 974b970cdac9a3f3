"""Convolution layers, in one, two and three dimensions, and their transposes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from pullback.errors import ShapeError
from pullback.nn.initialisers import Initialiser, fan_in_uniform, uniform
from pullback.nn.layers import Seed, check_activation, drawn, function_name, sizes
from pullback.nn.module import Module
from pullback.nn.windows import by, plain, window_options
from pullback.numpy.convolution import conv, conv_transpose
from pullback.numpy.windows import Channels, Padding, Widths, check_channels, padding_widths, widths
from pullback.tracing import aligned_array

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]


class _Windowed(Module):
    """What convolutions and their transposes have in common."""

    weight: Any
    bias: Any
    stride: tuple[int, ...]
    padding: Any
    dilation: tuple[int, ...]
    groups: int
    channels: Channels
    activation: Callable[[Any], Any] | None

    rank = 0

    def _take(
        self, *, stride: Widths, padding: Any, dilation: Widths, groups: int, channels: Channels
    ) -> None:
        """Keep, checked, what says how windows move."""
        name = f"[{type(self).__name__}]"
        check_channels(name, channels)
        self.stride = widths(name, "stride", stride, self.rank)
        self.dilation = widths(name, "dilation", dilation, self.rank)
        ones = (1,) * self.rank
        padding_widths(name, padding, ones, sizes=ones, strides=ones, dilations=ones)
        self.padding, self.groups, self.channels = plain(padding), groups, channels

    def _draw(
        self,
        lead: tuple[int, int],
        kernel_size: Widths,
        initialiser: Initialiser | None,
        random: Any,
        dtype: Any,
    ) -> None:
        """Draw the weight, of shape (\\*lead, …), as initialisers see it: the window first, outputs last."""
        name = type(self).__name__
        sizes = widths(f"[{name}]", "kernel_size", kernel_size, self.rank)
        shape = (*sizes, lead[1], lead[0])
        weight = drawn(name, initialiser or fan_in_uniform, shape, random, dtype)
        self.weight = aligned_array(np.moveaxis(weight, (-1, -2), (0, 1)))

    def _limit(self, initialiser: Initialiser | None) -> float:
        """Where the bias begins: within this of zero."""
        return 0.0 if initialiser is not None else 1 / math.sqrt(math.prod(self.weight.shape[1:]))

    def _finished(self, y: Any) -> Any:
        """``y`` with bias and activation."""
        if self.bias is not None:
            y = y + (self.bias.reshape(-1, *(1,) * self.rank) if self.channels == "first" else self.bias)
        return y if self.activation is None else self.activation(y)

    def _described(self, inputs: int, outputs: int) -> str:
        options = [f"{inputs} → {outputs}", by(self.weight.shape[2:])]
        options += window_options(
            stride=self.stride,
            usual_stride=(1,) * self.rank,
            padding=self.padding,
            dilation=self.dilation,
            channels=self.channels,
        )
        if self.groups > 1:
            options.append(f"groups {self.groups}")
        options += ["no bias"] * (self.bias is None)
        if self.activation is not None:
            options.append(function_name(self.activation))
        return f"{type(self).__name__}({', '.join(options)})"


def _check_groups(layer: Module, groups: int, in_channels: int, out_channels: int) -> None:
    if in_channels % groups or out_channels % groups:
        raise ShapeError(
            f"[{type(layer).__name__}] groups={groups} do not divide {in_channels} input channels and "
            f"{out_channels} output channels. Make both multiples of the groups."
        )


class _Convolution(_Windowed):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Widths,
        stride: Widths = 1,
        padding: Padding = 0,
        *,
        dilation: Widths = 1,
        groups: int = 1,
        bias: bool = True,
        activation: Callable[[Any], Any] | None = None,
        channels: Channels = "first",
        initialiser: Initialiser | None = None,
        seed: Seed = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        random = np.random.default_rng(seed)
        in_channels, out_channels, groups = sizes(
            type(self).__name__, in_channels=in_channels, out_channels=out_channels, groups=groups
        )
        _check_groups(self, groups, in_channels, out_channels)
        self._take(stride=stride, padding=padding, dilation=dilation, groups=groups, channels=channels)
        self._draw((out_channels, in_channels // groups), kernel_size, initialiser, random, dtype)
        name, limit = type(self).__name__, self._limit(initialiser)
        self.bias = drawn(name, uniform(limit), (out_channels,), random, dtype) if bias else None
        check_activation(type(self).__name__, activation)
        self.activation = activation

    def __call__(self, x: Any) -> Any:
        y = conv(
            x,
            self.weight,
            self.stride,
            self.padding,
            dilation=self.dilation,
            groups=self.groups,
            channels=self.channels,
        )
        return self._finished(y)

    def describe(self) -> str:
        return self._described(self.weight.shape[1] * self.groups, self.weight.shape[0])


class _Transpose(_Windowed):
    output_padding: tuple[int, ...]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Widths,
        stride: Widths = 1,
        padding: Padding = 0,
        *,
        output_padding: Widths = 0,
        dilation: Widths = 1,
        groups: int = 1,
        bias: bool = True,
        activation: Callable[[Any], Any] | None = None,
        channels: Channels = "first",
        initialiser: Initialiser | None = None,
        seed: Seed = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        random = np.random.default_rng(seed)
        in_channels, out_channels, groups = sizes(
            type(self).__name__, in_channels=in_channels, out_channels=out_channels, groups=groups
        )
        _check_groups(self, groups, in_channels, out_channels)
        self._take(stride=stride, padding=padding, dilation=dilation, groups=groups, channels=channels)
        name = type(self).__name__
        self.output_padding = widths(f"[{name}]", "output_padding", output_padding, self.rank, 0)
        self._draw((in_channels, out_channels // groups), kernel_size, initialiser, random, dtype)
        limit = self._limit(initialiser)
        self.bias = drawn(name, uniform(limit), (out_channels,), random, dtype) if bias else None
        check_activation(type(self).__name__, activation)
        self.activation = activation

    def __call__(self, x: Any) -> Any:
        y = conv_transpose(
            x,
            self.weight,
            self.stride,
            self.padding,
            output_padding=self.output_padding,
            dilation=self.dilation,
            groups=self.groups,
            channels=self.channels,
        )
        return self._finished(y)

    def describe(self) -> str:
        return self._described(self.weight.shape[0], self.weight.shape[1] * self.groups)


class Conv1d(_Convolution):
    r"""A convolution along one axis, with bias and activation:

    .. math:: y_{b,o,p} = f\Big(\beta_o + \sum_{c,k} x_{b,c,p s + k d} \, w_{o,c,k}\Big)

    (batch, in_channels, length) → (batch, out_channels, places); with ``channels="last"`` channels are the
    last axis. See ``Conv2d`` for the arguments.

    >>> layer = Conv1d(50, 8, 3, channels="last", seed=0)
    >>> layer
    Conv1d(50 → 8, 3, channels last)  # 1,208 parameters, 4.8 kB
    >>> layer(np.zeros((2, 130, 50), np.float32)).shape
    (2, 128, 8)
    """

    rank = 1
    __init__ = _Convolution.__init__


class Conv2d(_Convolution):
    r"""A convolution of images, with bias and activation:

    .. math:: y_{b,o,p} = f\Big(\beta_o + \sum_{c,k} x_{b,c,p s + k d} \, w_{o,c,k}\Big)

    (batch, in_channels, height, width) → (batch, out_channels, rows, columns), of (extent + padding -
    (size - 1) * dilation - 1) // stride + 1 places along each axis; with ``channels="last"`` channels are the
    last axis of both. ``weight`` has shape (out_channels, in_channels / groups, height, width) in any case,
    ``bias`` (out_channels,) or is None with ``bias=False``; ``activation`` is any function of an array.

    ``kernel_size`` (the window), ``stride`` and ``dilation`` are numbers or one for each axis; ``padding``
    is ``"valid"``, ``"same"``, a number, one for each axis, or pairs of those before and after. By default
    weight and bias begin uniform in :math:`\pm 1 / \sqrt{\text{inputs of an output}}`, as PyTorch's do; an
    ``initialiser`` replaces the weight's rule (it is asked for a shape (…, inputs, outputs)) and lets the
    bias begin at zero.

    Raises ``ShapeError`` for groups that do not divide the channels, images of other channels or another
    rank, and windows larger than the padded image.

    >>> layer = Conv2d(1, 6, 3, bias=False, seed=0)
    >>> layer
    Conv2d(1 → 6, 3 × 3, no bias)  # 54 parameters, 216 bytes
    >>> layer(np.zeros((100, 1, 28, 28), np.float32)).shape
    (100, 6, 26, 26)
    """

    rank = 2
    __init__ = _Convolution.__init__


class Conv3d(_Convolution):
    """A convolution of volumes: (batch, in_channels, depth, height, width), otherwise as ``Conv2d``.

    >>> Conv3d(2, 4, 3, padding="same", seed=0)(np.zeros((1, 2, 5, 6, 7), np.float32)).shape
    (1, 4, 5, 6, 7)
    """

    rank = 3
    __init__ = _Convolution.__init__


class ConvTranspose1d(_Transpose):
    """The transpose of a convolution along one axis, see ``ConvTranspose2d``.

    >>> ConvTranspose1d(4, 2, 3, stride=2, seed=0)(np.zeros((1, 4, 10), np.float32)).shape
    (1, 2, 21)
    """

    rank = 1
    __init__ = _Transpose.__init__


class ConvTranspose2d(_Transpose):
    r"""The transpose of a convolution, with bias and activation: each element adds a window of its multiples.

    .. math:: y_{b,o,h} = f\Big(\beta_o + \sum_{p s + k d = h + \mathrm{padding}} \sum_c x_{b,c,p} \,
        w_{c,o,k}\Big)

    (batch, in_channels, …) → (batch, out_channels, …), (extent - 1) * stride - 2 * padding + (size - 1) *
    dilation + output_padding + 1 long along each axis: a ``Conv2d`` of the same arguments leads back from
    there. ``weight`` has shape (in_channels, out_channels / groups, height, width). All arguments but
    ``output_padding`` are those of ``Conv2d``; ``padding="same"`` gives extent * stride.

    Raises ``ShapeError`` as ``Conv2d`` does, and when nothing is left.

    >>> layer = ConvTranspose2d(8, 4, 3, stride=2, padding=1, output_padding=1, seed=0)
    >>> layer
    ConvTranspose2d(8 → 4, 3 × 3, stride 2, padding 1)  # 292 parameters, 1.2 kB
    >>> layer(np.zeros((1, 8, 14, 14), np.float32)).shape
    (1, 4, 28, 28)
    """

    rank = 2
    __init__ = _Transpose.__init__


class ConvTranspose3d(_Transpose):
    """The transpose of a convolution of volumes, see ``ConvTranspose2d``.

    >>> ConvTranspose3d(4, 2, 2, stride=2, seed=0)(np.zeros((1, 4, 2, 3, 4), np.float32)).shape
    (1, 2, 4, 6, 8)
    """

    rank = 3
    __init__ = _Transpose.__init__
