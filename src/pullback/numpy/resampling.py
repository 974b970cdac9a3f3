"""Arrays of another size: nearest elements, linear and cubic interpolation, and channels turned into places."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from pullback.errors import ShapeError
from pullback.graph import OPERATORS, Node
from pullback.numpy.adaptive import adaptive_avg_pool
from pullback.numpy.indexing import take
from pullback.numpy.padding import pad
from pullback.numpy.promotion import as_array_node, where_written
from pullback.numpy.reductions import as_float
from pullback.numpy.shapes import moveaxis, repeat, to_shape
from pullback.numpy.windows import Channels, Widths, at_once, spatial_axes, widths

__all__ = ["MODES", "Mode", "interpolate", "pixel_shuffle", "pixel_unshuffle", "scale_factors"]

Mode = Literal["nearest", "nearest-exact", "linear", "cubic", "area"]
MODES = ("nearest", "nearest-exact", "linear", "cubic", "area")

_SMALL = 8
"""The largest period of weights for which each phase is computed by itself."""


@at_once(arrays=1)
def interpolate(
    x: Any,
    /,
    size: Widths | None = None,
    *,
    scale_factor: float | Sequence[float] | None = None,
    mode: Mode = "nearest",
    align_corners: bool = False,
    channels: Channels = "first",
) -> Any:
    r"""``x`` in another size: along each axis element :math:`i` of :math:`m` is what lies at :math:`s_i` of :math:`n`,

    .. math:: s_i = r (i + \tfrac12) - \tfrac12, \quad \text{with } \texttt{align\_corners} \quad
        s_i = i \, \frac{n - 1}{m - 1}

    ``x`` has shape (batch, channels, …) with one to three axes, or with ``channels="last"`` (batch, …, channels), and
    the result likewise. Give ``size``, m for all axes or for each, and r is n / m; or ``scale_factor``, and m is
    floor(n * factor), r one over the factor. Pixels are squares whose centres lie at half numbers; with
    ``align_corners`` they are points, of which the outermost stay where they are.

    ``mode``: ``"nearest"`` takes the element at floor(r i), ``"nearest-exact"`` that at floor(r (i + ½)); both take any
    dtype. ``"linear"`` weights the two elements around :math:`s_i \ge 0` along each axis (bilinear, trilinear),
    ``"cubic"`` the four by Keys' kernel of :math:`a = -0.75`; what lies outside is the outermost element.
    ``"area"`` is ``adaptive_avg_pool``. Nothing is smoothed first where an array becomes smaller. Integers become
    floats, but for the nearest.

    As in PyTorch, whatever the factor was: ``"linear"`` leaves an axis whose extent stays as it is, and ``"nearest"``
    of images one that stays or doubles takes each element once or twice.

    The modes are those of PyTorch's ``interpolate``, with its values: places are computed in float64, where PyTorch
    rounds them to float32 for an input of that. Keras's ``UpSampling2D`` is ``"nearest"`` and ``"linear"``.

    Raises ``ValueError`` for an unknown mode, for both or neither of the sizes, and for ``align_corners`` in a mode
    without that choice; ``ShapeError`` for sizes that do not fit.

    Source: Keys, *Cubic convolution interpolation for digital image processing*, 1981.

    >>> import numpy as np
    >>> x = np.array([[[0.0, 4.0, 8.0]]])
    >>> print(interpolate(x, 6, mode="linear"))
    [[[0. 1. 3. 5. 7. 8.]]]
    >>> print(interpolate(x, 5, mode="linear", align_corners=True), interpolate(x, scale_factor=0.5))
    [[[0. 2. 4. 6. 8.]]] [[[0.]]]
    """
    name = "interpolate"
    x = as_array_node(x)
    if mode not in MODES:
        raise ValueError(
            f"{name}: mode={mode!r}; it is one of {', '.join(map(repr, MODES))}{where_written()}"
        )
    if align_corners and mode not in ("linear", "cubic"):
        raise ValueError(
            f"{name}: align_corners with mode={mode!r}; it is for 'linear' and 'cubic'{where_written()}"
        )
    axes = spatial_axes(name, x.shape, max(x.ndim - 2, 1), channels)
    if 0 in [x.shape[axis] for axis in axes]:
        raise ShapeError(f"{name}: shape {x.shape} has no elements to take{where_written()}")
    sizes, ratios = _sizes(name, [x.shape[axis] for axis in axes], size, scale_factor)
    if mode == "area":
        return adaptive_avg_pool(x, sizes, channels)
    if mode in ("linear", "cubic"):
        x = as_float(x)
    for axis, m, apart in reversed(list(zip(axes, sizes, ratios))):
        x = _along(x, axis, m, apart, mode, align_corners)
    return x


@at_once(arrays=1)
def pixel_shuffle(x: Any, /, factor: int, channels: Channels = "first") -> Any:
    r"""Channels turned into places, :math:`y_{b,c,h r + i,w r + j} = x_{b,c r^2 + i r + j,h,w}`.

    (batch, channels · factor², height, width) → (batch, channels, height · factor, width · factor), and likewise with
    one axis or three, or ``channels="last"``, where TensorFlow's ``depth_to_space`` orders channels the other way
    round. Raises ``ShapeError`` where the channels are no such multiple.

    Source: Shi et al., *Real-time single image and video super-resolution*, 2016.

    >>> import numpy as np
    >>> print(pixel_shuffle(np.arange(4.0).reshape(1, 4, 1, 1), 2)[0, 0])
    [[0. 1.]
     [2. 3.]]
    """
    x, rank = _channels_first("pixel_shuffle", x, factor, channels)
    batch, deep, *extents = x.shape
    if deep % factor**rank:
        raise ShapeError(
            f"pixel_shuffle: {deep} channels of shape {x.shape} are no multiple of {factor}**{rank}; make them one"
            f"{where_written()}"
        )
    parts = to_shape(x, (batch, deep // factor**rank, *[factor] * rank, *extents))
    order = [0, 1, *[axis for k in range(rank) for axis in (2 + rank + k, 2 + k)]]
    made: Node = OPERATORS["transpose"](parts, axes=tuple(order))
    made = to_shape(made, (batch, deep // factor**rank, *[extent * factor for extent in extents]))
    return made if channels == "first" else moveaxis(made, 1, -1)


@at_once(arrays=1)
def pixel_unshuffle(x: Any, /, factor: int, channels: Channels = "first") -> Any:
    """Places turned into channels: the inverse of ``pixel_shuffle``.

    (batch, channels, height · factor, width · factor) → (batch, channels · factor², height, width), and likewise with
    one axis or three. Raises ``ShapeError`` where an extent is no multiple of ``factor``.

    >>> import numpy as np
    >>> print(pixel_unshuffle(np.arange(4.0).reshape(1, 1, 2, 2), 2)[0, :, 0, 0])
    [0. 1. 2. 3.]
    """
    x, rank = _channels_first("pixel_unshuffle", x, factor, channels)
    batch, deep, *extents = x.shape
    if any(extent % factor for extent in extents):
        raise ShapeError(
            f"pixel_unshuffle: extents {tuple(extents)} are no multiples of {factor}; pad or cut them{where_written()}"
        )
    parts = to_shape(x, (batch, deep, *[part for n in extents for part in (n // factor, factor)]))
    order = (0, 1, *range(3, 3 + 2 * rank, 2), *range(2, 2 + 2 * rank, 2))
    made: Node = OPERATORS["transpose"](parts, axes=order)
    made = to_shape(made, (batch, deep * factor**rank, *[extent // factor for extent in extents]))
    return made if channels == "first" else moveaxis(made, 1, -1)


def scale_factors(name: str, scale_factor: Any, rank: int) -> tuple[float, ...]:
    """One factor for each axis; raises ``ShapeError`` where their number is another or one is not positive."""
    given = scale_factor if isinstance(scale_factor, Sequence) else (scale_factor,) * rank
    if len(given) != rank or not all(factor > 0 for factor in given):
        raise ShapeError(
            f"{name}: scale_factor={scale_factor!r}; give a positive number, or {rank} of them{where_written()}"
        )
    return tuple(map(float, given))


def _sizes(
    name: str, extents: Sequence[int], size: Widths | None, scale_factor: float | Sequence[float] | None
) -> tuple[tuple[int, ...], list[float]]:
    """The new extents, and how far apart neighbouring elements lie in the old array."""
    if (size is None) == (scale_factor is None):
        raise ValueError(
            f"{name}: size={size!r} and scale_factor={scale_factor!r}; give one of them{where_written()}"
        )
    if size is not None:
        sizes = widths(name, "size", size, len(extents))
        return sizes, [n / m for n, m in zip(extents, sizes)]
    factors = scale_factors(name, scale_factor, len(extents))
    sizes = tuple(math.floor(n * factor) for n, factor in zip(extents, factors))
    if 0 in sizes:
        raise ShapeError(
            f"{name}: scale_factor={scale_factor!r} of extents {tuple(extents)} leaves {sizes}; there must be one"
            f"{where_written()}"
        )
    return sizes, [1 / factor for factor in factors]


def _along(x: Node, axis: int, m: int, ratio: float, mode: Mode, align_corners: bool) -> Any:
    """``interpolate`` along one axis."""
    n, i = x.shape[axis], np.arange(m)
    if m == n and mode == "linear":
        return x
    if mode in ("nearest", "nearest-exact"):
        if mode == "nearest" and x.ndim == 4 and m in (n, 2 * n):
            ratio = n / m
        middle = 0.5 if mode == "nearest-exact" else 0.0
        return _taken(x, axis, np.minimum(np.floor((i + middle) * ratio).astype(np.int64), n - 1))
    if align_corners:
        ratio = (n - 1) / (m - 1) if m > 1 else 0.0
    places = i * ratio if align_corners else (i + 0.5) * ratio - 0.5
    return _weighted(x, axis, places, ratio, mode == "cubic")


def _taken(x: Node, axis: int, table: np.ndarray) -> Any:
    """``x`` at the elements of ``table`` along ``axis``: repeated where all are, equally often."""
    n, m = x.shape[axis], len(table)
    if m % n == 0 and (table == np.arange(m) // (m // n)).all():
        return x if m == n else repeat(x, m // n, axis)
    return take(x, table, axis)


def _weights(away: Any, cubic: bool) -> list[Any]:
    """The weights of the elements around a place that lies ``away`` behind one of them, from the first."""
    if not cubic:
        return [1 - away, away]
    a = -0.75
    return [
        a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if far else (a + 2) * d**3 - (a + 3) * d**2 + 1
        for far, d in ((True, 1 + away), (False, away), (False, 1 - away), (True, 2 - away))
    ]


def _weighted(x: Node, axis: int, places: np.ndarray, ratio: float, cubic: bool) -> Any:
    """The sum of the elements around each of ``places`` along ``axis``, which are ``ratio`` apart, by their weights."""
    first, count = (-1, 4) if cubic else (0, 2)
    period = Fraction(ratio).limit_denominator(_SMALL)
    if float(period) == ratio and 0 < period.numerator <= _SMALL and period.denominator <= len(places):
        return _weighted_by_phases(x, axis, places, period, first=first, count=count)
    n, m = x.shape[axis], len(places)
    places = places if cubic else np.maximum(places, 0)
    begin = np.floor(places).astype(np.int64)
    along = [m, *[1] * (x.ndim - axis - 1)]
    made: Any = 0
    for k, weight in enumerate(_weights(places - begin, cubic)):
        near = take(x, np.clip(begin + first + k, 0, n - 1), axis)
        made = near * weight.astype(x.dtype).reshape(along) + made
    return made


def _weighted_by_phases(
    x: Node, axis: int, places: np.ndarray, period: Fraction, *, first: int, count: int
) -> Any:
    """``_weighted`` where weights come again: each phase is a sum of slices, whose pullback needs no scatter."""
    n, m, step, apart = x.shape[axis], len(places), period.denominator, period.numerator
    begin = np.floor(places[:step]).astype(int)
    starts = [int(k) + first for k in begin]
    numbers = [-(-(m - phase) // step) for phase in range(len(starts))]
    stops = [start + (number - 1) * apart + 1 for start, number in zip(starts, numbers)]
    low, high = max(0, -min(starts)), max(0, max(stops) + count - 1 - n)
    around = [(low, high) if k == axis else (0, 0) for k in range(x.ndim)]
    wide = pad(x, around, mode="edge") if low or high else x
    parts, lead = [], (slice(None),) * axis
    for start, stop, away in zip(starts, stops, places[:step] - begin):
        made: Any = 0
        for k, weight in enumerate(_weights(float(away), count == 4)):
            if weight:
                index = (*lead, slice(start + low + k, stop + low + k, apart))
                made = wide[index] * np.asarray(weight, x.dtype) + made
        parts.append(made)
    if step == 1:
        return parts[0]
    shape = tuple(m if k == axis else extent for k, extent in enumerate(x.shape))
    strides = tuple(step if k == axis else 1 for k in range(x.ndim))
    return OPERATORS["interleave"](*parts, strides=strides, shape=shape)


def _channels_first(name: str, x: Any, factor: int, channels: str) -> tuple[Node, int]:
    x = as_array_node(x)
    rank = max(x.ndim - 2, 1)
    spatial_axes(name, x.shape, rank, channels)
    (factor,) = widths(name, "factor", factor, 1)
    return (x if channels == "first" else moveaxis(x, -1, 1)), rank
