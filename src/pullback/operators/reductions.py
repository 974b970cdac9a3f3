"""Reductions over axes: sums, products, extremes and where they are.

``axes`` are sorted and not negative, and vanish from the result; over no axis at all each element is its own
result. Operators keep the dtype: the NumPy namespace casts first, so that a sum of ``int32`` is an ``int64``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.errors import DTypeError, ShapeError
from pullback.graph import (
    OPERATORS,
    Case,
    Node,
    Operation,
    Operator,
    Sample,
    Type,
    dtype_kind,
    is_float,
    remembered,
)
from pullback.loops import Affine, Axis, Expression, Index, Literal, Operand, Reduce
from pullback.operators.batching import batch_first
from pullback.operators.complex_parts import Parts, multiplied
from pullback.operators.elementwise import filled, repair_of, where, zeros_like
from pullback.operators.varying import Fill, Padding, Rule, named_axes, refuse_named

__all__ = ["argmax", "argmin", "max", "min", "prod", "sum"]

Axes = tuple[int, ...]


def _kept(rank: int, axes: Axes) -> Axes:
    return tuple(axis for axis in range(rank) if axis not in axes)


def reduction_type(
    name: str, kinds: str, neutral: bool, result: np.dtype | None = None
) -> Callable[..., Type]:
    """The type rule; reductions without a ``neutral`` element refuse to reduce nothing."""

    @remembered
    def rule(x: Type, axes: Axes) -> Type:
        if dtype_kind(x.dtype) not in kinds:
            raise DTypeError(f"{name} takes no {x.dtype}; {repair_of(x.dtype, 'i')}")
        if list(axes) != sorted(set(axes)) or not all(0 <= axis < x.rank for axis in axes):
            raise ShapeError(
                f"{name}: axes {axes} of an array of shape {x.shape}; name each of its axes once"
            )
        shape = tuple(x.shape[axis] for axis in _kept(x.rank, axes))
        if not neutral and any(x.shape[axis] == 0 for axis in axes):
            raise ShapeError(
                f"{name} over axes {axes} of shape {x.shape}: no element, so there is none to choose; "
                "check for an empty array first, or concatenate a value that stands for nothing"
            )
        return Type(result or x.dtype, shape)

    return rule


def _lower_reduction(kind: str, neutral: float | None) -> Callable[..., Expression]:
    """The loop form: ``kind`` over a new axis for each axis that vanishes."""

    def lower(node: Operation, operands: Sequence[Operand], index: Sequence[Index]) -> Expression:
        shape, axes = node.inputs[0].shape, node.attributes["axes"]
        over = {axis: Axis(f"r{axis}", shape[axis]) for axis in axes}
        if neutral is not None and any(axis.extent == 0 for axis in over.values()):
            return Literal(neutral, node.dtype)
        turns = tuple(axis for axis in over.values() if axis.extent != 1)
        if not turns and kind in ("argmax", "argmin"):
            return Literal(0, node.dtype)
        kept = iter(index)
        full = [Affine.of(over[axis]) if axis in over else next(kept) for axis in range(len(shape))]
        body = operands[0](full)
        return Reduce(kind, turns, body, node.dtype) if turns else body

    return lower


def _cases(kind: str, neutral: bool) -> tuple[Case, ...]:
    """Every rank up to three, axes in front, behind and around, of one element and of none."""
    examples: list[tuple[tuple[int, ...], Axes]] = [
        ((3, 4), (0,)),
        ((3, 4), (1,)),
        ((2, 3, 4), (0, 2)),
        ((2, 3), (0, 1)),
        ((5,), (0,)),
        ((2, 3), ()),
        ((), ()),
        ((2, 1, 3), (1,)),
        ((1, 1), (0, 1)),
        ((0, 3), (1,)),
    ]
    if neutral:
        examples += [((0, 3), (0,)), ((2, 0), (0, 1)), ((0,), (0,))]
    return tuple(Case((Sample(shape, kind=kind),), {"axes": axes}) for shape, axes in examples)


def _filled(fill: Fill) -> Rule:
    """The neutral element, where a named axis vanishes."""

    def rule(node: Operation) -> Padding:
        vanishes = set(node.attributes["axes"]).intersection(named_axes(node.inputs[0]))
        return Padding((fill if vanishes else None,))

    return rule


def _placed(fill: Fill) -> Rule:
    """What wins nowhere; places are counted in the order of the axes, so a named one must be the first."""

    def rule(node: Operation) -> Padding:
        if set(node.attributes["axes"][1:]).intersection(named_axes(node.inputs[0])):
            refuse_named(
                node, "counts places by its extent", "transpose it to the front of the axes that vanish"
            )
        return _filled(fill)(node)

    return rule


def spread(node: Node, shape: tuple[int, ...], axes: Axes) -> Node:
    """The value of each reduced group at every member of it."""
    if not axes:
        return node
    return OPERATORS["broadcast"](node, shape=shape, axes=_kept(len(shape), axes))


def _sum_reference(x: np.ndarray, axes: Axes) -> Any:
    if math.prod([x.shape[axis] for axis in axes]) == 1:
        return np.squeeze(x, axes)
    if x.dtype == np.float64:
        return np.add.reduce(x, axes)
    # NumPy adds one element after another along all axes but the last: the sum of a long column would be rough.
    wide = {"float32": np.float64, "complex64": np.complex128}.get(x.dtype.name, x.dtype)
    with np.errstate(over="ignore"):
        return np.sum(x, axis=axes, dtype=wide).astype(x.dtype)


def _sum_pullback(node: Operation, cotangent: Node) -> list[Node | None]:
    return [spread(cotangent, node.inputs[0].shape, node.attributes["axes"])]


sum = Operator(
    "sum",
    reduction_type("sum", "iufc", neutral=True),
    _sum_reference,
    _sum_pullback,
    batch_first,
    _lower_reduction("add", 0),
    _cases("any", neutral=True),
    linear=True,
    stored=True,
    vary=_filled(0),
)
"""The sum over ``axes``, from +0 on; of one element, that element, -0 too (but see ``from_zero``)."""


def from_zero(total: Node, x: Node, axes: Axes) -> Node:
    """``total``, the sum of ``x`` over ``axes``, begun with +0 even where it is that of one element."""
    alone = math.prod(x.shape[axis] for axis in axes) == 1
    return total + 0.0 if alone and is_float(x.dtype) else total


def _prod_reference(x: np.ndarray, axes: Axes) -> Any:
    return np.prod(x, axis=axes, dtype=x.dtype)


def _part(x: Node, start: int, stop: int) -> Node:
    """``x[..., start:stop]``."""
    starts = (0,) * (x.ndim - 1) + (start,)
    return OPERATORS["slice"](x, starts=starts, stops=(*x.shape[:-1], stop), steps=(1,) * x.ndim)


def _joined(parts: Sequence[Node]) -> Node:
    """Parts side by side along the last axis."""
    return OPERATORS["concatenate"](*parts, axis=parts[0].ndim - 1) if len(parts) > 1 else parts[0]


def _times_others(bar: Node, x: Node) -> Node:
    """The cotangent of ``x`` when ``bar`` is that of its product over the last axis, which both keep.

    The product is taken as a tree: halves are multiplied with each other until one element is left, and on
    the way back each half's cotangent is multiplied by the other half. There is no quotient by ``x``, so
    zeros do no harm, and the derivatives of this derivative are right at zeros too.
    """
    levels = []
    while x.shape[-1] > 1:
        half, odd = divmod(x.shape[-1], 2)
        low, high = _part(x, 0, half), _part(x, half, 2 * half)
        levels.append((low, high))
        rest = [_part(x, 2 * half, 2 * half + 1)] if odd else []
        x = _joined([low * high, *rest])
    for low, high in reversed(levels):
        half, extent = low.shape[-1], bar.shape[-1]
        rest = [_part(bar, half, extent)] if extent > half else []
        bar = _part(bar, 0, half) if extent > half else bar
        bar = _joined([bar * high, bar * low, *rest])
    return bar


def _prod_pullback(node: Operation, cotangent: Node) -> list[Node | None]:
    (x,), axes = node.inputs, node.attributes["axes"]
    if x.size == 0 or not axes:
        return [zeros_like(x) if axes else cotangent]
    transpose, reshape = OPERATORS["transpose"], OPERATORS["reshape"]
    order = (*_kept(x.ndim, axes), *axes)
    count = math.prod(x.shape[axis] for axis in axes)
    last = transpose(x, axes=order)
    bar = _times_others(
        reshape(cotangent, shape=(*cotangent.shape, 1)), reshape(last, shape=(*cotangent.shape, count))
    )
    back = tuple(order.index(axis) for axis in range(x.ndim))
    return [transpose(reshape(bar, shape=last.shape), axes=back)]


def _prod_parts(node: Operation, x: Parts) -> Parts:
    """Halves are multiplied with each other until one element is left."""
    axes, shape = node.attributes["axes"], x.real.shape
    order = (*_kept(len(shape), axes), *axes)
    count = math.prod(shape[axis] for axis in axes)

    def last(part: Node) -> Node:
        made = OPERATORS["transpose"](part, axes=order)
        return OPERATORS["reshape"](made, shape=(*node.shape, count))

    if count == 0:
        return Parts(*(filled(value, x.real.dtype, node.shape) for value in (1, 0)))
    x = Parts(*map(last, x))
    while (extent := x.real.shape[-1]) > 1:
        half, odd = divmod(extent, 2)
        made = multiplied(node, *(Parts(*(_part(p, k * half, (k + 1) * half) for p in x)) for k in (0, 1)))
        rest = [_part(p, 2 * half, extent) for p in x]
        x = Parts(*(_joined([p, r] if odd else [p]) for p, r in zip(made, rest)))
    return Parts(*(OPERATORS["reshape"](p, shape=node.shape) for p in x))


prod = Operator(
    "prod",
    reduction_type("prod", "iufc", neutral=True),
    _prod_reference,
    _prod_pullback,
    batch_first,
    _lower_reduction("multiply", 1),
    _cases("any", neutral=True),
    stored=True,
    parts=_prod_parts,
    vary=_filled(1),
)
"""The product over ``axes``; 1 of nothing."""


def _extreme_pullback(node: Operation, cotangent: Node) -> list[Node | None]:
    """Equal winners share the cotangent equally, as in JAX."""
    (x,), axes = node.inputs, node.attributes["axes"]
    if not axes:
        return [cotangent]
    wins = OPERATORS["equal"](x, spread(node, x.shape, axes))
    winners = sum(OPERATORS["cast"](wins, dtype=x.dtype), axes=axes)
    share = OPERATORS["divide"](cotangent, winners)
    return [where(wins, spread(share, x.shape, axes), zeros_like(x))]


def _max_reference(x: np.ndarray, axes: Axes) -> Any:
    largest = np.max(x, axis=axes)
    if x.dtype.kind != "f" or not np.any(largest == 0):
        return largest
    # Which of several zeros NumPy finds depends on how many it compares at once.
    positive = np.any((x == 0) & ~np.signbit(x), axis=axes)
    return np.where(largest == 0, np.copysign(x.dtype.type(0), np.where(positive, 1, -1)), largest)


def _min_reference(x: np.ndarray, axes: Axes) -> Any:
    return -_max_reference(-x, axes) if x.dtype.kind == "f" else np.min(x, axis=axes)


max = Operator(
    "max",
    reduction_type("max", "biuf", neutral=False),
    _max_reference,
    _extreme_pullback,
    batch_first,
    _lower_reduction("maximum", None),
    _cases("any", neutral=False),
    stored=True,
    vary=_filled("least"),
)
"""The largest element over ``axes``, NaN if one is NaN, +0 above -0. Equal winners share the cotangent equally."""

min = Operator(
    "min",
    reduction_type("min", "biuf", neutral=False),
    _min_reference,
    _extreme_pullback,
    batch_first,
    _lower_reduction("minimum", None),
    _cases("any", neutral=False),
    stored=True,
    vary=_filled("greatest"),
)
"""The smallest element over ``axes``, NaN if one is NaN, -0 below +0. Equal winners share the cotangent equally."""


def _arg_reference(choose: Callable[..., Any]) -> Callable[..., np.ndarray]:
    def reference(x: np.ndarray, axes: Axes) -> np.ndarray:
        x = np.asarray(x)
        kept = _kept(x.ndim, axes)
        shape = tuple(x.shape[axis] for axis in kept)
        count = math.prod(x.shape[axis] for axis in axes)
        flat = x.transpose((*kept, *axes)).reshape((*shape, count))
        return np.asarray(choose(flat, axis=-1), np.int64)

    return reference


argmax = Operator(
    "argmax",
    reduction_type("argmax", "biuf", neutral=False, result=np.dtype(np.int64)),
    _arg_reference(np.argmax),
    None,
    batch_first,
    _lower_reduction("argmax", None),
    _cases("any", neutral=False),
    stored=True,
    vary=_placed("least"),
)
"""Where the largest element is in row-major order of ``axes``: the first NaN, or the first of equals."""

argmin = Operator(
    "argmin",
    reduction_type("argmin", "biuf", neutral=False, result=np.dtype(np.int64)),
    _arg_reference(np.argmin),
    None,
    batch_first,
    _lower_reduction("argmin", None),
    _cases("any", neutral=False),
    stored=True,
    vary=_placed("greatest"),
)
"""Where the smallest element is in row-major order of ``axes``: the first NaN, or the first of equals."""
