"""Arrays put together, taken apart and chosen from: ``block``, ``insert``, ``select``, ``np.r_`` and their like."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.errors import DTypeError, ShapeError, TracingError
from pullback.graph import OPERATORS, Node
from pullback.graph.protocol import vocabulary
from pullback.numpy import elementwise as e
from pullback.numpy.axes import normal_axes, normal_axis
from pullback.numpy.composite import clip
from pullback.numpy.cumulative import flat_or_along
from pullback.numpy.dispatch import NEAREST, implements
from pullback.numpy.products import diag
from pullback.numpy.promotion import (
    any_traced,
    as_array_node,
    broadcast_shapes,
    broadcast_to_shape,
    cast,
    promote,
    settled,
    strong,
    where_written,
)
from pullback.numpy.shapes import (
    concatenate,
    extents,
    flip,
    joined,
    moveaxis,
    part,
    permuted,
    split,
    swapaxes,
    take_rows,
    to_shape,
)
from pullback.numpy.updates import at

__all__ = [
    "append",
    "atleast_3d",
    "block",
    "c_",
    "choose",
    "compress",
    "copy",
    "delete",
    "diag_indices_from",
    "diagflat",
    "dsplit",
    "dstack",
    "extract",
    "fill_diagonal",
    "hsplit",
    "insert",
    "ix_",
    "matrix_transpose",
    "packbits",
    "piecewise",
    "put_along_axis",
    "r_",
    "ravel_multi_index",
    "resize",
    "rollaxis",
    "rot90",
    "select",
    "tril_indices_from",
    "triu_indices_from",
    "unpackbits",
    "unravel_index",
    "unstack",
    "vsplit",
]

INT64 = np.dtype(np.int64)


@implements(np.copy)
def copy(a: Any, order: str = "K", subok: bool = False) -> Any:
    """The elements once more: traced values never change, so they are the array itself."""
    return as_array_node(a)


# -- joined


@implements(np.dstack)
def dstack(tup: Sequence[Any]) -> Any:
    """Arrays one behind the other: along the third axis."""
    return concatenate([atleast_3d(array) for array in tup], 2)


def _atleast_3d(x: Node) -> Node:
    if x.ndim > 2:
        return x
    return to_shape(x, ((1, 1, 1), (1, x.size, 1), (*x.shape, 1))[x.ndim])


@implements(np.atleast_3d)
def atleast_3d(*arys: Any) -> Any:
    """``arys``, each with axes of extent one around until there are three."""
    made = tuple([_atleast_3d(as_array_node(a)) for a in arys])
    return made[0] if len(made) == 1 else made


@implements(np.append)
def append(arr: Any, values: Any, axis: int | None = None) -> Any:
    """``values`` behind ``arr`` along ``axis``, both flat for ``None``."""
    return concatenate([strong(as_array_node(each)) for each in (arr, values)], axis)


@implements(np.block)
def block(arrays: Any) -> Any:
    """Nested lists of arrays, joined along the last axis in the innermost, and along one axis more in each around.

    >>> import numpy as np
    >>> print(block([[np.eye(1), np.zeros((1, 2))], [np.ones((1, 3))]]))
    [[1. 0. 0.]
     [1. 1. 1.]]
    """

    def depth(nested: Any) -> int:
        return 1 + max(map(depth, nested), default=0) if isinstance(nested, list) else 0

    def leaves(nested: Any) -> list[Any]:
        return [leaf for each in nested for leaf in leaves(each)] if isinstance(nested, list) else [nested]

    levels = depth(arrays)
    rank = max([levels, *[np.ndim(leaf) for leaf in leaves(arrays)]])

    def made(nested: Any, level: int) -> Node:
        if not isinstance(nested, list):
            x = as_array_node(nested)
            return to_shape(x, (1,) * (rank - x.ndim) + x.shape)
        return concatenate([made(each, level - 1) for each in nested], -level)  # type: ignore[no-any-return]

    return made(arrays, levels)


class _Concatenator:
    """``pullback.numpy.r_`` and ``c_``: arrays, numbers and slices between brackets, traced ones too."""

    def __init__(self, axis: int, ndmin: int, trans1d: int) -> None:
        self._how = axis, ndmin, trans1d

    def __getitem__(self, key: Any) -> Any:
        parts = key if isinstance(key, tuple) else (key,)
        own = np.c_ if self._how[2] == 0 else np.r_
        if not any_traced(*parts):
            return own[key]
        axis, ndmin, trans1d = self._how
        if isinstance(parts[0], str):
            words = parts[0].split(",")
            if words[0] in ("r", "c"):
                raise TracingError(f"r_[{parts[0]!r}, ...] makes a matrix; use np.block{where_written()}")
            axis, ndmin, trans1d = (int(word) for word in (*words, *map(str, self._how[len(words) :])))
            parts = parts[1:]
        pieces = tuple([_piece(each, ndmin, trans1d) for each in parts])
        return concatenate(promote(pieces), axis)  # Python's numbers take the dtype of what they meet here

    def __len__(self) -> int:
        return 0


def _piece(value: Any, ndmin: int, trans1d: int) -> Any:
    """One entry of ``r_``, with axes of one put before it, or around it where ``trans1d`` says."""
    if isinstance(value, slice):
        value = np.r_[value]
    x = as_array_node(value)
    rank = x.ndim
    if rank >= ndmin:
        return x
    x = to_shape(x, (1,) * (ndmin - rank) + x.shape)
    if rank == 0 or trans1d == -1:
        return x
    first = trans1d % ndmin if trans1d < 0 else trans1d
    axes = list(range(ndmin - rank))
    axes[first:first] = range(ndmin - rank, ndmin)
    return permuted(x, tuple(axes))


r_ = _Concatenator(0, 1, -1)
c_ = _Concatenator(-1, 2, 0)


# -- taken apart and turned


def _split_along(name: str, axis: int) -> Callable[[Any, Any], Any]:
    def parted(ary: Any, indices_or_sections: Any) -> Any:
        x = as_array_node(ary)
        if x.ndim <= axis and not (name == "hsplit" and x.ndim == 1):
            raise ShapeError(f"{name}: shape {x.shape} has too few axes{where_written()}")
        return split(x, indices_or_sections, 0 if x.ndim == 1 else axis)

    parted.__name__ = parted.__qualname__ = name
    parted.__doc__ = f"``split`` along axis {axis}."
    return implements(getattr(np, name))(parted)


vsplit = _split_along("vsplit", 0)
hsplit = _split_along("hsplit", 1)
dsplit = _split_along("dsplit", 2)


@implements(np.unstack)
def unstack(x: Any, /, *, axis: int = 0) -> Any:
    """The parts along ``axis``, which they have not."""
    return tuple(moveaxis(x, axis, 0))


@implements(np.matrix_transpose)
def matrix_transpose(x: Any, /) -> Any:
    """The last two axes exchanged."""
    return swapaxes(x, -1, -2)


@implements(np.rollaxis)
def rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    """``axis`` put before the axis ``start``."""
    x = as_array_node(a)
    k = normal_axis("rollaxis", axis, x.ndim)
    place = start + x.ndim if start < 0 else start
    if not 0 <= place <= x.ndim:
        raise ShapeError(f"rollaxis: start {start} of {x.ndim} axes{where_written()}")
    return moveaxis(x, k, place - 1 if k < place else place)


@implements(np.rot90)
def rot90(m: Any, k: int = 1, axes: Sequence[int] = (0, 1)) -> Any:
    """Turned by ``k`` right angles, from the first of ``axes`` towards the second."""
    x = as_array_node(m)
    first, second = normal_axes("rot90", axes, x.ndim)
    turns = operator.index(k) % 4
    if turns == 2:
        return flip(x, (first, second))
    if turns == 1:
        return swapaxes(flip(x, second), first, second)
    return flip(swapaxes(x, first, second), second) if turns else x


@implements(np.resize)
def resize(a: Any, new_shape: Any) -> Any:
    """The elements, in row-major order and again from the start, in a new shape."""
    x = as_array_node(a)
    shape = extents("resize", new_shape)
    size = math.prod(shape)
    if not x.size:
        return broadcast_to_shape(as_array_node(np.zeros((), x.dtype)), shape)
    flat = to_shape(x, (x.size,))
    repeats = -(-size // x.size)
    wide = joined([flat] * repeats, 0) if repeats else part(flat, 0, 0, 0)
    return to_shape(part(wide, 0, 0, size), shape)


@implements(np.insert)
def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    """``values`` put before the places ``obj`` (concrete) along ``axis``, of the flat array for ``None``.

    >>> import numpy as np
    >>> print(insert(np.array([1, 2, 3]), 1, 9))
    [1 9 2 3]
    """
    x, k = flat_or_along("insert", arr, axis)
    extent = x.shape[k]
    places = _concrete_places("insert", obj, extent, extent + 1)
    added = cast(as_array_node(values), x.dtype)
    if np.ndim(places) == 0 or (places.size == 1 and not isinstance(obj, slice)):
        place = int(np.reshape(places, ()))
        lone = np.ndim(obj) == 0
        shape = [1] * (x.ndim - added.ndim) + list(added.shape)
        if lone and added.ndim and x.ndim > 1:
            added = moveaxis(to_shape(added, tuple(shape)), 0, k) if len(shape) == x.ndim else added
        elif len(shape) == x.ndim:
            added = to_shape(added, tuple(shape))
        count = added.shape[k] if added.ndim == x.ndim else 1
        added = broadcast_to_shape(added, (*x.shape[:k], count, *x.shape[k + 1 :]))
        return joined([part(x, k, 0, place), added, part(x, k, place, extent)], k)
    order = np.argsort(places, kind="stable")
    targets = np.array(places)
    targets[order] += np.arange(len(order))
    added = broadcast_to_shape(added, (*x.shape[:k], len(order), *x.shape[k + 1 :]))
    source = np.empty(extent + len(order), np.int64)
    kept = np.ones(len(source), bool)
    kept[targets] = False
    source[kept] = np.arange(extent)
    source[targets] = extent + np.arange(len(order))
    return take_rows(joined([x, added], k), source, k)


def _concrete_places(name: str, obj: Any, extent: int, limit: int) -> Any:
    obj = settled(obj)
    if any_traced(obj):
        raise TracingError(
            f"np.{name} at traced places; use np.where, np.take or pullback.at(x)[index]{where_written()}"
        )
    if isinstance(obj, slice):
        return np.arange(extent)[obj]
    places = np.asarray(obj)
    if places.dtype == bool:
        return np.flatnonzero(places)
    places = places.astype(np.int64)
    if ((places < -extent) | (places >= limit)).any():
        raise ShapeError(f"{name}: places {obj} of {extent} elements{where_written()}")
    return np.where(places < 0, places + extent, places)


@implements(np.delete)
def delete(arr: Any, obj: Any, axis: int | None = None) -> Any:
    """Without the places ``obj`` (concrete) along ``axis``, of the flat array for ``None``."""
    x, k = flat_or_along("delete", arr, axis)
    kept = np.ones(x.shape[k], bool)
    kept[_concrete_places("delete", obj, x.shape[k], x.shape[k])] = False
    return take_rows(x, np.flatnonzero(kept), k)


@implements(np.compress)
def compress(condition: Any, a: Any, axis: int | None = None) -> Any:
    """The places along ``axis`` where a concrete ``condition`` is true."""
    x, k = flat_or_along("compress", a, axis)
    condition = settled(condition)
    if isinstance(condition, Node):
        raise TracingError(
            f"np.compress by a traced condition has a length that depends on values; use np.where{where_written()}"
        )
    return take_rows(x, np.flatnonzero(condition), k)


@implements(np.extract)
def extract(condition: Any, arr: Any) -> Any:
    """The elements where a concrete ``condition`` is true, in row-major order."""
    condition = settled(condition)
    if isinstance(condition, Node):
        raise TracingError(
            f"np.extract by a traced condition has a length that depends on values; use np.where{where_written()}"
        )
    return compress(np.ravel(condition), vocabulary["ravel"](arr))


# -- chosen


@implements(np.choose)
def choose(a: Any, choices: Any, mode: str = "raise") -> Any:
    """At each place the element of the choice with the number that ``a`` has there; ``mode`` as in ``np.take``."""
    number = as_array_node(a)
    if number.dtype.kind == "b":
        number = cast(number, INT64)
    options = promote(tuple(choices))
    shape = broadcast_shapes("choose", number.shape, *[x.shape for x in options])
    count = len(options)
    if mode == "clip":
        number = clip(number, 0, count - 1)
    elif mode == "wrap":
        number = e.remainder(number, count)
    elif mode == "raise":
        number = OPERATORS["check_index"](cast(number, INT64), extent=count, what="choose", wrap=False)
    else:
        raise TracingError(f"choose in mode {mode!r}; use 'raise', 'clip' or 'wrap'{where_written()}")
    number = broadcast_to_shape(number, shape)
    chosen = broadcast_to_shape(options[-1], shape)
    for k in range(count - 2, -1, -1):
        chosen = e.where(e.equal(number, k), broadcast_to_shape(options[k], shape), chosen)
    return chosen


@implements(np.select)
def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Any:
    """At each place the choice of the first condition that holds there, or ``default``."""
    if len(condlist) != len(choicelist):
        raise ShapeError(f"select: {len(condlist)} conditions for {len(choicelist)} choices{where_written()}")
    made: Any = default
    for condition, choice in list(zip(condlist, choicelist))[::-1]:
        dtype = condition.dtype if isinstance(condition, Node) else np.asarray(condition).dtype
        if dtype.kind != "b":
            raise DTypeError(f"select: conditions are of bool{where_written()}")
        made = e.where(condition, choice, made)
    shape = broadcast_shapes("select", *[np.shape(each) for each in (*condlist, *choicelist)])
    return broadcast_to_shape(as_array_node(made), shape)


@implements(np.piecewise)
def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Any:
    """At each place the function, or number, of the last condition that holds there; one function more is the rest's.

    Every function is computed everywhere; where it is not chosen it passes no gradient.
    """
    node = as_array_node(x)
    conditions = (
        list(condlist)
        if isinstance(condlist, (list, tuple)) and np.ndim(condlist[0]) == node.ndim
        else [condlist]
    )
    functions = list(funclist)
    if len(functions) == len(conditions) + 1:
        functions = [functions[-1], *functions[:-1]]
    elif len(functions) == len(conditions):
        functions = [0, *functions]
    else:
        raise ShapeError(
            f"piecewise: {len(functions)} functions for {len(conditions)} conditions; give as many, or one more"
            f"{where_written()}"
        )
    values = [
        cast(as_array_node(each(node, *args, **kw) if callable(each) else each), node.dtype)
        for each in functions
    ]
    made = broadcast_to_shape(values[0], node.shape)
    for condition, value in zip(conditions, values[1:]):
        made = e.where(condition, value, made)
    return made


def put_along_axis(arr: Any, indices: Any, values: Any, axis: int | None) -> Any:
    """``arr`` with ``values`` at the places that ``np.take_along_axis`` would take: a new array.

    >>> import numpy as np
    >>> print(put_along_axis(np.zeros((2, 2)), np.array([[1], [0]]), 5.0, 1))
    [[0. 5.]
     [5. 0.]]
    """
    if not any_traced(arr, indices, values):
        made = np.array(arr)
        np.put_along_axis(made, np.asarray(indices), values, axis)
        return made
    x = as_array_node(arr)
    flat = to_shape(x, (x.size,)) if axis is None else x
    k = 0 if axis is None else normal_axis("put_along_axis", axis, x.ndim)
    places = as_array_node(indices)
    shape = tuple([n if n == k else max(m, 0) for n, m in enumerate(flat.shape)])
    shape = (*shape[:k], places.shape[k], *shape[k + 1 :])
    index: list[Any] = list(np.indices(shape, sparse=True))
    index[k] = broadcast_to_shape(places, shape)
    return to_shape(at(flat)[tuple(index)].set(values), x.shape)


def fill_diagonal(a: Any, val: Any, wrap: bool = False) -> Any:
    """``a`` with ``val`` on its diagonal: a new array, unlike NumPy's."""
    if not any_traced(a, val):
        made = np.array(a)
        np.fill_diagonal(made, val, wrap)
        return made
    x = as_array_node(a)
    if x.ndim < 2 or (x.ndim > 2 and len(set(x.shape)) > 1):
        raise ShapeError(
            f"fill_diagonal of shape {x.shape}: two axes, or more of one extent{where_written()}"
        )
    step = 1 + sum(math.prod(x.shape[k + 1 :]) for k in range(x.ndim - 1))
    stop = None if wrap or x.ndim > 2 else x.shape[1] * x.shape[1]
    places = np.arange(x.size)[:stop:step]
    value = as_array_node(val)
    value = value if value.ndim == 0 else resize(value, (len(places),))
    return to_shape(at(to_shape(x, (x.size,)))[places].set(value), x.shape)


