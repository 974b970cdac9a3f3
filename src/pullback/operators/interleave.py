"""Arrays put between each other: each has every so many places of the result.

    interleave(a, b, strides=(2,), shape=(5,)):  a[0] b[0] a[1] b[1] a[2]

So the result of a transposed convolution is made: elements at a distance of the stride see the same part of the
window, and are a convolution by themselves.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from pullback.errors import DTypeError, ShapeError
from pullback.graph import Case, Node, Operation, Operator, Sample, Type
from pullback.loops import Apply, Expression, Index, Literal, Operand
from pullback.loops.arithmetic import both, divided, within
from pullback.loops.guard import guarded
from pullback.operators.batching import all_batched
from pullback.operators.shapes import slice
from pullback.operators.varying import Padding, keeps_zeros, named_axes, refuse_named

__all__ = ["interleave", "part_shape", "places"]

Shape = tuple[int, ...]


def places(strides: Shape) -> list[Shape]:
    """Where each part begins, in the order of the parts.

    >>> places((2, 1, 2))
    [(0, 0, 0), (0, 0, 1), (1, 0, 0), (1, 0, 1)]
    """
    return list(itertools.product(*map(range, strides)))


def part_shape(shape: Shape, strides: Shape, place: Shape) -> Shape:
    """The shape of the part that begins at ``place``.

    >>> part_shape((4, 5), (1, 2), (0, 1))
    (4, 2)
    """
    return tuple(-(-(extent - start) // step) for extent, step, start in zip(shape, strides, place))


def _type(*types: Type, strides: Shape, shape: Shape) -> Type:
    if len(strides) != len(shape) or min(strides, default=1) < 1 or len(types) != math.prod(strides):
        raise ShapeError(
            f"interleave: {len(types)} arrays by strides {strides} in shape {shape}; give a stride of 1 or more for "
            "each axis, and as many arrays as these multiply to"
        )
    for given, place in zip(types, places(strides)):
        if given.shape != (wanted := part_shape(shape, strides, place)):
            raise ShapeError(
                f"interleave: an array of shape {given.shape} at {place} of shape {shape} by strides {strides}; its "
                f"shape must be {wanted}"
            )
        if given.dtype != types[0].dtype:
            raise DTypeError(
                f"interleave: dtypes {types[0].dtype} and {given.dtype} differ; cast one with .astype"
            )
    return Type(types[0].dtype, shape, all(t.weak for t in types))


def _reference(*parts: np.ndarray, strides: Shape, shape: Shape) -> np.ndarray:
    result = np.empty(shape, parts[0].dtype)
    for part, place in zip(parts, places(strides)):
        result[tuple(np.s_[start::step] for start, step in zip(place, strides))] = part
    return result


def _pullback(node: Operation, g: Node) -> list[Node | None]:
    strides = node.attributes["strides"]
    return [
        slice(g, starts=tuple(map(min, place, g.shape)), stops=g.shape, steps=strides)
        for place in places(strides)
    ]


def _batch(node: Operation, inputs: Sequence[Node]) -> Node:
    parts = all_batched(inputs, node.inputs)
    shape = (parts[0].shape[0], *node.attributes["shape"])
    return interleave(*parts, strides=(1, *node.attributes["strides"]), shape=shape)


def _lower(node: Operation, operands: Sequence[Operand], index: Sequence[Index]) -> Expression:
    strides = node.attributes["strides"]
    split = [divided(i, step) for i, step in zip(index, strides)]
    value: Expression | None = None
    for operand, place in zip(operands, places(strides)):
        here: Expression | bool = True
        for (_, left), start in zip(split, place):
            here = both(here, within(left, start, start + 1))
        if here is False:
            continue
        part = operand([quotient for quotient, _ in split])
        if here is True:
            return part
        part = guarded(part, here)
        value = part if value is None else Apply("where", (here, part, value), part.dtype)
    return Literal(0, node.dtype) if value is None else value


def _vary(node: Operation) -> Padding:
    if any(node.attributes["strides"][axis] != 1 for axis in named_axes(node)):
        refuse_named(node, "puts padding between its rows", "put them between each other along another axis")
    return keeps_zeros(node)


def _any(*shape: int) -> Sample:
    return Sample(shape, kind="any")


interleave = Operator(
    "interleave",
    _type,
    _reference,
    _pullback,
    _batch,
    _lower,
    (
        Case((_any(3), _any(2)), {"strides": (2,), "shape": (5,)}),
        Case((_any(2, 2), _any(2, 1), _any(2, 1)), {"strides": (1, 3), "shape": (2, 4)}),
        Case((_any(2, 2), _any(2, 1), _any(1, 2), _any(1, 1)), {"strides": (2, 2), "shape": (3, 3)}),
        Case((_any(1), _any(1), _any(0)), {"strides": (3,), "shape": (2,)}),
        Case((_any(2, 3),), {"strides": (1, 1), "shape": (2, 3)}),
        Case((_any(0, 2), _any(0, 2)), {"strides": (1, 2), "shape": (0, 4)}),
    ),
    linear=True,
    stored=True,
    vary=_vary,
)
"""``y[strides * i + p] = x_p[i]`` for each place ``p`` below ``strides``, the arrays in the order of ``places``.

Any dtype, the same in all. Raises ``ShapeError`` unless there is an array for each place, and its shape is that of
the elements that there are at a distance of ``strides`` from it; ``DTypeError`` where a dtype differs.
"""
