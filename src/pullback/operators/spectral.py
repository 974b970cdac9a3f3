r"""Factorisations: eigenvalues of symmetric and of other matrices, singular values, and orthogonal triangulation.

An operator has one result, in which the factors lie one below the other. Where eigenvalues or singular values are
equal, their vectors are any of a space, and the quotient :math:`1 / (\lambda_j - \lambda_i)` in the derivative of the
vectors does not exist; 0 stands for it. The eigenvalues' own derivative has no such quotient, and neither has
:math:`u v^T`: what turns both vectors of a singular value alike has no part in it. A function of a matrix that is made
of its eigenvectors, :math:`v f(\lambda) v^T`, has a derivative between equal eigenvalues that they do not tell,
:math:`f'(\lambda)`, and 0 in its place is not right.

A complex vector may be turned by any angle. LAPACK keeps one element of each real, and the derivative is that of what
it computes; of what does not depend on the angles it is the same whatever they are.

Source of the rules: M. Giles, *An extended collection of matrix derivative results for forward and reverse mode
automatic differentiation*, Oxford 2008; J. Townsend, *Differentiating the singular value decomposition*, 2016.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.errors import MatrixError
from pullback.graph import OPERATORS, Case, Node, Operation, Operator, Sample, Type, is_complex, part_dtype
from pullback.operators.batching import batch_first
from pullback.operators.linalg import (
    REGULAR,
    adjoint,
    matrix_type,
    nodes,
    raising,
    solve,
    triangular_solve,
)
from pullback.operators.varying import behind_matrices

__all__ = ["eig", "eigh", "eigvalsh", "independent", "qr", "svd", "svdvals"]

Array = np.ndarray[Any, Any]


def _inverse(x: Any) -> Any:
    """``1 / x``, and 0 where ``x`` is 0."""
    zero = OPERATORS["equal"](x, nodes.zeros_like(x))
    one = nodes.ones_like(x)
    where = OPERATORS["where"]
    return where(zero, nodes.zeros_like(x), one / where(zero, one, x))


def _below(*parts: Array) -> Array:
    """Matrices one below the other; vectors are rows."""
    return np.concatenate(parts, axis=-2)


# -- symmetric matrices


def _triangle(x: Any, lower: bool) -> Any:
    return nodes.tril(x) if lower else nodes.triu(x)


def _eigvalsh_type(x: Type, lower: bool) -> Type:
    matrix_type("eigvalsh", x)
    return Type(part_dtype(x.dtype), x.shape[:-1])


def _as_read(bar: Any, lower: bool) -> Any:
    """The cotangent of the triangle that is read, from that of the symmetric matrix."""
    n = bar.shape[-1]
    return _triangle(bar + adjoint(bar), lower) * (1 - 0.5 * np.eye(n, dtype=bar.dtype))


def _eigvalsh_pullback(node: Operation, g: Any) -> list[Node | None]:
    vectors = eigh(node.inputs[0], **node.attributes)[..., 1:, :]
    return [_as_read((nodes.conj(vectors) * g[..., None, :]) @ vectors.mT, **node.attributes)]


_SYMMETRIC = (
    Case((Sample((3, 3)),), {"lower": True}),
    Case((Sample((2, 4, 4)),), {"lower": False}),
    Case((Sample((1, 1)),), {"lower": True}),
    Case((Sample((0, 0)),), {"lower": True}),
)

eigvalsh = Operator(
    "eigvalsh",
    _eigvalsh_type,
    raising("eigvalsh", lambda a, lower: np.linalg.eigvalsh(a, "L" if lower else "U")),
    _eigvalsh_pullback,
    batch_first,
    None,
    _SYMMETRIC,
    vary=behind_matrices(),
)
"""The eigenvalues (…, n), in rising order, of the symmetric, or Hermitian, matrices that have the ``lower`` or the
upper triangles of ``a``.
"""


def _eigh_type(x: Type, lower: bool) -> Type:
    matrix_type("eigh", x)
    return Type(x.dtype, (*x.shape[:-2], x.shape[-2] + 1, x.shape[-1]))


def _eigh_reference(a: Array, lower: bool) -> Array:
    values, vectors = np.linalg.eigh(a, "L" if lower else "U")
    return _below(values[..., None, :].astype(a.dtype), vectors)


def _kept_real(bar: Any, vectors: Any, row: int, turn: Any) -> Any:
    """``bar`` of vectors whose element in ``row`` is kept real by what turns each vector; ``turn`` is the cotangent of
    its angle. An element near zero, of which rounding would be divided by, says nothing.
    """
    fixed = OPERATORS["real"](vectors[..., row, :])
    fixed = nodes.where(abs(fixed) < np.finfo(fixed.dtype).eps ** 0.5, 0, fixed)
    onto = np.zeros((vectors.shape[-2], 1), bar.dtype)
    onto[row] = 1j
    return bar + onto * (turn * _inverse(fixed))[..., None, :]


def _turning(bar: Any, vectors: Any) -> Any:
    """The cotangent of the angles by which vectors are turned."""
    return -OPERATORS["imag"](nodes.sum(bar * vectors, axis=-2))


def _eigh_pullback(node: Any, g: Any) -> list[Node | None]:
    lower = node.attributes["lower"]
    values, vectors = node[..., 0, :], node[..., 1:, :]
    bar_values, bar_vectors = g[..., 0, :], g[..., 1:, :]
    n = values.shape[-1]
    if is_complex(node.dtype) and n:
        values = OPERATORS["real"](values)
        turn = _turning(bar_vectors, vectors)
        bar_vectors = _kept_real(bar_vectors, vectors, 0 if lower else n - 1, turn)
    gaps = values[..., None, :] - values[..., :, None]
    inner = _inverse(gaps) * (vectors.mT @ bar_vectors) + bar_values[..., None, :] * np.eye(n, dtype=g.dtype)
    return [_as_read(nodes.conj(vectors) @ inner @ vectors.mT, lower)]


eigh: Operator = Operator(
    "eigh",
    _eigh_type,
    raising("eigh", _eigh_reference),
    _eigh_pullback,
    batch_first,
    None,
    _SYMMETRIC,
    vary=behind_matrices(),
)
"""The eigenvalues, in rising order, as a first row, and below each its vector, (…, n + 1, n), of symmetric matrices.