@implements(np.diagflat)
def diagflat(v: Any, k: int = 0) -> Any:
    """The matrix with all elements of ``v`` on a diagonal."""
    return diag(vocabulary["ravel"](v), k)


# -- indices


def _shaped(a: Any) -> np.ndarray:
    """A concrete array of the shape, for what asks for that alone."""
    return np.broadcast_to(np.int8(0), as_array_node(a).shape)


@implements(np.tril_indices_from)
def tril_indices_from(arr: Any, k: int = 0) -> Any:
    """Indices of the lower triangle of a matrix."""
    return np.tril_indices_from(_shaped(arr), k)


@implements(np.triu_indices_from)
def triu_indices_from(arr: Any, k: int = 0) -> Any:
    """Indices of the upper triangle of a matrix."""
    return np.triu_indices_from(_shaped(arr), k)


@implements(np.diag_indices_from)
def diag_indices_from(arr: Any) -> Any:
    """Indices of the diagonal of an array with equal extents."""
    return np.diag_indices_from(_shaped(arr))


@implements(np.ix_)
def ix_(*args: Any) -> Any:
    """Vectors of integers along an axis each, which index all their combinations."""
    nodes = [as_array_node(each) for each in args]
    for node in nodes:
        if node.ndim != 1 or node.dtype.kind == "b":
            raise ShapeError(f"ix_ of {node.type}; give vectors of integers{where_written()}")
    return tuple(
        [
            to_shape(x, tuple([x.size if k == axis else 1 for k in range(len(nodes))]))
            for axis, x in enumerate(nodes)
        ]
    )


