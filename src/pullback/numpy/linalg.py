"""Linear algebra on traced values: ``numpy.linalg`` with derivatives.

Matrices lie along the last two axes, those before them are a batch, and what NumPy raises for a singular matrix
is raised here, also by a compiled program, before anything that was donated to it is changed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pullback.errors import ShapeError, TracingError
from pullback.graph import OPERATORS, Node, Operation, is_complex, is_float, part_dtype
from pullback.numpy import elementwise as e
from pullback.numpy import products
from pullback.numpy import reductions as r
from pullback.numpy import shapes as s
from pullback.numpy.axes import Axes, normal_axes
from pullback.numpy.dispatch import enter, implements
from pullback.numpy.promotion import (
    as_array_node,
    broadcast_shapes,
    broadcast_to_shape,
    cast,
    promote,
    where_written,
)
from pullback.operators.linalg import adjoint

__all__ = [
    "cholesky",
    "cond",
    "det",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "lstsq",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "mirrored",
    "multi_dot",
    "norm",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_nodes",
    "svd",
    "svdvals",
    "tensorinv",
    "tensorsolve",
    "vector_norm",
]


class EigResult(NamedTuple):
    """What ``eig`` gives."""

    eigenvalues: Any
    eigenvectors: Any


class EighResult(NamedTuple):
    """What ``eigh`` gives."""

    eigenvalues: Any
    eigenvectors: Any


class SVDResult(NamedTuple):
    """What ``svd`` gives."""

    U: Any
    S: Any
    Vh: Any


class QRResult(NamedTuple):
    """What ``qr`` gives."""

    Q: Any
    R: Any


class SlogdetResult(NamedTuple):
    """What ``slogdet`` gives."""

    sign: Any
    logabsdet: Any


def _floats(dtype: np.dtype) -> np.dtype:
    return dtype if is_float(dtype) else np.dtype(np.float64)


def _matrices(name: str, a: Any) -> Node:
    """``a`` as a node of float matrices."""
    node = as_array_node(a)
    node = cast(node, _floats(node.dtype))
    if node.ndim < 2:
        raise ShapeError(
            f"{name}: shape {node.shape}; it takes matrices along the last two axes{where_written()}"
        )
    return node


# -- systems of equations


def _triangle(a: Node) -> dict[str, bool] | None:
    """How a matrix that is known to be a triangle, because it is Cholesky's factor, is solved with."""
    if not isinstance(a, Operation):
        return None
    if a.operator.name == "cholesky":
        return {"lower": True, "transposed": False}
    turned = (*range(a.ndim - 2), a.ndim - 1, a.ndim - 2)
    if a.operator.name == "transpose" and a.attributes["axes"] == turned:
        inner = a.inputs[0]
        if isinstance(inner, Operation) and inner.operator.name == "cholesky":
            return {"lower": True, "transposed": True}
    return None


def solve_nodes(name: str, a: Any, b: Any, vector: bool | None = None, **attributes: Any) -> Any:
    """The operator ``name`` on ``a`` and ``b``, broadcast; ``b`` may be one vector."""
    a, b = promote((a, b), _floats)
    if a.ndim < 2 or b.ndim < 1:
        raise ShapeError(
            f"{name}: shapes {a.shape} and {b.shape}; it takes matrices and their right-hand sides{where_written()}"
        )
    vector = b.ndim == 1 if vector is None else vector
    if vector:
        b = b[..., None]
    lead = broadcast_shapes(name, a.shape[:-2], b.shape[:-2])
    if b.ndim > a.ndim == 2 and lead:  # the same matrix for all: their right-hand sides are further columns
        wide = s.moveaxis(b, -2, 0)
        found = solve_nodes(name, a, s.reshape(wide, (b.shape[-2], -1)), False, **attributes)
        found = s.moveaxis(s.reshape(found, wide.shape), 0, -2)
    else:
        known = _triangle(a) if name == "solve" else None
        if known is not None:
            name, attributes, a = "triangular_solve", known, a if not known["transposed"] else a.inputs[0]
        a, b = (broadcast_to_shape(x, (*lead, *x.shape[-2:])) for x in (a, b))
        found = OPERATORS[name](a, b, **attributes)
    return found[..., 0] if vector else found


