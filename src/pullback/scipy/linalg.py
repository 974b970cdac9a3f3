"""Linear algebra under SciPy's names, of traced values and of concrete arrays.

>>> import numpy as np
>>> import pullback as pb
>>> a, b = np.array([[4.0, 2.0], [2.0, 5.0]]), np.array([2.0, 1.0])
>>> cho_solve(cho_factor(a), b)
array([0.5, 0. ])
>>> pb.grad(lambda b: cho_solve(cho_factor(a), b)[0])(b)
array([ 0.3125, -0.125 ])
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.errors import ShapeError, TracingError
from pullback.graph import OPERATORS, is_float
from pullback.numpy import linalg
from pullback.numpy.promotion import as_array_node, cast, float_dtype, promote, where_written
from pullback.operators.linalg import adjoint
from pullback.operators.matrix_equations import matrix_root, sylvester
from pullback.scipy.arrays import on_arrays

__all__ = [
    "block_diag",
    "cho_factor",
    "cho_solve",
    "cholesky",
    "det",
    "eigh",
    "eigvalsh",
    "expm",
    "inv",
    "lstsq",
    "norm",
    "pinv",
    "qr",
    "solve",
    "solve_banded",
    "solve_sylvester",
    "solve_triangular",
    "sqrtm",
    "svd",
    "svdvals",
    "toeplitz",
]


def _node(a: Any, overwrite: Any = None) -> Any:
    return as_array_node(a)


@on_arrays
def solve_triangular(
    a: Any,
    b: Any,
    trans: int | str = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Any:
    """``x`` with ``t @ x = b``, where ``t`` is a triangle of ``a``, transposed for ``trans`` 1 or "T", and
    conjugated, too, for 2 or "C".

    Raises ``MatrixError``, a ``LinAlgError``, where a zero is on the diagonal.

    >>> solve_triangular(np.array([[2.0, 9.0], [1.0, 1.0]]), np.array([2.0, 3.0]), lower=True)
    array([1., 2.])
    """
    matrix = _node(a)
    if unit_diagonal:
        matrix = np.where(np.eye(matrix.shape[-1], dtype=bool), np.ones((), matrix.dtype), matrix)
    if trans not in (0, 1, 2, "N", "T", "C"):
        raise ValueError(f"solve_triangular: trans={trans!r}; give 0, 'N', 1, 'T', 2 or 'C'{where_written()}")
    if trans in (2, "C"):
        matrix = np.conj(matrix)
    return linalg.solve_nodes("triangular_solve", matrix, b, lower=lower, transposed=trans not in (0, "N"))


@on_arrays
def cholesky(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """Cholesky's factor, by default the upper one; the triangle of ``a`` on that side is read.

    Raises ``MatrixError``, a ``LinAlgError``, for a matrix that is not positive definite.
    """
    return linalg.cholesky(_node(a), upper=not lower)


def cho_factor(
    a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Any, bool]:
    """Cholesky's factor, and which triangle it is, for ``cho_solve``; the other triangle holds zeros."""
    return cholesky(a, lower), lower


def cho_solve(
    c_and_lower: tuple[Any, bool], b: Any, overwrite_b: bool = False, check_finite: bool = True
) -> Any:
    """``x`` with ``a @ x = b``, from what ``cho_factor`` makes of ``a``."""
    factor, lower = c_and_lower
    half = solve_triangular(factor, b, trans=0 if lower else 2, lower=lower)
    return solve_triangular(factor, half, trans=2 if lower else 0, lower=lower)


@on_arrays
def solve(
    a: Any,
    b: Any,
    lower: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
    assume_a: str | None = None,
    transposed: bool = False,
) -> Any:
    """``x`` with ``a @ x = b``; with ``assume_a="pos"`` by Cholesky's factor, of which ``lower`` says the triangle.

    Other assumptions are allowed and change nothing but ``"sym"`` and ``"her"``, of which one triangle is read as well.
    """
    matrix = _node(a)
    if assume_a in ("pos", "positive definite"):
        return cho_solve((linalg.cholesky(matrix, upper=not lower), lower), b)
    if assume_a in ("sym", "her", "symmetric", "hermitian"):
        matrix = linalg.mirrored(matrix, lower, assume_a in ("her", "hermitian"))
    vector = np.ndim(b) == 1
    return linalg.solve_nodes("solve", matrix.mT if transposed else matrix, b, vector)


