"""Windows that move over an array: a view with an axis for the window beside each axis that it moves along."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pullback.errors import ShapeError
from pullback.graph import Case, Node, Operation, Operator, Sample, Type
from pullback.loops import Affine, Apply, Axis, Expression, Index, Literal, Operand, Reduce
from pullback.loops.arithmetic import both, divided, times, total, within
from pullback.loops.guard import guarded
from pullback.operators.batching import batch_first
from pullback.operators.convolution import window_count
from pullback.operators.shapes import framed, pad, reshape, rising_axes
from pullback.operators.varying import beside

__all__ = ["WINDOWS", "Covering", "covering", "overlap_add", "window_counts", "windowed", "windows"]

Shape = tuple[int, ...]


def window_counts(
    name: str, shape: Shape, *, axes: Shape, sizes: Shape, strides: Shape, dilations: Shape
) -> Shape:
    """How many windows there are along each of ``axes``; raises ``ShapeError`` where there is none."""
    if not len(axes) == len(sizes) == len(strides) == len(dilations) or not rising_axes(axes, len(shape)):
        raise ShapeError(
            f"{name}: axes {axes} of shape {shape} with sizes {sizes}, strides {strides} and dilations "
            f"{dilations}; name axes in rising order and give one of each for every axis"
        )
    if min((*sizes, *strides, *dilations), default=1) < 1:
        raise ShapeError(
            f"{name}: sizes {sizes}, strides {strides} and dilations {dilations}; they are 1 or more"
        )
    counts = tuple(
        window_count(shape[axis], size, stride, dilation)
        for axis, size, stride, dilation in zip(axes, sizes, strides, dilations)
    )
    for axis, count, size, dilation in zip(axes, counts, sizes, dilations):
        if count < 1:
            raise ShapeError(
                f"{name}: a window of {size} elements at distance {dilation} does not fit into {shape[axis]} "
                f"along axis {axis} of shape {shape}; pad the input, or take a smaller window"
            )
    return counts


def windowed(shape: Shape, axes: Shape, counts: Shape, sizes: Shape) -> Shape:
    """``shape`` with two extents in place of each of ``axes``: how many windows, and their size."""
    pairs = dict(zip(axes, zip(counts, sizes)))
    return tuple(extent for axis, own in enumerate(shape) for extent in pairs.get(axis, (own,)))


def _windows_type(x: Type, axes: Shape, sizes: Shape, strides: Shape, dilations: Shape) -> Type:
    counts = window_counts("windows", x.shape, axes=axes, sizes=sizes, strides=strides, dilations=dilations)
    return x.with_shape(windowed(x.shape, axes, counts, sizes))


def _windows_reference(
    x: np.ndarray, axes: Shape, sizes: Shape, strides: Shape, dilations: Shape
) -> np.ndarray:
    counts = window_counts("windows", x.shape, axes=axes, sizes=sizes, strides=strides, dilations=dilations)
    moves = tuple(x.strides[axis] * stride for axis, stride in zip(axes, strides))
    steps = tuple(x.strides[axis] * dilation for axis, dilation in zip(axes, dilations))
    return np.lib.stride_tricks.as_strided(
        x,
        windowed(x.shape, axes, counts, sizes),
        windowed(x.strides, axes, moves, steps),
        writeable=False,
    )


def _windows_pullback(node: Operation, g: Node) -> list[Node | None]:
    """Windows that do not overlap lie side by side: padded to their distance, they are the array."""
    (x,) = node.inputs
    axes, sizes, strides, dilations = (
        node.attributes[key] for key in ("axes", "sizes", "strides", "dilations")
    )
    counts = window_counts("windows", x.shape, axes=axes, sizes=sizes, strides=strides, dilations=dilations)
    distances = tuple(stride if count > 1 else size for stride, count, size in zip(strides, counts, sizes))
    if any(step > 1 and size > 1 for step, size in zip(dilations, sizes)) or any(
        distance < size for distance, size in zip(distances, sizes)
    ):
        return [overlap_add(g, shape=x.shape, **node.attributes)]
    gaps = tuple(distance - size for distance, size in zip(distances, sizes))
    none = (0,) * x.ndim
    if any(gaps):
        g = pad(g, low=(0,) * g.ndim, high=windowed(none, axes, (0,) * len(axes), gaps))
    covered = list(x.shape)
    for axis, count, distance in zip(axes, counts, distances):
        covered[axis] = count * distance
    rest = tuple(extent - reached for extent, reached in zip(x.shape, covered))
    return [framed(reshape(g, shape=tuple(covered)), none, rest)]


def _windows_lower(node: Operation, operands: Sequence[Operand], index: Sequence[Index]) -> Expression:
    axes, strides, dilations = (node.attributes[key] for key in ("axes", "strides", "dilations"))
    moves = dict(zip(axes, zip(strides, dilations)))
    given = iter(index)
    inner = []
    for axis in range(node.inputs[0].ndim):
        place = next(given)
        if axis in moves:
            stride, dilation = moves[axis]
            place = total((times(place, stride), times(next(given), dilation)))
        inner.append(place)
    return operands[0](inner)


def _window_cases(
    *rows: tuple[Shape, Shape, Shape, Shape, Shape],
) -> list[tuple[Shape, dict[str, Shape]]]:
    names = ("axes", "sizes", "strides", "dilations")
    return [(shape, dict(zip(names, attributes))) for shape, *attributes in rows]


WINDOWS = _window_cases(
    ((2, 4, 6), (1, 2), (2, 3), (2, 3), (1, 1)),
    ((2, 5, 7, 2), (1, 2), (2, 2), (2, 3), (1, 1)),
    ((7,), (0,), (3,), (1,), (1,)),
    ((9, 2), (0,), (3,), (2,), (2,)),
    ((3, 6, 5), (1, 2), (3, 2), (2, 3), (1, 1)),
    ((2, 3), (0, 1), (2, 3), (1, 1), (1, 1)),
    ((1, 4), (0, 1), (1, 1), (1, 2), (3, 3)),
    ((2, 3), (), (), (), ()),
    ((0, 4), (1,), (2,), (2,), (1,)),
)

windows = Operator(
    "windows",
    _windows_type,
    _windows_reference,
    _windows_pullback,
    batch_first,
    _windows_lower,
    tuple(Case((Sample(shape, kind="any"),), attributes) for shape, attributes in WINDOWS),
    cost=0.0,
    linear=True,
    vary=beside,
)
"""``y[..., p, k, ...] = x[..., p * stride + k * dilation, ...]``: windows of an array, as a view.

