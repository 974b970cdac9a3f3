"""Values with mean 0 and variance 1.

An operator of its own, because its pullback in closed form goes over the array once less than what follows from
mean, square and root one after the other: that the centred values' sum is 0 can be known here. The compiler takes
it apart again before anything else is simplified.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from pullback.graph import OPERATORS, Case, Constant, Node, Operation, Operator, Sample, Type
from pullback.loops import Expression, Index, Literal, Operand
from pullback.operators.batching import batch_first
from pullback.operators.elementwise import filled, inside_masks, is_constant, without_factor
from pullback.operators.reductions import from_zero, reduction_type, spread, sum
from pullback.operators.varying import beside

__all__ = ["standardise", "standardise_in_steps"]

Axes = tuple[int, ...]


def _mean(x: Node, axes: Axes) -> Node:
    """The mean over ``axes``, which vanish."""
    total = from_zero(sum(x, axes=axes), x, axes)
    return total / filled(math.prod(x.shape[axis] for axis in axes), x.dtype, total.shape)


def _centred(x: Node, axes: Axes) -> tuple[Node, Node]:
    """``x`` without its mean, and the variance over ``axes``."""
    centred = x - spread(_mean(x, axes), x.shape, axes)
    return centred, _mean(centred * centred, axes)


def _scale(variance: Node, epsilon: float) -> Node:
    """One over the deviation."""
    one, small = (filled(value, variance.dtype, variance.shape) for value in (1.0, epsilon))
    return one / OPERATORS["sqrt"](variance + small)


def standardise_in_steps(x: Node, axes: Axes, epsilon: float) -> Node:
    """What ``standardise`` computes, in simpler operators."""
    centred, variance = _centred(x, axes)
    return centred * spread(_scale(variance, epsilon), x.shape, axes)


def _type(x: Type, axes: Axes, epsilon: float) -> Type:
    _check_axes(x, axes=axes)
    return x


_check_axes = reduction_type("standardise", "f", neutral=True)


def _reference(x: np.ndarray, axes: Axes, epsilon: float) -> Any:
    count = math.prod(x.shape[axis] for axis in axes)
    centred = x - np.sum(x, axis=axes, keepdims=True) / x.dtype.type(count)
    variance = np.sum(centred * centred, axis=axes, keepdims=True) / x.dtype.type(count)
    return centred * (1 / np.sqrt(variance + x.dtype.type(epsilon)))


def _pullback(node: Operation, g: Node) -> list[Node | None]:
    (x,), axes = node.inputs, node.attributes["axes"]
    if is_constant(x):
        return [None]
    _, variance = _centred(x, axes)
    g, factor = without_factor(g, axes)
    product = inside_masks(g, lambda g: g * node)
    assert product is not None
    scale, middle, along = (
        spread(each, x.shape, axes)
        for each in (_scale(variance, node.attributes["epsilon"]), _mean(g, axes), _mean(product, axes))
    )
    return [(scale if factor is None else scale * factor) * (g - middle - node * along)]


def _lower(node: Operation, operands: Sequence[Operand], index: Sequence[Index]) -> Expression:
    (x,), (operand,) = node.inputs, operands

    def value(part: Node, place: Sequence[Index]) -> Expression:
        if part is x:
            return operand(place)
        if isinstance(part, Constant):
            return Literal(part.value[()], part.dtype)
        assert isinstance(part, Operation) and part.operator.lower is not None
        inner: Expression = part.operator.lower(part, [partial(value, child) for child in part.inputs], place)
        return inner

    return value(standardise_in_steps(x, **node.attributes), index)


standardise = Operator(
    "standardise",
    _type,
    _reference,
    _pullback,
    batch_first,
    _lower,
    tuple(
        Case((Sample(shape),), {"axes": axes, "epsilon": epsilon})
        for shape, axes, epsilon in (
            ((5, 3), (0,), 0.01),
            ((2, 3, 4), (0, 2), 0.1),
            ((3, 4), (1,), 1e-3),
            ((7,), (0,), 0.01),
            ((2, 3), (), 0.5),
            ((3, 1), (1,), 0.5),
            ((0, 3), (1,), 0.5),
        )
    ),
    cost=float("inf"),
    vary=beside,
)
"""``y = (x - m) / sqrt(v + epsilon)``, ``m`` and ``v`` the mean and the mean square of ``x - m`` over ``axes``.

Its pullback is ``(g - mean(g) - y mean(g y)) / sqrt(v + epsilon)``. A factor of ``g`` that is the same over ``axes``,
as that of a layer for each channel, stays outside of the means: they are then the layer's own gradients.
"""
