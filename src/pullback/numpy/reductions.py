"""Reductions over any axes, with NumPy's result dtypes: sums of small integers are 64 bits wide."""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np

from pullback.errors import DTypeError, ShapeError
from pullback.graph import OPERATORS, Node, is_complex, is_float, is_half, part_dtype
from pullback.numpy import elementwise as e
from pullback.numpy.axes import Axes, normal_axes, normal_axis, of_scalar, reduced_axes
from pullback.numpy.dispatch import implements
from pullback.numpy.promotion import (
    as_array_node,
    as_node,
    broadcast_to_shape,
    cast,
    float_dtype,
    where_written,
)
from pullback.operators.reductions import from_zero

__all__ = [
    "all",
    "any",
    "argmax",
    "argmin",
    "average",
    "count_nonzero",
    "logsumexp",
    "max",
    "mean",
    "min",
    "prod",
    "ptp",
    "standardise",
    "std",
    "sum",
    "var",
]


def _reduce(name: str, x: Node, axes: tuple[int, ...], keepdims: bool) -> Node:
    """Apply the reduction ``name`` and put back the reduced axes as extents of one when ``keepdims``."""
    axes = tuple(sorted(axes))
    result: Node = OPERATORS[name](x, axes=axes) if axes else x
    if not keepdims or not axes:
        return result
    kept = tuple(1 if axis in axes else extent for axis, extent in enumerate(x.shape))
    return OPERATORS["reshape"](result, shape=kept)


def total(x: Node, axes: tuple[int, ...], keepdims: bool = False) -> Node:
    """The sum over ``axes``, from +0 on."""
    return from_zero(_reduce("sum", x, axes, keepdims), x, axes)


def accumulator(dtype: np.dtype) -> np.dtype:
    """The dtype in which NumPy adds and multiplies."""
    if dtype.kind == "b" or (dtype.kind == "i" and dtype.itemsize < 8):
        return np.dtype(np.int64)
    return np.dtype(np.uint64) if dtype.kind == "u" else dtype


def squared_size(x: Any) -> Any:
    """``|x|²``, which is real."""
    if is_complex(x.dtype):
        return e.square(x.real) + e.square(x.imag)
    return e.multiply(x, x)


def without_nan(x: Node, other: float) -> Node:
    """``x`` with ``other`` in place of NaN."""
    if not is_float(x.dtype):
        return x
    return e.where(e.isnan(x), np.asarray(other, x.dtype), x)  # type: ignore[no-any-return]


def _masked(x: Node, where: Any, other: Any) -> Node:
    """``x`` with ``other`` in the places that ``where`` leaves out."""
    if where is None or where is True:
        return x
    return e.where(where, x, other if isinstance(other, Node) else np.asarray(other, x.dtype))  # type: ignore[no-any-return]


def _begun_with(initial: Any, x: Node) -> Node:
    """What a reduction of ``x`` begins with: as in NumPy it takes the dtype of the elements."""
    if isinstance(initial, (int, Node)):
        return as_node(initial, x.dtype)
    return cast(as_array_node(initial), x.dtype)


def _non_empty(name: str, x: Node, axes: tuple[int, ...]) -> None:
    if 0 in [x.shape[axis] for axis in axes] and 0 not in [n for k, n in enumerate(x.shape) if k not in axes]:
        raise ShapeError(
            f"{name} over axes {axes} of shape {x.shape}: there is no element to take; give initial=, or "
            f"leave the empty axis out{where_written()}"
        )


