"""Elementwise operators: one value in each place of equally shaped inputs.

Operands have equal shapes and dtypes; promotion and broadcasting are operations of their own, made by the
NumPy namespace. The Jacobian of an elementwise operator is diagonal, so one rule per input says all about its
derivative.

Families refer to operators of other families by their name in ``OPERATORS``: derivative rules need each other
both ways (``sum`` and ``broadcast``), imports may not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from pullback.errors import DTypeError, ShapeError
from pullback.graph import (
    OPERATORS,
    Case,
    Constant,
    Node,
    Operation,
    Operator,
    Sample,
    Type,
    behind,
    constant,
    dtype_kind,
    is_complex,
)
from pullback.loops import Apply, Expression, Index, Operand
from pullback.loops.arithmetic import counted
from pullback.operators.batching import batch_first

__all__ = [
    "constant_value",
    "elementwise",
    "filled",
    "inside_masks",
    "is_constant",
    "is_zero",
    "lower_elementwise",
    "refuse_complex",
    "repair_of",
    "summed",
    "where",
    "zeros_like",
]

Rule = Callable[..., Node | None]
"""``rule(g, node, *inputs)``: what the cotangent ``g`` of ``node`` gives one input, or ``None``."""

MOST_MASKS = 8
"""Masks around a cotangent from which on they become one: a chain of branches is a tower of masks otherwise."""

SHAPE = (3, 2)
"""Shape of the samples; the table's tests vary it."""


def elementwise_type(name: str, kinds: str, result: np.dtype | None) -> Callable[..., Type]:
    """The type rule: equal shapes and dtypes, of one of ``kinds`` (``numpy.dtype.kind`` letters)."""

    def rule(*types: Type, **attributes: Any) -> Type:
        first = types[0]
        weak = first.weak
        for other in types[1:]:
            if other is first:
                continue
            weak = weak and other.weak
            if other.shape != first.shape:
                raise ShapeError(
                    f"{name}: shapes {first.shape} and {other.shape} differ; broadcast one to the other"
                )
            if other.dtype != first.dtype:
                raise DTypeError(
                    f"{name}: dtypes {first.dtype} and {other.dtype} differ; cast one with .astype"
                )
        if dtype_kind(first.dtype) not in kinds:
            raise DTypeError(f"{name} takes no {first.dtype}; {repair_of(first.dtype, kinds)}")
        if result is not None:
            return Type(result, first.shape)
        return first if weak == first.weak else Type(first.dtype, first.shape, weak)

    return rule


def repair_of(dtype: np.dtype, kinds: str) -> str:
    """What to do with an array of ``dtype`` where one of ``kinds`` is wanted."""
    if dtype.kind == "c":
        return "take its real part, x.real, its imaginary part, x.imag, or its size, np.abs(x)"
    wanted = "np.float32" if "f" in kinds else "np.int64" if "i" in kinds else "bool"
    return f"cast it, for instance with .astype({wanted})"


def refuse_complex(name: str, x: Type) -> None:
    """Raise ``DTypeError`` for complex numbers, which have no order, or no code of their own here."""
    if is_complex(x.dtype):
        raise DTypeError(f"{name} takes no {x.dtype}; {repair_of(x.dtype, 'f')}")


def filled(value: complex, dtype: np.dtype, shape: tuple[int, ...]) -> Node:
    """``value`` in every place of ``shape``: one element that is read everywhere."""
    scalar = constant(value, dtype)
    return OPERATORS["broadcast"](scalar, shape=shape, axes=()) if shape else scalar


def zeros_like(node: Node) -> Node:
    """Zeros of the dtype and shape of ``node``."""
    return filled(0, node.dtype, node.shape)


def is_constant(node: Node) -> bool:
    """Whether ``node`` is a constant, possibly broadcast."""
    if not node.inputs:
        return isinstance(node, Constant)
    return isinstance(behind(node, ("broadcast",)), Constant)


def is_zero(node: Node) -> bool:
    """Whether ``node`` is a constant full of zeros, possibly broadcast."""
    node = behind(node, ("broadcast",))
    return isinstance(node, Constant) and not node.value.any()


