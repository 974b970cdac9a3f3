"""Medians, quantiles and percentiles: elements of sorted rows, and what lies between two of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.errors import ShapeError, TracingError
from pullback.graph import Node, Type, dtype_kind
from pullback.numpy import elementwise as e
from pullback.numpy import reductions as r
from pullback.numpy.axes import Axes, normal_axes
from pullback.numpy.composite import clip
from pullback.numpy.dispatch import implements
from pullback.numpy.ordering import sorted_along
from pullback.numpy.promotion import (
    Scalar,
    as_array_node,
    broadcast_to_shape,
    cast,
    float_dtype,
    result_dtype,
    where_written,
)
from pullback.numpy.shapes import part, permuted, picked, to_shape

__all__ = ["median", "nanmedian", "nanpercentile", "nanquantile", "percentile", "quantile"]


def _continuous(alpha: float, beta: float) -> Callable[[Any, Any], Any]:
    """The place of a quantile by Hyndman and Fan's two parameters."""
    return lambda n, q: n * q + (alpha + q * (1 - alpha - beta)) - 1


def _rounded_half(n: Any, q: Any, half: float) -> Any:
    return e.ceil(n * q + half) - 1


PLACES: dict[str, Callable[[Any, Any], Any]] = {
    "linear": lambda n, q: (n - 1) * q,
    "interpolated_inverted_cdf": _continuous(0.0, 1.0),
    "hazen": _continuous(0.5, 0.5),
    "weibull": _continuous(0.0, 0.0),
    "median_unbiased": _continuous(1 / 3, 1 / 3),
    "normal_unbiased": _continuous(3 / 8, 3 / 8),
    "lower": lambda n, q: e.floor((n - 1) * q),
    "higher": lambda n, q: e.ceil((n - 1) * q),
    "midpoint": lambda n, q: 0.5 * (e.floor((n - 1) * q) + e.ceil((n - 1) * q)),
    "nearest": lambda n, q: e.rint((n - 1) * q),
    "inverted_cdf": lambda n, q: e.ceil(n * q) - 1,
    "averaged_inverted_cdf": lambda n, q: e.where(
        e.equal(n * q, e.floor(n * q)), n * q - 0.5, e.ceil(n * q) - 1
    ),
    "closest_observation": lambda n, q: e.rint(n * q - 1),
}
"""The place of the quantile ``q`` among ``n`` sorted elements, counted from zero, perhaps between two.

Source: Hyndman and Fan, *Sample quantiles in statistical packages*, The American Statistician 50, 1996.
"""


DISCRETE = frozenset(("lower", "higher", "nearest", "inverted_cdf", "closest_observation"))
"""Methods that take one of the elements as it is."""


def _rows(name: str, a: Any, axis: Axes, dtype: Any) -> tuple[Node, tuple[int, ...], tuple[int, ...]]:
    """``a`` with the axes meant as a last one, sorted; the shape of a result and that with the axes kept."""
    x = cast(as_array_node(a), dtype)
    axes = normal_axes(name, axis, x.ndim)
    kept = tuple(k for k in range(x.ndim) if k not in axes)
    shape = tuple(x.shape[k] for k in kept)
    count = math.prod([x.shape[k] for k in axes])
    if not count:
        raise ShapeError(f"{name} over axes {axes} of shape {x.shape}: there is no element{where_written()}")
    rows = to_shape(permuted(x, (*kept, *axes)), (*shape, count))
    return (
        sorted_along(rows, len(shape)),
        shape,
        tuple([1 if k in axes else n for k, n in enumerate(x.shape)]),
    )


def _of_nothing(name: str, x: Node, axis: Axes, keepdims: bool) -> Any:
    """NaN, as NumPy's median of no element is; ``None`` where there are some."""
    axes = normal_axes(name, axis, x.ndim)
    if math.prod([x.shape[k] for k in axes]):
        return None
    shape = tuple([1 if k in axes else n for k, n in enumerate(x.shape) if keepdims or k not in axes])
    return broadcast_to_shape(as_array_node(np.array(np.nan, e.true_divide_dtype(x.dtype))), shape)


def _between(rows: Node, place: Any, discrete: bool, dtype: Any) -> Node:
    """What rows have at ``place``, of one for each row as the last axis; between two it is on the line.

    The distance of the two is rounded in the dtype of the rows, the rest in ``dtype``; it is taken from the nearer one.
    """
    last = rows.ndim - 1
    low = clip(e.floor(place), 0.0, rows.shape[last] - 1.0)
    shape = (*rows.shape[:last], np.shape(place)[-1])

    def at(where: Any) -> Node:
        return picked(rows, broadcast_to_shape(cast(as_array_node(where), np.int64), shape), last)

    below = at(low)
    if discrete:
        return below
    above = at(clip(low + 1.0, 0.0, rows.shape[last] - 1.0))
    share = cast(clip(place - low, 0.0, 1.0), dtype)
    distance, low_end, high_end = (cast(x, dtype) for x in (above - below, below, above))
    found: Node = e.where(share < 0.5, low_end + share * distance, high_end - (1.0 - share) * distance)
    return found