@implements(np.linalg.solve)
def solve(a: Any, b: Any) -> Any:
    """``x`` with ``a @ x = b``. A transposed factor of ``cholesky``, or the factor itself, is solved as the
    triangle it is.

    Raises ``MatrixError``, a ``LinAlgError``, for a singular matrix.

    >>> import pullback as pb
    >>> a, b = np.array([[2.0, 0.0], [1.0, 1.0]]), np.array([2.0, 3.0])
    >>> pb.grad(lambda b: solve(a, b)[1])(b)
    array([-0.5,  1. ])
    """
    return solve_nodes("solve", a, b)


@implements(np.linalg.inv)
def inv(a: Any) -> Any:
    """The inverse of matrices; raises ``MatrixError``, a ``LinAlgError``, for a singular one."""
    return OPERATORS["inv"](_matrices("inv", a))


@implements(np.linalg.tensorsolve)
def tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    """``x`` with ``tensordot(a, x, x.ndim) = b``."""
    a, b = promote((a, b), _floats)
    if axes is not None:
        moved = [axis % a.ndim for axis in axes]
        a = s.transpose(a, [k for k in range(a.ndim) if k not in moved] + moved)
    shape = a.shape[b.ndim :]
    if math.prod(shape) != b.size or a.shape[: b.ndim] != b.shape:
        raise ShapeError(
            f"tensorsolve: shapes {a.shape} and {b.shape}; a must be square with b{where_written()}"
        )
    return s.reshape(solve(s.reshape(a, (b.size, b.size)), s.reshape(b, (b.size,))), shape)


@implements(np.linalg.tensorinv)
def tensorinv(a: Any, ind: int = 2) -> Any:
    """The inverse with respect to ``tensordot`` over the first ``ind`` axes."""
    node = as_array_node(a)
    first, last = node.shape[:ind], node.shape[ind:]
    if ind <= 0 or math.prod(first) != math.prod(last):
        raise ShapeError(
            f"tensorinv: ind={ind} of shape {node.shape} makes no square matrix{where_written()}"
        )
    return s.reshape(inv(s.reshape(node, (math.prod(first), math.prod(last)))), (*last, *first))


def mirrored(a: Any, lower: bool = True, hermitian: bool = True) -> Any:
    """The symmetric, or Hermitian, matrix that has a triangle of ``a``."""
    half, rest = (s.tril(a), s.tril(a, -1)) if lower else (s.triu(a), s.triu(a, 1))
    if not (hermitian and is_complex(a.dtype)):
        return half + rest.mT
    diagonal = _real(half) * np.eye(a.shape[-1], dtype=part_dtype(a.dtype))
    return rest + adjoint(rest) + diagonal


@implements(np.linalg.pinv)
def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    """The inverse of Moore and Penrose; singular values below ``rcond`` times the largest are taken for 0.

    The derivative is that of matrices of the same rank.
    """
    node = mirrored(_matrices("pinv", a)) if hermitian else _matrices("pinv", a)
    cut = rtol if rcond is None else rcond
    cut = 1e-15 if cut is None else cut
    if not isinstance(cut, (int, float)):
        raise TracingError(
            f"pinv: rcond of class {type(cut).__name__}; give one Python number{where_written()}"
        )
    return OPERATORS["pinv"](node, rcond=float(cut))


