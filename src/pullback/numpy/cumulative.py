"""Running totals and differences along an axis: ``cumsum`` and its like, ``accumulate`` of ufuncs, ``gradient``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.counts import count
from pullback.errors import DTypeError, ShapeError, TracingError
from pullback.graph import OPERATORS, Node, dtype_kind
from pullback.graph.protocol import vocabulary
from pullback.numpy import elementwise as e
from pullback.numpy import reductions as r
from pullback.numpy.axes import Axes, normal_axes, normal_axis, of_scalar, reduced_axes
from pullback.numpy.dispatch import UFUNC_METHODS, implements, reduced_by
from pullback.numpy.elementwise import UFUNCS
from pullback.numpy.promotion import (
    as_array_node,
    as_node,
    broadcast_to_shape,
    cast,
    float_dtype,
    strong,
    where_written,
)
from pullback.numpy.shapes import concatenate, joined, part, permuted, picked, to_shape

__all__ = [
    "cumprod",
    "cumsum",
    "cumulative_prod",
    "cumulative_sum",
    "diff",
    "ediff1d",
    "gradient",
    "nancumprod",
    "nancumsum",
    "trapezoid",
    "unwrap",
]


def running(name: str, x: Node, axis: int, reverse: bool = False) -> Node:
    """The operator ``name`` of running totals along ``axis``."""
    return OPERATORS[name](x, axis=axis, reverse=reverse)


def flat_or_along(name: str, a: Any, axis: int | None) -> tuple[Node, int]:
    """``a`` and the axis meant: the only one of the flat array for ``None``."""
    x = as_array_node(a)
    return (to_shape(x, (x.size,)), 0) if axis is None else (x, normal_axis(name, axis, x.ndim))


def _totalled_along(name: str, a: Any, axis: int | None) -> tuple[Node, int]:
    """The same for running totals, which take an axis of a scalar, too."""
    return flat_or_along(name, a, None if of_scalar(axis, np.ndim(a)) else axis)


def _wide(x: Node, dtype: Any) -> Node:
    return cast(x, r.accumulator(x.dtype) if dtype is None else dtype)


@implements(np.cumsum)
def cumsum(a: Any, axis: int | None = None, dtype: Any = None) -> Any:
    r"""Running sums along ``axis``, of the flat array for ``None``: :math:`y_t = \sum_{s \le t} a_s`.

    Booleans and small integers are added as 64-bit integers.

    >>> import numpy as np
    >>> print(cumsum(np.array([1.0, 2.0, 3.0])))
    [1. 3. 6.]
    """
    x, k = _totalled_along("cumsum", a, axis)
    return running("cumsum", _wide(x, dtype), k)


@implements(np.cumprod)
def cumprod(a: Any, axis: int | None = None, dtype: Any = None) -> Any:
    r"""Running products along ``axis``: :math:`y_t = \prod_{s \le t} a_s`; derivatives are right at zeros too."""
    x, k = _totalled_along("cumprod", a, axis)
    return running("cumprod", _wide(x, dtype), k)


def _cumulative(name: str, a: Any, axis: int | None, dtype: Any, include_initial: bool, initial: int) -> Node:
    x = as_array_node(a)
    if axis is None and x.ndim > 1:
        raise ShapeError(f"cumulative_{name[3:]} of shape {x.shape}: name the axis{where_written()}")
    x, k = _totalled_along(name, x, axis)
    totals = running(name, _wide(x, dtype), k)
    if not include_initial:
        return totals
    edge = broadcast_to_shape(
        as_array_node(np.asarray(initial, totals.dtype)), (*x.shape[:k], 1, *x.shape[k + 1 :])
    )
    return joined([edge, totals], k)


@implements(np.cumulative_sum)
def cumulative_sum(
    x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Any:
    """Running sums along ``axis``, with a zero before them if ``include_initial``."""
    return _cumulative("cumsum", x, axis, dtype, include_initial, 0)


@implements(np.cumulative_prod)
def cumulative_prod(
    x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Any:
    """Running products along ``axis``, with a one before them if ``include_initial``."""
    return _cumulative("cumprod", x, axis, dtype, include_initial, 1)


@implements(np.nancumsum)
def nancumsum(a: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """Running sums along ``axis`` with NaN counted as zero."""
    return cumsum(r.without_nan(as_array_node(a), 0.0), axis, dtype)


@implements(np.nancumprod)
def nancumprod(a: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """Running products along ``axis`` with NaN counted as one."""
    return cumprod(r.without_nan(as_array_node(a), 1.0), axis, dtype)


# -- ufuncs

ASSOCIATIVE = (
    *(np.logaddexp, np.logaddexp2, np.hypot, np.fmax, np.fmin, np.logical_and, np.logical_or, np.logical_xor),
    *(np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.gcd, np.lcm),
)
"""Ufuncs of which any two neighbours may be joined first."""


def _halved(function: Callable[[Any, Any], Any], x: Node) -> Node:
    """``x`` joined along its first axis, in pairs."""
    while x.shape[0] > 1:
        pairs = x.shape[0] // 2
        rest = [part(x, 0, 2 * pairs, x.shape[0])] if x.shape[0] % 2 else []
        x = joined([function(part(x, 0, 0, pairs), part(x, 0, pairs, 2 * pairs)), *rest], 0)
    return to_shape(x, x.shape[1:])


def _totals(function: Callable[[Any, Any], Any], x: Node) -> Node:
    """Running totals along the first axis: those of pairs, and from them the ones between."""
    count = x.shape[0]
    if count < 2:
        return x
    pairs = count // 2
    couples = to_shape(part(x, 0, 0, 2 * pairs), (pairs, 2, *x.shape[1:]))
    first, second = (to_shape(part(couples, 1, k, k + 1), (pairs, *x.shape[1:])) for k in (0, 1))
    odd = _totals(function, function(first, second))
    later = joined([part(first, 0, 1, pairs), *([part(x, 0, count - 1, count)] if count % 2 else [])], 0)
    between = [function(part(odd, 0, 0, later.shape[0]), later)] if later.shape[0] else []
    even = joined([part(x, 0, 0, 1), *between], 0)
    both = vocabulary["stack"]([part(even, 0, 0, pairs), odd], 1)
    both = to_shape(both, (2 * pairs, *x.shape[1:]))
    return joined([both, part(even, 0, pairs, pairs + 1)], 0) if count % 2 else both


def _typed(ufunc: np.ufunc, x: Node) -> Node:
    """``x`` in the dtype of the ufunc's results."""
    if ufunc in (np.logaddexp, np.logaddexp2, np.hypot):
        return cast(x, float_dtype(x.dtype))
    return e.as_bool(x) if ufunc in (np.logical_and, np.logical_or, np.logical_xor) else x


