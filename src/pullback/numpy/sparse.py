r"""Products of sparse matrices with traced arrays, for ``scipy.sparse``, which is not needed to be there.

.. math:: y_i = \sum_{k} a_{i k} x_{c(i, k)}

The places of the elements are part of the program; the elements may be traced. Rows of similar length are gathered side
by side, the shorter ones filled up, and summed; otherwise the products are added to their rows one after another.
Nothing makes the matrix dense but ``toarray``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from pullback.errors import ArrayClassError, ShapeError
from pullback.graph import Node, is_sparse, sparse_refused
from pullback.numpy import elementwise as e
from pullback.numpy.indexing import getitem
from pullback.numpy.promotion import as_array_node, as_node, result_dtype, type_of, where_written
from pullback.numpy.reductions import sum as sum_
from pullback.numpy.shapes import to_shape, transpose
from pullback.numpy.updates import at

__all__ = ["Pattern", "TracedSparse", "elements_of", "product"]


@dataclass(frozen=True, eq=False)
class Pattern:
    """Where the elements of a sparse matrix are, row by row, and which class of SciPy's it is."""

    cls: type
    shape: tuple[int, int]
    starts: np.ndarray
    columns: np.ndarray

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Pattern)
            and (self.cls, self.shape) == (other.cls, other.shape)
            and np.array_equal(self.starts, other.starts)
            and np.array_equal(self.columns, other.columns)
        )

    def __hash__(self) -> int:
        return hash((self.cls, self.shape, len(self.columns)))

    def filled(self, elements: Any) -> Any:
        """The matrix with these elements: SciPy's, or a traced one."""
        if isinstance(elements, Node):
            return TracedSparse(self, elements)
        if np.shape(elements) != np.shape(self.columns):
            return elements  # of many matrices
        return self.cls((elements, self.columns, self.starts), self.shape)

    @property
    def rows(self) -> np.ndarray:
        """The row of each element."""
        return np.repeat(np.arange(self.shape[0]), np.diff(self.starts))

    def turned(self) -> tuple[np.ndarray, Pattern]:
        """The order of the elements in the transposed matrix, and its pattern."""
        order = np.argsort(self.columns, kind="stable")
        counts = np.bincount(self.columns, minlength=self.shape[1])
        starts = np.concatenate([[0], np.cumsum(counts)])
        return order, Pattern(self.cls, self.shape[::-1], starts, self.rows[order])


class TracedSparse:
    """A sparse matrix whose elements are traced: what a traced function has of one that it is given.

    It has products with arrays, ``.T``, products with numbers, and ``toarray()``; ``data`` are its elements, row by
    row.
    """

    __array_ufunc__ = None
    ndim = 2

    def __init__(self, pattern: Pattern, data: Any) -> None:
        self.pattern, self.data = pattern, data
        self.shape, self.dtype, self.nnz = pattern.shape, data.dtype, len(pattern.columns)

    @property
    def __sparse__(self) -> str:
        """What the matrix is called in errors."""
        return self.pattern.cls.__name__

    @property
    def T(self) -> TracedSparse:
        order, pattern = self.pattern.turned()
        return TracedSparse(pattern, self.data[order])

    def __matmul__(self, other: Any) -> Any:
        return product(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return product(other, self)

    def __mul__(self, factor: Any) -> Any:
        if np.ndim(factor):
            self._refuse("*")
        return TracedSparse(self.pattern, self.data * factor)

    __rmul__ = __mul__
    dot = __matmul__

    def toarray(self) -> Any:
        """All elements, zeros too."""
        zeros = np.zeros_like(self.data, shape=self.shape)
        return at(zeros)[self.pattern.rows, self.pattern.columns].set(self.data)

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        self._refuse("np.asarray")

    def __add__(self, other: Any) -> NoReturn:
        self._refuse("+")

    __radd__ = __add__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        self._refuse(name)

    def _refuse(self, what: str) -> NoReturn:
        raise sparse_refused(self, what)


def product(left: Any, right: Any) -> Node:
    """``left @ right``, one of which is sparse.

    >>> from scipy import sparse
    >>> import pullback as pb
    >>> matrix = sparse.csr_array(np.array([[0.0, 2.0], [3.0, 0.0], [0.0, 0.0]]))
    >>> pb.jit(lambda x: matrix @ x)(np.array([1.0, 10.0]))
    array([20.,  3.,  0.])
    >>> pb.grad(lambda x: np.sum((matrix @ x) ** 2))(np.array([1.0, 10.0]))
    array([18., 80.])
    """
    if is_sparse(left) and is_sparse(right):
        raise ArrayClassError(
            f"a product of two sparse matrices, of shapes {left.shape} and {right.shape}, whose elements are traced: "
            f"the pattern of the result is not known; multiply by the array first, A @ (B @ x){where_written()}"
        )
    if is_sparse(left):
        return _times(*elements_of(left), right)
    elements, pattern = elements_of(right)
    order, turned = pattern.turned()
    made: Node = transpose(_times(elements[order], turned, transpose(as_array_node(left))))
    return made


def elements_of(matrix: Any) -> tuple[Any, Pattern]:
    """The elements of a sparse matrix, row by row and each place once, and where they are."""
    if isinstance(matrix, TracedSparse):
        return matrix.data, matrix.pattern
    if matrix.ndim != 2:
        raise ShapeError(
            f"a sparse array of shape {matrix.shape}; those of two axes are taken{where_written()}"
        )
    rows = matrix.tocsr()
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows.data, Pattern(type(rows), rows.shape, rows.indptr, rows.indices)


def _times(elements: Any, pattern: Pattern, vector: Any) -> Node:
    """The product of the matrix with a vector, or with the columns of a matrix."""
    x = as_array_node(vector)
    count, inner = pattern.shape
    if x.ndim not in (1, 2) or x.shape[0] != inner:
        raise ShapeError(
            f"matmul: a sparse matrix of shape {pattern.shape} and an array of shape {x.shape}; give ({inner},) or "
            f"({inner}, n){where_written()}"
        )
    dtype = result_dtype(type_of(elements), x.type)
    x = as_node(x, dtype)
    lengths = np.diff(pattern.starts)
    width = int(lengths.max(initial=0))
    ones = (1,) * (x.ndim - 1)
    if count * width <= 2 * len(pattern.columns):
        there = np.arange(width) < lengths[:, None]
        places = np.where(there, pattern.starts[:-1, None] + np.arange(width), 0)
        factors = as_node(getitem(as_array_node(elements), places.ravel()), dtype)
        columns = pattern.columns[places.ravel()]
        terms = e.multiply(to_shape(factors, (factors.size, *ones)), getitem(x, columns))
        if not there.all():
            terms = e.where(there.reshape(-1, *ones), terms, 0)
        made: Node = sum_(to_shape(terms, (count, width, *x.shape[1:])), 1)
        return made
    factors = to_shape(as_node(elements, dtype), (len(pattern.columns), *ones))
    terms = e.multiply(factors, getitem(x, pattern.columns))
    zeros = as_node(np.zeros((count, *x.shape[1:]), dtype), dtype)
    return at(zeros)[pattern.rows].add(terms)  # type: ignore[no-any-return]