@implements(np.linalg.lstsq)
def lstsq(a: Any, b: Any, rcond: Any = None) -> Any:
    """The least-squares solution, the sums of squared residuals, the rank and the singular values.

    The solution is the pseudoinverse times ``b``. The residuals are there whenever ``a`` has more rows than
    columns; NumPy leaves them out if the rank is less than the number of columns, which is not known while tracing.
    """
    a, b = promote((a, b), _floats)
    if a.ndim != 2 or b.ndim not in (1, 2) or a.shape[0] != b.shape[0]:
        raise ShapeError(
            f"lstsq: shapes {a.shape} and {b.shape}; it takes a matrix and a row for each of its rows"
        )
    rows, columns = a.shape
    eps = float(np.finfo(a.dtype).eps)
    cut = max(rows, columns) * eps if rcond is None else float(rcond)
    cut = cut if 0 < cut < 1 else eps  # as LAPACK understands it
    values = OPERATORS["svdvals"](a)
    x = OPERATORS["pinv"](a, rcond=cut) @ b
    size = r.squared_size(b - a @ x)
    rest = r.sum(size, 0, keepdims=b.ndim == 1) if rows > columns else np.zeros(0, size.dtype)
    rank = r.sum(cast(values > cut * values[0], np.int64)).astype(np.int32)
    return x, as_array_node(rest), rank, values


# -- numbers


def _minor_expansion(a: Any) -> Any:
    """The determinant of matrices of up to three rows, as the polynomial that it is."""
    n = a.shape[-1]
    if n == 1:
        return a[..., 0, 0]
    if n == 2:
        return a[..., 0, 0] * a[..., 1, 1] - a[..., 0, 1] * a[..., 1, 0]
    first, second, third = (a[..., 0, k] for k in range(3))
    one, two, three = (
        a[..., 1, i] * a[..., 2, j] - a[..., 1, j] * a[..., 2, i] for i, j in ((1, 2), (0, 2), (0, 1))
    )
    return first * one - second * two + third * three


@implements(np.linalg.det)
def det(a: Any) -> Any:
    """The determinant; its derivative, the matrix of cofactors, is there for singular matrices too.

    >>> import pullback as pb
    >>> pb.grad(det)(np.array([[1.0, 2.0], [2.0, 4.0]]))
    array([[ 4., -2.],
           [-2.,  1.]])
    """
    node = _matrices("det", a)
    if node.shape[-1] == node.shape[-2] and 1 <= node.shape[-1] <= 3:
        return _minor_expansion(node)
    return OPERATORS["det"](node)


@implements(np.linalg.slogdet)
def slogdet(a: Any) -> Any:
    """The sign of the determinant and the logarithm of its size; a singular matrix has values, but no derivative."""
    made = OPERATORS["slogdet"](_matrices("slogdet", a))
    return SlogdetResult(made[..., 0], _real(made[..., 1]))


