r"""Factorisations by orthogonal matrices: eigenvalues of symmetric matrices, singular values, and triangles.

An operator has one result, in which the factors lie one below the other. Where eigenvalues or singular values are
equal, their vectors are any of a space, and the quotient :math:`1 / (\lambda_j - \lambda_i)` in the derivative of the
vectors does not exist; 0 stands for it. That is the derivative of every function that does not depend on which
of these vectors are chosen, and the eigenvalues' own derivative has no such quotient.

Source of the rules: M. Giles, *An extended collection of matrix derivative results for forward and reverse mode
automatic differentiation*, Oxford 2008; J. Townsend, *Differentiating the singular value decomposition*, 2016.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.graph import OPERATORS, Case, Node, Operation, Operator, Sample, Type
from pullback.operators.batching import batch_first
from pullback.operators.linalg import matrix_type, nodes, raising, triangular_solve

__all__ = ["eigh", "eigvalsh", "qr", "svd", "svdvals"]

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


def _eigvalsh_type(x: Type) -> Type:
    matrix_type("eigvalsh", x)
    return Type(x.dtype, x.shape[:-1])


def _as_read(bar: Any) -> Any:
    """The cotangent of the lower triangle that is read, from that of the symmetric matrix."""
    n = bar.shape[-1]
    return nodes.tril(bar + bar.mT) * (1 - 0.5 * np.eye(n, dtype=bar.dtype))


def _eigvalsh_pullback(node: Operation, g: Any) -> list[Node | None]:
    vectors = eigh(node.inputs[0])[..., 1:, :]
    return [_as_read((vectors * g[..., None, :]) @ vectors.mT)]


eigvalsh = Operator(
    "eigvalsh",
    _eigvalsh_type,
    raising("eigvalsh", np.linalg.eigvalsh),
    _eigvalsh_pullback,
    batch_first,
    None,
    (Case((Sample((3, 3)),)), Case((Sample((2, 4, 4)),)), Case((Sample((1, 1)),)), Case((Sample((0, 0)),))),
)
"""The eigenvalues (…, n), in rising order, of the symmetric matrices whose lower triangles are those of ``a``."""


def _eigh_type(x: Type) -> Type:
    matrix_type("eigh", x)
    return Type(x.dtype, (*x.shape[:-2], x.shape[-2] + 1, x.shape[-1]))


def _eigh_reference(a: Array) -> Array:
    values, vectors = np.linalg.eigh(a)
    return _below(values[..., None, :], vectors)


def _eigh_pullback(node: Any, g: Any) -> list[Node | None]:
    values, vectors = node[..., 0, :], node[..., 1:, :]
    bar_values, bar_vectors = g[..., 0, :], g[..., 1:, :]
    n = values.shape[-1]
    gaps = values[..., None, :] - values[..., :, None]
    inner = _inverse(gaps) * (vectors.mT @ bar_vectors) + bar_values[..., None, :] * np.eye(n, dtype=g.dtype)
    return [_as_read(vectors @ inner @ vectors.mT)]


eigh: Operator = Operator(
    "eigh",
    _eigh_type,
    raising("eigh", _eigh_reference),
    _eigh_pullback,
    batch_first,
    None,
    (Case((Sample((3, 3)),)), Case((Sample((2, 4, 4)),)), Case((Sample((1, 1)),)), Case((Sample((0, 0)),))),
)
"""The eigenvalues, in rising order, as a first row, and below each its vector, (…, n + 1, n), of symmetric matrices.

The lower triangle is read. The sign of a vector is LAPACK's.
"""


# -- singular values


def _svdvals_type(x: Type) -> Type:
    matrix_type("svdvals", x, square=False)
    return Type(x.dtype, (*x.shape[:-2], min(x.shape[-2:])))


def _svdvals_pullback(node: Operation, g: Any) -> list[Node | None]:
    (a,) = node.inputs
    rows = a.shape[-2]
    made: Any = svd(a)
    return [(made[..., :rows, :] * g[..., None, :]) @ made[..., rows + 1 :, :].mT]


svdvals = Operator(
    "svdvals",
    _svdvals_type,
    raising("svdvals", lambda a: np.linalg.svd(a, compute_uv=False)),
    _svdvals_pullback,
    batch_first,
    None,
    (Case((Sample((3, 3)),)), Case((Sample((2, 4, 2)),)), Case((Sample((2, 3)),)), Case((Sample((0, 2)),))),
)
"""The singular values (…, min(m, n)) of matrices (…, m, n), in falling order."""


def _svd_type(x: Type) -> Type:
    matrix_type("svd", x, square=False)
    rows, columns = x.shape[-2:]
    return Type(x.dtype, (*x.shape[:-2], rows + 1 + columns, min(rows, columns)))


def _svd_reference(a: Array) -> Array:
    u, s, v = np.linalg.svd(a, full_matrices=False)
    return _below(u, s[..., None, :], np.swapaxes(v, -1, -2))


def _svd_pullback(node: Any, g: Any) -> list[Node | None]:
    rows, columns = node.inputs[0].shape[-2:]
    u, s, v = node[..., :rows, :], node[..., rows, :], node[..., rows + 1 :, :]
    bar_u, bar_s, bar_v = g[..., :rows, :], g[..., rows, :], g[..., rows + 1 :, :]
    across = _inverse(s[..., None, :] ** 2 - s[..., :, None] ** 2)
    turned_u, turned_v = u.mT @ bar_u, v.mT @ bar_v
    inner = across * (turned_u - turned_u.mT) * s[..., None, :]
    inner = inner + s[..., :, None] * (across * (turned_v - turned_v.mT))
    inner = inner + bar_s[..., None, :] * np.eye(s.shape[-1], dtype=g.dtype)
    bar, quotient = u @ inner @ v.mT, _inverse(s)[..., None, :]
    if rows > columns:  # what of a vector's cotangent leaves the space of the vectors
        bar = bar + ((bar_u - u @ turned_u) * quotient) @ v.mT
    if columns > rows:
        bar = bar + (u * quotient) @ (bar_v - v @ turned_v).mT
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
)
"""Singular vectors and values of matrices (…, m, n), with k = min(m, n): ``u`` (m rows), ``s`` (one) and ``v``
(n), (…, k).

``a = (u * s) @ v.T``. The signs of vectors are LAPACK's.
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
    bar_x = _tall_qr_cotangent(q, r[..., :rows], bar_q + beyond @ rest.mT, own)
    return [nodes.concatenate((bar_x, q @ rest), axis=-1)]


def _tall_qr_cotangent(q: Any, r: Any, bar_q: Any, bar_r: Any) -> Any:
    bar_r = nodes.triu(bar_r)
    inner = r @ bar_r.mT - bar_q.mT @ q
    whole: Any = bar_q + q @ (nodes.tril(inner) + nodes.tril(inner, -1).mT)
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
)
"""The transpose of ``q``, whose columns are orthonormal, beside the triangle ``r``, (…, k, m + n): ``a = q @ r``.

``a`` is (…, m, n) and k = min(m, n). The derivative needs columns that are independent, and raises
``MatrixError`` where they are not.
"""