def accumulate(ufunc: np.ufunc, array: Any, axis: int = 0, dtype: Any = None) -> Any:
    """``ufunc.accumulate``: running totals along ``axis``."""
    x = as_array_node(array)
    x = x if dtype is None else cast(x, dtype)
    k = normal_axis(f"{ufunc.__name__}.accumulate", axis, x.ndim)
    if x.dtype.kind == "b":
        same: dict[np.ufunc, np.ufunc] = {np.maximum: np.logical_or, np.minimum: np.logical_and}
        ufunc = same.get(ufunc, ufunc)
    if ufunc in (np.add, np.multiply):
        return (cumsum if ufunc is np.add else cumprod)(x, k)
    if ufunc in (np.maximum, np.minimum):
        return picked(x, running("cumargmax" if ufunc is np.maximum else "cumargmin", x, k), k)
    if ufunc in (np.subtract, np.divide):
        x = x if ufunc is np.subtract else cast(x, e.true_divide_dtype(x.dtype))
        if not x.shape[k]:
            return x
        rest, first = part(x, k, 1, x.shape[k]), part(x, k, 0, 1)
        totals = cast((cumsum if ufunc is np.subtract else cumprod)(rest, k), x.dtype)
        return joined([first, UFUNCS[ufunc](first, totals)], k)
    if ufunc not in ASSOCIATIVE:
        raise TracingError(
            f"np.{ufunc.__name__}.accumulate cannot take a traced value; write its steps with pullback.scan"
            f"{where_written()}"
        )
    order = (k, *(axis for axis in range(x.ndim) if axis != k))
    made = _totals(UFUNCS[ufunc], permuted(_typed(ufunc, x), order))
    return permuted(made, tuple([order.index(axis) for axis in range(x.ndim)]))