def _quantile(name: str, a: Any, q: Any, axis: Axes, method: str, keepdims: bool, skip_nan: bool) -> Any:
    """NumPy computes places in the dtype of ``q``, the result in that of both; a Python number has none."""
    if method not in PLACES:
        raise TracingError(f"{name}: method {method!r}; use one of {', '.join(PLACES)}{where_written()}")
    x, q = as_array_node(a), as_array_node(q)
    discrete = method in DISCRETE or (method == "linear" and q.dtype.kind in "iu")
    kind = float_dtype(q.dtype)
    dtype = x.dtype if discrete else result_dtype(x.type, Type(kind, (), q.type.weak))
    rows, shape, kept = _rows(name, x, axis, x.dtype if dtype_kind(x.dtype) == "f" else dtype)
    asked = to_shape(cast(q, kind), (q.size,))
    last = rows.ndim - 1
    count: Any = float(rows.shape[last])
    most: Any = max(count - 1.0, 0.0)
    if skip_nan:
        count = r.sum(cast(~e.isnan(rows), kind), last, keepdims=True)
        most = e.maximum(count - 1.0, 0.0)
        asked = broadcast_to_shape(asked, (*shape, q.size))
    found = _between(rows, clip(PLACES[method](count, asked), 0.0, most), discrete, dtype)
    if not skip_nan and dtype_kind(rows.dtype) == "f":
        is_nan = e.isnan(part(rows, last, rows.shape[last] - 1, rows.shape[last]))
        found = e.where(is_nan, math.nan, found)
    found = permuted(found, (last, *range(last)))
    return to_shape(found, (*q.shape, *(kept if keepdims else shape)))


def _checked(name: str, q: Any, top: float) -> Any:
    if not isinstance(q, Node):
        values = np.asarray(q)
        if not ((values >= 0) & (values <= top)).all():
            raise ShapeError(f"{name}: {q} is outside 0 to {top:g}{where_written()}")
    return q


@implements(np.quantile)
def quantile(
    a: Any,
    q: Any,
    axis: Axes = None,
    *,
    method: str = "linear",
    keepdims: bool = False,
    weights: None = None,
) -> Any:
    """The value below which the share ``q`` of the elements over ``axis`` lies; ``q``'s axes come first.

    ``method`` says what it is between two elements. NaN where an element is. Derivatives by ``a``, and by ``q`` where
    the method is continuous. Raises ``ShapeError`` of no element.

    >>> import numpy as np
    >>> print(quantile(np.array([4.0, 1.0, 2.0, 3.0]), 0.5))
    2.5
    """
    _no_weights("quantile", weights)
    return _quantile("quantile", a, _checked("quantile", q, 1), axis, method, keepdims, False)


def _no_weights(name: str, weights: Any) -> None:
    if weights is not None:
        raise TracingError(
            f"{name} with weights= of a traced value; sort with np.argsort and use np.interp on np.cumsum of the "
            f"weights{where_written()}"
        )


@implements(np.percentile)
def percentile(
    a: Any,
    q: Any,
    axis: Axes = None,
    *,
    method: str = "linear",
    keepdims: bool = False,
    weights: None = None,
) -> Any:
    """``quantile`` of ``q / 100``."""
    _no_weights("percentile", weights)
    return _quantile("percentile", a, _hundredth("percentile", q), axis, method, keepdims, False)


def _hundredth(name: str, q: Any) -> Any:
    _checked(name, q, 100)
    return q / 100 if isinstance(q, (Node, *Scalar)) else np.true_divide(q, 100)


@implements(np.nanquantile)
def nanquantile(
    a: Any,
    q: Any,
    axis: Axes = None,
    *,
    method: str = "linear",
    keepdims: bool = False,
    weights: None = None,
) -> Any:
    """``quantile`` of the elements that are numbers; NaN where none is."""
    _no_weights("nanquantile", weights)
    return _quantile("nanquantile", a, _checked("nanquantile", q, 1), axis, method, keepdims, True)


@implements(np.nanpercentile)
def nanpercentile(
    a: Any,
    q: Any,
    axis: Axes = None,
    *,
    method: str = "linear",
    keepdims: bool = False,
    weights: None = None,
) -> Any:
    """``percentile`` of the elements that are numbers; NaN where none is."""
    _no_weights("nanpercentile", weights)
    return _quantile("nanpercentile", a, _hundredth("nanpercentile", q), axis, method, keepdims, True)


@implements(np.median)
def median(a: Any, axis: Axes = None, *, keepdims: bool = False) -> Any:
    """The middle element over ``axis``, the mean of the two in the middle of an even number; NaN where one is.

    >>> import numpy as np
    >>> print(median(np.array([5.0, 1.0, 2.0])))
    2.0
    """
    x = as_array_node(a)
    if (nothing := _of_nothing("median", x, axis, keepdims)) is not None:
        return nothing
    rows, shape, kept = _rows("median", x, axis, e.true_divide_dtype(x.dtype))
    last, count = rows.ndim - 1, rows.shape[-1]
    middle = r.mean(part(rows, last, (count - 1) // 2, count // 2 + 1), last)
    is_nan = e.isnan(to_shape(part(rows, last, count - 1, count), shape))
    return to_shape(e.where(is_nan, math.nan, middle), kept if keepdims else shape)


@implements(np.nanmedian)
def nanmedian(a: Any, axis: Axes = None, *, keepdims: bool = False) -> Any:
    """``median`` of the elements that are numbers; NaN where none is."""
    x = as_array_node(a)
    if (nothing := _of_nothing("nanmedian", x, axis, keepdims)) is not None:
        return nothing
    rows, shape, kept = _rows("nanmedian", x, axis, e.true_divide_dtype(x.dtype))
    last = rows.ndim - 1
    most = e.maximum(r.sum(cast(~e.isnan(rows), np.int64), last, keepdims=True) - 1, 0)
    low, high = (picked(rows, half, last) for half in (most // 2, (most + 1) // 2))
    middle = e.where(most % 2 == 0, low, (low + high) / 2) + 0  # a mean, of which no zero is negative
    return to_shape(middle, kept if keepdims else shape)
