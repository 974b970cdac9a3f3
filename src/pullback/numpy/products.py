"""Products of any rank. Each becomes ``contract`` operations: two operands whose axes carry labels.

A label in both operands and not in the result is summed, one that is also in the result runs along;
``matmul``, ``dot``, ``tensordot`` and every ``einsum`` are cases of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from pullback.errors import ShapeError
from pullback.graph import OPERATORS, Node, is_sparse
from pullback.graph.protocol import vocabulary
from pullback.numpy import elementwise as e
from pullback.numpy.axes import normal_axes
from pullback.numpy.dispatch import implements
from pullback.numpy.promotion import as_array_node, broadcast_shapes, cast, promote, where_written
from pullback.numpy.shapes import permuted, to_shape
from pullback.numpy.sparse import product

__all__ = [
    "cross",
    "diag",
    "diagonal",
    "dot",
    "inner",
    "kron",
    "matmul",
    "matvec",
    "outer",
    "tensordot",
    "trace",
    "vdot",
    "vecdot",
    "vecmat",
]

Label = str | int
"""What ties axes together: a letter of ``einsum``, or a number."""


def contracted(
    x: Node, y: Node, x_labels: Sequence[Label], y_labels: Sequence[Label], out: Sequence[Label]
) -> Node:
    """The product of two nodes of one dtype, summed over the labels that ``out`` has not.

    Each such label is in both operands. Where nothing is summed it is an elementwise product, made as one.
    """
    numbers = _numbers(tuple(x_labels), tuple(y_labels), tuple(out))
    if numbers is None:
        return e.multiply(_placed(x, x_labels, out), _placed(y, y_labels, out))  # type: ignore[no-any-return]
    if x.dtype.kind == "b":
        return e.as_bool(contracted(cast(x, np.int64), cast(y, np.int64), x_labels, y_labels, out))
    a, b, c = numbers
    return OPERATORS["contract"](x, y, a_labels=a, b_labels=b, out_labels=c)


@lru_cache(maxsize=1024)
def _numbers(*labels: tuple[Label, ...]) -> tuple[tuple[int, ...], ...] | None:
    """Numbers for the labels of two operands and of their product; ``None`` where nothing is summed."""
    x_labels, y_labels, out = labels
    if set(x_labels) | set(y_labels) == set(out):
        return None
    number: dict[Label, int] = {}
    for label in (*x_labels, *y_labels):
        number.setdefault(label, len(number))
    return tuple([tuple([number[label] for label in each]) for each in labels])


def _placed(x: Node, labels: Sequence[Label], out: Sequence[Label]) -> Node:
    """``x`` with its axes in the order of ``out`` and extents of one for labels that it has not."""
    order = tuple([labels.index(label) for label in out if label in labels])
    return to_shape(permuted(x, order), tuple([x.shape[labels.index(k)] if k in labels else 1 for k in out]))


@implements(np.matmul)
def matmul(x1: Any, x2: Any, /) -> Any:
    r"""The matrix product over the last axis of ``x1`` and the last but one of ``x2``, axes before them
    broadcast:

    .. math:: y_{\dots ij} = \sum_k a_{\dots ik} b_{\dots kj}

    A vector stands for a row on the left, for a column on the right. Raises ``ShapeError`` when the extents
    differ.

    >>> import numpy as np
    >>> print(matmul(np.eye(2), np.array([1.0, 2.0])))
    [1. 2.]
    """
    if is_sparse(x1) or is_sparse(x2):
        return product(x1, x2)
    x, y = promote((x1, x2))
    if x.ndim == 0 or y.ndim == 0:
        raise ShapeError(
            f"matmul: shapes {x.shape} and {y.shape}; a scalar is multiplied with *{where_written()}"
        )
    inner = y.shape[-2] if y.ndim > 1 else y.shape[0]
    if x.shape[-1] != inner:
        raise ShapeError(
            f"matmul: shapes {x.shape} and {y.shape}: the last extent on the left, {x.shape[-1]}, is summed "
            f"with extent {inner} on the right; transpose or reshape one of them{where_written()}"
        )
    (x_shape, x_labels), (y_shape, y_labels), out = _matmul_labels(x.shape, y.shape)
    return contracted(to_shape(x, x_shape), to_shape(y, y_shape), x_labels, y_labels, out)


Labelled = tuple[tuple[int, ...], list[Label]]


@lru_cache(maxsize=1024)
def _matmul_labels(x: tuple[int, ...], y: tuple[int, ...]) -> tuple[Labelled, Labelled, list[Label]]:
    """The shapes and labels of the two, and the labels of their product."""
    lead = broadcast_shapes("matmul", x[:-2], y[:-2])
    left = _batched(x, lead, ("row", "summed") if len(x) > 1 else ("summed",))
    right = _batched(y, lead, ("summed", "column") if len(y) > 1 else ("summed",))
    return left, right, [*range(len(lead)), *[k for k in ("row", "column") if k in left[1] or k in right[1]]]


def _batched(shape: tuple[int, ...], lead: tuple[int, ...], own: tuple[str, ...]) -> Labelled:
    """The shape and the labels of an operand without the leading axes of extent one that are to be broadcast."""
    axes = range(len(shape) - len(own))
    number = {axis: len(lead) - len(axes) + axis for axis in axes}
    kept = [axis for axis in axes if shape[axis] == lead[number[axis]]]
    return (*[shape[axis] for axis in kept], *shape[len(axes) :]), [*[number[axis] for axis in kept], *own]


@implements(np.tensordot)
def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """The product summed over pairs of axes: the last ``axes`` of ``a`` with the first of ``b``, or those
    named.

    >>> import numpy as np
    >>> print(tensordot(np.ones((2, 3)), np.ones((3, 4)), axes=1).shape)
    (2, 4)
    """
    x, y = promote((a, b))
    if np.iterable(axes):
        left, right = (normal_axes("tensordot", one, z.ndim) for one, z in zip(axes, (x, y)))
    else:
        if not 0 <= axes <= min(x.ndim, y.ndim):
            raise ShapeError(
                f"tensordot over {axes} axes of shapes {x.shape} and {y.shape}; "
                f"both must have as many{where_written()}"
            )
        left, right = tuple(range(x.ndim - axes, x.ndim)), tuple(range(axes))
    if len(left) != len(right) or [x.shape[k] for k in left] != [y.shape[k] for k in right]:
        raise ShapeError(
            f"tensordot: axes {left} of shape {x.shape} with axes {right} of shape {y.shape}; "
            f"the extents of each pair must be equal{where_written()}"
        )
    x_labels: list[Label] = list(range(x.ndim))
    y_labels: list[Label] = list(range(x.ndim, x.ndim + y.ndim))
    for i, j in zip(left, right):
        y_labels[j] = x_labels[i]
    out = [k for k in x_labels if k not in y_labels] + [k for k in y_labels if k not in x_labels]
    return contracted(x, y, x_labels, y_labels, out)


@implements(np.dot)
def dot(a: Any, b: Any) -> Any:
    """The sum over the last axis of ``a`` and the last but one of ``b``, without broadcasting; of scalars
    ``a * b``.
    """
    x, y = promote((a, b))
    if x.ndim == 0 or y.ndim == 0:
        return e.multiply(x, y)
    return tensordot(x, y, ((-1,), (-2 if y.ndim > 1 else -1,)))


@implements(np.inner)
def inner(a: Any, b: Any, /) -> Any:
    """The sum over the last axes of both; of scalars ``a * b``."""
    x, y = promote((a, b))
    return e.multiply(x, y) if x.ndim == 0 or y.ndim == 0 else tensordot(x, y, ((-1,), (-1,)))


@implements(np.vdot)
def vdot(a: Any, b: Any, /) -> Any:
    """The sum of the products of all elements, of complex ones with the conjugates of ``a``."""
    x, y = promote((a, b))
    x = e.conjugated(x)
    return tensordot(to_shape(x, (x.size,)), to_shape(y, (y.size,)), 1)


@implements(np.outer)
def outer(a: Any, b: Any) -> Any:
    """Every product of an element of ``a`` with one of ``b``: a row for each of ``a``."""
    x, y = promote((a, b))
    return e.multiply(to_shape(x, (x.size, 1)), to_shape(y, (1, y.size)))


@implements(np.vecdot)
def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """The sum of the products over ``axis``, with the conjugates of ``x1``; the other axes are broadcast."""
    x, y = promote((x1, x2))
    x = e.conjugated(x)
    x, y = (vocabulary["moveaxis"](z, axis, -1) if axis != -1 else z for z in (x, y))
    return cast(vocabulary["einsum"]("...k,...k->...", x, y), x.dtype)


@implements(np.matvec)
def matvec(x1: Any, x2: Any, /) -> Any:
    r"""Matrices times vectors: :math:`y_{\dots i} = \sum_k a_{\dots ik} b_{\dots k}`, axes before them broadcast."""
    return vocabulary["einsum"]("...ik,...k->...i", x1, x2)


@implements(np.vecmat)
def vecmat(x1: Any, x2: Any, /) -> Any:
    r"""Vectors times matrices: :math:`y_{\dots j} = \sum_k a_{\dots k} b_{\dots kj}`, axes before them broadcast.

    Of complex vectors the conjugates.
    """
    x1 = e.conjugated(x1)
    return vocabulary["einsum"]("...k,...kj->...j", x1, x2)


@implements(np.kron)
def kron(a: Any, b: Any) -> Any:
    """Every product of an element of ``a`` with all of ``b``, side by side: blocks in the pattern of ``a``."""
    x, y = promote((a, b))
    rank = max(x.ndim, y.ndim)
    first, second = ((1,) * (rank - z.ndim) + z.shape for z in (x, y))
    wide = to_shape(x, tuple([n for extent in first for n in (extent, 1)]))
    tall = to_shape(y, tuple([n for extent in second for n in (1, extent)]))
    return to_shape(e.multiply(wide, tall), tuple([n * m for n, m in zip(first, second)]))


@implements(np.cross)
def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Any:
    """The vector at right angles to both, along an axis of three; of two elements the third is 0.

    Of two vectors of two elements it is the third component alone.
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = promote((a, b))
    x, y = vocabulary["moveaxis"](x, axisa, -1), vocabulary["moveaxis"](y, axisb, -1)
    if not {x.shape[-1], y.shape[-1]} <= {2, 3}:
        raise ShapeError(
            f"cross of extents {x.shape[-1]} and {y.shape[-1]}; vectors have 2 or 3 elements{where_written()}"
        )
    third = e.subtract(x[..., 0] * y[..., 1], x[..., 1] * y[..., 0])
    if x.shape[-1] == y.shape[-1] == 2:
        return third
    x, y = (
        OPERATORS["pad"](z, low=(0,) * z.ndim, high=(*(0,) * (z.ndim - 1), 3 - z.shape[-1]))
        if z.shape[-1] == 2
        else z
        for z in (x, y)
    )
    first = x[..., 1] * y[..., 2] - x[..., 2] * y[..., 1]
    second = x[..., 2] * y[..., 0] - x[..., 0] * y[..., 2]
    return vocabulary["moveaxis"](vocabulary["stack"]([first, second, third], -1), -1, axisc)


