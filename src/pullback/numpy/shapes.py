"""Functions that move elements without computing with them: views, joins, splits and repetitions."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from pullback.errors import NamedAxisError, ShapeError, TracingError
from pullback.graph import OPERATORS, Node
from pullback.graph.named import is_named, shown
from pullback.numpy import elementwise as e
from pullback.numpy.axes import Axes, normal_axes, normal_axis
from pullback.numpy.dispatch import implements
from pullback.numpy.promotion import (
    as_array_node,
    broadcast_shapes,
    broadcast_to_shape,
    cast,
    promote,
    settled,
    strong,
    where_written,
)

__all__ = [
    "array_split",
    "atleast_1d",
    "atleast_2d",
    "broadcast_arrays",
    "broadcast_to",
    "column_stack",
    "concatenate",
    "expand_dims",
    "flip",
    "fliplr",
    "flipud",
    "hstack",
    "moveaxis",
    "ravel",
    "repeat",
    "reshape",
    "roll",
    "sliding_window_view",
    "split",
    "squeeze",
    "stack",
    "swapaxes",
    "tile",
    "transpose",
    "tril",
    "triu",
    "vstack",
]


def extents(name: str, shape: Any) -> tuple[int, ...]:
    """``shape`` as a tuple of Python integers."""
    shape = settled(shape)
    try:
        return tuple([operator.index(n) for n in shape]) if np.iterable(shape) else (operator.index(shape),)
    except TypeError as error:
        if isinstance(error, TracingError):
            raise
        raise ShapeError(f"{name}: a shape is a tuple of integers, not {shape!r}{where_written()}") from None


def to_shape(x: Node, shape: tuple[int, ...]) -> Node:
    """``x`` in a shape of as many elements."""
    return x if x.shape == shape else OPERATORS["reshape"](x, shape=shape)


def permuted(x: Node, axes: tuple[int, ...]) -> Node:
    """``x`` with its axes in another order."""
    return x if axes == tuple(range(x.ndim)) else OPERATORS["transpose"](x, axes=axes)


def part(x: Node, axis: int, start: int, stop: int) -> Node:
    """``x`` from ``start`` to ``stop`` along one axis."""
    if start == 0 and stop == x.shape[axis]:
        return x
    starts, stops = [0] * x.ndim, list(x.shape)
    starts[axis], stops[axis] = start, stop
    return OPERATORS["slice"](x, starts=tuple(starts), stops=tuple(stops), steps=(1,) * x.ndim)


def joined(nodes: Sequence[Node], axis: int) -> Node:
    """``nodes`` of one dtype, one after the other along ``axis``."""
    return nodes[0] if len(nodes) == 1 else OPERATORS["concatenate"](*nodes, axis=axis)


@implements(np.reshape)
def reshape(a: Any, shape: Any, order: str = "C", *, copy: Any = None) -> Any:
    """The same elements in another shape, both in row-major order, or by columns for ``order="F"``.

    One extent may be -1 and is then computed. Raises ``ShapeError`` when the number of elements differs.

    >>> import numpy as np
    >>> print(reshape(np.arange(4), (2, -1)))
    [[0 1]
     [2 3]]
    """
    x = as_array_node(a)
    wanted = extents("reshape", shape)
    known = math.prod([n for n in wanted if n != -1])
    if wanted.count(-1) == 1 and known and x.size % known == 0:
        wanted = tuple([x.size // known if n == -1 else n for n in wanted])
    if min(wanted, default=0) < 0 or math.prod(wanted) != x.size:
        raise ShapeError(
            f"reshape: {x.size} elements of shape {x.shape} do not fill shape {wanted}; "
            f"the products of the extents must be equal{where_written()}"
        )
    if by_columns("reshape", order):
        return transpose(to_shape(transpose(x), wanted[::-1]))
    return to_shape(x, wanted)


def by_columns(name: str, order: str) -> bool:
    """Whether ``order`` is that of columns; traced values are row-major, so ``"A"`` and ``"K"`` are that."""
    if order not in ("C", "F", "A", "K"):
        raise TracingError(f"{name}: order {order!r}; use 'C' or 'F'{where_written()}")
    return order == "F"


@implements(np.ravel)
def ravel(a: Any, order: str = "C") -> Any:
    """The elements along one axis, in row-major order, or by columns for ``order="F"``."""
    x = as_array_node(a)
    if by_columns("ravel", order):
        x = transpose(x)
    return to_shape(x, (x.size,))


@implements(np.transpose)
def transpose(a: Any, axes: Sequence[int] | None = None) -> Any:
    """The axes in another order; reversed by default.

    >>> import numpy as np
    >>> print(transpose(np.array([[1, 2], [3, 4]])))
    [[1 3]
     [2 4]]
    """
    x = as_array_node(a)
    if axes is None:
        return permuted(x, tuple(range(x.ndim))[::-1])
    order = normal_axes("transpose", axes, x.ndim)
    if len(order) != x.ndim:
        raise ShapeError(
            f"transpose: axes {tuple(axes)} of an array of {x.ndim} axes; name each once{where_written()}"
        )
    return permuted(x, order)


@implements(np.swapaxes)
def swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    """Two axes exchanged."""
    x = as_array_node(a)
    first, second = normal_axis("swapaxes", axis1, x.ndim), normal_axis("swapaxes", axis2, x.ndim)
    order = list(range(x.ndim))
    order[first], order[second] = second, first
    return permuted(x, tuple(order))


@implements(np.moveaxis)
def moveaxis(a: Any, source: int | Sequence[int], destination: int | Sequence[int]) -> Any:
    """Axes taken from ``source`` and put at ``destination``; the others keep their order."""
    x = as_array_node(a)
    sources, targets = normal_axes("moveaxis", source, x.ndim), normal_axes("moveaxis", destination, x.ndim)
    if len(sources) != len(targets):
        raise ShapeError(
            f"moveaxis: {len(sources)} axes to {len(targets)} places; give as many{where_written()}"
        )
    order = [axis for axis in range(x.ndim) if axis not in sources]
    for target, axis in sorted(zip(targets, sources)):
        order.insert(target, axis)
    return permuted(x, tuple(order))


@implements(np.lib.stride_tricks.sliding_window_view)
def sliding_window_view(
    x: Any,
    window_shape: int | Sequence[int],
    axis: Axes = None,
    *,
    subok: bool = False,
    writeable: bool = False,
) -> Any:
    r"""All windows of a shape: :math:`y_{p,k} = x_{p+k}` along each of the axes, which ``window_shape`` goes with.

    The windows' axes come last, in the order of ``axis``; an axis that is named twice has windows of windows.

    Raises ``ShapeError`` for windows larger than their axis, of no elements, or not as many as axes.

    >>> print(sliding_window_view(np.array([1.0, 2.0, 3.0, 4.0]), 3))
    [[1. 2. 3.]
     [2. 3. 4.]]
    """
    if subok or writeable:
        raise TracingError(
            "sliding_window_view: windows of a traced value are a new array; leave subok and writeable out"
            f"{where_written()}"
        )
    node = as_array_node(x)
    sizes = tuple(window_shape) if isinstance(window_shape, Sequence) else (window_shape,)
    given = range(node.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    axes = [normal_axis("sliding_window_view", k, node.ndim) for k in given]
    if len(sizes) != len(axes):
        raise ShapeError(
            f"sliding_window_view: windows of shape {sizes} along axes {axes}; give an extent for each{where_written()}"
        )
    for size, k in zip(sizes, axes):
        node = OPERATORS["windows"](node, axes=(k,), sizes=(int(size),), strides=(1,), dilations=(1,))
        node = moveaxis(node, k + 1, -1)
    return node


@implements(np.expand_dims)
def expand_dims(a: Any, axis: int | Sequence[int]) -> Any:
    """New axes of extent one, at these places of the result."""
    x = as_array_node(a)
    count = len(axis) if isinstance(axis, Sequence) else 1
    axes = normal_axes("expand_dims", axis, x.ndim + count)
    old = iter(x.shape)
    return to_shape(x, tuple([1 if k in axes else next(old) for k in range(x.ndim + count)]))


@implements(np.squeeze)
def squeeze(a: Any, axis: Axes = None) -> Any:
    """Axes of extent one removed: those named, or all of them."""
    x = as_array_node(a)
    if axis is None:
        return to_shape(x, tuple([n for n in x.shape if n != 1]))
    axes = normal_axes("squeeze", axis, x.ndim)
    if any(x.shape[k] != 1 for k in axes):
        raise ShapeError(f"squeeze: axis {axis} of shape {x.shape} has not extent 1{where_written()}")
    return to_shape(x, tuple([n for k, n in enumerate(x.shape) if k not in axes]))


def _at_least(rank: int, arrays: tuple[Any, ...]) -> Any:
    nodes = [as_array_node(a) for a in arrays]
    made = tuple([to_shape(x, (1,) * (rank - x.ndim) + x.shape) for x in nodes])
    return made[0] if len(made) == 1 else made


@implements(np.atleast_1d)
def atleast_1d(*arys: Any) -> Any:
    """``arys``, scalars as arrays of one element."""
    return _at_least(1, arys)


@implements(np.atleast_2d)
def atleast_2d(*arys: Any) -> Any:
    """``arys``, with axes of extent one put in front until there are two."""
    return _at_least(2, arys)


@implements(np.broadcast_to)
def broadcast_to(array: Any, shape: Any) -> Any:
    """The elements repeated along new axes in front and along axes of extent one."""
    x, wanted = as_array_node(array), extents("broadcast_to", shape)
    if len(wanted) < x.ndim or broadcast_shapes("broadcast_to", x.shape, wanted) != wanted:
        raise ShapeError(f"broadcast_to: shape {x.shape} does not broadcast to {wanted}{where_written()}")
    return broadcast_to_shape(x, wanted)


@implements(np.broadcast_arrays)
def broadcast_arrays(*args: Any) -> tuple[Any, ...]:
    """All arrays in the shape that they broadcast to."""
    nodes = [as_array_node(array) for array in args]
    shape = broadcast_shapes("broadcast_arrays", *[node.shape for node in nodes])
    return tuple([broadcast_to_shape(node, shape) for node in nodes])


@implements(np.concatenate)
def concatenate(
    arrays: Sequence[Any], axis: int | None = 0, *, dtype: Any = None, casting: str = "same_kind"
) -> Any:
    """Arrays one after the other along ``axis``; along one flat axis for ``None``.

    Raises ``ShapeError`` when their other axes differ.

    >>> import numpy as np
    >>> print(concatenate([np.array([1.0, 2.0]), np.array([3.0])]))
    [1. 2. 3.]
    """
    if isinstance(arrays, Node):
        arrays = list(arrays)
    if not arrays:
        raise ShapeError(f"concatenate: no array was given{where_written()}")
    if axis is not None:  # then all are made arrays first, whose dtypes are their own
        arrays = [strong(as_array_node(array)) for array in arrays]
    nodes = promote(tuple(arrays), None if dtype is None else lambda _: np.dtype(dtype))
    if axis is None:
        return joined([to_shape(node, (node.size,)) for node in nodes], 0)
    first = nodes[0].shape
    k = normal_axis("concatenate", axis, len(first))
    for node in nodes:
        if node.ndim != len(first) or node.shape[:k] + node.shape[k + 1 :] != first[:k] + first[k + 1 :]:
            raise ShapeError(
                f"concatenate: shapes {first} and {node.shape} differ beside axis {k}; "
                f"all other extents must be equal{where_written()}"
            )
    return joined(nodes, k)


@implements(np.stack)
def stack(arrays: Sequence[Any], axis: int = 0, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    """Arrays of one shape along a new axis.

    >>> import numpy as np
    >>> print(stack([np.array([1, 2]), np.array([3, 4])], axis=1))
    [[1 3]
     [2 4]]
    """
    nodes = [as_array_node(array) for array in arrays]
    shapes = {node.shape for node in nodes}
    if len(shapes) != 1:
        listed = ", ".join(map(str, sorted(shapes))) or "none"
        raise ShapeError(f"stack: shapes {listed}; all must be equal{where_written()}")
    return concatenate([expand_dims(node, axis) for node in nodes], axis, dtype=dtype)


@implements(np.vstack)
def vstack(tup: Sequence[Any], *, dtype: Any = None, casting: str = "same_kind") -> Any:
    """Arrays one above the other: along the first axis, vectors as rows."""
    return concatenate([atleast_2d(array) for array in tup], 0, dtype=dtype)


@implements(np.hstack)
def hstack(tup: Sequence[Any], *, dtype: Any = None, casting: str = "same_kind") -> Any:
    """Arrays side by side: along the second axis, vectors along their only one."""
    nodes = [atleast_1d(array) for array in tup]
    return concatenate(nodes, 0 if nodes and np.ndim(nodes[0]) == 1 else 1, dtype=dtype)


@implements(np.column_stack)
def column_stack(tup: Sequence[Any]) -> Any:
    """Vectors as the columns of a matrix, beside matrices."""
    nodes = [as_array_node(array) for array in tup]
    return concatenate([to_shape(x, (x.size, 1)) if x.ndim < 2 else x for x in nodes], 1)


@implements(np.array_split)
def array_split(ary: Any, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Any]:
    """Parts along ``axis``: as many as told, the first ones longer by one, or cut at these places."""
    x = as_array_node(ary)
    k = normal_axis("split", axis, x.ndim)
    extent = x.shape[k]
    if np.iterable(indices_or_sections):
        cuts = [slice(at).indices(extent)[1] for at in indices_or_sections]
    else:
        count = operator.index(indices_or_sections)
        if count < 1:
            raise ShapeError(f"split: {count} parts; ask for at least one{where_written()}")
        base, longer = divmod(extent, count)
        cuts = [base * i + min(i, longer) for i in range(1, count)]
    edges = [0, *cuts, extent]
    return [part(x, k, start, max(start, stop)) for start, stop in pairwise(edges)]


@implements(np.split)
def split(ary: Any, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Any]:
    """Equal parts along ``axis``, or parts cut at these places. Raises ``ShapeError`` when it does not
    divide.
    """
    x = as_array_node(ary)
    extent = x.shape[normal_axis("split", axis, x.ndim)]
    if is_named(extent) and not np.iterable(indices_or_sections):
        raise NamedAxisError(
            f"split: an axis of {shown(extent)} elements into {indices_or_sections} equal parts, which not every size "
            f"has; reshape it, x.reshape({indices_or_sections}, -1), or split another axis{where_written()}"
        )
    if not np.iterable(indices_or_sections) and extent % operator.index(indices_or_sections):
        raise ShapeError(
            f"split: an axis of {extent} elements into {indices_or_sections} equal parts; "
            f"use array_split, or name the places{where_written()}"
        )
    return array_split(x, indices_or_sections, axis)


@implements(np.flip)
def flip(m: Any, axis: Axes = None) -> Any:
    """The elements in reverse order along ``axis``, along all of them by default."""
    x = as_array_node(m)
    axes = tuple(sorted(normal_axes("flip", axis, x.ndim)))
    return OPERATORS["reverse"](x, axes=axes) if axes else x


@implements(np.flipud)
def flipud(m: Any) -> Any:
    """The elements in reverse order along the first axis."""
    return flip(m, 0)


@implements(np.fliplr)
def fliplr(m: Any) -> Any:
    """The elements in reverse order along the second axis."""
    return flip(m, 1)


@implements(np.repeat)
def repeat(a: Any, repeats: Any, axis: int | None = None) -> Any:
    """Each element along ``axis`` as often as ``repeats``, a concrete integer or one for each element, tells.

    >>> import numpy as np
    >>> print(repeat(np.array([1, 2]), 2))
    [1 1 2 2]
    """
    x = as_array_node(a)
    if axis is None:
        x, axis = to_shape(x, (x.size,)), 0
    k = normal_axis("repeat", axis, x.ndim)
    repeats = settled(repeats)
    if isinstance(repeats, Node):
        raise TracingError(f"repeat: a traced count would make a shape depend on values{where_written()}")
    counts = np.asarray(repeats)
    if counts.size == 1:
        count = int(counts.reshape(()))
        before, after = x.shape[: k + 1], x.shape[k + 1 :]
        axes = (*range(k + 1), *range(k + 2, x.ndim + 1))
        wide = OPERATORS["broadcast"](x, shape=(*before, count, *after), axes=axes)
        return to_shape(wide, (*x.shape[:k], x.shape[k] * count, *after))
    if counts.shape != (x.shape[k],):
        raise ShapeError(
            f"repeat: counts of shape {counts.shape} for axis {k} of shape {x.shape}; give one for each of its "
            f"{x.shape[k]} elements{where_written()}"
        )
    return take_rows(x, np.repeat(np.arange(x.shape[k]), counts), k)


def take_rows(x: Node, positions: np.ndarray, axis: int) -> Node:
    """``x`` at concrete, valid positions along one axis."""
    gathered = OPERATORS["gather"](x, as_array_node(positions.astype(np.int64)), axes=(axis,))
    return permuted(gathered, (*range(1, axis + 1), 0, *range(axis + 1, x.ndim)))


def picked(x: Node, places: Node, axis: int) -> Node:
    """``x`` at valid ``places`` along ``axis``, one list of them for each place on the other axes."""
    int64 = np.dtype(np.int64)
    others: list[Node] = [OPERATORS["iota"](shape=places.shape, axis=k, dtype=int64) for k in range(x.ndim)]
    others[axis] = cast(places, int64)
    return OPERATORS["gather"](x, *others, axes=tuple(range(x.ndim)))


@implements(np.tile)
def tile(A: Any, reps: Any) -> Any:
    """The whole array repeated along each axis as often as ``reps`` tells."""
    x, counts = as_array_node(A), extents("tile", reps)
    rank = max(x.ndim, len(counts))
    counts = (1,) * (rank - len(counts)) + counts
    shape = (1,) * (rank - x.ndim) + x.shape
    wide = tuple(n for pair in zip(counts, shape) for n in pair)
    spread = OPERATORS["broadcast"](to_shape(x, shape), shape=wide, axes=tuple(range(1, 2 * rank, 2)))
    return to_shape(spread, tuple([count * n for count, n in zip(counts, shape)]))


@implements(np.roll)
def roll(a: Any, shift: int | Sequence[int], axis: Axes = None) -> Any:
    """The elements moved on by ``shift`` places along ``axis``; those pushed out come in at the other end."""
    x = as_array_node(a)
    if axis is None:
        return to_shape(roll(to_shape(x, (x.size,)), shift, 0), x.shape)
    for distance, one in np.broadcast(np.asarray(shift), np.asarray(axis)):
        places = int(distance)
        k = normal_axis("roll", one, x.ndim)
        extent = x.shape[k]
        if extent and places % extent:
            cut = extent - places % extent
            x = joined([part(x, k, cut, extent), part(x, k, 0, cut)], k)
    return x


def _below(name: str, x: Node, k: int) -> Node:
    """Which places of the last two axes lie on the diagonal ``k`` or below it; a vector stands for rows like it."""
    if not x.ndim:
        raise ShapeError(f"{name}: a number has no triangle; give a matrix{where_written()}")
    shape = (x.shape * 2)[-2:]
    row, column = (OPERATORS["iota"](shape=shape, axis=axis, dtype=np.dtype(np.int64)) for axis in (0, 1))
    return e.less_equal(column, row + k)  # type: ignore[no-any-return]


@implements(np.tril)
def tril(m: Any, k: int = 0) -> Any:
    """The lower triangle of the last two axes; zeros above the diagonal ``k``."""
    x = as_array_node(m)
    return e.where(_below("tril", x, k), x, np.zeros((), x.dtype))


@implements(np.triu)
def triu(m: Any, k: int = 0) -> Any:
    """The upper triangle of the last two axes; zeros below the diagonal ``k``."""
    x = as_array_node(m)
    return e.where(_below("triu", x, k - 1), np.zeros((), x.dtype), x)