@on_arrays
def solve_banded(
    l_and_u: tuple[int, int],
    ab: Any,
    b: Any,
    overwrite_ab: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Any:
    """``x`` with ``a @ x = b``, where the rows of ``ab`` are the diagonals of ``a``: ``ab[u + i - j, j] = a[i, j]``.

    The matrix is made and eliminated whole, so it takes the time of a full one.

    >>> solve_banded((0, 1), np.array([[0.0, 1.0], [2.0, 4.0]]), np.array([4.0, 4.0]))
    array([1.5, 1. ])
    """
    below, above = l_and_u
    bands = _node(ab)
    if bands.ndim != 2 or bands.shape[0] != below + above + 1:
        raise ShapeError(
            f"solve_banded: diagonals of shape {bands.shape}; give {below + above + 1} rows for {below} diagonals "
            f"below and {above} above{where_written()}"
        )
    n = bands.shape[1]
    row = above + np.arange(n)[:, None] - np.arange(n)
    within = (row >= 0) & (row <= below + above)
    matrix = np.where(within, bands[np.where(within, row, 0), np.arange(n)], np.zeros((), bands.dtype))
    return linalg.solve_nodes("solve", matrix, b, np.ndim(b) == 1)


@on_arrays
def solve_sylvester(a: Any, b: Any, q: Any) -> Any:
    """``x`` with ``a @ x + x @ b = q``; it is there unless ``a`` and ``-b`` have an eigenvalue in common.

    Raises ``MissingExtra`` without SciPy.
    """
    return sylvester(*promote((a, b, q), float_dtype))


@on_arrays
def sqrtm(A: Any) -> Any:
    """The principal ``x`` with ``x @ x = A``; a real matrix of negative eigenvalues raises ``MatrixError``: its root is
    complex, so make it complex first. ``MissingExtra`` without SciPy.
    """
    node = _node(A)
    return matrix_root(cast(node, float_dtype(node.dtype)))


@on_arrays
def inv(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """The inverse."""
    return linalg.inv(_node(a))


@on_arrays
def det(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """The determinant."""
    return linalg.det(_node(a))


@on_arrays
def expm(A: Any) -> Any:
    """The exponential of matrices.

    >>> expm(np.array([[0.0, 1.0], [0.0, 0.0]]))
    array([[1., 1.],
           [0., 1.]])
    """
    node = _node(A)
    return OPERATORS["expm"](cast(node, node.dtype if is_float(node.dtype) else np.float64))


@on_arrays
def eigh(a: Any, b: Any = None, lower: bool = True, eigvals_only: bool = False, **options: Any) -> Any:
    """Eigenvalues and vectors of symmetric matrices, or of ``a @ v = w * (b @ v)`` with a positive definite ``b``."""
    if options:
        raise TracingError(f"eigh: {', '.join(options)}: not supported; leave it out{where_written()}")
    side = "L" if lower else "U"
    if b is None:
        return linalg.eigvalsh(_node(a), side) if eigvals_only else tuple(linalg.eigh(_node(a), side))
    factor = linalg.cholesky(_node(b)) if lower else adjoint(linalg.cholesky(_node(b), upper=True))
    whole = linalg.mirrored(_node(a), lower)
    inner = solve_triangular(factor, adjoint(solve_triangular(factor, whole, lower=True)), lower=True)
    values, vectors = linalg.eigh(inner)
    if eigvals_only:
        return values
    return values, solve_triangular(factor, vectors, trans=2, lower=True)


@on_arrays
def eigvalsh(a: Any, b: Any = None, lower: bool = True) -> Any:
    """The eigenvalues of symmetric matrices."""
    return eigh(_node(a), b, lower, eigvals_only=True)


@on_arrays
def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, **options: Any) -> Any:
    """Singular values and vectors, as ``numpy.linalg.svd``; of a matrix that is not square with
    ``full_matrices=False``.
    """
    made = linalg.svd(_node(a), full_matrices, compute_uv)
    return tuple(made) if compute_uv else made


@on_arrays
def svdvals(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """The singular values in falling order."""
    return linalg.svdvals(_node(a))


@on_arrays
def qr(a: Any, mode: str = "full", **options: Any) -> Any:
    """``q`` and ``r`` with ``mode="economic"``, ``r`` alone with ``mode="r"``; full where that is the same."""
    known = {"economic": "reduced", "full": "complete", "r": "r"}
    if mode not in known or any(options.values()):
        raise TracingError(f"qr: mode={mode!r} {options or ''}; use mode='economic' or 'r'{where_written()}")
    made = linalg.qr(_node(a), known[mode])
    return made if mode == "r" else tuple(made)


@on_arrays
def pinv(a: Any, *, rtol: float | None = None) -> Any:
    """The inverse of Moore and Penrose; singular values below ``rtol``, by default ``max(m, n)`` epsilons, are 0."""
    node = _node(a)
    kind = node.dtype if is_float(node.dtype) else np.dtype(np.float64)
    return linalg.pinv(node, max(node.shape[-2:]) * float(np.finfo(kind).eps) if rtol is None else rtol)


@on_arrays
def lstsq(a: Any, b: Any, cond: float | None = None) -> Any:
    """The least-squares solution, residuals, rank and singular values."""
    return linalg.lstsq(_node(a), b, cond)


@on_arrays
def norm(a: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """The norm of vectors or matrices."""
    return linalg.norm(_node(a), ord, axis, keepdims)


@on_arrays
def block_diag(*arrays: Any) -> Any:
    """Matrices along a diagonal, zeros elsewhere.

    >>> block_diag(np.ones((1, 2)), np.array([[3.0]]))
    array([[1., 1., 0.],
           [0., 0., 3.]])
    """
    blocks = [np.atleast_2d(_node(array)) for array in arrays]
    width, rows, before = sum(block.shape[1] for block in blocks), [], 0
    for block in blocks:
        rows.append(np.pad(block, ((0, 0), (before, width - before - block.shape[1]))))
        before += block.shape[1]
    return np.concatenate(rows, axis=0)


@on_arrays
def toeplitz(c: Any, r: Any = None) -> Any:
    """The matrix of constant diagonals with the first column ``c`` and the first row ``r``, by default ``c``."""
    column = _node(c)
    row = column if r is None else _node(r)
    if column.ndim != 1 or row.ndim != 1:
        raise ShapeError(
            f"toeplitz: shapes {column.shape} and {row.shape}; it takes vectors{where_written()}"
        )
    values = np.concatenate([np.flip(column), row[1:]])
    place = np.arange(column.shape[0])[::-1, None] + np.arange(row.shape[0])
    return values[place]
