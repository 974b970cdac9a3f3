"""Linear algebra on traced values: what of ``numpy.linalg`` has derivatives here."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pullback.errors import TracingError
from pullback.numpy import elementwise as e
from pullback.numpy import reductions as r
from pullback.numpy.axes import Axes, normal_axes
from pullback.numpy.dispatch import implements
from pullback.numpy.promotion import as_array_node, cast, float_dtype, where_written

__all__ = ["norm"]


@implements(np.linalg.norm)
def norm(x: Any, ord: Any = None, axis: Axes = None, keepdims: bool = False) -> Any:
    r"""The length of vectors, :math:`(\sum_k |x_k|^p)^{1/p}` with ``ord`` for :math:`p`, or the Frobenius
    norm.

    By default the Euclidean length of all elements. Its derivative :math:`x / |x|` is zero, not NaN, at zero.
    Raises ``TracingError`` for the norms of matrices that need singular values.

    >>> print(norm(np.array([3.0, 4.0])))
    5.0
    """
    node = as_array_node(x)
    node = cast(node, float_dtype(node.dtype))
    axes = normal_axes("norm", axis, node.ndim)
    if ord is None or (ord == "fro" and len(axes) == 2):
        return r.safe_sqrt(r.sum(e.square(node), axes, keepdims=keepdims))
    if len(axes) == 2 and ord in (1, -1, math.inf, -math.inf):
        return _matrix_norm(node, ord, axes, keepdims)
    if len(axes) != 1:
        raise TracingError(
            f"norm of order {ord!r} over axes {axes} of shape {node.shape} has no derivative here; use "
            f"ord=None, 'fro', 1 or inf, or name one axis{where_written()}"
        )
    if not isinstance(ord, (int, float)):
        raise TracingError(f"norm: order {ord!r} of vectors; use a number{where_written()}")
    size = e.absolute(node)
    if ord in (math.inf, -math.inf):
        if 0 in [node.shape[axis] for axis in axes] and ord > 0:
            return r.sum(size, axes, keepdims=keepdims)  # of no elements: zero
        return (r.max if ord > 0 else r.min)(size, axes, keepdims=keepdims)
    if ord == 0:
        return r.sum(cast(e.not_equal(node, 0), node.dtype), axes, keepdims=keepdims)
    if ord == 1:
        return r.sum(size, axes, keepdims=keepdims)
    if ord == 2:
        return r.safe_sqrt(r.sum(e.square(node), axes, keepdims=keepdims))
    total = r.sum(e.power(size, float(ord)), axes, keepdims=keepdims)
    zero = e.equal(total, 0)
    return e.where(zero, 0.0, e.power(e.where(zero, 1.0, total), 1 / ord))


def _matrix_norm(node: Any, ord: float, axes: tuple[int, ...], keepdims: bool) -> Any:
    """The largest (smallest) sum of absolute values over the columns, or over the rows for infinity."""
    summed, picked = axes if abs(ord) == 1 else axes[::-1]
    totals = r.sum(e.absolute(node), summed, keepdims=True)
    result = (r.max if ord > 0 else r.min)(totals, picked, keepdims=True)
    return result if keepdims else result.squeeze(axes)