def constant_value(node: Node) -> complex | None:
    """The number that ``node`` has in every place, if that is known while tracing."""
    node = behind(node, ("broadcast",))
    if not isinstance(node, Constant) or node.value.size == 0:
        return None
    first = node.value.flat[0]
    if not bool((node.value == first).all()):
        return None
    return complex(first) if node.dtype.kind == "c" and first.imag else float(first.real)


def lower_elementwise(node: Operation, operands: Sequence[Operand], index: Sequence[Index]) -> Expression:
    """The function of the same name, on the operands at the same index."""
    values = [operand(index) for operand in operands]
    place = counted(node.operator.name, values)
    if place is not None:
        return place
    return Apply(node.operator.name, values, node.dtype, tuple(sorted(node.attributes.items())))


def inside_masks(cotangent: Node, rule: Callable[[Node], Node | None]) -> Node | None:
    """``rule(cotangent)``, with masks kept outermost.

    The cotangent of a branch not taken is ``where(mask, g, 0)``. Multiplied by an infinite slope it would be
    NaN where the mask is false, so the product is made inside the mask: ``where(mask, rule(g), 0)``. A mask
    under a broadcast (the branch was a reduction) is broadcast itself and comes out as well.
    """
    if not _may_be_masked(cotangent):
        return rule(cotangent)
    masks, inner = _unmasked(cotangent)
    product = rule(inner)
    return None if product is None else _masked(product, masks)


def _may_be_masked(node: Node) -> bool:
    """Whether a mask may be in front."""
    return isinstance(node, Operation) and node.operator.name in ("where", "broadcast")


def without_factor(cotangent: Node, axes: Sequence[int]) -> tuple[Node, Node | None]:
    """``cotangent`` as a node times another that is the same along ``axes``; the latter ``None`` if there is none.

    A factor inside masks comes out of them.
    """
    masks, inner = _unmasked(cotangent)
    if not isinstance(inner, Operation) or inner.operator.name != "multiply":
        return cotangent, None
    for factor, other in (inner.inputs, inner.inputs[::-1]):
        if _repeats_along(factor, axes):
            return _masked(other, masks), factor
    return cotangent, None


def _repeats_along(node: Node, axes: Sequence[int]) -> bool:
    """Whether ``node`` is a broadcast along all of ``axes``."""
    if not isinstance(node, Operation) or node.operator.name != "broadcast":
        return False
    own = {place for place, extent in zip(node.attributes["axes"], node.inputs[0].shape) if extent != 1}
    return own.isdisjoint(axes)


def _unmasked(cotangent: Node) -> tuple[list[Node], Node]:
    """The masks around a cotangent, the outermost first, and what is inside."""
    masks = list[Node]()
    while (layer := _mask_of(cotangent)) is not None:
        masks.append(layer[0])
        cotangent = layer[1]
    return masks, cotangent


def _mask_of(node: Node) -> tuple[Node, Node] | None:
    """The mask of ``where(mask, g, 0)``, and ``g``, both broadcast as the node is."""
    layers = []
    while isinstance(node, Operation) and node.operator.name == "broadcast":
        layers.append(node.attributes)
        node = node.inputs[0]
    if not isinstance(node, Operation) or node.operator.name != "where" or not is_zero(node.inputs[2]):
        return None
    mask, taken, _ = node.inputs
    for attributes in reversed(layers):
        mask = OPERATORS["broadcast"](mask, **attributes)
        taken = OPERATORS["broadcast"](taken, **attributes)
    return mask, taken


def _masked(node: Node, masks: Sequence[Node]) -> Node:
    """``node`` inside ``masks``, the first outermost; a tower of them becomes one."""
    return _inside(node, masks if len(masks) <= MOST_MASKS else [reduce(OPERATORS["logical_and"], masks)])


def _inside(node: Node, masks: Sequence[Node]) -> Node:
    """``node`` inside a mask each, the first outermost."""
    for mask in reversed(masks):
        node = where(mask, node, zeros_like(node))
    return node


