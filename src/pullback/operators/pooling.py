"""Windows that move over an array, and the largest of a group: what pooling is made of.

A pooling is a reduction of windows: ``windows`` is a view that has an axis for the window beside each axis
that it moves along, and any reduction may follow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pullback.errors import ShapeError
from pullback.graph import OPERATORS, Case, Node, Operation, Operator, Sample, Type
from pullback.loops import Affine, Apply, Axis, Expression, Index, Literal, Operand, Reduce
from pullback.loops.arithmetic import both, divided, times, total, within
from pullback.loops.guard import guarded
from pullback.operators.convolution import window_count
from pullback.operators.elementwise import where, zeros_like
from pullback.operators.reductions import argmax, max
from pullback.operators.shapes import broadcast, framed, iota, pad, reshape, rising_axes

__all__ = ["first_max", "first_winner", "overlap_add", "windows"]

Shape = tuple[int, ...]

# -- windows and their adjoint


def _counts(name: str, shape: Shape, *, axes: Shape, sizes: Shape, strides: Shape, dilations: Shape) -> Shape:
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


def _windowed(shape: Shape, axes: Shape, counts: Shape, sizes: Shape) -> Shape:
    """``shape`` with two extents in place of each of ``axes``: how many windows, and their size."""
    pairs = dict(zip(axes, zip(counts, sizes)))
    return tuple(extent for axis, own in enumerate(shape) for extent in pairs.get(axis, (own,)))


def _windows_type(x: Type, axes: Shape, sizes: Shape, strides: Shape, dilations: Shape) -> Type:
    counts = _counts("windows", x.shape, axes=axes, sizes=sizes, strides=strides, dilations=dilations)
    return x.with_shape(_windowed(x.shape, axes, counts, sizes))


def _windows_reference(
    x: np.ndarray, axes: Shape, sizes: Shape, strides: Shape, dilations: Shape
) -> np.ndarray:
    counts = _counts("windows", x.shape, axes=axes, sizes=sizes, strides=strides, dilations=dilations)
    moves = tuple(x.strides[axis] * stride for axis, stride in zip(axes, strides))
    steps = tuple(x.strides[axis] * dilation for axis, dilation in zip(axes, dilations))
    return np.lib.stride_tricks.as_strided(
        x,
        _windowed(x.shape, axes, counts, sizes),
        _windowed(x.strides, axes, moves, steps),
        writeable=False,
    )


def _windows_pullback(node: Operation, g: Node) -> list[Node | None]:
    """Windows that do not overlap lie side by side: padded to their distance, they are the array."""
    (x,) = node.inputs
    axes, sizes, strides, dilations = (
        node.attributes[key] for key in ("axes", "sizes", "strides", "dilations")
    )
    counts = _counts("windows", x.shape, axes=axes, sizes=sizes, strides=strides, dilations=dilations)
    distances = tuple(stride if count > 1 else size for stride, count, size in zip(strides, counts, sizes))
    if any(step > 1 and size > 1 for step, size in zip(dilations, sizes)) or any(
        distance < size for distance, size in zip(distances, sizes)
    ):
        return [overlap_add(g, shape=x.shape, **node.attributes)]
    gaps = tuple(distance - size for distance, size in zip(distances, sizes))
    none = (0,) * x.ndim
    if any(gaps):
        g = pad(g, low=(0,) * g.ndim, high=_windowed(none, axes, (0,) * len(axes), gaps))
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


_WINDOWS = _window_cases(
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
    _windows_lower,
    tuple(Case((Sample(shape, kind="any"),), attributes) for shape, attributes in _WINDOWS),
    cost=0.0,
    linear=True,
)
"""``y[..., p, k, ...] = x[..., p * stride + k * dilation, ...]``: windows of an array, as a view.