@implements(np.sum)
def sum(
    a: Any,
    axis: Axes = None,
    dtype: Any = None,
    *,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Any:
    r"""The sum over ``axis``: :math:`\sum_k a_k`; booleans and small integers are added as 64-bit integers.

    >>> import numpy as np
    >>> print(sum(np.arange(6.0).reshape(2, 3), axis=1))
    [ 3. 12.]
    """
    x = as_array_node(a)
    x = _masked(cast(x, accumulator(x.dtype) if dtype is None else dtype), where, 0)
    result = total(x, reduced_axes("sum", axis, x.ndim), keepdims)
    return result if initial is None else result + _begun_with(initial, x)


@implements(np.prod)
def prod(
    a: Any,
    axis: Axes = None,
    dtype: Any = None,
    *,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Any:
    r"""The product over ``axis``: :math:`\prod_k a_k`."""
    x = as_array_node(a)
    x = _masked(cast(x, accumulator(x.dtype) if dtype is None else dtype), where, 1)
    result = _reduce("prod", x, reduced_axes("prod", axis, x.ndim), keepdims)
    return result if initial is None else result * _begun_with(initial, x)


@implements(np.mean)
def mean(a: Any, axis: Axes = None, dtype: Any = None, *, keepdims: bool = False, where: Any = None) -> Any:
    r"""The mean over ``axis``: :math:`\tfrac1n \sum_k a_k`; of integers in ``float64``.

    >>> import numpy as np
    >>> print(mean(np.arange(6.0).reshape(2, 3), axis=0))
    [1.5 2.5 3.5]
    """
    x, kept = _averaged(a, dtype)
    axes = normal_axes("mean", axis, x.ndim)
    return cast(total(_masked(x, where, 0), axes, keepdims) / _count(x, axes, keepdims, where), kept)


def _averaged(a: Any, dtype: Any) -> tuple[Node, np.dtype]:
    """``a`` in the dtype that an average is computed in, and that of the result: a sum of halves may be infinite."""
    x = as_array_node(a)
    kept = e.true_divide_dtype(x.dtype) if dtype is None else np.dtype(dtype)
    return cast(x, np.float32 if is_half(kept) else kept), kept


def _count(x: Node, axes: tuple[int, ...], keepdims: bool, where: Any) -> Any:
    """How many elements go into each result."""
    if where is None or where is True:
        return math.prod([x.shape[axis] for axis in axes])
    mask = broadcast_to_shape(e.as_bool(as_array_node(where)), x.shape)
    return _reduce("sum", cast(mask, part_dtype(x.dtype)), axes, keepdims)


def _extremum(name: str, a: Any, axis: Axes, *, keepdims: bool, initial: Any, where: Any = None) -> Node:
    x = as_array_node(a)
    axes = reduced_axes(name, axis, x.ndim)
    first = None if initial is None else _begun_with(initial, x)
    if first is None:
        _non_empty(name, x, axes)
        if where is not None and where is not True:
            raise DTypeError(
                f"{name} with where= needs initial=, the value where nothing is left{where_written()}"
            )
    elif 0 in [x.shape[axis] for axis in axes]:
        kept = tuple([1 if k in axes else n for k, n in enumerate(x.shape)])
        shape = kept if keepdims else tuple([n for k, n in enumerate(x.shape) if k not in axes])
        return broadcast_to_shape(first, shape)
    if first is not None:
        x = _masked(x, where, first)
    result = _reduce(name, cast(x, np.uint8) if x.dtype.kind == "b" else x, axes, keepdims)
    result = cast(result, x.dtype)
    if first is None:
        return result
    return (e.maximum if name == "max" else e.minimum)(result, first)  # type: ignore[no-any-return]


@implements(np.max, np.amax)
def max(a: Any, axis: Axes = None, *, keepdims: bool = False, initial: Any = None, where: Any = None) -> Any:
    """The largest element over ``axis``, NaN where there is one. Raises ``ShapeError`` for an empty axis.

    >>> import numpy as np
    >>> print(max(np.array([[1, 5], [7, 2]]), axis=0))
    [7 5]
    """
    return _extremum("max", a, axis, keepdims=keepdims, initial=initial, where=where)


@implements(np.min, np.amin)
def min(a: Any, axis: Axes = None, *, keepdims: bool = False, initial: Any = None, where: Any = None) -> Any:
    """The smallest element over ``axis``, NaN where there is one. Raises ``ShapeError`` for an empty axis."""
    return _extremum("min", a, axis, keepdims=keepdims, initial=initial, where=where)


@implements(np.ptp)
def ptp(a: Any, axis: Axes = None, *, keepdims: bool = False) -> Any:
    """The largest minus the smallest element over ``axis``."""
    return e.subtract(max(a, axis, keepdims=keepdims), min(a, axis, keepdims=keepdims))


def _position(name: str, a: Any, axis: int | None, keepdims: bool) -> Node:
    x = as_array_node(a)
    axes = (
        tuple(range(x.ndim))
        if axis is None or of_scalar(axis, x.ndim)
        else (normal_axis(name, axis, x.ndim),)
    )
    _non_empty(name, x, axes)
    if not axes:
        return as_array_node(np.int64(0))
    return _reduce(name, cast(x, np.uint8) if x.dtype.kind == "b" else x, axes, keepdims)


@implements(np.argmax)
def argmax(a: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
    """Where the largest element over ``axis`` is, the first of equals, as ``int64``; of the flat array for
    ``None``.

    >>> import numpy as np
    >>> print(argmax(np.array([[1, 5], [7, 2]]), axis=1))
    [1 0]
    """
    return _position("argmax", a, axis, keepdims)


@implements(np.argmin)
def argmin(a: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
    """Where the smallest element over ``axis`` is, the first of equals, as ``int64``."""
    return _position("argmin", a, axis, keepdims)


@implements(np.all)
def all(a: Any, axis: Axes = None, *, keepdims: bool = False, where: Any = None) -> Any:
    """Whether every element over ``axis`` is true; true of none."""
    x = _masked(e.as_bool(as_array_node(a)), where, True)
    return _truth("min", x, reduced_axes("all", axis, x.ndim), keepdims, True)


@implements(np.any)
def any(a: Any, axis: Axes = None, *, keepdims: bool = False, where: Any = None) -> Any:
    """Whether some element over ``axis`` is true; false of none."""
    x = _masked(e.as_bool(as_array_node(a)), where, False)
    return _truth("max", x, reduced_axes("any", axis, x.ndim), keepdims, False)


def _truth(name: str, x: Node, axes: tuple[int, ...], keepdims: bool, of_none: bool) -> Node:
    if not x.ndim:
        return x
    empty = 0 in [x.shape[axis] for axis in axes]
    return _extremum(name, x, axes, keepdims=keepdims, initial=of_none if empty else None)


@implements(np.count_nonzero)
def count_nonzero(a: Any, axis: Axes = None, *, keepdims: bool = False) -> Any:
    """How many elements over ``axis`` are not zero."""
    return sum(e.as_bool(as_array_node(a)), axis, keepdims=keepdims)


@implements(np.var)
def var(
    a: Any,
    axis: Axes = None,
    dtype: Any = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    where: Any = None,
    mean: Any = None,
    correction: float | None = None,
) -> Any:
    r"""The variance over ``axis``: :math:`\tfrac1{n - d} \sum_k (a_k - \bar a)^2`, with ``ddof`` for
    :math:`d`, or ``correction``; ``mean`` is taken for :math:`\bar a` where it is known, kept axes and all.
    """
    x, kept = _averaged(a, dtype)
    axes = normal_axes("var", axis, x.ndim)
    count = _count(x, axes, keepdims, where)
    if mean is not None:
        deviation = x - mean
    elif axes:
        deviation = x - _reduce("sum", _masked(x, where, 0), axes, True) / _count(x, axes, True, where)
    else:
        deviation = x - x
    squares = _reduce("sum", _masked(squared_size(deviation), where, 0), axes, keepdims)
    freedom = ddof if correction is None else correction
    left = e.maximum(count - freedom, 0) if isinstance(count, Node) else builtins.max(count - freedom, 0)
    return cast(squares / left, kept) if is_half(kept) else squares / left


@implements(np.std)
def std(
    a: Any,
    axis: Axes = None,
    dtype: Any = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    where: Any = None,
    mean: Any = None,
    correction: float | None = None,
) -> Any:
    """The square root of the variance over ``axis``; its derivative is zero where the variance is."""
    how = {"ddof": ddof, "keepdims": keepdims, "where": where, "mean": mean, "correction": correction}
    return safe_sqrt(var(a, axis, dtype, **how))


def standardise(x: Any, axis: Axes = -1, *, epsilon: float = 1e-5) -> Any:
    r"""``x`` with mean 0 and variance 1 over ``axis``: :math:`(x - \mu) / \sqrt{\sigma^2 + \epsilon}`.

    The variance is the mean square of the centred values, in two passes, so that it is exact for values far from
    zero and never negative; with :math:`\epsilon` under the root equal values have finite derivatives. The pullback
    is :math:`(g - \bar g - y\,\overline{g y}) / \sqrt{\sigma^2 + \epsilon}`, where a bar is the mean over ``axis``.
    Integers become floats. Raises ``ValueError`` unless ``epsilon`` is positive.

    >>> print(standardise([1.0, 2.0, 3.0, 4.0]).round(3))
    [-1.342 -0.447  0.447  1.342]
    """
    if not epsilon > 0:
        raise ValueError(f"[standardise] epsilon is {epsilon}. Give a positive number.")
    x = as_float(x)
    how = {"axes": tuple(sorted(normal_axes("standardise", axis, x.ndim))), "epsilon": float(epsilon)}
    return (
        OPERATORS["standardise"](x, **how)
        if isinstance(x, Node)
        else OPERATORS["standardise"].reference(x, **how)
    )


def safe_sqrt(x: Any) -> Any:
    """The square root with derivative zero at zero, for the lengths of vectors that may vanish."""
    zero = e.equal(x, 0)
    return e.where(zero, 0.0, e.sqrt(e.where(zero, 1.0, x)))


@implements(np.average)
def average(
    a: Any, axis: Axes = None, weights: Any = None, returned: bool = False, *, keepdims: bool = False
) -> Any:
    r"""The weighted mean over ``axis``: :math:`\sum_k w_k a_k / \sum_k w_k`.

    With the sums of the weights if ``returned``.
    """
    if weights is None:
        found = mean(a, axis, keepdims=keepdims)
        count = as_array_node(a).size // builtins.max(found.size, 1)
        return (
            (found, broadcast_to_shape(as_array_node(np.asarray(count, found.dtype)), found.shape))
            if returned
            else found
        )
    x, w = as_array_node(a), as_array_node(weights)
    if w.shape != x.shape:
        axes = normal_axes("average", axis, x.ndim)
        if w.ndim != 1 or len(axes) != 1 or w.shape[0] != x.shape[axes[0]]:
            raise ShapeError(
                f"average: weights of shape {w.shape} for values of shape {x.shape}; give weights of the "
                f"same shape, or one for each element of a single axis{where_written()}"
            )
        w = OPERATORS["broadcast"](w, shape=x.shape, axes=axes)
    total_weight = sum(w, axis, keepdims=keepdims)
    found = e.divide(sum(x * w, axis, keepdims=keepdims), total_weight)
    return (found, cast(total_weight, found.dtype)) if returned else found


def logsumexp(a: Any, axis: Axes = None, *, keepdims: bool = False) -> Any:
    r"""The logarithm of a sum of exponentials over ``axis``, without overflow:
    :math:`\log \sum_k e^{a_k} = m + \log \sum_k e^{a_k - m}` with :math:`m = \max_k a_k`.

    >>> import numpy as np
    >>> print(round(float(logsumexp(np.array([1000.0, 1000.0]))), 4))
    1000.6931
    """
    x = as_float(a)
    axes = normal_axes("logsumexp", axis, x.ndim)
    top = finite_max(x, axes)
    result = e.log(sum(e.exp(x - top), axes, keepdims=True)) + top
    if keepdims or not axes:
        return result
    return result.reshape([n for k, n in enumerate(x.shape) if k not in axes])


def as_float(a: Any) -> Any:
    """``a`` as a node or array of floats."""
    x = a if isinstance(a, Node) else np.asarray(a)
    return e.astype(x, float_dtype(x.dtype))


def finite_max(x: Any, axes: tuple[int, ...]) -> Any:
    """The maximum over ``axes`` (kept), zero where it is infinite, as a constant: what exponentials are
    shifted by.
    """
    top = e.stop_gradient(max(x, axes, keepdims=True, initial=-np.inf))
    return e.where(e.isfinite(top), top, 0.0)