The ``lower`` or the upper triangle is read, of a complex diagonal the real part. The sign of a vector is LAPACK's, and
so is the angle of a complex one: its first element is real where the lower triangle is read, else its last.
"""


# -- singular values


def _svdvals_type(x: Type) -> Type:
    matrix_type("svdvals", x, square=False)
    return Type(part_dtype(x.dtype), (*x.shape[:-2], min(x.shape[-2:])))


def _svdvals_pullback(node: Operation, g: Any) -> list[Node | None]:
    (a,) = node.inputs
    rows = a.shape[-2]
    made: Any = svd(a)
    return [(nodes.conj(made[..., :rows, :]) * g[..., None, :]) @ made[..., rows + 1 :, :].mT]


svdvals = Operator(
    "svdvals",
    _svdvals_type,
    raising("svdvals", lambda a: np.linalg.svd(a, compute_uv=False)),
    _svdvals_pullback,
    batch_first,
    None,
    (Case((Sample((3, 3)),)), Case((Sample((2, 4, 2)),)), Case((Sample((2, 3)),)), Case((Sample((0, 2)),))),
    vary=behind_matrices(),
)
"""The singular values (…, min(m, n)) of matrices (…, m, n), in falling order."""


def _svd_type(x: Type) -> Type:
    matrix_type("svd", x, square=False)
    rows, columns = x.shape[-2:]
    return Type(x.dtype, (*x.shape[:-2], rows + 1 + columns, min(rows, columns)))


def _svd_reference(a: Array) -> Array:
    u, s, v = np.linalg.svd(a, full_matrices=False)
    return _below(u, s[..., None, :].astype(a.dtype), np.swapaxes(v, -1, -2).conj())


def _svd_pullback(node: Any, g: Any) -> list[Node | None]:
    rows, columns = node.inputs[0].shape[-2:]
    u, s, v = node[..., :rows, :], node[..., rows, :], node[..., rows + 1 :, :]
    bar_u, bar_s, bar_v = g[..., :rows, :], g[..., rows, :], g[..., rows + 1 :, :]
    unit = np.eye(min(rows, columns), dtype=g.dtype)
    diagonal = bar_s
    if is_complex(node.dtype):
        s = OPERATORS["real"](s)
        turn_u, turn_v = _turning(bar_u, u), _turning(bar_v, v)
        if (
            rows and columns
        ):  # the smaller factor is LAPACK's, with real elements first; the other turns with it
            if rows >= columns:
                bar_v, against = _kept_real(bar_v, v, 0, turn_u + turn_v), -turn_u
            else:
                bar_u, against = _kept_real(bar_u, u, 0, turn_u + turn_v), turn_v
            diagonal = OPERATORS["complex_of"](OPERATORS["real"](bar_s), against * _inverse(s))
    sums, gaps = s[..., None, :] + s[..., :, None], s[..., None, :] - s[..., :, None]
    equal = abs(gaps) <= max(rows, columns) * np.finfo(s.dtype).eps * sums  # up to rounding
    turned_u, turned_v = u.mT @ bar_u, v.mT @ bar_v
    by_u, by_v = turned_u - adjoint(turned_u), turned_v - adjoint(turned_v)
    inner = (by_u + by_v) * _inverse(nodes.where(equal, 0, gaps)) + (by_u - by_v) * _inverse(sums) * (
        1 - unit
    )
    inner = 0.5 * inner + diagonal[..., None, :] * unit
    bar, quotient = nodes.conj(u) @ inner @ v.mT, _inverse(s)[..., None, :]
    if rows > columns:  # what of a vector's cotangent leaves the space of the vectors
        bar = bar + ((bar_u - nodes.conj(u) @ turned_u) * quotient) @ v.mT
    if columns > rows:
        bar = bar + (nodes.conj(u) * quotient) @ (nodes.conj(bar_v) - v @ nodes.conj(turned_v)).mT
    return [bar]


svd: Operator = Operator(
    "svd",
    _svd_type,
    raising("svd", _svd_reference),
    _svd_pullback,
    batch_first,
    None,
    (
        Case((Sample((3, 3), -1, 1, diagonal=1.0),)),
        Case((Sample((2, 4, 2)),)),
        Case((Sample((2, 3)),)),
        Case((Sample((0, 2)),)),
    ),
    vary=behind_matrices(),
)
"""Singular vectors and values of matrices (…, m, n), with k = min(m, n): ``u`` (m rows), ``s`` (one) and ``v``
(n), (…, k).