Each of ``axes``, which rise, becomes two axes: the window's place ``p`` and the place ``k`` within it, of
extents ``(extent - (size - 1) * dilation - 1) // stride + 1`` and ``size``. Any dtype.
Raises ``ShapeError`` where a window is larger than the array.
"""


def _overlap_type(
    y: Type, *, shape: Shape, axes: Shape, sizes: Shape, strides: Shape, dilations: Shape
) -> Type:
    counts = window_counts("overlap_add", shape, axes=axes, sizes=sizes, strides=strides, dilations=dilations)
    wanted = windowed(shape, axes, counts, sizes)
    if y.shape != wanted:
        raise ShapeError(
            f"overlap_add: shape {y.shape} is not that of the windows of shape {shape}, which is {wanted}; "
            "give the shape that the windows were taken from"
        )
    return y.with_shape(shape)


def _overlap_reference(
    y: np.ndarray, *, shape: Shape, axes: Shape, sizes: Shape, strides: Shape, dilations: Shape
) -> np.ndarray:
    """Place by place within the window, all windows at once."""
    x = np.zeros(shape, y.dtype)
    window_axes = [axis + position + 1 for position, axis in enumerate(axes)]
    for place in np.ndindex(*sizes):
        target = [slice(None)] * len(shape)
        source: list[slice | int] = [slice(None)] * y.ndim
        for axis, window_axis, k, stride, dilation in zip(axes, window_axes, place, strides, dilations):
            source[window_axis] = k
            count = y.shape[window_axis - 1]
            target[axis] = slice(k * dilation, k * dilation + (count - 1) * stride + 1, stride)
        x[tuple(target)] += y[tuple(source)]
    return x


def _overlap_pullback(node: Operation, g: Node) -> list[Node | None]:
    return [windows(g, **{key: value for key, value in node.attributes.items() if key != "shape"})]


@dataclass(frozen=True)
class Covering:
    """The windows that have a place at one element along an axis.

    There is one for each turn of ``turn`` (a single one without it) where ``exists``: window ``window``, in which the
    element has the place ``k``.
    """

    turn: Axis | None
    window: Index
    k: Index
    exists: Expression | bool


def covering(name: str, place: Index, *, count: int, size: int, stride: int, dilation: int) -> Covering:
    """The windows that cover ``place`` along an axis with ``count`` of them; the turns are named ``name``."""
    if dilation == 1:
        # Counted back from the last window that begins here or before.
        turn = Axis(name, -(-size // stride))
        last, beside = divided(place, stride)
        window = total((last, Affine.of(turn) * -1))
        k = total((Affine.of(turn) * stride, beside))
        exists = both(within(window, 0, count), within(k, 0, size))
    else:
        turn = Axis(name, size)
        k = Affine.of(turn)
        start = total((place, k * -dilation))
        # Negative starts are below every window; with them out of the way no quotient is negative.
        window, beside = divided(start, stride)
        exists = both(within(start, 0, (count - 1) * stride + 1), within(beside, 0, 1))
    return Covering(turn if turn.extent != 1 else None, window, k, exists)


def _overlap_lower(node: Operation, operands: Sequence[Operand], index: Sequence[Index]) -> Expression:
    """The sum of all windows that have a place here, along each axis over those that may."""
    (y,) = node.inputs
    zero = Literal(0, node.dtype)
    axes, sizes, strides, dilations = (
        node.attributes[key] for key in ("axes", "sizes", "strides", "dilations")
    )
    moves = dict(zip(axes, zip(sizes, strides, dilations)))
    over: list[Axis] = []
    inner: list[Index] = []
    exists: Expression | bool = True
    for axis, place in enumerate(index):
        if axis not in moves:
            inner.append(place)
            continue
        size, stride, dilation = moves[axis]
        found = covering(
            f"r{axis}", place, count=y.shape[len(inner)], size=size, stride=stride, dilation=dilation
        )
        exists = both(exists, found.exists)
        over += [found.turn] if found.turn is not None else []
        inner += [found.window, found.k]
    if exists is False:
        return zero
    value = operands[0](inner)
    if not isinstance(exists, bool):
        value = Apply("where", (exists, guarded(value, exists), zero), node.dtype)
    return Reduce("add", tuple(over), value) if over else value


def _overlap_case(shape: Shape, attributes: dict[str, Shape]) -> Case:
    given = _windows_type(Type(np.dtype(np.float64), shape), **attributes).shape
    return Case((Sample(given, kind="int" if 0 in shape else "float"),), {"shape": shape, **attributes})


overlap_add = Operator(
    "overlap_add",
    _overlap_type,
    _overlap_reference,
    _overlap_pullback,
    batch_first,
    _overlap_lower,
    tuple(_overlap_case(shape, attributes) for shape, attributes in WINDOWS),
    cost=float("inf"),
    linear=True,
    vary=beside,
)
"""``x[..., p * stride + k * dilation, ...] += y[..., p, k, ...]``: the adjoint of ``windows``.

``shape`` is the shape of the result, whose ``windows`` have the shape of ``y``; an element that no window
covers is zero. Integers, which wrap around, and floats. Raises ``ShapeError`` where the shapes do not fit.
"""