Each of ``axes``, which rise, becomes two axes: the window's place ``p`` and the place ``k`` within it, of
extents ``(extent - (size - 1) * dilation - 1) // stride + 1`` and ``size``. Any dtype.
Raises ``ShapeError`` where a window is larger than the array.
"""


def _overlap_type(
    y: Type, *, shape: Shape, axes: Shape, sizes: Shape, strides: Shape, dilations: Shape
) -> Type:
    counts = _counts("overlap_add", shape, axes=axes, sizes=sizes, strides=strides, dilations=dilations)
    wanted = _windowed(shape, axes, counts, sizes)
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
        count = y.shape[len(inner)]
        if dilation == 1:
            # Counted back from the last window that begins here or before.
            turn = Axis(f"r{axis}", -(-size // stride))
            last, beside = divided(place, stride)
            window = total((last, Affine.of(turn) * -1))
            k = total((Affine.of(turn) * stride, beside))
            exists = both(exists, both(within(window, 0, count), within(k, 0, size)))
        else:
            turn = Axis(f"r{axis}", size)
            k = Affine.of(turn)
            start = total((place, k * -dilation))
            # Negative starts are below every window; with them out of the way no quotient is negative.
            window, beside = divided(start, stride)
            exists = both(exists, within(start, 0, (count - 1) * stride + 1))
            exists = both(exists, within(beside, 0, 1))
        over.append(turn)
        inner += [window, k]
    if exists is False:
        return zero
    value = operands[0](inner)
    if not isinstance(exists, bool):
        value = Apply("where", (exists, guarded(value, exists), zero), node.dtype)
    turning = tuple(axis for axis in over if axis.extent != 1)
    return Reduce("add", turning, value) if turning else value


def _overlap_case(shape: Shape, attributes: dict[str, Shape]) -> Case:
    given = _windows_type(Type(np.dtype(np.float64), shape), **attributes).shape
    return Case((Sample(given, kind="int" if 0 in shape else "float"),), {"shape": shape, **attributes})


overlap_add = Operator(
    "overlap_add",
    _overlap_type,
    _overlap_reference,
    _overlap_pullback,
    _overlap_lower,
    tuple(_overlap_case(shape, attributes) for shape, attributes in _WINDOWS),
    cost=float("inf"),
    linear=True,
)
"""``x[..., p * stride + k * dilation, ...] += y[..., p, k, ...]``: the adjoint of ``windows``.

``shape`` is the shape of the result, whose ``windows`` have the shape of ``y``; an element that no window
covers is zero. Integers, which wrap around, and floats. Raises ``ShapeError`` where the shapes do not fit.
"""

# -- the largest of a group, and who it is


def _first_max_pullback(node: Operation, g: Node) -> list[Node | None]:
    """The first winner takes the whole cotangent."""
    (x,), axes = node.inputs, node.attributes["axes"]
    if not axes:
        return [g]
    kept = tuple(axis for axis in range(x.ndim) if axis not in axes)
    group = tuple(x.shape[axis] for axis in axes)
    count = iota(shape=(math.prod(group),), axis=0, dtype=np.dtype(np.int32))
    place = broadcast(reshape(count, shape=group), shape=x.shape, axes=axes)
    winner = broadcast(first_winner(x, axes=axes), shape=x.shape, axes=kept)
    g = broadcast(g, shape=x.shape, axes=kept)
    return [where(OPERATORS["equal"](winner, place), g, zeros_like(g))]


first_max = Operator(
    "first_max",
    max.type_rule,
    max.reference,
    _first_max_pullback,
    max.lower,
    max.cases,
    cost=float("inf"),
)
"""The largest element over ``axes``, NaN if one is NaN. The first of equal winners takes the cotangent."""


def _first_winner_type(x: Type, axes: Shape) -> Type:
    return Type(np.dtype(np.int32), argmax.type_rule(x, axes=axes).shape)


def _first_winner_lower(node: Operation, operands: Sequence[Operand], index: Sequence[Index]) -> Expression:
    assert argmax.lower is not None
    place = argmax.lower(argmax(*node.inputs, **node.attributes), operands, index)
    return Apply("cast", (place,), node.dtype)


first_winner = Operator(
    "first_winner",
    _first_winner_type,
    lambda x, axes: argmax.reference(x, axes=axes).astype(np.int32),
    None,
    _first_winner_lower,
    argmax.cases,
    cost=float("inf"),
)
"""``argmax`` over ``axes`` as ``int32``, half the memory to keep, for groups of less than 2³¹ elements."""
