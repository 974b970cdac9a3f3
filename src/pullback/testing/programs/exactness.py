"""Where operations round: what is missing from a result, computed without rounding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["inexact", "may_round", "product_error"]


def inexact(name: str, inputs: Sequence[np.ndarray], value: np.ndarray) -> np.ndarray:
    """Where an elementwise function has rounded."""
    if name == "cast":
        back = value if inputs[0].dtype.kind == "f" else value.astype(inputs[0].dtype)
        return np.asarray(back != inputs[0])
    if name in _ERROR:
        return np.asarray(_ERROR[name](*inputs, value) != 0)
    # Functions are exact at a few places that programs meet often, such as exp(0) and sin(0), and where they are flat.
    simple = [np.isin(x, (0.0, 1.0, -1.0)) for x in (value, *inputs)]
    exact = np.all(simple, axis=0)
    if name in _FLAT:
        exact |= (np.abs(inputs[0]) > _FLAT[name]) & simple[0]
    return np.asarray(~exact)


def may_round(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Where a sum with other terms may be inexact: both are there, and they are no small multiples of 1/256."""
    both = np.stack((x, y)) * 256
    return np.asarray(
        np.all(both != 0, axis=0) & np.any((both != np.rint(both)) | (np.abs(both) > 2**20), axis=0)
    )


def _split(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    factor = x.dtype.type(2 ** (12 if x.itemsize == 4 else 27) + 1) * x
    high = factor - (factor - x)
    return high, x - high


def product_error(a: np.ndarray, b: np.ndarray, product: np.ndarray) -> np.ndarray:
    """What ``product`` lacks of ``a * b``, multiplied by a power of two where it is small. Source: Dekker, 1971."""
    limits, lost = np.finfo(product.dtype), (product == 0) & (a != 0) & (b != 0)
    larger = product.dtype.type(2.0 ** (200 if limits.nmant > 23 else 64))
    scale = np.where(np.abs(product) < limits.smallest_normal / limits.eps**2, larger, product.dtype.type(1))
    a, product = np.asarray(a * scale), np.asarray(product * scale)
    (a1, a0), (b1, b0) = _split(a), _split(b)
    error = a0 * b0 - (((product - a1 * b1) - a0 * b1) - a1 * b0)
    return np.asarray(np.where(lost, larger, np.where((a == 0) | (b == 0), product, error)))


def _sum_error(a: np.ndarray, b: np.ndarray, total: np.ndarray) -> np.ndarray:
    """What ``total`` lacks of ``a + b``. Source: Knuth, *The Art of Computer Programming*, vol. 2, 1969."""
    part = total - a
    error: np.ndarray = (a - (total - part)) + (b - part)
    return error


def _remainder(a: np.ndarray, b: np.ndarray, quotient: np.ndarray) -> np.ndarray:
    product = np.asarray(quotient * b)
    return np.where(product == a, product_error(quotient, b, product), 1)


_FLAT = {"tanh": 20, "erf": 7, "sigmoid": 40, "erfc": 30}
"""Functions that are 1, -1 or 0 to the last digit of a double for arguments larger than these."""

_ERROR: Mapping[str, Callable[..., Any]] = {
    "add": _sum_error,
    "subtract": lambda a, b, total: _sum_error(a, -b, total),
    "multiply": product_error,
    "divide": _remainder,
    "sqrt": lambda a, root: _remainder(a, root, root),
}
"""By operator: a number that is zero where the result is exact, and may be NaN where it is not finite."""