@implements(np.ravel_multi_index)
def ravel_multi_index(multi_index: Any, dims: Any, mode: Any = "raise", order: str = "C") -> Any:
    """Indices along each axis as places in the flat array; ``mode`` as in ``np.take``, one or one for each."""
    shape = extents("ravel_multi_index", dims)
    modes = [mode] * len(shape) if isinstance(mode, str) else list(mode)
    indices = [
        _inside(index, extent, how)
        for index, extent, how in zip(promote(tuple(multi_index)), shape, modes, strict=True)
    ]
    pairs = list(zip(indices, shape))
    made: Any = 0
    for index, extent in pairs if order == "C" else pairs[::-1]:
        made = made * extent + index
    return made


def _inside(index: Node, extent: int, mode: str) -> Any:
    """Positions of an axis, by one of the modes of ``np.take``, in ``int64``."""
    index = cast(index, INT64)
    if mode == "clip":
        return clip(index, 0, extent - 1)
    if mode == "wrap":
        return e.remainder(index, extent)
    return OPERATORS["check_index"](index, extent=extent, what="ravel_multi_index", wrap=False)


@implements(np.unravel_index)
def unravel_index(indices: Any, shape: Any, order: str = "C") -> Any:
    """Places in the flat array as indices along each axis."""
    wanted = extents("unravel_index", shape)
    flat: Any = OPERATORS["check_index"](
        cast(as_array_node(indices), INT64), extent=math.prod(wanted), what="unravel_index", wrap=False
    )
    found = []
    for extent in wanted[::-1] if order == "C" else wanted:
        found.append(e.remainder(flat, extent))
        flat = e.floor_divide(flat, extent)
    return tuple(found[::-1] if order == "C" else found)


