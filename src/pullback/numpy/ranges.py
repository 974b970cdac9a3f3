"""Numbers at equal distances between ends that may be traced, and grids of them."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from pullback.errors import ShapeError, TracingError
from pullback.graph import OPERATORS, Type
from pullback.graph.named import LEAST_STAND_IN, is_named, sizes_under_way
from pullback.graph.protocol import vocabulary
from pullback.numpy import elementwise as e
from pullback.numpy.arrays import TracedArray
from pullback.numpy.dispatch import implements, turns
from pullback.numpy.promotion import (
    any_traced,
    as_array_node,
    broadcast_together,
    cast,
    promote,
    result_dtype,
    settled,
    where_written,
)
from pullback.numpy.shapes import broadcast_arrays, extents, moveaxis, to_shape
from pullback.numpy.sizes import counted

__all__ = ["arange", "eye", "geomspace", "identity", "linspace", "logspace", "meshgrid", "tri", "vander"]


@implements(np.linspace)
def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    r"""``num`` numbers at equal distances: :math:`a + k (b - a) / (n - 1)`, without the end over :math:`n`.

    Both ends may be arrays, and traced; of how many numbers there are a named axis may be.

    >>> print(linspace(0.0, 1.0, 5))
    [0.   0.25 0.5  0.75 1.  ]
    """
    count = operator.index(settled(num))
    if count < 0:
        raise ShapeError(f"linspace: {count} numbers; give 0 or more{where_written()}")
    low, high = broadcast_together("linspace", promote((start, stop), e.true_divide_dtype))
    gaps = count - 1 if endpoint else count
    parts: Any = counted(gaps) if is_named(count) else gaps
    step = (high - low) / parts if gaps > 0 else (high - low) * np.nan
    places = _counted_along(0, count, low.dtype) if is_named(count) else np.arange(count, dtype=low.dtype)
    turns = as_array_node(places.reshape(-1, *(1,) * low.ndim))
    numbers = low + turns * (step if gaps > 0 else high - low)
    if endpoint and count > 1:
        numbers = e.where(e.equal(turns, parts), high, numbers)
    numbers = moveaxis(numbers, 0, axis) if axis else numbers
    if dtype is not None:
        whole = np.issubdtype(np.dtype(dtype), np.integer)
        numbers = e.astype(e.floor(numbers) if whole else numbers, dtype)
    return (numbers, step) if retstep else numbers


@implements(np.logspace)
def logspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    base: Any = 10.0,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    """Powers of ``base`` whose exponents have equal distances from ``start`` to ``stop``."""
    made = e.power(base, linspace(start, stop, num, endpoint, axis=axis))
    return made if dtype is None else e.astype(made, dtype)


@implements(np.geomspace)
def geomspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0
) -> Any:
    """``num`` numbers of equal ratios from ``start`` to ``stop``: real ones of one sign, or a spiral of complex ones.

    As in NumPy they have 64 bits, and are NaN between real ends of different signs.
    """
    low, high = broadcast_together("geomspace", promote((start, stop, np.zeros(())), e.true_divide_dtype)[:2])
    sign = e.sign(low)
    ratios = linspace(e.log(low / sign), e.log(high / sign), num, endpoint)
    turns = np.arange(int(num)).reshape(-1, *(1,) * low.ndim)
    made = sign * e.exp(ratios)
    made = e.where(turns == 0, low, made)
    if endpoint and num > 1:
        made = e.where(turns == num - 1, high, made)
    made = moveaxis(made, 0, axis) if axis else made
    return made if dtype is None else e.astype(made, dtype)


def arange(*ends: Any, dtype: Any = None, step: Any = 1) -> Any:
    """``np.arange`` of concrete ends; raises ``TracingError`` for traced ones, which would make a shape of values.

    >>> print(arange(3))
    [0 1 2]
    """
    ends, step = settled(ends), settled(step)
    if (
        step == 1
        and len(ends) < 3
        and sizes_under_way()
        and any(
            isinstance(end, (int, np.ndarray)) and not np.ndim(end) and end >= LEAST_STAND_IN for end in ends
        )
    ):
        return _counted_along(*_ends(ends), dtype)
    if any_traced(*ends, step):
        raise TracingError(
            "arange of traced ends would have a length that depends on values; use start + step * np.arange(n)"
            f"{where_written()}"
        )
    return np.arange(*ends, dtype=dtype) if len(ends) == 3 else np.arange(*_ends(ends), step, dtype=dtype)


def _counted_along(start: Any, stop: Any, dtype: Any) -> Any:
    """The whole numbers from ``start`` on, as many as a named axis has places."""
    kind = np.dtype(np.int64 if dtype is None else dtype)
    made = OPERATORS["iota"](shape=(int(stop) - int(start),), axis=0, dtype=kind)
    return TracedArray(made + int(start) if start else made)


def eye(N: Any, M: Any = None, k: int = 0, dtype: Any = float) -> Any:
    """``np.eye``: ones on the diagonal ``k`` of ``N`` rows and ``M`` columns, which may be those of named axes.

    >>> print(eye(2, 3, 1))
    [[0. 1. 0.]
     [0. 0. 1.]]
    """
    if not any_traced(N, M):
        return np.eye(N, M, k, dtype)
    rows, columns = _grid("eye", N, M)
    return TracedArray(e.astype(e.equal(rows + k, columns), dtype))


def identity(n: Any, dtype: Any = float) -> Any:
    """``np.identity``: ones on the diagonal of ``n`` rows and columns, which may be those of a named axis."""
    return eye(n, dtype=dtype)


def tri(N: Any, M: Any = None, k: int = 0, dtype: Any = float) -> Any:
    """``np.tri``: ones on the diagonal ``k`` and below it, of rows and columns that may be those of named axes.

    >>> print(tri(2, 3, 1))
    [[1. 1. 0.]
     [1. 1. 1.]]
    """
    if not any_traced(N, M):
        return np.tri(N, M, k, dtype)
    rows, columns = _grid("tri", N, M)
    return TracedArray(e.astype(e.greater_equal(rows + k, columns), dtype))


def _grid(name: str, rows: Any, columns: Any) -> tuple[Any, Any]:
    """The numbers of the row and of the column at each place of a matrix."""
    shape = extents(name, (rows, rows if columns is None else columns))
    count = np.dtype(np.int64)
    first, second = (OPERATORS["iota"](shape=shape, axis=axis, dtype=count) for axis in (0, 1))
    return first, second


def _ends(ends: tuple[Any, ...]) -> tuple[Any, Any]:
    return (0, ends[0]) if len(ends) == 1 else (ends[0], ends[1])


@implements(np.meshgrid)
def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    """The coordinates of a grid: for each vector an array that repeats it along the axes of the others."""
    if indexing not in ("xy", "ij"):
        raise TracingError(f"meshgrid: indexing {indexing!r} is neither 'xy' nor 'ij'{where_written()}")
    nodes = [as_array_node(x) for x in xi]
    axes = list(range(len(nodes)))
    if indexing == "xy" and len(nodes) > 1:
        axes[:2] = 1, 0
    grids = [
        to_shape(x, tuple([x.size if k == axis else 1 for k in range(len(nodes))]))
        for x, axis in zip(nodes, axes)
    ]
    return tuple(grids if sparse else broadcast_arrays(*grids))


@implements(np.vander)
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    """The powers of each of ``x`` as a row, the highest first, or the lowest if ``increasing``.

    In the dtype that ``x`` and ``int64`` have in common, as NumPy's.
    """
    node = as_array_node(x)
    if node.ndim != 1:
        raise ShapeError(f"vander of shape {node.shape}; it takes a vector{where_written()}")
    node = cast(node, result_dtype(node.type, Type(np.dtype(np.int64), ())))
    count = node.size if N is None else operator.index(N)
    columns: list[Any] = [vocabulary["ones_like"](node)]
    for _ in turns("vander", count - 1):
        columns.append(columns[-1] * node)
    columns = columns[:count] if increasing else columns[:count][::-1]
    return vocabulary["stack"](columns, 1) if columns else node[:, None][:, :0]
