"""Elementwise operators: one value in each place of equally shaped inputs.

Operands have equal shapes and dtypes; promotion and broadcasting are operations of their own, made by the NumPy
namespace. Partial derivatives are given once, as functions of the operation and its inputs, and give both modes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.errors import DTypeError, ShapeError
from pullback.graph import Case, Constant, Node, Operation, Operator, Sample, Type
from pullback.loops import Apply, Expression, Index, Operand

__all__ = ["elementwise", "is_zero", "scaled"]

Partial = Callable[..., Node | None]


def elementwise_type(name: str, kinds: str, result: np.dtype | None) -> Callable[..., Type]:
    """The type rule: equal shapes and dtypes, of one of ``kinds`` (``numpy.dtype.kind`` letters)."""

    def rule(*types: Type, **attributes: Any) -> Type:
        first = types[0]
        for other in types[1:]:
            if other.shape != first.shape:
                raise ShapeError(f"{name}: shapes {first.shape} and {other.shape} differ; broadcast one to the other")
            if other.dtype != first.dtype:
                raise DTypeError(f"{name}: dtypes {first.dtype} and {other.dtype} differ; cast one with .astype")
        if first.dtype.kind not in kinds:
            raise DTypeError(f"{name} takes no {first.dtype}; cast it, for instance with .astype(np.float32)")
        weak = all(t.weak for t in types)
        return Type(result or first.dtype, first.shape, weak and result is None)

    return rule


def is_zero(node: Node) -> bool:
    """Whether ``node`` is a constant full of zeros, possibly broadcast."""
    while isinstance(node, Operation) and node.operator.name == "broadcast":
        node = node.inputs[0]
    return isinstance(node, Constant) and not node.value.any()


def lower_elementwise(node: Operation, operands: Sequence[Operand], index: Sequence[Index]) -> Expression:
    """The function of the same name, on the operands at the same index."""
    attributes = tuple(sorted(node.attributes.items()))
    return Apply(node.operator.name, [operand(index) for operand in operands], node.dtype, attributes)


def scaled(cotangent: Node, slope: Node) -> Node:
    """``cotangent * slope``, with a mask kept outermost.

    The cotangent of a branch not taken is ``where(mask, g, 0)``. Multiplying it by an infinite slope would give NaN
    where the mask is false, so the product is made inside the mask: ``where(mask, g * slope, 0)``.
    """
    if isinstance(cotangent, Operation) and cotangent.operator.name == "where":
        mask, taken, other = cotangent.inputs
        if is_zero(other):
            return where(mask, scaled(taken, slope), other)
    return cotangent * slope


def elementwise(
    name: str,
    reference: Callable[..., Any],
    partials: Sequence[Partial | None],
    samples: Sequence[Sample],
    kinds: str = "f",
    result: Any = None,
    cost: float = 1.0,
    linear: bool = False,
) -> Operator:
    """Define an elementwise operator.

    ``partials[k](node, *inputs)`` is the derivative with respect to input ``k``; ``None`` where there is none.
    """

    def pullback(node: Operation, cotangent: Node) -> list[Node | None]:
        slopes = [None if partial is None else partial(node, *node.inputs) for partial in partials]
        return [None if slope is None else scaled(cotangent, slope) for slope in slopes]

    dtype = None if result is None else np.dtype(result)
    return Operator(
        name,
        elementwise_type(name, kinds, dtype),
        reference,
        pullback if partials else None,
        lower_elementwise,
        (Case(tuple(samples)),),
        cost=cost,
        linear=linear,
        elementwise=True,
    )


where = Operator(
    "where",
    lambda mask, x, y: _where_type(mask, x, y),
    np.where,
    lambda node, g: [None, where(node.inputs[0], g, zeros_like(g)), where(node.inputs[0], zeros_like(g), g)],
    lower_elementwise,
    (Case((Sample((3, 2), kind="bool"), Sample((3, 2), kind="any"), Sample((3, 2), kind="any"))),),
    elementwise=True,
)