``a = (u * s) @ v.conj().T``. The signs of vectors are LAPACK's, and so are the angles of complex ones: the first row of
``v`` is real, or of ``u`` where that is smaller.
"""


# -- matrices that need not be symmetric


def _eig_type(x: Type) -> Type:
    matrix_type("eig", x)
    return Type(np.result_type(x.dtype, np.complex64), (*x.shape[:-2], x.shape[-2] + 1, x.shape[-1]))


def _eig_reference(a: Array) -> Array:
    if not a.size:
        return np.zeros((*a.shape[:-2], a.shape[-2] + 1, a.shape[-1]), np.result_type(a.dtype, np.complex64))
    values, vectors = np.linalg.eig(a)
    return _below(values[..., None, :], vectors).astype(np.result_type(a.dtype, np.complex64))


def _independent_type(x: Type) -> Type:
    matrix_type("independent", x)
    return Type(x.dtype, x.shape)


def _independent_reference(vectors: Array) -> Array:
    s = np.linalg.svd(vectors, compute_uv=False)
    n = vectors.shape[-1]
    if n and (s[..., -1] <= n * np.finfo(s.dtype).eps * s[..., 0]).any():
        raise MatrixError(
            f"eig: a matrix of {n} rows has fewer than {n} independent eigenvectors, and no derivative; of a symmetric "
            "one use eigh"
        )
    return vectors


independent = Operator(
    "independent",
    _independent_type,
    _independent_reference,
    lambda node, g: [g],
    batch_first,
    None,
    (Case((REGULAR,)), Case((Sample((0, 0)),))),
    vary=behind_matrices(),
)
"""The eigenvectors ``x`` as they are; raises ``MatrixError`` where they are not independent up to rounding."""


def _eig_pullback(node: Any, g: Any) -> list[Node | None]:
    (a,) = node.inputs
    real, imag = OPERATORS["real"], OPERATORS["imag"]
    n = a.shape[-1]
    if not n:
        return [None]
    values, vectors = node[..., 0, :], node[..., 1:, :]
    bar_values, bar_vectors = g[..., 0, :], g[..., 1:, :]
    # LAPACK's vectors have length 1, and their largest element is real.
    size = nodes.where(imag(vectors) == 0, abs(real(vectors)), -1)
    largest = np.arange(n)[:, None] == nodes.argmax(size, axis=-2)[..., None, :]
    along = nodes.sum(bar_vectors * vectors, axis=-2)[..., None, :]
    turn = nodes.where(largest, -imag(along) / nodes.where(largest, real(vectors), 1), 0)
    kept = bar_vectors - real(along) * nodes.conj(vectors) + 1j * turn
    gaps = values[..., None, :] - values[..., :, None]
    inner = _inverse(gaps) * (vectors.mT @ kept) + bar_values[..., None, :] * np.eye(n, dtype=g.dtype)
    turned = independent(vectors).mT
    bar: Any = solve(turned, inner @ turned)
    return [bar if is_complex(a.dtype) else real(bar)]


eig = Operator(
    "eig",
    _eig_type,
    raising("eig", _eig_reference),
    _eig_pullback,
    batch_first,
    None,
    (Case((Sample((3, 3)),)), Case((Sample((2, 4, 4)),)), Case((Sample((1, 1)),)), Case((Sample((0, 0)),))),
    vary=behind_matrices(),
)
"""The eigenvalues as a first row, and below each its vector, (…, n + 1, n), of any square matrices; complex numbers.

