"""Convolution and its transpose, in one, two and three dimensions, with channels first or last."""

from __future__ import annotations

from typing import Any

from pullback.errors import ShapeError
from pullback.graph import OPERATORS, Node
from pullback.numpy.promotion import promote, where_written
from pullback.numpy.shapes import to_shape
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
from pullback.operators.convolution import transposed_convolve

__all__ = ["conv", "conv_transpose"]


@at_once(arrays=2)
def conv(
    x: Any,
    weight: Any,
    /,
    stride: Widths = 1,
    padding: Padding = "valid",
    *,
    dilation: Widths = 1,
    groups: int = 1,
    channels: Channels = "first",
) -> Any:
    r"""The convolution (as everywhere in this field: the correlation) of images and windows of weights:

    .. math:: y_{b,o,p} = \sum_{c,k} x_{b,c,p s + k d} \, w_{o,c,k}

    ``x`` has shape (batch, channels, …), with ``channels="last"`` (batch, …, channels), and the result
    likewise; ``weight`` (outputs, channels / groups, …) in both cases. One, two or three axes are moved
    along. ``stride`` s and ``dilation`` d are numbers or one for each axis. ``padding`` adds zeros around:
    ``"valid"`` none, ``"same"`` so that there are ceil(extent / stride) places, a number on both sides, one
    for each axis, or pairs. With ``groups`` the channels, and the outputs, are split into so many groups that
    have nothing to do with each other.

    Along each axis there are ``(extent + padding - (size - 1) * dilation - 1) // stride + 1`` places. Raises
    ``ShapeError`` when a window is larger than the padded image, or shapes or groups do not fit. Compiled, results of
    ``float32`` may share products, see ``docs/precision.md``.

    >>> import numpy as np
    >>> image = np.arange(9.0).reshape(1, 1, 3, 3)
    >>> print(conv(image, np.ones((1, 1, 2, 2)))[0, 0])
    [[ 8. 12.]
     [20. 24.]]
    """
    x, weight = promote((x, weight))
    rank = weight.ndim - 2
    axes = _checked("conv", x, weight, groups, channels)
    strides, dilations = widths("conv", "stride", stride, rank), widths("conv", "dilation", dilation, rank)
    extents, sizes = [x.shape[axis] for axis in axes], weight.shape[2:]
    low, high = padding_widths("conv", padding, extents, sizes=sizes, strides=strides, dilations=dilations)
    check_windows("conv", extents, low=low, high=high, sizes=sizes, dilations=dilations)
    high = reached(extents, low=low, high=high, sizes=sizes, strides=strides, dilations=dilations)
    inputs, outputs = weight.shape[1] * groups, weight.shape[0]
    _check_channels("conv", x, weight, channels, inputs, f" in {groups} groups" * (groups > 1))
    made = OPERATORS["convolve"](
        _grouped(padded(x, axes, low, high), groups, channels),
        _split(weight, 0, groups),
        x_layout=_layout("c", rank, groups, channels),
        w_layout=_layout("oc", rank, groups),
        out_layout=_layout("o", rank, groups, channels),
        strides=strides,
        dilations=dilations,
    )
    return _joined(made, outputs, groups, channels)