@implements(np.diagonal)
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The elements whose index along ``axis2`` is that along ``axis1`` plus ``offset``, as a last axis."""
    x = as_array_node(a)
    first, second = normal_axes("diagonal", (axis1, axis2), x.ndim)
    return _diagonal(x, first, second, offset)


def _diagonal(x: Node, first: int, second: int, offset: int = 0) -> Node:
    """The diagonal of two axes, as the last axis."""
    rows, columns = x.shape[first], x.shape[second]
    count = max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)
    along = OPERATORS["iota"](shape=(count,), axis=0, dtype=np.dtype(np.int64))
    indices = {first: e.add(along, max(-offset, 0)), second: e.add(along, max(offset, 0))}
    gathered = OPERATORS["gather"](x, *[indices[k] for k in sorted(indices)], axes=tuple(sorted(indices)))
    return permuted(gathered, (*range(1, gathered.ndim), 0))


@implements(np.trace)
def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The sum of a diagonal."""
    return vocabulary["sum"](diagonal(a, offset, axis1, axis2), -1)


@implements(np.diag)
def diag(v: Any, k: int = 0) -> Any:
    """The diagonal of a matrix, or the matrix with this diagonal and zeros elsewhere."""
    x = as_array_node(v)
    if x.ndim == 2:
        return diagonal(x, k)
    if x.ndim != 1:
        raise ShapeError(f"diag: shape {x.shape}; it takes a vector or a matrix{where_written()}")
    low, high = max(-k, 0), max(k, 0)
    size = x.shape[0] + low + high
    row, column = (
        OPERATORS["iota"](shape=(size, size), axis=axis, dtype=np.dtype(np.int64)) for axis in (0, 1)
    )
    wide = OPERATORS["pad"](x, low=(low,), high=(high,))
    return e.where(e.equal(column, row + k), to_shape(wide, (size, 1)), np.zeros((), x.dtype))