@implements(np.linalg.matrix_rank)
def matrix_rank(A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    """How many singular values are above ``tol``, by default the largest one times ``max(m, n)`` times epsilon."""
    node = as_array_node(A)
    if node.ndim < 2:
        return cast(r.any(e.not_equal(node, 0)), np.int64)
    values = svdvals(mirrored(node) if hermitian else node)
    most = r.max(values, axis=-1, keepdims=True, initial=0)
    if tol is None:
        relative = max(node.shape[-2:]) * float(np.finfo(values.dtype).eps) if rtol is None else rtol
        limit = most * relative
    else:
        limit = as_array_node(tol)[..., None]
    return r.sum(cast(values > limit, np.int64), axis=-1)


@implements(np.linalg.cond)
def cond(x: Any, p: Any = None) -> Any:
    """The condition number: the norm of a matrix times that of its inverse, by default of order 2."""
    node = _matrices("cond", x)
    if p in (None, 2, -2):
        values = svdvals(node)
        largest, smallest = values[..., 0], values[..., -1]
        return smallest / largest if p == -2 else largest / smallest
    return norm(node, p, (-2, -1)) * norm(inv(node), p, (-2, -1))


# -- factors


@implements(np.linalg.cholesky)
def cholesky(a: Any, /, *, upper: bool = False) -> Any:
    """The triangle ``l`` with ``l @ l.T = a``, where ``a`` is taken to be symmetric: its lower triangle is read.

    A complex ``a`` is taken to be Hermitian, ``l @ l.conj().T``.

    The derivative is that of what is computed: zero by the upper triangle, which nobody reads. With ``upper`` the other
    triangle is read, and the transposed factor given. Raises ``MatrixError``, a ``LinAlgError``, for a matrix
    that is not positive definite.

    >>> import pullback as pb
    >>> pb.grad(lambda a: cholesky(a)[1, 1])(np.array([[4.0, 2.0], [2.0, 5.0]]))
    array([[ 0.0625,  0.    ],
           [-0.25  ,  0.25  ]])
    """
    node = _matrices("cholesky", a)
    return adjoint(OPERATORS["cholesky"](adjoint(node))) if upper else OPERATORS["cholesky"](node)


def _real(x: Any) -> Any:
    return OPERATORS["real"](x) if is_complex(x.dtype) else x


def _is_lower(name: str, UPLO: str) -> bool:
    if UPLO.upper() not in ("L", "U"):
        raise ValueError(f"{name}: UPLO={UPLO!r}; give 'L' or 'U'{where_written()}")
    return UPLO.upper() == "L"


@implements(np.linalg.eigh)
def eigh(a: Any, UPLO: str = "L") -> Any:
    """Eigenvalues in rising order, and vectors in columns, of symmetric or Hermitian matrices, of which one triangle is
    read.

    Where eigenvalues are equal 0 stands for what is no number in the derivative of their vectors: right for
    whatever does not depend on which vectors of their space are chosen.
    """
    made = OPERATORS["eigh"](_matrices("eigh", a), lower=_is_lower("eigh", UPLO))
    return EighResult(_real(made[..., 0, :]), made[..., 1:, :])


@implements(np.linalg.eigvalsh)
def eigvalsh(a: Any, UPLO: str = "L") -> Any:
    """The eigenvalues of symmetric or Hermitian matrices in rising order; where they are equal the vectors' choice
    decides who is who.
    """
    return OPERATORS["eigvalsh"](_matrices("eigvalsh", a), lower=_is_lower("eigvalsh", UPLO))


@implements(np.linalg.eig)
def eig(a: Any) -> Any:
    """Eigenvalues and vectors in columns of any square matrices; always complex, where NumPy's are real if they can be.

    Vectors have length 1, and their largest element is real. Equal eigenvalues as in ``eigh``; where there are fewer
    vectors than rows the derivative raises ``MatrixError``.

    >>> import pullback as pb
    >>> turning = np.array([[0.0, 1.0], [-1.0, 0.0]])
    >>> pb.grad(lambda a: eig(a)[0].imag.max())(turning).round(6) + 0
    array([[ 0. ,  0.5],
           [-0.5,  0. ]])
    """
    made = OPERATORS["eig"](_matrices("eig", a))
    return EigResult(made[..., 0, :], made[..., 1:, :])


@implements(np.linalg.eigvals)
def eigvals(a: Any) -> Any:
    """The eigenvalues of any square matrices, always complex, in the order of ``eig``."""
    return eig(a)[0]


@implements(np.linalg.svd)
def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    """``u``, ``s`` and ``vh`` with ``a = (u * s) @ vh``, singular values in falling order.

    Equal singular values as in ``eigh``. Of a matrix that is not square say ``full_matrices=False``: further
    vectors are any that are orthogonal. Raises ``TracingError`` otherwise.
    """
    node = _matrices("svd", a)
    if not compute_uv:
        return OPERATORS["svdvals"](node)
    rows, columns = node.shape[-2:]
    if full_matrices and rows != columns:
        raise TracingError(
            f"svd: full_matrices of shape {node.shape} adds vectors that are any which are orthogonal, and have no "
            f"derivative; say full_matrices=False{where_written()}"
        )
    made = OPERATORS["svd"](node)
    return SVDResult(made[..., :rows, :], _real(made[..., rows, :]), adjoint(made[..., rows + 1 :, :]))


@implements(np.linalg.svdvals)
def svdvals(x: Any, /) -> Any:
    """The singular values in falling order."""
    return OPERATORS["svdvals"](_matrices("svdvals", x))


@implements(np.linalg.qr)
def qr(a: Any, mode: str = "reduced") -> Any:
    """``q``, with orthonormal columns, and the upper triangle ``r`` with ``a = q @ r``; with ``mode="r"`` that alone.

    The derivative needs independent columns, and raises ``MatrixError`` where they are not. Of a matrix with
    more rows than columns ``mode="complete"`` is refused: further columns are any that are orthogonal.
    """
    node = _matrices("qr", a)
    rows, columns = node.shape[-2:]
    if mode not in ("reduced", "r") and not (mode == "complete" and rows <= columns):
        raise TracingError(
            f"qr: mode={mode!r} of shape {node.shape} has no derivative; say mode='reduced'{where_written()}"
        )
    made = OPERATORS["qr"](node)
    return made[..., rows:] if mode == "r" else QRResult(made[..., :rows].mT, made[..., rows:])


# -- products


@implements(np.linalg.matrix_power)
def matrix_power(a: Any, n: int) -> Any:
    """The matrix multiplied ``n`` times, by squaring; of negative ``n`` its inverse."""
    node: Any = as_array_node(a)
    if not isinstance(n, (int, np.integer)):
        raise TypeError(f"matrix_power: exponent {n!r}; give an integer{where_written()}")
    if node.ndim < 2 or node.shape[-1] != node.shape[-2]:
        raise ShapeError(f"matrix_power: shape {node.shape}; it takes square matrices{where_written()}")
    if n == 0:
        return as_array_node(np.broadcast_to(np.eye(node.shape[-1], dtype=node.dtype), node.shape))
    if n < 0:
        node, n = inv(node), -n
    found = None
    while n:
        n, odd = divmod(n, 2)
        if odd:
            found = node if found is None else found @ node
        node = node @ node if n else node
    return found


@implements(np.linalg.multi_dot)
def multi_dot(arrays: Sequence[Any]) -> Any:
    """The product of matrices, in the order that takes the fewest multiplications; the first and last may
    be vectors.
    """
    nodes = list(promote(tuple(arrays)))
    if len(nodes) < 2:
        raise ValueError(f"multi_dot: {len(nodes)} arrays; give two at least{where_written()}")
    first, last = nodes[0].ndim == 1, nodes[-1].ndim == 1
    nodes[0] = nodes[0][None] if first else nodes[0]
    nodes[-1] = nodes[-1][:, None] if last else nodes[-1]
    extents = [nodes[0].shape[0], *(node.shape[1] for node in nodes)]
    best: dict[tuple[int, int], tuple[int, int]] = {}
    for length in range(len(nodes)):
        for i in range(len(nodes) - length):
            j = i + length
            best[i, j] = min(
                (
                    (best[i, k][0] + best[k + 1, j][0] + extents[i] * extents[k + 1] * extents[j + 1], k)
                    for k in range(i, j)
                ),
                default=(0, i),
            )

    def product(i: int, j: int) -> Any:
        k = best[i, j][1]
        return nodes[i] if i == j else product(i, k) @ product(k + 1, j)

    made = product(0, len(nodes) - 1)
    return s.reshape(made, made.shape[int(first) : 2 - int(last)])


# -- norms


@implements(np.linalg.norm)
def norm(x: Any, ord: Any = None, axis: Axes = None, keepdims: bool = False) -> Any:
    r"""The length of vectors, :math:`(\sum_k |x_k|^p)^{1/p}` with ``ord`` for :math:`p`, or the Frobenius
    norm.

    By default the Euclidean length of all elements. Its derivative :math:`x / |x|` is zero, not NaN, at zero.
    Of matrices 2 and -2 are the largest and the smallest singular value, ``"nuc"`` is their sum.

    >>> print(norm(np.array([3.0, 4.0])))
    5.0
    """
    node = as_array_node(x)
    node = cast(node, e.true_divide_dtype(node.dtype))
    axes = normal_axes("norm", axis, node.ndim)
    if ord is None or (ord == "fro" and len(axes) == 2):
        return r.safe_sqrt(r.sum(r.squared_size(node), axes, keepdims=keepdims))
    if len(axes) == 2 and ord in (1, -1, math.inf, -math.inf):
        return _sums_norm(node, ord, axes, keepdims)
    if len(axes) == 2 and ord in (2, -2, "nuc"):
        return _spectral_norm(node, ord, axes, keepdims)
    if len(axes) != 1:
        raise TracingError(
            f"norm of order {ord!r} over axes {axes} of shape {node.shape} has no derivative here; use "
            f"ord=None, 'fro', 'nuc', 1, 2 or inf, or name one axis{where_written()}"
        )
    if not isinstance(ord, (int, float)):
        raise TracingError(f"norm: order {ord!r} of vectors; use a number{where_written()}")
    size = e.absolute(node)
    if ord in (math.inf, -math.inf):
        if 0 in [node.shape[axis] for axis in axes] and ord > 0:
            return r.sum(size, axes, keepdims=keepdims)  # of no elements: zero
        return (r.max if ord > 0 else r.min)(size, axes, keepdims=keepdims)
    if ord == 0:
        return r.sum(cast(e.not_equal(node, 0), size.dtype), axes, keepdims=keepdims)
    if ord == 1:
        return r.sum(size, axes, keepdims=keepdims)
    if ord == 2:
        return r.safe_sqrt(r.sum(r.squared_size(node), axes, keepdims=keepdims))
    total = r.sum(e.power(size, float(ord)), axes, keepdims=keepdims)
    zero = e.equal(total, 0)
    return e.where(zero, 0.0, e.power(e.where(zero, 1.0, total), 1 / ord))


def _sums_norm(node: Any, ord: float, axes: tuple[int, ...], keepdims: bool) -> Any:
    """The largest (smallest) sum of absolute values over the columns, or over the rows for infinity."""
    summed, picked = axes if abs(ord) == 1 else axes[::-1]
    totals = r.sum(e.absolute(node), summed, keepdims=True)
    result = (r.max if ord > 0 else r.min)(totals, picked, keepdims=True)
    return result if keepdims else result.squeeze(axes)


def _spectral_norm(node: Any, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    """The largest or the smallest singular value, or their sum."""
    values = OPERATORS["svdvals"](s.moveaxis(node, axes, (-2, -1)))
    result = r.sum(values, -1) if ord == "nuc" else (r.max if ord > 0 else r.min)(values, -1)
    return s.expand_dims(result, axes) if keepdims else result


@implements(np.linalg.matrix_norm)
def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """The norm of matrices along the last two axes."""
    return norm(x, ord, (-2, -1), keepdims)


@implements(np.linalg.vector_norm)
def vector_norm(x: Any, /, *, axis: Axes = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """The norm of vectors, by default of all elements as one vector."""
    node = as_array_node(x)
    axes = normal_axes("vector_norm", axis, node.ndim)
    last = s.moveaxis(node, axes, tuple(range(-len(axes), 0)))
    flat = s.reshape(last, (*last.shape[: last.ndim - len(axes)], math.prod(node.shape[k] for k in axes)))
    result = norm(flat, ord, -1)
    return s.expand_dims(result, axes) if keepdims else result


def _of_matrices(function: Any) -> Any:
    """``function`` over the last two axes."""

    def called(x: Any, /, *, offset: int = 0) -> Any:
        return function(x, offset, -2, -1)

    called.__name__ = f"{function.__name__}_of_matrices"
    return called


for _name, _function in {
    "matrix_transpose": lambda x, /: s.swapaxes(x, -1, -2),
    "trace": _of_matrices(products.trace),
    "diagonal": _of_matrices(products.diagonal),
    "cross": lambda x1, x2, /, *, axis=-1: products.cross(x1, x2, axis=axis),
    "matmul": products.matmul,
    "outer": lambda x1, x2, /: products.outer(x1, x2),
    "tensordot": lambda x1, x2, /, *, axes=2: products.tensordot(x1, x2, axes),
    "vecdot": products.vecdot,
}.items():
    enter(_function, getattr(np.linalg, _name))