@at_once(arrays=2)
def conv_transpose(
    x: Any,
    weight: Any,
    /,
    stride: Widths = 1,
    padding: Padding = 0,
    *,
    output_padding: Widths = 0,
    dilation: Widths = 1,
    groups: int = 1,
    channels: Channels = "first",
) -> Any:
    r"""The transpose of ``conv``: each element of ``x`` adds a window of its multiples.

    .. math:: y_{b,o,h} = \sum_{p s + k d = h + \mathrm{padding}} \sum_c x_{b,c,p} \, w_{c,o,k}

    ``x`` has shape (batch, channels, …), with ``channels="last"`` (batch, …, channels), and the result
    likewise; ``weight`` (channels, outputs / groups, …). Along each axis the result has ``(extent - 1) *
    stride - 2 * padding + (size - 1) * dilation + output_padding + 1`` elements: ``padding`` is cut from
    both sides, ``output_padding`` more are kept after; it tells which of the extents that a stride rounds to
    the same one was meant. With ``padding="same"`` the result has ``extent * stride`` elements, as a ``conv`` with
    ``"same"`` leads back from them; ``"valid"`` is 0. Raises ``ShapeError`` when nothing is left, or shapes or groups
    do not fit, ``ValueError`` for another word, or an ``output_padding`` beside ``"same"``.

    Source: PyTorch's ``ConvTranspose2d``, whose arguments these are; ``"same"`` as in TensorFlow and JAX.

    >>> import numpy as np
    >>> print(conv_transpose(np.array([[[1.0, 2.0]]]), np.ones((1, 1, 3)), stride=2))
    [[[1. 1. 3. 2. 2.]]]
    >>> print(conv_transpose(np.array([[[1.0, 2.0]]]), np.ones((1, 1, 3)), stride=2, padding="same"))
    [[[1. 1. 3. 2.]]]
    """
    name = "conv_transpose"
    x, weight = promote((x, weight))
    rank = weight.ndim - 2
    axes = _checked(name, x, weight, groups, channels)
    strides, dilations = widths(name, "stride", stride, rank), widths(name, "dilation", dilation, rank)
    more = widths(name, "output_padding", output_padding, rank, 0)
    sizes = weight.shape[2:]
    if padding == "same":
        if any(more):
            raise ValueError(
                f"{name}: output_padding={output_padding!r} with padding='same', which says how long the result is; "
                f"leave it out, or give padding in numbers{where_written()}"
            )
        over = [(size - 1) * distance + 1 - step for size, step, distance in zip(sizes, strides, dilations)]
        low = tuple(max(width, 0) // 2 for width in over)
        high = tuple(max(width, 0) - cut for width, cut in zip(over, low))
        more = tuple(max(-width, 0) for width in over)
    else:
        low, high = padding_widths(
            name, padding, (0,) * rank, sizes=sizes, strides=strides, dilations=dilations
        )
    _check_channels(name, x, weight, channels, weight.shape[0])
    for axis, size, step, distance, before, after, extra in zip(
        axes, sizes, strides, dilations, low, high, more
    ):
        left = (x.shape[axis] - 1) * step + (size - 1) * distance + 1 - before - after + extra
        if left < 1 or extra >= max(step, distance):
            raise ShapeError(
                f"{name}: {x.shape[axis]} elements with stride {step}, window {size}, dilation {distance}, "
                f"padding {before} + {after} and output_padding {extra} make {left}; there must be one, and "
                f"output_padding be less than stride or dilation{where_written()}"
            )
    made = transposed_convolve(
        _grouped(x, groups, channels),
        _split(weight, 0, groups),
        x_layout=_layout("c", rank, groups, channels),
        w_layout=_layout("co", rank, groups),
        out_layout=_layout("o", rank, groups, channels),
        strides=strides,
        dilations=dilations,
        low=tuple(-width for width in low),
        high=tuple(extra - width for extra, width in zip(more, high)),
    )
    return _joined(made, weight.shape[1] * groups, groups, channels)


def _check_channels(name: str, x: Any, weight: Any, channels: Channels, wanted: int, note: str = "") -> None:
    """Raise ``ShapeError`` unless ``x`` has as many channels as are wanted."""
    found, elsewhere = (x.shape[1], x.shape[-1]) if channels == "first" else (x.shape[-1], x.shape[1])
    if found == wanted:
        return
    other = "last" if channels == "first" else "first"
    hint = f'channels="{other}" reads them there' if elsewhere == wanted else "make the two alike"
    raise ShapeError(
        f"{name}: the input has shape {x.shape}, channels {channels}: {found} channels; the weight of "
        f"shape {weight.shape}{note} wants {wanted}: {hint}{where_written()}"
    )


def _checked(name: str, x: Node, weight: Node, groups: int, channels: str) -> tuple[int, ...]:
    """The axes that windows move along, after the ranks and groups have been checked."""
    if weight.ndim < 3:
        raise ShapeError(
            f"{name}: the weight has shape {weight.shape}; it has three axes or more, channels of both sides "
            f"and the window's: a product of matrices is x @ w{where_written()}"
        )
    axes = spatial_axes(name, x.shape, weight.ndim - 2, channels)
    if groups < 1 or weight.shape[0] % groups:
        raise ShapeError(
            f"{name}: {weight.shape[0]} channels of the weight's first axis do not split into "
            f"groups={groups}; make their number a multiple{where_written()}"
        )
    return axes


def _layout(letters: str, rank: int, groups: int, channels: str | None = None) -> str:
    """The layout of images where ``channels`` says their place, else that of a weight."""
    letters = "g" * (groups > 1) + letters
    digits = "".join(map(str, range(rank)))
    if channels is None:
        return letters + digits
    return f"b{letters}{digits}" if channels == "first" else f"b{digits}{letters}"


def _split(x: Node, axis: int, groups: int) -> Node:
    """``x`` with an axis of groups before the one that is split into them."""
    if groups == 1:
        return x
    return to_shape(x, (*x.shape[:axis], groups, x.shape[axis] // groups, *x.shape[axis + 1 :]))


def _grouped(x: Node, groups: int, channels: str) -> Node:
    return _split(x, 1 if channels == "first" else x.ndim - 1, groups)


def _joined(x: Node, outputs: int, groups: int, channels: str) -> Node:
    """The result's groups side by side."""
    if groups == 1:
        return x
    if channels == "first":
        return to_shape(x, (x.shape[0], outputs, *x.shape[3:]))
    return to_shape(x, (*x.shape[:-2], outputs))
