r"""Complex numbers and their parts: what makes one, what it consists of, its size.

The cotangent of a complex number :math:`z = x + iy` is :math:`\partial f / \partial x - i\,\partial f / \partial y`, so
that the rules of holomorphic functions are the same as those of real ones, with the transpose and without a conjugate.
Only the operators of this file, and casts, go between the real and the complex: their rules are where the minus stands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.errors import DTypeError, ShapeError
from pullback.graph import OPERATORS, Case, Node, Operation, Operator, Sample, Type, is_half, part_dtype
from pullback.operators.batching import batch_first
from pullback.operators.complex_parts import Parts, nodes
from pullback.operators.elementwise import SHAPE, filled, inside_masks, is_constant, where, zeros_like

__all__ = ["complex_of", "conjugate", "imag", "modulus", "real"]

_CASES = (Case((Sample(SHAPE, kind="complex"),)),)


def _real_type(name: str) -> Callable[[Type], Type]:
    def rule(x: Type) -> Type:
        if x.dtype.kind != "c":
            raise DTypeError(f"{name} takes no {x.dtype}; cast it, for instance with .astype(np.complex128)")
        return Type(part_dtype(x.dtype), x.shape, x.weak)

    return rule


def _pulled(rule: Callable[[Node, Operation, Node], Node]) -> Callable[[Operation, Node], list[Node | None]]:
    def pullback(node: Operation, g: Node) -> list[Node | None]:
        (x,) = node.inputs
        return [None if is_constant(x) else inside_masks(g, lambda g: rule(g, node, x))]

    return pullback


real = Operator(
    "real",
    _real_type("real"),
    np.real,
    _pulled(lambda g, y, x: complex_of(g, zeros_like(g))),
    batch_first,
    None,
    _CASES,
    linear=True,
    elementwise=True,
    parts=lambda node, x: x.real,
)
"""The real part of complex numbers."""

imag = Operator(
    "imag",
    _real_type("imag"),
    np.imag,
    _pulled(lambda g, y, x: complex_of(zeros_like(g), -g)),
    batch_first,
    None,
    _CASES,
    linear=True,
    elementwise=True,
    parts=lambda node, x: x.imag,
)
"""The imaginary part of complex numbers. Its cotangent is ``-i`` times that of the part."""


def _complex_type(x: Type, y: Type) -> Type:
    if x.shape != y.shape:
        raise ShapeError(f"complex_of: shapes {x.shape} and {y.shape} differ; broadcast one to the other")
    if x.dtype != y.dtype or x.dtype.kind != "f" or is_half(x.dtype):
        raise DTypeError(
            f"complex_of: parts of {x.dtype} and {y.dtype}; cast both to one float dtype, with .astype(np.float64)"
        )
    return Type(np.dtype(f"complex{16 * x.dtype.itemsize}"), x.shape, x.weak and y.weak)


def _complex_reference(x: Any, y: Any) -> Any:
    made = np.empty(np.shape(x), f"complex{16 * np.asarray(x).dtype.itemsize}")
    made.real, made.imag = x, y  # a product with i would make NaN of infinite parts
    return made


complex_of: Operator = Operator(
    "complex_of",
    _complex_type,
    _complex_reference,
    lambda node, g: [
        inside_masks(g, real),
        inside_masks(g, lambda g: -imag(g)),
    ],
    batch_first,
    None,
    (Case((Sample(SHAPE), Sample(SHAPE))),),
    linear=True,
    elementwise=True,
    parts=lambda node, x, y: Parts(x, y),
)
"""``x + iy`` of real ``x`` and ``y``, whatever is in them: infinite parts stay what they are."""


def _conjugate_type(x: Type) -> Type:
    _real_type("conjugate")(x)
    return x


conjugate: Operator = Operator(
    "conjugate",
    _conjugate_type,
    np.conjugate,
    _pulled(lambda g, y, x: conjugate(g)),
    batch_first,
    None,
    _CASES,
    linear=True,
    elementwise=True,
    parts=lambda node, x: Parts(x.real, -x.imag),
)
"""``x - iy`` of ``x + iy``."""


def _per_size(g: Node, size: Node, x: Node) -> Node:
    """``g * conj(x) / |x|``, and 0 at the origin."""
    origin = OPERATORS["equal"](size, zeros_like(size))
    share: Any = g / where(origin, filled(1, size.dtype, size.shape), size)
    return where(origin, zeros_like(x), complex_of(share * real(x), -(share * imag(x))))


modulus = Operator(
    "modulus",
    _real_type("modulus"),
    np.absolute,
    _pulled(_per_size),
    batch_first,
    None,
    _CASES,
    elementwise=True,
    parts=lambda node, x: nodes.hypot(x.real, x.imag),
)
"""``|x + iy| = sqrt(x² + y²)`` without overflow. Its derivative at 0 is 0."""
