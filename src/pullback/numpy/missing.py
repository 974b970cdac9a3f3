"""The ``nan*`` family: what the functions without ``nan`` make of the elements that are numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pullback.graph import OPERATORS, Node, dtype_kind
from pullback.numpy import elementwise as e
from pullback.numpy import reductions as r
from pullback.numpy.axes import Axes, normal_axes, normal_axis
from pullback.numpy.dispatch import implements
from pullback.numpy.promotion import as_array_node, cast
from pullback.numpy.shapes import to_shape

__all__ = [
    "nanargmax",
    "nanargmin",
    "nanmax",
    "nanmean",
    "nanmin",
    "nanprod",
    "nanstd",
    "nansum",
    "nanvar",
]


def _numbers(x: Node, where: Any = None) -> Node:
    """Which elements are numbers, of those that ``where`` leaves."""
    mask = ~e.isnan(x)
    return mask if where is None or where is True else mask & where  # type: ignore[no-any-return]


@implements(np.nansum)
def nansum(
    a: Any,
    axis: Axes = None,
    dtype: Any = None,
    *,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Any:
    """The sum of the numbers over ``axis``; 0 of none.

    >>> print(nansum([1.0, float("nan"), 2.0]))
    3.0
    """
    x = r.without_nan(as_array_node(a), 0.0)
    return r.sum(x, axis, dtype, keepdims=keepdims, initial=initial, where=where)


@implements(np.nanprod)
def nanprod(
    a: Any,
    axis: Axes = None,
    dtype: Any = None,
    *,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Any:
    """The product of the numbers over ``axis``; 1 of none."""
    x = r.without_nan(as_array_node(a), 1.0)
    return r.prod(x, axis, dtype, keepdims=keepdims, initial=initial, where=where)


@implements(np.nanmean)
def nanmean(
    a: Any, axis: Axes = None, dtype: Any = None, *, keepdims: bool = False, where: Any = None
) -> Any:
    """The mean of the numbers over ``axis``; NaN of none."""
    x = as_array_node(a)
    return r.mean(r.without_nan(x, 0.0), axis, dtype, keepdims=keepdims, where=_numbers(x, where))


@implements(np.nanvar)
def nanvar(
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
    """The variance of the numbers over ``axis``; NaN where ``ddof`` leaves none."""
    x = as_array_node(a)
    mask = _numbers(x, where)
    freedom = ddof if correction is None else correction
    found = r.var(r.without_nan(x, 0.0), axis, dtype, ddof=freedom, keepdims=keepdims, where=mask, mean=mean)
    count = r.sum(mask, axis, keepdims=keepdims)
    return e.where(count > freedom, found, math.nan)


@implements(np.nanstd)
def nanstd(
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
    """The square root of the variance of the numbers over ``axis``; its derivative is zero where that is."""
    how = {"ddof": ddof, "keepdims": keepdims, "where": where, "mean": mean, "correction": correction}
    return r.safe_sqrt(nanvar(a, axis, dtype, **how))


def _extremum(name: str, a: Any, axis: Axes, keepdims: bool, initial: Any, where: Any) -> Any:
    x = as_array_node(a)
    reduced = r.max if name == "nanmax" else r.min
    if dtype_kind(x.dtype) != "f":
        return reduced(x, axis, keepdims=keepdims, initial=initial, where=where)
    beyond = -math.inf if name == "nanmax" else math.inf
    found = reduced(r.without_nan(x, beyond), axis, keepdims=keepdims, initial=initial, where=where)
    if initial is not None:
        return found
    some = r.any(_numbers(x, where), axis, keepdims=keepdims)
    return e.where(some, found, math.nan)


@implements(np.nanmax)
def nanmax(
    a: Any, axis: Axes = None, *, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Any:
    """The largest number over ``axis``; NaN where none is one. Equal ones share the cotangent."""
    return _extremum("nanmax", a, axis, keepdims, initial, where)


@implements(np.nanmin)
def nanmin(
    a: Any, axis: Axes = None, *, keepdims: bool = False, initial: Any = None, where: Any = None
) -> Any:
    """The smallest number over ``axis``; NaN where none is one. Equal ones share the cotangent."""
    return _extremum("nanmin", a, axis, keepdims, initial, where)


def _position(name: str, a: Any, axis: int | None, keepdims: bool) -> Any:
    """Where the best number is; where there is none the place is the extent, which the program refuses."""
    x = as_array_node(a)
    if dtype_kind(x.dtype) != "f":
        return getattr(r, name[3:])(x, axis, keepdims=keepdims)
    beyond = -math.inf if name == "nanargmax" else math.inf
    axes = normal_axes(name, axis, x.ndim) if axis is None else (normal_axis(name, axis, x.ndim),)
    extent = int(np.prod([x.shape[k] for k in axes], dtype=np.int64))
    place = getattr(r, name[3:])(r.without_nan(x, beyond), axis, keepdims=keepdims)
    some = r.any(_numbers(x), axis, keepdims=keepdims)
    # An infinity of the sign that stands for NaN may be found at a NaN before it: look for it among the numbers.
    best = (r.max if name == "nanargmax" else r.min)(r.without_nan(x, beyond), axes, keepdims=True)
    first = r.argmax(e.equal(x, best), axis, keepdims=keepdims)
    place = e.where(some, e.where(e.isfinite(to_shape(best, place.shape)), place, first), extent)
    return OPERATORS["check_index"](
        cast(place, np.int64), extent=extent, what=f"{name}: of NaN alone", wrap=False
    )


@implements(np.nanargmax)
def nanargmax(a: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
    """Where the largest number over ``axis`` is; of NaN alone an ``IndexRangeError``, a ``ValueError`` in NumPy."""
    return _position("nanargmax", a, axis, keepdims)


@implements(np.nanargmin)
def nanargmin(a: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
    """Where the smallest number over ``axis`` is; of NaN alone an ``IndexRangeError``, a ``ValueError`` in NumPy."""
    return _position("nanargmin", a, axis, keepdims)