def summed(first: Node, second: Node) -> Node:
    """``first + second``; masks that are around both terms are around the sum, so that they stay outermost."""
    first_masks, first_inner = _branches(first)
    second_masks, second_inner = _branches(second)
    shared = {id(mask) for mask in first_masks} & {id(mask) for mask in second_masks}
    if not shared:
        return first + second

    def apart(masks: Sequence[Node], inner: Node) -> Node:
        return _inside(inner, [mask for mask in masks if id(mask) not in shared])

    total = apart(first_masks, first_inner) + apart(second_masks, second_inner)
    return _inside(total, [mask for mask in first_masks if id(mask) in shared])


def _branches(node: Node) -> tuple[list[Node], Node]:
    """The masks right around ``node``, the outermost first, and what is inside: broadcasts stay where they are."""
    masks = list[Node]()
    while isinstance(node, Operation) and node.operator.name == "where" and is_zero(node.inputs[2]):
        masks.append(node.inputs[0])
        node = node.inputs[1]
    return masks, node


def elementwise(
    name: str,
    reference: Callable[..., Any],
    rules: Sequence[Rule] | None,
    domains: Sequence[tuple[float, float]] = ((-2.0, 2.0),),
    *,
    kinds: str = "f",
    result: Any = None,
    cases: Sequence[Case] = (),
    lower: Callable[..., Expression] = lower_elementwise,
    **more: Any,
) -> Operator:
    """Define an elementwise operator.

    ``rules[k](g, node, *inputs)`` is ``g`` times the derivative with respect to input ``k``; without
    ``rules`` there is none. ``domains`` are the intervals that samples are drawn from, one for each input;
    ``kinds`` the letters of ``numpy.dtype.kind`` that it takes; ``result`` the result's dtype if it is not
    that of the inputs; ``cases`` are further cases for the table's tests. ``lower`` writes it in
    other functions, where machine code has none of this name; ``more`` is what else ``Operator`` says of it.
    """

    def contribution(rule: Rule, node: Operation, cotangent: Node) -> Node | None:
        return inside_masks(cotangent, lambda g: rule(g, node, *node.inputs))

    def pullback(node: Operation, cotangent: Node) -> list[Node | None]:
        assert rules is not None
        inputs = node.inputs
        if _may_be_masked(cotangent):
            return [
                None if is_constant(x) else contribution(rule, node, cotangent)
                for rule, x in zip(rules, inputs)
            ]
        return [None if is_constant(x) else rule(cotangent, node, *inputs) for rule, x in zip(rules, inputs)]

    dtype = None if result is None else np.dtype(result)
    kind = {"f": "float", "fc": "float", "b": "bool", "iu": "int"}.get(kinds, "any")
    samples = tuple(Sample(SHAPE, low, high, kind) for low, high in domains)
    return Operator(
        name,
        elementwise_type(name, kinds, dtype),
        reference,
        pullback if rules else None,
        batch_first,
        lower,
        (Case(samples), *cases),
        elementwise=True,
        **more,
    )


def _where_type(mask: Type, x: Type, y: Type) -> Type:
    if mask.dtype != np.bool_:
        raise DTypeError(f"where: the mask is {mask}; compare it with something, as in np.where(x > 0, x, y)")
    if not mask.shape == x.shape == y.shape:
        raise ShapeError(f"where: shapes {mask.shape}, {x.shape} and {y.shape} differ; broadcast them to one")
    if x.dtype != y.dtype:
        raise DTypeError(f"where: dtypes {x.dtype} and {y.dtype} differ; cast one with .astype")
    return Type(x.dtype, x.shape, x.weak and y.weak)


def _where_pullback(node: Operation, cotangent: Node) -> list[Node | None]:
    mask, x, y = node.inputs
    zero = zeros_like(cotangent)
    return [
        None,
        None if is_constant(x) else where(mask, cotangent, zero),
        None if is_constant(y) else where(OPERATORS["logical_not"](mask), cotangent, zero),
    ]


where = Operator(
    "where",
    _where_type,
    np.where,
    _where_pullback,
    batch_first,
    lower_elementwise,
    (Case((Sample(SHAPE, kind="bool"), Sample(SHAPE, kind="any"), Sample(SHAPE, kind="any"))),),
    linear=True,
    elementwise=True,
    is_layer=lambda inputs: True,
)
"""``x`` where ``mask`` is true, else ``y``. Cotangents stay under the mask, see ``inside_masks``."""