def reduce(ufunc: np.ufunc, array: Any, axis: Axes = 0, *, keepdims: bool = False) -> Any:
    """``ufunc.reduce`` of ufuncs that have no function of their own."""
    x = as_array_node(array)
    axes = reduced_axes(f"{ufunc.__name__}.reduce", axis, x.ndim)
    kept = tuple(axis for axis in range(x.ndim) if axis not in axes)
    count = math.prod([x.shape[axis] for axis in axes])
    if not count and ufunc.identity is None:
        raise ShapeError(f"{ufunc.__name__}.reduce of no element{where_written()}")
    rows = to_shape(permuted(x, (*axes, *kept)), (count, *(x.shape[axis] for axis in kept)))
    if ufunc in (np.subtract, np.divide):
        rows = rows if ufunc is np.subtract else cast(rows, e.true_divide_dtype(x.dtype))
        rest = cast((r.sum if ufunc is np.subtract else r.prod)(part(rows, 0, 1, count), 0), rows.dtype)
        made = UFUNCS[ufunc](to_shape(part(rows, 0, 0, 1), rows.shape[1:]), rest)
    elif ufunc in ASSOCIATIVE:
        rows = _typed(ufunc, rows)
        none = broadcast_to_shape(as_node(ufunc.identity, rows.dtype), rows.shape[1:]) if not count else None
        made = _halved(UFUNCS[ufunc], rows) if none is None else none
    else:
        raise TracingError(
            f"np.{ufunc.__name__}.reduce cannot take a traced value; write its steps with pullback.scan"
            f"{where_written()}"
        )
    shape = tuple([1 if axis in axes else n for axis, n in enumerate(x.shape)])
    return to_shape(made, shape) if keepdims else made


def reduceat(ufunc: np.ufunc, array: Any, indices: Any, axis: int = 0, dtype: Any = None) -> Any:
    """``ufunc.reduceat`` with concrete indices: what stands from each to the next is joined."""
    name = f"{ufunc.__name__}.reduceat"
    x = as_array_node(array)
    x = x if dtype is None else cast(x, dtype)
    k = normal_axis(name, axis, x.ndim)
    if isinstance(indices, Node):
        raise TracingError(
            f"np.{name} with traced indices; number the segments and use pullback.at(zeros)[numbers].add(x)"
            f"{where_written()}"
        )
    cuts = np.asarray(indices)
    if cuts.size and not (cuts.min() >= 0 and cuts.max() < x.shape[k]):
        raise ShapeError(f"{name}: indices {cuts} for {x.shape[k]} elements{where_written()}")
    ends = [*cuts[1:].tolist(), x.shape[k]]
    if ufunc is np.add and dtype_kind(x.dtype) == "f" and (np.diff(cuts) > 0).all():
        rows = permuted(part(x, k, int(cuts[0]), x.shape[k]), (k, *(n for n in range(x.ndim) if n != k)))
        zeros = broadcast_to_shape(as_array_node(np.zeros((), x.dtype)), (len(cuts), *rows.shape[1:]))
        numbers = as_array_node(np.repeat(np.arange(len(cuts)), np.diff([*cuts, x.shape[k]])))
        made = OPERATORS["scatter_add"](zeros, rows, numbers, axes=(0,))
        return permuted(made, (*range(1, k + 1), 0, *range(k + 1, x.ndim)))
    pieces = [part(x, k, start, max(start + 1, stop)) for start, stop in zip(cuts.tolist(), ends)]
    return joined([reduced_by(ufunc, piece, axis=k, keepdims=True) for piece in pieces], k)


