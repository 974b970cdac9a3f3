"""Fused multiply-adds: sums and differences with a product that is not rounded before.

What is rounded is part of the program: an attribute says which operand is the product. So a value has the same bits
wherever it is computed, whatever later stages hold in a register or read from memory.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from pullback.loops.expression import Apply, Expression, operands_of

__all__ = ["fused", "fused_product", "multiply_add"]

_FUSED = "fused"

_WIDER: dict[np.dtype[Any], np.dtype[Any]] = {
    np.dtype(np.float32): np.dtype(np.float64),
    np.dtype(np.float64): np.dtype(np.longdouble),
}
"""Types that hold products of a type unrounded, as nearly as there are such."""


def fused(total: Expression, rounded: Collection[Expression] = ()) -> Expression:
    """A sum or difference of floats as a fused multiply-add, if an operand is a product and not ``rounded``.

    ``a * b - c * d`` stays as it is: with one product rounded and the other not, the difference of equal products
    would be what rounding took away, and ``sqrt(x * x - y * y)`` might be NaN where ``x`` is ``y``.

    >>> import numpy as np
    >>> from pullback.loops import Affine, Buffer, Load
    >>> a, b, c = (Load(Buffer(name, np.dtype(np.float32), (1,)), Affine()) for name in "abc")
    >>> fused(Apply("subtract", (c, Apply("multiply", (a, b), a.dtype)), a.dtype))
    subtract(c[0], multiply(a[0], b[0]), fused=1)
    """
    if not isinstance(total, Apply) or total.function not in ("add", "subtract") or total.dtype.kind != "f":
        return total
    products = [k for k, operand in enumerate(total.operands) if operands_of(operand, "multiply")]
    if total.function == "subtract" and len(products) > 1:
        return total
    free = [k for k in products if total.operands[k] not in rounded]
    return Apply(total.function, total.operands, total.dtype, ((_FUSED, free[-1]),)) if free else total


def fused_product(expression: Expression) -> int | None:
    """Which operand of a fused multiply-add is the product; None for anything else."""
    known = dict(expression.attributes) if isinstance(expression, Apply) else {}
    return known.get(_FUSED)


def multiply_add(
    function: str, place: int, factors: Sequence[np.ndarray[Any, Any]], rest: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """``function`` of the product, which is operand number ``place``, and the other operand, rounded once.

    >>> x = np.float32(1 + 2**-13)
    >>> float(multiply_add("subtract", 0, (x, x), x * x)) != 0, float(x * x - x * x)
    (True, 0.0)
    """
    wide = _WIDER[rest.dtype]
    left, right = (np.asarray(factor, wide) for factor in factors)
    operands = [left * right, np.asarray(rest, wide)]
    first, second = operands if place == 0 else reversed(operands)
    return np.asarray(first - second if function == "subtract" else first + second, rest.dtype)
