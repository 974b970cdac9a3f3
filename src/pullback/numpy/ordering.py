"""Order: sorting, places in sorted tables, interpolation, counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np

from pullback.counts import count
from pullback.errors import NamedAxisError, ShapeError, TracingError
from pullback.graph import OPERATORS, Node, dtype_kind, force, is_complex, is_known
from pullback.graph.named import is_named
from pullback.graph.protocol import vocabulary
from pullback.numpy import elementwise as e
from pullback.numpy.axes import normal_axis
from pullback.numpy.composite import clip
from pullback.numpy.cumulative import flat_or_along, running
from pullback.numpy.dispatch import NEAREST, enter, implements
from pullback.numpy.indexing import take, take_along_axis
from pullback.numpy.promotion import (
    any_traced,
    as_array_node,
    as_node,
    broadcast_to_shape,
    cast,
    promote,
    settled,
    where_written,
)
from pullback.numpy.ranges import linspace
from pullback.numpy.shapes import (
    concatenate,
    flip,
    joined,
    part,
    picked,
    stack,
    swapaxes,
    take_rows,
    to_shape,
)

__all__ = [
    "argpartition",
    "argsort",
    "argwhere",
    "bincount",
    "digitize",
    "flatnonzero",
    "histogram",
    "histogram2d",
    "histogram_bin_edges",
    "histogramdd",
    "interp",
    "isin",
    "lexsort",
    "nonzero",
    "partition",
    "searchsorted",
    "sort",
    "top_k",
    "unique",
]

INT64 = np.dtype(np.int64)
KINDS = (None, "quicksort", "mergesort", "heapsort", "stable", "introselect")


def _check_kind(name: str, kind: Any, order: Any) -> None:
    if kind not in KINDS or order is not None:
        given = f"kind {kind!r}" if order is None else f"order {order!r}"
        raise TracingError(f"{name} of {given}; leave it out, sorting is stable here{where_written()}")


def positions_in_order(x: Node, axis: int, **wanted: int) -> Node:
    """Positions along ``axis`` that sort it, or so many ``last`` ones, NaN last; equal elements stay in their order."""
    last = x.ndim - 1
    if axis == last:
        return OPERATORS["argsort"](x, **wanted)
    return swapaxes(OPERATORS["argsort"](swapaxes(x, axis, last), **wanted), axis, last)  # type: ignore[no-any-return]


def sorted_along(x: Node, axis: int) -> Node:
    """``x`` sorted along ``axis``."""
    return picked(x, positions_in_order(x, axis), axis)


@implements(np.sort)
def sort(a: Any, axis: int | None = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    """The elements in rising order along ``axis``, of the flat array for ``None``; NaN is last.

    The cotangent of each element goes to the place that it came from; of equal ones in their order.

    >>> import numpy as np
    >>> print(sort(np.array([3.0, 1.0, 2.0])))
    [1. 2. 3.]
    """
    _check_kind("sort", kind, order)
    x, k = flat_or_along("sort", a, axis)
    return sorted_along(x, k)


@implements(np.argsort)
def argsort(a: Any, axis: int | None = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    """Positions along ``axis`` that would sort it, as ``int64``; equal elements stay in their order."""
    _check_kind("argsort", kind, order)
    if not np.ndim(a):
        return as_array_node(np.int64(0))
    x, k = flat_or_along("argsort", a, axis)
    return positions_in_order(x, k)


def _check_places(name: str, kth: Any, x: Node, axis: int) -> None:
    """Raise for places, where they are known, that are outside an axis; of no elements NumPy takes any."""
    extent = x.shape[axis]
    for each in np.atleast_1d(kth) if x.size and not any_traced(kth) else ():
        place = index(each)
        if not -extent <= place < extent:
            raise ShapeError(
                f"{name}: place {place} of {extent} elements; use one from {-extent} to {extent - 1}{where_written()}"
            )


@implements(np.partition)
def partition(a: Any, kth: Any, axis: int | None = -1, kind: Any = None, order: Any = None) -> Any:
    """The elements so that those at ``kth`` are where sorting puts them: here all of them are sorted."""
    _check_kind("partition", kind, order)
    x, k = flat_or_along("partition", a, axis)
    _check_places("partition", kth, x, k)
    return sorted_along(x, k)


@implements(np.argpartition)
def argpartition(a: Any, kth: Any, axis: int | None = -1, kind: Any = None, order: Any = None) -> Any:
    """Positions so that those at ``kth`` are where sorting puts them: here all of them are sorted."""
    _check_kind("argpartition", kind, order)
    x, k = flat_or_along("argpartition", a, axis)
    _check_places("argpartition", kth, x, k)
    return positions_in_order(x, k)


@implements(np.lexsort)
def lexsort(keys: Any, axis: int = -1) -> Any:
    """Positions that sort by the last of the keys, equal ones by the one before it, and so on."""
    nodes = [as_array_node(key) for key in keys]
    k = normal_axis("lexsort", axis, nodes[0].ndim)
    order = positions_in_order(nodes[0], k)
    for key in nodes[1:]:
        order = picked(order, positions_in_order(picked(key, order, k), k), k)
    return order


def top_k(a: Any, k: int, axis: int = -1) -> tuple[Any, Any]:
    """The ``k`` largest elements along ``axis``, the largest first, and where they are; the first of equals first.

    NaN counts as the largest. Raises ``ShapeError`` where there are fewer, ``NamedAxisError`` along an axis of any
    size, and ``TypeError`` unless ``k`` is an integer that is known while tracing.

    >>> import numpy as np
    >>> values, places = top_k(np.array([1.0, 5.0, 3.0, 5.0]), 3)
    >>> print(values, places)
    [5. 5. 3.] [1 3 2]
    """
    x = as_array_node(a)
    place = normal_axis("top_k", axis, x.ndim)
    extent, k = x.shape[place], index(k)
    if is_named(extent):
        rows = ":, " * place
        raise NamedAxisError(
            f"top_k of {x.type} along a named axis looks at as many elements as there are; write the values as "
            f"-np.sort(-x, axis={place})[{rows}:{k}], and the places as np.argsort(-x, axis={place})[{rows}:{k}]"
            f"{where_written()}"
        )
    if not 0 <= k <= extent:
        raise ShapeError(
            f"top_k: {k} of the {extent} elements along axis {place} of shape {x.shape}; "
            f"give a number from 0 to {extent}{where_written()}"
        )
    rising = positions_in_order(flip(x, place), place, last=k)
    places = (extent - 1) - take(flip(rising, place), np.arange(k), place)
    return take_along_axis(x, places, place), places


# -- places in sorted tables


def _count_before(table: Node, values: Node, right: bool) -> Node:
    """How many elements of a sorted table come before each value, and with ``right`` those equal to it."""
    extent = table.shape[0]

    def precedes(x: Node, y: Node) -> Node:  # NaN is the largest
        less = e.less(x, y)
        if dtype_kind(x.dtype) != "f":
            return less  # type: ignore[no-any-return]
        return less | (e.isnan(y) & ~e.isnan(x))  # type: ignore[no-any-return]

    count = broadcast_to_shape(as_array_node(np.int64(0)), values.shape)
    half = 1 << extent.bit_length() >> 1
    while half:
        probe = count + half
        element = OPERATORS["gather"](table, e.minimum(probe, extent) - 1, axes=(0,))
        before = ~precedes(values, element) if right else precedes(element, values)
        count = e.where(before & (probe <= extent), probe, count)
        half >>= 1
    return count


@implements(np.searchsorted)
def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """Where each of ``v`` would go into the sorted table ``a``: before equal elements, or behind (``"right"``).

    >>> import numpy as np
    >>> print(searchsorted(np.array([1.0, 2.0, 3.0]), np.array([2.0, 2.5])))
    [1 2]
    """
    if side not in ("left", "right"):
        raise TracingError(f"searchsorted: side {side!r} is neither 'left' nor 'right'{where_written()}")
    table, values = promote((a, v))
    if table.ndim != 1:
        raise ShapeError(f"searchsorted: a table of shape {table.shape}; it has one axis{where_written()}")
    if sorter is not None:
        table = take(table, sorter)
    return _count_before(table, values, side == "right")


@implements(np.digitize)
def digitize(x: Any, bins: Any, right: bool = False) -> Any:
    """The number of the bin that each of ``x`` falls in; ``bins`` rise or fall, and ``right`` closes them there."""
    edges = as_array_node(bins)
    side = "left" if right else "right"
    rising = searchsorted(edges, x, side)
    falling = edges.size - searchsorted(flip(edges), x, side)
    if isinstance(bins, Node):
        return e.where(_rises(edges), rising, falling) if edges.size > 1 else rising
    known = np.asarray(bins)
    rises = bool(_rises(known)) if known.size > 1 else True
    first, second = (known[:-1], known[1:]) if rises else (known[1:], known[:-1])
    if (first > second).any():
        raise ShapeError(f"digitize: the bins neither rise nor fall throughout; sort them{where_written()}")
    return rising if rises else falling


def _rises(edges: Any) -> Any:
    """Whether the first two edges that differ rise, as NumPy sees it: NaN in the end is no fall."""
    before, after = edges[:-1], edges[1:]
    k = np.argmax(before != after)
    return (before[k] < after[k]) | np.all(before == after)


@implements(np.interp)
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    r"""Straight lines between the points ``(xp, fp)``: :math:`f_k + (x - x_k)(f_{k+1} - f_k) / (x_{k+1} - x_k)`.

    ``xp`` rises. Outside it is ``left`` and ``right``, by default the first and the last of ``fp``, or it goes on with
    ``period``. Derivatives by all three; at a point the slope is that of the line behind it. ``fp`` may be complex: its
    real and its imaginary part go on lines of their own.

    >>> import numpy as np
    >>> print(interp(2.5, np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.0, 0.0])))
    1.0
    """
    fs = as_array_node(fp)
    if is_complex(fs.dtype):
        ends = [(None, None) if end is None else (np.real(end), np.imag(end)) for end in (left, right)]
        real, imag = (
            interp(x, xp, of(fs), ends[0][k], ends[1][k], period) for k, of in enumerate((np.real, np.imag))
        )
        return OPERATORS["complex_of"](real, e.where(e.isnan(x), 0.0, imag))
    x, xs = promote((x, xp), e.true_divide_dtype)
    x, xs, fs = (cast(each, np.float64) for each in (x, xs, fs))
    if xs.ndim != 1 or xs.shape != fs.shape or not xs.size:
        raise ShapeError(
            f"interp: points of shapes {xs.shape} and {fs.shape}; give as many of both{where_written()}"
        )
    if period is not None:
        x, xs = e.remainder(x, period), e.remainder(xs, period)
        order = positions_in_order(xs, 0)
        xs, fs = picked(xs, order, 0), picked(fs, order, 0)
        xs = concatenate([xs[-1:] - period, xs, xs[:1] + period])
        fs = concatenate([fs[-1:], fs, fs[:1]])
    last = xs.shape[0] - 1
    lowest = fs[0] if left is None else as_node(left, fs.dtype)
    highest = fs[last] if right is None else as_node(right, fs.dtype)
    if last:
        k = clip(_count_before(xs, x, True) - 1, 0, last - 1)
        x0, x1, f0, f1 = (OPERATORS["gather"](each, k + d, axes=(0,)) for each in (xs, fs) for d in (0, 1))
        slope = (f1 - f0) / (x1 - x0)
        inside = slope * (x - x0) + f0
        # Next to an infinite point the line from the other one may still say where it goes, as NumPy has it.
        other = slope * (x - x1) + f1
        other = e.where(e.isnan(other) & (f0 == f1), f0, other)
        inside = e.where(e.isnan(inside), other, inside)
        inside = e.where(x == x0, f0 + (x - x0) * e.where(e.isfinite(slope), slope, 0.0), inside)
    else:
        inside = fs[0]
    ended = e.where(x == xs[last], fs[last], inside) if last else inside
    ended = e.where(x > xs[last], highest, e.where(x < xs[0], lowest, ended))
    return e.where(e.isnan(x), x, ended)


# -- counts


def _counted(numbers: Node, length: int, weights: Any) -> Node:
    """How often each number below ``length`` occurs, or the sum of its weights."""
    one = np.int64(1) if weights is None else weights
    added = broadcast_to_shape(as_array_node(one), numbers.shape)
    zeros = broadcast_to_shape(as_array_node(np.zeros((), added.dtype)), (length,))
    return OPERATORS["scatter_add"](zeros, added, numbers, axes=(0,))


@implements(np.bincount)
def bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    """How often each number occurs, or the sum of its weights.

    Of traced numbers there are ``minlength`` counts, and a larger number is an ``IndexRangeError`` when the program
    runs: the length of the result cannot depend on values.
    """
    numbers = as_array_node(x)
    length = count("bincount", "minlength", minlength, least=0)
    if numbers.ndim != 1:
        raise ShapeError(
            f"bincount: numbers of shape {numbers.shape}; give it one axis, x.ravel(){where_written()}"
        )
    x = settled(x)
    if isinstance(x, Node):
        if not length:
            raise TracingError(
                f"np.bincount of traced numbers: give minlength=, a bound above the largest of them{where_written()}"
            )
    elif np.size(x):
        length = max(length, int(np.max(x)) + 1)
    numbers = OPERATORS["check_index"](
        cast(numbers, INT64), extent=length, what="bincount: minlength", wrap=False
    )
    if weights is not None:
        weights = cast(as_array_node(weights), np.float64)
        _check_weights("bincount", weights.shape, numbers.shape)
    return _counted(numbers, length, weights)


def _check_weights(name: str, weights: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    if weights != wanted:
        raise ShapeError(
            f"{name}: weights of shape {weights} for elements of shape {wanted}{where_written()}"
        )


def _edges(x: Node, bins: Any, range: Any) -> Any:
    """The edges of bins: those given, or so many equal ones."""
    if isinstance(bins, str):
        raise TracingError(f"bins={bins!r} depend on values; give their number or edges{where_written()}")
    if np.ndim(bins):
        if not any_traced(bins) and np.any(np.diff(bins) < 0):
            raise ShapeError(f"histogram: edges {np.asarray(bins)} that fall; sort them{where_written()}")
        return bins
    bins = count("histogram", "bins", bins)
    if range is not None:
        if len(bounds := tuple(range) if np.ndim(range) else ()) != 2:
            raise ShapeError(f"histogram: range={range!r}; give a pair, (low, high){where_written()}")
        low, high = bounds
        if not any_traced(low, high) and low > high:
            raise ShapeError(f"histogram: range={range!r} falls; give the lower end first{where_written()}")
        if not any_traced(low, high) and low == high:
            low, high = low - 0.5, high + 0.5
        low, high, _ = promote((low, high, x), e.true_divide_dtype)
        return linspace(low, high, bins + 1)
    low, high = vocabulary["min"](x), vocabulary["max"](x)
    alone = low == high
    return linspace(e.where(alone, low - 0.5, low), e.where(alone, high + 0.5, high), bins + 1)


@implements(np.histogram_bin_edges)
def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    """The edges of so many equal bins over ``range``, by default from the smallest to the largest element."""
    return _edges(as_array_node(a), bins, range)


def _bins(x: Node, edges: Any) -> tuple[Node, Node, int]:
    """The bin of each element, whether it is in one, and how many bins there are; the last one is closed."""
    count = int(np.shape(edges)[0]) - 1
    table, values = promote((edges, x))
    number = _count_before(table, values, True) - 1
    number = e.where(values == table[-1], count - 1, number)
    return clip(number, 0, count - 1), (number >= 0) & (number < count), count


@implements(np.histogram)
def histogram(a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> Any:
    """How many elements, or what weight of them, fall into each bin, and the edges of the bins.

    Counts have no derivatives, weighted ones those of the weights.
    """
    x = vocabulary["ravel"](a)
    edges = _edges(x, bins, range)
    number, inside, count = _bins(x, edges)
    added = inside.astype(np.int64)
    if weights is not None:
        _check_weights("histogram", np.shape(weights), np.shape(a))
        added = e.where(inside, vocabulary["ravel"](weights), 0)
    found = _counted(number, count, added)
    if density:
        found = found / vocabulary["diff"](edges) / vocabulary["sum"](found)
    return found, edges


@implements(np.histogramdd)
def histogramdd(
    sample: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> Any:
    """How many points, rows of ``sample``, fall into each cell of a grid, and the edges along each axis."""
    columns = (
        [as_array_node(each) for each in sample]
        if isinstance(sample, (list, tuple))
        else list(vocabulary["swapaxes"](sample, 0, 1))
    )
    kinds = list(bins) if np.ndim(bins) or isinstance(bins, (list, tuple)) else [bins] * len(columns)
    ranges = [None] * len(columns) if range is None else range
    if len(kinds) != len(columns) or len(ranges) != len(columns):
        raise ShapeError(
            f"histogramdd: {len(kinds)} bins and {len(ranges)} ranges for points of {len(columns)} coordinates; give "
            f"one for each{where_written()}"
        )
    edges = [_edges(x, bin, each) for x, bin, each in zip(columns, kinds, ranges, strict=True)]
    number: Any = 0
    inside: Any = True
    shape = []
    for x, own in zip(columns, edges):
        place, within, count = _bins(x, own)
        number, inside = number * count + place, inside & within
        shape.append(count)
    added = inside.astype(np.float64) if weights is None else e.where(inside, weights, 0.0)
    found = to_shape(_counted(number, math.prod(shape), added), tuple(shape))
    if density:
        found = found / vocabulary["sum"](found)
        for k, own in enumerate(edges):
            widths = as_array_node(vocabulary["diff"](own))
            found = found / to_shape(widths, tuple([n if k == axis else 1 for axis, n in enumerate(shape)]))
    return found, tuple(edges)


@implements(np.histogram2d)
def histogram2d(
    x: Any, y: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> Any:
    """How many points ``(x, y)`` fall into each cell of a grid, and the edges along both axes."""
    kinds = bins if isinstance(bins, (list, tuple)) and len(bins) == 2 else [bins, bins]
    found, edges = histogramdd([x, y], kinds, range, density, weights)
    return found, *edges


# -- sets, of known sizes


@implements(np.isin)
def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, kind: Any = None
) -> Any:
    """Whether each element is among ``test_elements``."""
    x, tests = promote((element, test_elements))
    if not tests.size:
        found = broadcast_to_shape(as_array_node(np.False_), x.shape)
    else:
        table = sorted_along(to_shape(tests, (tests.size,)), 0)
        place = e.minimum(_count_before(table, x, False), tests.size - 1)
        found = e.equal(OPERATORS["gather"](table, place, axes=(0,)), x)
    return ~found if invert else found


def _places(mask: Node, size: int) -> tuple[Node, Node]:
    """The first ``size`` true places of a flat mask, and which of them there are."""
    counts = running("cumsum", cast(mask, INT64), 0)
    places = _count_before(counts, as_array_node(np.arange(1, size + 1)), False)
    return e.minimum(places, max(mask.size - 1, 0)), places < mask.size


def nonzero(a: Any, size: int | None = None, fill_value: int = 0) -> tuple[Any, ...]:
    """``np.nonzero`` with a known ``size``: indices of the first so many elements that are not zero.

    Behind the last of them stands ``fill_value``.

    >>> import numpy as np
    >>> nonzero(np.array([0, 3, 4]), size=3, fill_value=-1)
    (array([ 1,  2, -1]),)
    """
    return _nonzero("nonzero", a, size, fill_value)


def _nonzero(name: str, a: Any, size: int | None, fill_value: int) -> tuple[Any, ...]:
    if size is None:
        a = settled(e.as_bool(a)) if isinstance(a, Node) else a
        if isinstance(a, Node):
            raise TracingError(
                f"np.{name} cannot take a traced value; {NEAREST[np.nonzero]}{where_written()}"
            )
        return np.nonzero(a)
    if not isinstance(a, Node):
        found = np.nonzero(a)
        return tuple(
            np.concatenate([each[:size], np.full(max(size - len(each), 0), fill_value)]) for each in found
        )
    mask = e.as_bool(a)
    places, present = _places(to_shape(mask, (mask.size,)), size)
    indices = []
    for extent in a.shape[::-1]:
        indices.append(e.where(present, e.remainder(places, extent), fill_value))
        places = e.floor_divide(places, extent)
    return tuple(indices[::-1])


def flatnonzero(a: Any, size: int | None = None, fill_value: int = 0) -> Any:
    """``np.flatnonzero`` with a known ``size``; see ``nonzero``."""
    return _nonzero("flatnonzero", vocabulary["ravel"](a), size, fill_value)[0]


def argwhere(a: Any, size: int | None = None, fill_value: int = 0) -> Any:
    """``np.argwhere`` with a known ``size``; see ``nonzero``."""
    return stack(_nonzero("argwhere", a, size, fill_value), 1)


def unique(
    a: Any,
    size: int | None = None,
    fill_value: Any = None,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Any:
    """``np.unique``, of values that a program will know with a known ``size``: so many, in rising order.

    Behind the last of them stands ``fill_value``, by default the smallest element. The cotangent of each goes to its
    first occurrence.

    >>> import numpy as np
    >>> print(unique(np.array([3.0, 1.0, 3.0]), size=3, fill_value=0.0))
    [1. 3. 0.]
    """
    if size is None and not isinstance(a, Node):
        return np.unique(a, return_index, return_inverse, return_counts)  # type: ignore[call-overload]
    if size is None and is_known(a):
        places: Any = np.unique(force(a), True, return_inverse, return_counts)  # type: ignore[call-overload]
        different = take_rows(to_shape(a, (a.size,)), places[1], 0)
        more = places[1 if return_index else 2 :]
        return (different, *more) if more else different
    if size is None or return_index or return_inverse or return_counts:
        raise TracingError(f"np.unique cannot take a traced value; {NEAREST[np.unique]}{where_written()}")
    if not isinstance(a, Node):
        found = np.unique(a)
        fill = found[:1] if fill_value is None else [fill_value]
        return np.concatenate([found[:size], np.repeat(fill, max(size - len(found), 0))]).astype(found.dtype)
    x = sorted_along(to_shape(a, (a.size,)), 0)
    after, before = part(x, 0, 1, x.size), part(x, 0, 0, x.size - 1)
    changes = after != before
    if dtype_kind(x.dtype) == "f":
        changes = changes & ~(e.isnan(after) & e.isnan(before))
    places, present = _places(joined([as_array_node(np.ones(1, bool)), changes], 0), size)
    last = x[0] if fill_value is None else cast(as_array_node(fill_value), x.dtype)
    return e.where(present, OPERATORS["gather"](x, places, axes=(0,)), last)


def _refused(names: Sequence[str], repair: str) -> None:
    for name in names:
        NEAREST[getattr(np, name)] = repair


_refused(
    ("unique", "unique_values"),
    "how many there are depends on values: use pullback.numpy.unique(x, size=n)",
)
_refused(
    ("unique_all", "unique_counts", "unique_inverse"),
    "how many there are depends on values: use pullback.numpy.unique(x, size=n) and np.searchsorted",
)
_refused(
    ("union1d", "intersect1d", "setdiff1d", "setxor1d"),
    "how many there are depends on values: use np.isin, or pullback.numpy.unique(x, size=n)",
)
enter(unique, np.unique)
enter(nonzero, np.nonzero)
enter(flatnonzero, np.flatnonzero)
enter(argwhere, np.argwhere)
_refused(
    ("nonzero", "flatnonzero", "argwhere"),
    "how many there are depends on values: use pullback.numpy.nonzero(x, size=n), or np.where(mask, x, y)",
)
_refused(("sort_complex",), "complex numbers are not traced: use np.sort")
_refused(("trim_zeros",), "how many are left depends on values: slice it, or mask with np.where")