UFUNC_METHODS.update(accumulate=accumulate, reduce=reduce, reduceat=reduceat)


# -- differences


@implements(np.diff)
def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """Each element minus the one before it along ``axis``, ``n`` times over; with elements put at the ends before.

    >>> import numpy as np
    >>> print(diff(np.array([1.0, 4.0, 9.0])))
    [3. 5.]
    """
    x = as_array_node(a)
    k = normal_axis("diff", axis, x.ndim)
    if prepend is not None or append is not None:
        ends = [None if end is None else strong(as_array_node(end)) for end in (prepend, append)]
        one = (*x.shape[:k], 1, *x.shape[k + 1 :])
        before, after = ([] if z is None else [z if z.ndim else broadcast_to_shape(z, one)] for z in ends)
        x = concatenate([*before, x, *after], k)
    minus = e.not_equal if x.dtype.kind == "b" else e.subtract
    for _ in range(count("diff", "n", n, least=0)):
        extent = x.shape[k]
        x = minus(part(x, k, min(1, extent), extent), part(x, k, 0, max(extent - 1, 0)))
    return x


@implements(np.ediff1d)
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """The differences of neighbours in the flat array, between ``to_begin`` and ``to_end``."""
    x = as_array_node(ary)
    between = diff(to_shape(x, (x.size,)))

    def end(name: str, z: Any) -> list[Node]:
        if z is None:
            return []
        given = as_array_node(vocabulary["ravel"](z))
        if not np.can_cast(given.dtype, x.dtype, "same_kind"):
            raise DTypeError(f"ediff1d of {x.type}: {name} is {given.dtype}{where_written()}")
        return [cast(given, x.dtype)]

    return concatenate([*end("to_begin", to_begin), between, *end("to_end", to_end)])


@implements(np.gradient)
def gradient(f: Any, *varargs: Any, axis: Axes = None, edge_order: int = 1) -> Any:
    r"""The slopes of values on a grid: central differences inside, differences of order ``edge_order`` at the ends.

    ``varargs`` are the distances of the grid or its places, one for all axes or one for each; both may be traced.
    Source: Fornberg, *Generation of finite difference formulas on arbitrarily spaced grids*, Math. Comp. 51, 1988.

    >>> import numpy as np
    >>> print(gradient(np.array([1.0, 4.0, 9.0, 16.0])))
    [3. 4. 6. 7.]
    """
    x = as_array_node(f)
    x = cast(x, e.true_divide_dtype(x.dtype))
    axes = normal_axes("gradient", axis, x.ndim)
    if edge_order not in (1, 2):
        raise ShapeError(f"gradient: edge_order {edge_order}; it is 1 or 2{where_written()}")
    grids = varargs or (1.0,)
    grids = grids * len(axes) if len(grids) == 1 and np.ndim(grids[0]) == 0 else grids
    if len(grids) != len(axes):
        raise ShapeError(f"gradient: {len(grids)} grids for {len(axes)} axes; give one each{where_written()}")
    slopes = [_slope(x, k, grid, edge_order) for k, grid in zip(axes, grids)]
    return slopes[0] if len(slopes) == 1 else tuple(slopes)