# -- bits


def _weights(bitorder: str) -> np.ndarray:
    powers = (1 << np.arange(8)).astype(np.uint8)
    return powers if bitorder == "little" else powers[::-1]


@implements(np.packbits)
def packbits(a: Any, /, axis: int | None = None, bitorder: str = "big") -> Any:
    """Eight truths along ``axis`` as the bits of a ``uint8``; what is missing at the end is 0."""
    x, k = flat_or_along("packbits", a, axis)
    bits = moveaxis(cast(e.as_bool(x), np.uint8), k, -1)
    count = -(-bits.shape[-1] // 8)
    high = (*(0,) * (bits.ndim - 1), 8 * count - bits.shape[-1])
    bits = OPERATORS["pad"](bits, low=(0,) * bits.ndim, high=high) if high[-1] else bits
    rows = to_shape(bits, (*bits.shape[:-1], count, 8))
    return moveaxis(cast(vocabulary["sum"](rows * _weights(bitorder), -1), np.uint8), -1, k)


@implements(np.unpackbits)
def unpackbits(a: Any, /, axis: int | None = None, count: int | None = None, bitorder: str = "big") -> Any:
    """The bits of ``uint8``, eight for each element along ``axis``, as 0 and 1."""
    x, k = flat_or_along("unpackbits", a, axis)
    if x.dtype != np.uint8:
        raise DTypeError(f"unpackbits of {x.dtype}; cast it with .astype(np.uint8){where_written()}")
    rows = moveaxis(x, k, -1)
    bits = cast(e.not_equal(rows[..., None] & _weights(bitorder), 0), np.uint8)
    flat = to_shape(bits, (*rows.shape[:-1], 8 * rows.shape[-1]))
    if count is not None:
        short = count if count >= 0 else flat.shape[-1] + count
        flat = part(flat, flat.ndim - 1, 0, min(short, flat.shape[-1]))
        if short > flat.shape[-1]:
            flat = OPERATORS["pad"](
                flat, low=(0,) * flat.ndim, high=(*(0,) * (flat.ndim - 1), short - flat.shape[-1])
            )
    return moveaxis(flat, -1, k)


NEAREST[np.copyto] = (
    "it changes an array: use pullback.numpy.full_like(x, value), or pullback.at(x)[index].set(value)"
)
NEAREST[np.put_along_axis] = "it changes an array: use pullback.numpy.put_along_axis, which gives a new one"
NEAREST[np.fill_diagonal] = "it changes an array: use pullback.numpy.fill_diagonal, which gives a new one"
NEAREST[np.put] = NEAREST[np.place] = NEAREST[np.putmask] = (
    "it changes an array: use pullback.at(x)[index].set(value), or np.where(mask, value, x)"
)
NEAREST[np.i0] = "use pullback.scipy.special.i0"
NEAREST[np.polyfit] = "solve for the coefficients: np.linalg.lstsq(np.vander(x, degree + 1), y)[0]"
vocabulary.update(fill_diagonal=fill_diagonal, put_along_axis=put_along_axis)
