"""What convolution and pooling share: how users write windows, strides, padding and the place of channels."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Literal, ParamSpec

import numpy as np

from pullback.errors import ShapeError
from pullback.graph import OPERATORS, Graph, Node, Type, Variable, constant
from pullback.interpreter import evaluate
from pullback.numpy.promotion import any_traced, type_of, where_written
from pullback.operators.convolution import window_count
from pullback.operators.shapes import framed

__all__ = [
    "Channels",
    "Padding",
    "Widths",
    "at_once",
    "beyond",
    "check_channels",
    "check_windows",
    "padded",
    "padding_widths",
    "reached",
    "spatial_axes",
    "widths",
]

P = ParamSpec("P")

Widths = int | Sequence[int]
"""A number for all axes, or one for each."""

Padding = str | int | Sequence[int] | Sequence[tuple[int, int]]
"""``"valid"`` (none), ``"same"``, a number, one for each axis, or pairs of those before and after."""

Channels = Literal["first", "last"]

_NAMES = {1: "length", 2: "height, width", 3: "depth, height, width"}


def at_once(arrays: int) -> Callable[[Callable[P, Any]], Callable[P, Any]]:
    """Let a function of nodes, its first ``arrays`` arguments, take concrete arrays as well.

    Where nothing is traced the interpreter computes its value.
    """

    def decorate(function: Callable[P, Any]) -> Callable[P, Any]:
        @wraps(function)
        def called(*arguments: P.args, **keywords: P.kwargs) -> Any:
            if any_traced(*arguments):
                return function(*arguments, **keywords)
            values = [np.asarray(value) for value in arguments[:arrays]]
            variables = tuple(Variable(Type(type_of(value).dtype, value.shape)) for value in values)
            made = function(*variables, *arguments[arrays:], **keywords)  # type: ignore[arg-type]
            several = isinstance(made, tuple)
            found = evaluate(Graph(variables, made if several else (made,)), values)
            return tuple(found) if several else found[0]

        return called

    return decorate


def check_channels(name: str, channels: str) -> None:
    """Raise ``ValueError`` unless ``channels`` says where the channels are."""
    if channels not in ("first", "last"):
        raise ValueError(f"{name}: channels={channels!r}; they are 'first' or 'last'{where_written()}")


def spatial_axes(name: str, shape: Sequence[int], rank: int, channels: str) -> tuple[int, ...]:
    """The axes that windows move along; raises ``ShapeError`` where ``shape`` has not ``rank`` of them."""
    check_channels(name, channels)
    if len(shape) != rank + 2 or rank < 1:
        names = _NAMES.get(rank, f"{rank} axes")
        wanted = f"(batch, channels, {names})" if channels == "first" else f"(batch, {names}, channels)"
        raise ShapeError(
            f"{name}: the input has shape {tuple(shape)}, which is {len(shape)} axes; windows of {rank} "
            f"{'axis' if rank == 1 else 'axes'} want {rank + 2}, {wanted}: reshape it{where_written()}"
        )
    first = 2 if channels == "first" else 1
    return tuple(range(first, first + rank))


def widths(name: str, what: str, value: Any, rank: int, least: int = 1) -> tuple[int, ...]:
    """One integer for each axis; raises ``ShapeError`` where their number is another or one is too small."""
    given = tuple(value) if isinstance(value, Sequence) else (value,) * rank
    try:
        found = tuple(operator.index(width) for width in given)
    except TypeError:
        found = ()
    if len(found) != rank or min(found, default=least) < least:
        raise ShapeError(
            f"{name}: {what}={value!r}; give an integer of at least {least}, or {rank} of them"
            f"{where_written()}"
        )
    return found


def padding_widths(
    name: str,
    padding: Padding,
    extents: Sequence[int],
    *,
    sizes: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How many elements are added before and after each axis.

    ``"same"`` adds what makes ``ceil(extent / stride)`` windows, of an odd number one more after than before,
    as TensorFlow does and, for strides of 1, PyTorch.

    >>> padding_widths("conv", "same", (28, 5), sizes=(3, 2), strides=(1, 2), dilations=(1, 1))
    ((1, 0), (1, 1))
    """
    rank = len(extents)
    if padding == "valid":
        return (0,) * rank, (0,) * rank
    if padding == "same":
        missing = [
            max((-(-extent // stride) - 1) * stride + (size - 1) * dilation + 1 - extent, 0)
            for extent, size, stride, dilation in zip(extents, sizes, strides, dilations)
        ]
        return tuple(width // 2 for width in missing), tuple(width - width // 2 for width in missing)
    if isinstance(padding, str):
        raise ValueError(
            f"{name}: padding={padding!r}; it is 'valid', 'same', a number, one for each axis, or pairs"
            f"{where_written()}"
        )
    if isinstance(padding, Sequence) and any(isinstance(width, Sequence) for width in padding):
        pairs = [widths(name, "padding", width, 2, 0) for width in padding]
        if len(pairs) != rank:
            raise ShapeError(
                f"{name}: padding={padding!r}; give {rank} pairs, one for each axis{where_written()}"
            )
        return tuple(low for low, _ in pairs), tuple(high for _, high in pairs)
    both = widths(name, "padding", padding, rank, 0)
    return both, both


def check_windows(
    name: str,
    extents: Sequence[int],
    *,
    low: Sequence[int],
    high: Sequence[int],
    sizes: Sequence[int],
    dilations: Sequence[int],
) -> None:
    """Raise ``ShapeError`` where a window is larger than what it moves along."""
    for extent, before, after, size, dilation in zip(extents, low, high, sizes, dilations):
        if window_count(extent + before + after, size, 1, dilation) < 1:
            reach = (size - 1) * dilation + 1
            around = f" with {before} + {after} of padding" if before or after else ""
            apart = f" ({size} at distance {dilation})" if dilation > 1 else ""
            raise ShapeError(
                f"{name}: a window of {reach} elements{apart} is larger than the {extent} of the input"
                f"{around}; pad more, or take a smaller window{where_written()}"
            )


def reached(
    extents: Sequence[int],
    *,
    low: Sequence[int],
    high: Sequence[int],
    sizes: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> tuple[int, ...]:
    """``high`` without what no window reaches; negative where the end of the array itself is not reached.

    >>> reached((28, 28), low=(1, 0), high=(1, 0), sizes=(3, 2), strides=(2, 3), dilations=(1, 1))
    (0, -2)
    """
    widths = []
    for extent, before, after, size, stride, dilation in zip(extents, low, high, sizes, strides, dilations):
        count = window_count(extent + before + after, size, stride, dilation)
        widths.append((count - 1) * stride + (size - 1) * dilation + 1 - before - extent)
    return tuple(widths)


def beyond(
    extents: Sequence[int],
    *,
    low: Sequence[int],
    high: Sequence[int],
    sizes: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> tuple[int, ...]:
    """How far beyond the padding the last window reaches where their number is rounded up.

    A window that would begin behind the array and its first padding is none.

    >>> beyond((7, 5), low=(0, 0), high=(0, 1), sizes=(2, 3), strides=(2, 4), dilations=(1, 1))
    (1, 1)
    """
    found = []
    for extent, before, after, size, stride, dilation in zip(extents, low, high, sizes, strides, dilations):
        whole, reach = extent + before + after, (size - 1) * dilation + 1
        last = -(-(whole - reach) // stride) * stride
        last -= stride * (last >= extent + before)
        found.append(max(last + reach - whole, 0))
    return tuple(found)


def padded(x: Node, axes: Sequence[int], low: Sequence[int], high: Sequence[int], value: float = 0) -> Node:
    """``x`` with ``value`` before and after its elements along ``axes``; negative widths cut it."""
    around = [dict(zip(axes, given)) for given in (low, high)]
    before, after = ([given.get(axis, 0) for axis in range(x.ndim)] for given in around)
    if value == 0:
        return framed(x, before, after)
    x = framed(x, [min(width, 0) for width in before], [min(width, 0) for width in after])
    for axis in axes:
        first, last = (_border(x, axis, given[axis], value) for given in around)
        x = OPERATORS["concatenate"](*first, x, *last, axis=axis) if first or last else x
    return x


def _border(x: Node, axis: int, width: int, value: float) -> list[Node]:
    if width <= 0:
        return []
    shape = tuple(width if k == axis else extent for k, extent in enumerate(x.shape))
    return [OPERATORS["broadcast"](constant(value, x.dtype), shape=shape, axes=())]
