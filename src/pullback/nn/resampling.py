"""Layers that change how many places there are: interpolation, and channels turned into places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback.nn.layers import sizes
from pullback.nn.module import Module
from pullback.nn.windows import plain
from pullback.numpy.resampling import Mode, interpolate, pixel_shuffle, pixel_unshuffle
from pullback.numpy.windows import Channels, Widths, check_channels
from pullback.tracing import static

__all__ = ["PixelShuffle", "PixelUnshuffle", "Upsample"]


class Upsample(Module):
    """Images of another size, larger or smaller: ``nn.interpolate`` as a layer.

    (batch, channels, height, width) → (batch, channels, rows, columns), and likewise with one axis or three, or with
    ``channels="last"``. Give ``size`` or ``scale_factor``, a number for all axes or one for each; ``mode`` is
    ``"nearest"``, ``"nearest-exact"``, ``"linear"``, ``"cubic"`` or ``"area"``, as of ``nn.interpolate``.

    Raises ``ValueError`` and ``ShapeError`` as ``nn.interpolate`` does, when it is called.

    >>> import numpy as np
    >>> layer = Upsample(scale_factor=2, mode="linear")
    >>> layer, layer(np.zeros((1, 8, 14, 14), np.float32)).shape
    (Upsample(by 2, linear), (1, 8, 28, 28))
    """

    size: Any = static()
    scale_factor: Any = static()
    mode: Mode
    align_corners: bool
    channels: Channels

    def __init__(
        self,
        size: Widths | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: Mode = "nearest",
        *,
        align_corners: bool = False,
        channels: Channels = "first",
    ) -> None:
        check_channels("[Upsample]", channels)
        self.size, self.scale_factor, self.mode = plain(size), plain(scale_factor), mode
        self.align_corners, self.channels = align_corners, channels

    def __call__(self, x: Any) -> Any:
        return interpolate(
            x,
            self.size,
            scale_factor=self.scale_factor,
            mode=self.mode,
            align_corners=self.align_corners,
            channels=self.channels,
        )

    def describe(self) -> str:
        options = [f"to {self.size}" if self.size is not None else f"by {self.scale_factor}", self.mode]
        options += ["corners aligned"] * self.align_corners + ["channels last"] * (self.channels == "last")
        return f"Upsample({', '.join(options)})"


class PixelShuffle(Module):
    """Channels turned into places, ``nn.pixel_shuffle`` as a layer.

    (batch, channels · factor², height, width) → (batch, channels, height · factor, width · factor).

    >>> import numpy as np
    >>> PixelShuffle(2)(np.zeros((1, 12, 4, 5), np.float32)).shape
    (1, 3, 8, 10)
    """

    factor: int
    channels: Channels

    def __init__(self, factor: int, channels: Channels = "first") -> None:
        (self.factor,) = sizes("PixelShuffle", factor=factor)
        self.channels = channels

    def __call__(self, x: Any) -> Any:
        return pixel_shuffle(x, self.factor, self.channels)

    def describe(self) -> str:
        return f"PixelShuffle({self.factor}{', channels last' * (self.channels == 'last')})"


class PixelUnshuffle(Module):
    """Places turned into channels, ``nn.pixel_unshuffle`` as a layer.

    (batch, channels, height · factor, width · factor) → (batch, channels · factor², height, width).

    >>> import numpy as np
    >>> PixelUnshuffle(2)(np.zeros((1, 3, 8, 10), np.float32)).shape
    (1, 12, 4, 5)
    """

    factor: int
    channels: Channels

    def __init__(self, factor: int, channels: Channels = "first") -> None:
        (self.factor,) = sizes("PixelUnshuffle", factor=factor)
        self.channels = channels

    def __call__(self, x: Any) -> Any:
        return pixel_unshuffle(x, self.factor, self.channels)

    def describe(self) -> str:
        return f"PixelUnshuffle({self.factor}{', channels last' * (self.channels == 'last')})"