def _slope(x: Node, k: int, grid: Any, edge_order: int) -> Node:
    extent = x.shape[k]
    if extent < edge_order + 1:
        raise ShapeError(
            f"gradient along axis {k} of shape {x.shape} needs {edge_order + 1} elements{where_written()}"
        )

    def element(place: int) -> Node:
        place %= extent
        return part(x, k, place, place + 1)

    before, middle, after = (part(x, k, s, extent - 2 + s) for s in (0, 1, 2))
    if np.ndim(grid) == 0:
        h = as_array_node(grid)
        inside = (after - before) / (2.0 * h)
        first, last = (element(1) - element(0)) / h, (element(-1) - element(-2)) / h
        if edge_order == 2:
            a, b, c = 0.5 / h, 2.0 / h, 1.5 / h  # in NumPy's order, which rounds as this does
            first = -c * element(0) + b * element(1) + -a * element(2)
            last = a * element(-3) + -b * element(-2) + c * element(-1)
        return joined([first, inside, last], k)
    places = as_array_node(grid)
    if places.shape != (extent,):
        raise ShapeError(
            f"gradient: a grid of shape {places.shape} along axis {k} of shape {x.shape}{where_written()}"
        )
    steps = to_shape(diff(cast(places, x.dtype)), (*(1,) * k, extent - 1, *(1,) * (x.ndim - k - 1)))
    left, right = part(steps, k, 0, extent - 2), part(steps, k, 1, extent - 1)
    both = left + right
    inside = (
        -(right / (left * both)) * before
        + (right - left) / (left * right) * middle
        + left / (right * both) * after
    )

    def step(place: int) -> Node:
        place %= extent - 1
        return part(steps, k, place, place + 1)

    if edge_order == 1:
        first, last = (element(1) - element(0)) / step(0), (element(-1) - element(-2)) / step(-1)
    else:
        first = _edge(element(0), element(1), element(2), step(0), step(1))
        last = -_edge(element(-1), element(-2), element(-3), step(-1), step(-2))
    return joined([first, inside, last], k)


def _edge(a: Node, b: Node, c: Node, h: Node, d: Node) -> Node:
    """The slope at the first of three places that are ``h`` and ``d`` apart, of second order."""
    return -((2.0 * h + d) / (h * (h + d))) * a + (h + d) / (h * d) * b - h / (d * (h + d)) * c  # type: ignore[return-value]


@implements(np.trapezoid)
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    r"""The integral along ``axis`` by the trapezoidal rule: :math:`\sum_k d_k (y_k + y_{k+1}) / 2`.

    ``x`` are the places of the values, or ``dx`` their distance.
    """
    values = as_array_node(y)
    k = normal_axis("trapezoid", axis, values.ndim)
    widths = dx
    if x is not None:
        places = as_array_node(x)
        widths = diff(places, axis=k if places.ndim > 1 else -1)
        if places.ndim == 1:
            widths = to_shape(widths, (*(1,) * k, widths.size, *(1,) * (values.ndim - k - 1)))
    extent = values.shape[k]
    pairs = part(values, k, min(1, extent), extent) + part(values, k, 0, max(extent - 1, 0))
    return r.sum(widths * pairs / 2.0, k)


@implements(np.unwrap)
def unwrap(p: Any, discont: Any = None, axis: int = -1, *, period: Any = 2 * math.pi) -> Any:
    """Angles whose jumps of more than half a period are made up for by whole periods."""
    x = as_array_node(p)
    k = normal_axis("unwrap", axis, x.ndim)
    if not x.shape[k]:
        return x
    steps = diff(x, axis=k)
    half = period / 2
    limit = half if discont is None else np.maximum(discont, half)
    wrapped = e.remainder(steps + half, period) - half
    wrapped = e.where((wrapped == -half) & (steps > 0), half, wrapped)
    turns = e.where(e.absolute(steps) < limit, 0.0, e.stop_gradient(wrapped - steps))
    extent = x.shape[k]
    rest = part(x, k, 1, extent) + cumsum(turns, k)
    return joined([cast(part(x, k, 0, 1), rest.dtype), rest], k)