Vectors have length 1, and their largest element is real. A matrix that has fewer than n vectors raises ``MatrixError``
for the derivative.
"""


# -- triangles


def _qr_type(x: Type) -> Type:
    matrix_type("qr", x, square=False)
    rows, columns = x.shape[-2:]
    return Type(x.dtype, (*x.shape[:-2], min(rows, columns), rows + columns))


def _qr_reference(a: Array) -> Array:
    q, r = np.linalg.qr(a)
    return np.concatenate((np.swapaxes(q, -1, -2), r), axis=-1)


def _qr_pullback(node: Any, g: Any) -> list[Node | None]:
    (a,) = node.inputs
    rows, columns = a.shape[-2:]
    q, r = node[..., :rows].mT, node[..., rows:]
    bar_q, bar_r = g[..., :rows].mT, g[..., rows:]
    if rows >= columns:
        return [_tall_qr_cotangent(q, r, bar_q, bar_r)]
    # The columns beyond the square are ``q.T`` times those of the matrix.
    _, beyond = nodes.split(a, [rows], axis=-1)
    own, rest = nodes.split(bar_r, [rows], axis=-1)
    bar_x = _tall_qr_cotangent(q, r[..., :rows], bar_q + nodes.conj(beyond) @ adjoint(rest), own)
    return [nodes.concatenate((bar_x, nodes.conj(q) @ rest), axis=-1)]


def _tall_qr_cotangent(q: Any, r: Any, bar_q: Any, bar_r: Any) -> Any:
    bar_r = nodes.triu(bar_r)
    inner = r @ bar_r.mT - bar_q.mT @ q
    below = nodes.tril(inner, -1)
    diagonal = nodes.real(inner) * np.eye(inner.shape[-1], dtype=part_dtype(inner.dtype))
    whole: Any = bar_q + nodes.conj(q) @ (nodes.conj(below) + diagonal + below.mT)
    return triangular_solve(r, whole.mT, lower=False, transposed=False).mT


qr = Operator(
    "qr",
    _qr_type,
    raising("qr", _qr_reference),
    _qr_pullback,
    batch_first,
    None,
    (
        Case((Sample((3, 3), -1, 1, diagonal=3.0),)),
        Case((Sample((2, 4, 2), -1, 1, diagonal=2.0),)),
        Case((Sample((2, 3), -1, 1, diagonal=2.0),)),
        Case((Sample((2, 0)),)),
    ),
    vary=behind_matrices(),
)
"""The transpose of ``q``, whose columns are orthonormal, beside the triangle ``r``, (…, k, m + n): ``a = q @ r``.

``a`` is (…, m, n) and k = min(m, n). The derivative needs columns that are independent, and raises
``MatrixError`` where they are not.
"""
