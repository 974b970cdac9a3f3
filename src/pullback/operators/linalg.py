"""Linear algebra: solutions, inverses, determinants and Cholesky's factor of matrices along the last two axes.

Axes before the last two are those of a batch, the same in all inputs. An operator reads what NumPy's function
of the same name reads, so the derivative by what it does not read, such as the upper triangle of a matrix that
is taken to be symmetric, is zero. A matrix that is singular, or not positive definite, raises ``MatrixError``,
a kind of NumPy's ``LinAlgError``.

Source of the rules: M. Giles, *An extended collection of matrix derivative results for forward and reverse mode
automatic differentiation*, Oxford 2008.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from pullback.errors import DTypeError, MatrixError, ShapeError
from pullback.graph import (
    OPERATORS,
    Case,
    Node,
    Operation,
    Operator,
    Sample,
    Type,
    is_complex,
    is_float,
    is_half,
)
from pullback.operators.batching import all_batched, batch_first, is_batched, moved
from pullback.operators.elementwise import repair_of
from pullback.operators.varying import behind_matrices

__all__ = [
    "BLOCK",
    "adjoint",
    "blocks",
    "cholesky",
    "cholesky_cotangent",
    "cofactor",
    "det",
    "expm",
    "expm_along",
    "halved",
    "inv",
    "matrix_type",
    "nodes",
    "pade_quotient",
    "pinv",
    "raising",
    "slogdet",
    "solve",
    "triangular_solve",
]

Array = np.ndarray[Any, Any]
nodes: Any = np
"""NumPy, whose functions take nodes as well as arrays."""

REGULAR = Sample((3, 3), -1.0, 1.0, diagonal=4.0)
"""A matrix that is well conditioned, and positive definite if it is read as a symmetric one."""


def matrix_type(name: str, x: Type, square: bool = True) -> None:
    """Raise unless ``x`` is a type of float matrices, square ones unless ``square`` is false."""
    complex_refused = is_complex(x.dtype) and name == "cholesky_cotangent"
    if not is_float(x.dtype) or is_half(x.dtype) or complex_refused:
        raise DTypeError(f"{name} takes no {x.dtype}; {repair_of(x.dtype, 'f')}")
    if x.rank < 2 or (square and x.shape[-1] != x.shape[-2]):
        wanted = "square matrices" if square else "matrices"
        raise ShapeError(f"{name}: shape {x.shape}; it takes {wanted} along the last two axes")


def raising(name: str, reference: Callable[..., Any]) -> Callable[..., Any]:
    """``reference`` with NumPy's ``LinAlgError`` as a ``MatrixError`` that names the operator."""

    @wraps(reference)
    def called(*arrays: Array, **attributes: Any) -> Any:
        try:
            return reference(*arrays, **attributes)
        except MatrixError:
            raise
        except np.linalg.LinAlgError as error:
            raise MatrixError(f"{name}: {error}") from None

    return called


def _same_type(name: str) -> Callable[..., Type]:
    """The type rule of a square matrix that becomes another one."""

    def rule(x: Type, **attributes: Any) -> Type:
        matrix_type(name, x)
        return Type(x.dtype, x.shape)

    return rule


def _number_type(name: str, *own: int) -> Callable[[Type], Type]:
    """The type rule of a square matrix that becomes a number, or ``own`` numbers."""

    def rule(x: Type) -> Type:
        matrix_type(name, x)
        return Type(x.dtype, (*x.shape[:-2], *own))

    return rule


def _solution_type(name: str) -> Callable[..., Type]:
    def rule(a: Type, b: Type, **attributes: Any) -> Type:
        matrix_type(name, a)
        matrix_type(name, b, square=False)
        if a.dtype != b.dtype:
            raise DTypeError(f"{name}: dtypes {a.dtype} and {b.dtype} differ; cast one with .astype")
        if a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2]:
            raise ShapeError(
                f"{name}: matrices of shape {a.shape} and right-hand sides of shape {b.shape}; both need equal axes "
                "before the last two, and a row of the right-hand sides for each of the matrix"
            )
        return Type(b.dtype, b.shape)

    return rule


def _solution_batch(node: Operation, inputs: Sequence[Node]) -> Node:
    """Right-hand sides of many examples are further columns where the matrix is the same for all."""
    (a, b), (one, _) = inputs, node.inputs
    if is_batched(a, one):
        return node.operator(*all_batched(inputs, node.inputs), **node.attributes)
    size, *_, columns = b.shape
    last = moved(b, 0, b.ndim - 1)
    wide = OPERATORS["reshape"](last, shape=(*last.shape[:-2], columns * size))
    found = OPERATORS["reshape"](node.operator(a, wide, **node.attributes), shape=last.shape)
    return moved(found, found.ndim - 1, 0)


# -- systems of equations


def _solve_pullback(node: Operation, g: Any) -> list[Node | None]:
    a: Any = node.inputs[0]
    back: Any = solve(a.mT, g)
    return [-(back @ node.mT), back]


solve = Operator(
    "solve",
    _solution_type("solve"),
    raising("solve", np.linalg.solve),
    _solve_pullback,
    _solution_batch,
    None,
    (
        Case((REGULAR, Sample((3, 2)))),
        Case((Sample((2, 4, 4), -1, 1, diagonal=4.0), Sample((2, 4, 1)))),
        Case((Sample((1, 1), 1, 2), Sample((1, 3)))),
        Case((Sample((0, 0)), Sample((0, 2)))),
        Case((Sample((9, 9), -1, 1, diagonal=6.0), Sample((9, 3)))),
    ),
    vary=behind_matrices(),
)
r"""``x`` with ``a @ x = b``, for ``a`` (…, n, n) and ``b`` (…, n, k).

With :math:`c = a^{-T} \bar x` the cotangents are :math:`\bar a = -c x^T` and :math:`\bar b = c`. Raises ``MatrixError``
for a singular matrix.
"""


def _triangle(x: Any, lower: bool) -> Any:
    return nodes.tril(x) if lower else nodes.triu(x)


def _triangular_reference(a: Array, b: Array, lower: bool, transposed: bool) -> Array:
    a = _triangle(a, lower)
    if not np.diagonal(a, axis1=-2, axis2=-1).all():
        raise MatrixError("triangular_solve: Singular matrix: a zero is on its diagonal")
    return np.asarray(np.linalg.solve(np.swapaxes(a, -1, -2) if transposed else a, b))


def _triangular_pullback(node: Operation, g: Any) -> list[Node | None]:
    a, lower, transposed = node.inputs[0], node.attributes["lower"], node.attributes["transposed"]
    back: Any = triangular_solve(a, g, lower=lower, transposed=not transposed)
    product = node @ back.mT if transposed else back @ node.mT
    return [-_triangle(product, lower), back]


triangular_solve = Operator(
    "triangular_solve",
    _solution_type("triangular_solve"),
    raising("triangular_solve", _triangular_reference),
    _triangular_pullback,
    _solution_batch,
    None,
    (
        Case((REGULAR, Sample((3, 2))), {"lower": True, "transposed": False}),
        Case((REGULAR, Sample((3, 2))), {"lower": True, "transposed": True}),
        Case((REGULAR, Sample((3, 1))), {"lower": False, "transposed": False}),
        Case(
            (Sample((2, 4, 4), -1, 1, diagonal=3.0), Sample((2, 4, 2))), {"lower": False, "transposed": True}
        ),
        Case((Sample((0, 0)), Sample((0, 2))), {"lower": True, "transposed": False}),
        Case((Sample((9, 9), -1, 1, diagonal=4.0), Sample((9, 3))), {"lower": True, "transposed": False}),
    ),
    vary=behind_matrices(),
)
"""``x`` with ``t @ x = b``, where ``t`` is the ``lower`` or upper triangle of ``a``, ``transposed`` or not.

What stands in the other triangle is not read. Raises ``MatrixError`` where a zero is on the diagonal.
"""


def _inv_pullback(node: Any, g: Any) -> list[Node | None]:
    return [-(node.mT @ g @ node.mT)]


inv = Operator(
    "inv",
    _same_type("inv"),
    raising("inv", np.linalg.inv),
    _inv_pullback,
    batch_first,
    None,
    (Case((REGULAR,)), Case((Sample((2, 5, 5), -1, 1, diagonal=4.0),)), Case((Sample((0, 0)),))),
    vary=behind_matrices(),
)
r"""The inverse of matrices (…, n, n); :math:`\bar a = -y^T \bar y y^T`. Raises ``MatrixError`` for a singular
matrix."""


# -- determinants


def _cofactor_reference(a: Array) -> Array:
    """By singular values: the product of all but one needs no quotient, so singular matrices have cofactors too."""
    u, s, v = np.linalg.svd(a)
    n = s.shape[-1]
    others = np.broadcast_to(s[..., None, :], (*s.shape, n)).copy()
    others[..., range(n), range(n)] = 1
    sign = np.linalg.det(u) * np.linalg.det(v)
    u, sign, v = (u.conj(), sign, v.conj()) if a.dtype.kind == "c" else (u, np.rint(sign), v)
    return np.asarray((u * (sign[..., None] * np.prod(others, axis=-1))[..., None, :]) @ v)


def _cofactor_pullback(node: Operation, g: Any) -> list[Node | None]:
    a = node.inputs[0]
    inverse: Any = inv(a)
    scale = det(a)[..., None, None]
    along = OPERATORS["sum"](g * inverse.mT, axes=(g.ndim - 2, g.ndim - 1))[..., None, None]
    return [scale * (along * inverse.mT - inverse.mT @ g.mT @ inverse.mT)]


cofactor: Operator = Operator(
    "cofactor",
    _same_type("cofactor"),
    raising("cofactor", _cofactor_reference),
    _cofactor_pullback,
    batch_first,
    None,
    (Case((REGULAR,)), Case((Sample((2, 4, 4), -1, 1, diagonal=2.0),)), Case((Sample((0, 0)),))),
    vary=behind_matrices(),
)
r"""The matrix of cofactors, :math:`\det(a)\, a^{-T}`, which is the derivative of the determinant.

It is there for singular matrices too; only its own derivative takes the inverse, and raises ``MatrixError``.
"""


def _det_pullback(node: Operation, g: Any) -> list[Node | None]:
    return [g[..., None, None] * cofactor(node.inputs[0])]


det: Operator = Operator(
    "det",
    _number_type("det"),
    raising("det", np.linalg.det),
    _det_pullback,
    batch_first,
    None,
    (Case((REGULAR,)), Case((Sample((2, 4, 4), -1, 1, diagonal=2.0),)), Case((Sample((0, 0)),))),
    vary=behind_matrices(),
)
"""The determinant of matrices (…, n, n)."""


def _slogdet_pullback(node: Any, g: Any) -> list[Node | None]:
    inverse: Any = inv(node.inputs[0])
    along = g[..., 1]
    if is_complex(g.dtype):  # the sign turns by the imaginary part of what the logarithm rises by
        turned = OPERATORS["imag"](g[..., 0] * node[..., 0])
        along = OPERATORS["complex_of"](OPERATORS["real"](along), turned)
    return [along[..., None, None] * inverse.mT]


slogdet = Operator(
    "slogdet",
    _number_type("slogdet", 2),
    raising("slogdet", lambda a: np.stack(np.linalg.slogdet(a), axis=-1)),
    _slogdet_pullback,
    batch_first,
    None,
    (Case((REGULAR,)), Case((Sample((2, 4, 4), -1, 1, diagonal=2.0),)), Case((Sample((0, 0)),))),
    vary=behind_matrices(),
)
"""The sign of the determinant and the logarithm of its size, (…, 2); 0 and minus infinity of a singular matrix.

The sign of a complex determinant is a number of size 1, and the logarithm beside it has no imaginary part.
A singular matrix has no derivative here: it raises ``MatrixError``.
"""


# -- Cholesky's factor

BLOCK = 64
"""Rows that the cotangent of Cholesky's factor takes at once."""


def adjoint(x: Any) -> Any:
    """The conjugate of the transposed matrix; of real ones the transpose."""
    return nodes.conj(x.mT) if is_complex(x.dtype) else x.mT


def halved(x: Any) -> Any:
    """The lower triangle with half of the diagonal."""
    n = x.shape[-1]
    return nodes.tril(x) * (1 - 0.5 * np.eye(n, dtype=x.dtype))


def _cholesky_reference(a: Array) -> Array:
    return np.asarray(np.linalg.cholesky(a))


def _cholesky_pullback(node: Any, g: Any) -> list[Node | None]:
    if not is_complex(node.dtype):
        return [cholesky_cotangent(node, g)]
    inner = halved(node.mT @ nodes.tril(g))
    half = triangular_solve(node, inner + adjoint(inner), lower=True, transposed=True)
    turned: Any = triangular_solve(nodes.conj(node), half.mT, lower=True, transposed=True)
    return [halved(turned.mT)]


cholesky = Operator(
    "cholesky",
    _same_type("cholesky"),
    raising("cholesky", _cholesky_reference),
    _cholesky_pullback,
    batch_first,
    None,
    (
        Case((REGULAR,)),
        Case((Sample((2, 5, 5), -1, 1, diagonal=5.0),)),
        Case((Sample((1, 1), 1, 2),)),
        Case((Sample((0, 0)),)),
        Case((Sample((9, 9), -1, 1, diagonal=8.0),)),
    ),
    vary=behind_matrices(),
)
"""The lower triangular ``l`` with ``l @ l.T`` the symmetric matrix whose lower triangle is that of ``a``.

Of complex matrices it is the Hermitian one, ``l @ l.conj().T``, and the diagonal's real part alone is read.

Raises ``MatrixError`` for a matrix that is not positive definite.
"""


def _cotangent_of_block(factor: Array, inverse: Array, bar: Array) -> Array:
    """The cotangent of a small matrix: the lower triangle of ``p + p.T`` with ``p = l⁻ᵀ Φ(lᵀ bar) l⁻¹``."""
    inner = halved(np.swapaxes(factor, -1, -2) @ bar)
    made = np.swapaxes(inverse, -1, -2) @ (inner + np.swapaxes(inner, -1, -2)) @ inverse
    return np.asarray(halved(made))


def _cholesky_cotangent_reference(factor: Array, bar: Array) -> Array:
    """Block by block from the last rows to the first, each step a product: a third of the work of whole solutions."""
    n, bar = factor.shape[-1], np.array(bar)

    def turned(x: Array) -> Array:
        return np.swapaxes(x, -1, -2)

    for stop in range(n, 0, -BLOCK):
        start = max(stop - BLOCK, 0)
        own, before = np.tril(factor[..., start:stop, start:stop]), factor[..., start:stop, :start]
        block, under = bar[..., start:stop, start:stop], bar[..., stop:, start:stop]
        bar[..., start:stop, stop:] = 0
        inverse = np.linalg.inv(own)
        if stop < n:
            under[...] = under @ inverse
            block -= turned(under) @ factor[..., stop:, start:stop]
        block[...] = _cotangent_of_block(own, inverse, np.tril(block))
        if start:
            both = np.concatenate((block + turned(block), turned(under)), axis=-1)
            bar[..., start:stop, :start] -= both @ factor[..., start:, :start]
            if stop < n:
                bar[..., stop:, :start] -= under @ before
    return bar


def _cholesky_cotangent_type(factor: Type, bar: Type) -> Type:
    matrix_type("cholesky_cotangent", factor)
    if bar != factor:
        raise ShapeError(
            f"cholesky_cotangent: a factor {factor} and its cotangent {bar} differ; make them alike"
        )
    return Type(factor.dtype, factor.shape)


def _cholesky_cotangent_pullback(node: Operation, h: Any) -> list[Node | None]:
    """It is linear in the second input, and there the transpose of the factor's derivative."""
    factor, bar = map(nodes.tril, node.inputs)
    symmetric = nodes.tril(h) + nodes.tril(h, -1).mT

    def without(x: Any, transposed: bool = False) -> Any:
        return triangular_solve(factor, x, lower=True, transposed=transposed)

    inner = without(without(symmetric).mT)
    outer = halved(factor.mT @ bar)
    rest = without((outer + outer.mT) @ inner, transposed=True)
    return [nodes.tril(bar @ halved(inner).mT - rest), factor @ halved(inner)]


cholesky_cotangent = Operator(
    "cholesky_cotangent",
    _cholesky_cotangent_type,
    raising("cholesky_cotangent", _cholesky_cotangent_reference),
    _cholesky_cotangent_pullback,
    batch_first,
    None,
    (
        Case((REGULAR, Sample((3, 3)))),
        Case((Sample((2, 4, 4), -1, 1, diagonal=3.0), Sample((2, 4, 4)))),
        Case((Sample((0, 0)), Sample((0, 0)))),
        Case((Sample((70, 70), -0.1, 0.1, diagonal=3.0), Sample((70, 70)))),
    ),
    vary=behind_matrices(),
)
"""The cotangent of a matrix, from its Cholesky factor and the factor's cotangent: a lower triangle, as what is read.

Source: I. Murray, *Differentiation of the Cholesky decomposition*, arXiv:1602.07527, 2016.
"""


# -- pseudoinverse and exponential


def _pinv_type(x: Type, rcond: float) -> Type:
    matrix_type("pinv", x, square=False)
    return Type(x.dtype, (*x.shape[:-2], x.shape[-1], x.shape[-2]))


def _pinv_pullback(node: Any, g: Any) -> list[Node | None]:
    a: Any = node.inputs[0]
    rows, columns = a.shape[-2:]
    left = np.eye(rows, dtype=a.dtype) - a @ node
    right = np.eye(columns, dtype=a.dtype) - node @ a
    bar = -(node.mT @ g @ node.mT)
    if is_complex(a.dtype):
        left, right, g, node_conjugate = map(nodes.conj, (left, right, g, node))
    else:
        node_conjugate = node
    bar = bar + left @ g.mT @ node_conjugate @ node.mT
    return [bar + node.mT @ node_conjugate @ g.mT @ right]


pinv = Operator(
    "pinv",
    _pinv_type,
    raising("pinv", lambda a, rcond: np.linalg.pinv(a, rcond=rcond)),
    _pinv_pullback,
    batch_first,
    None,
    (
        Case((REGULAR,), {"rcond": 1e-15}),
        Case((Sample((4, 2), -1, 1, diagonal=2.0),), {"rcond": 1e-15}),
        Case((Sample((2, 2, 3), -1, 1, diagonal=2.0),), {"rcond": 1e-15}),
    ),
    vary=behind_matrices(),
)
"""Moore's and Penrose's inverse of matrices (…, m, n): (…, n, m); singular values below ``rcond`` times the
largest are 0.

The derivative is that of matrices of the same rank. Source: G. H. Golub and V. Pereyra, *The differentiation of
pseudo-inverses and nonlinear least squares problems whose variables separate*, SIAM J. Numer. Anal. 10, 1973.
"""

PADE = [math.comb(13, k) * math.factorial(26 - k) / math.factorial(26) for k in range(14)]
"""Coefficients of the numerator of Padé's approximant of the exponential of order 13."""

PADE_REACHES = 5.371920351148152
"""The largest 1-norm at which that approximant is exact to the last bit of doubles."""


def pade_quotient(a: Any) -> tuple[Any, Any, Any]:
    """The denominator and the numerator of the approximant of matrices, halved until it is exact, and how often."""
    norm = nodes.max(nodes.sum(nodes.abs(a), axis=-2), axis=-1)
    halvings = nodes.ceil(nodes.log2(nodes.maximum(norm / PADE_REACHES, 1)))
    halvings = nodes.where(nodes.isfinite(norm), halvings, 0)
    a = a * nodes.exp2(-halvings)[..., None, None]
    square = a @ a
    fourth = square @ square
    sixth = fourth @ square
    powers = (np.eye(a.shape[-1]), square, fourth, sixth)

    def sum_of(first: int) -> Any:
        """Every other term, from the power ``first`` on, without the factor that odd ones have in common."""
        terms = [PADE[first + 2 * k] * powers[k] for k in range(4)]
        beyond = [PADE[first + 6 + 2 * k] * powers[k] for k in range(1, 4)]
        return sum(terms[1:], terms[0]) + sixth @ sum(beyond[1:], beyond[0])

    even, odd = sum_of(0), a @ sum_of(1)
    return even - odd, even + odd, halvings


def _expm_reference(a: Array) -> Array:
    if not a.size:
        return np.array(a)
    below, above, halvings = pade_quotient(a.astype(np.promote_types(a.dtype, np.float64)))
    made = np.linalg.solve(below, above)
    for turn in range(int(halvings.max())):
        made = np.where((turn < halvings)[..., None, None], made @ made, made)
    found: Array = made.astype(a.dtype)
    return found


def _expm_pullback(node: Operation, g: Any) -> list[Node | None]:
    a: Any = node.inputs[0]
    return [expm_along(a.mT, g)]


expm = Operator(
    "expm",
    _same_type("expm"),
    raising("expm", _expm_reference),
    _expm_pullback,
    batch_first,
    None,
    (Case((Sample((3, 3)),)), Case((Sample((2, 2, 2)),)), Case((Sample((0, 0)),))),
    vary=behind_matrices(),
)
"""The exponential of matrices (…, n, n), the sum of :math:`a^k / k!`; computed in double precision.

Source: N. J. Higham, *The scaling and squaring method for the matrix exponential revisited*, SIAM J. Matrix Anal. Appl.
26, 2005.
"""


def blocks(a: Any, b: Any, c: Any, d: Any) -> Any:
    """The matrix of four blocks, row by row."""
    join = OPERATORS["concatenate"]
    rows = [join(left, right, axis=a.ndim - 1) for left, right in ((a, b), (c, d))]
    return join(*rows, axis=a.ndim - 2)


def _expm_along_reference(a: Array, direction: Array) -> Array:
    n = a.shape[-1]
    whole = np.block([[a, direction], [np.zeros_like(a), a]])
    return np.asarray(_expm_reference(whole)[..., :n, n:])


def _expm_along_type(a: Type, direction: Type) -> Type:
    matrix_type("expm_along", a)
    if direction != a:
        raise ShapeError(f"expm_along: a matrix {a} and a direction {direction} differ; make them alike")
    return Type(a.dtype, a.shape)


def _expm_along_pullback(node: Operation, h: Any) -> list[Node | None]:
    a: Any
    a, direction = node.inputs
    n, zero = a.shape[-1], nodes.zeros_like(a)
    made = expm_along(blocks(a, direction, zero, a).mT, blocks(zero, h, zero, zero))
    return [made[..., :n, :n] + made[..., n:, n:], expm_along(a.mT, h)]


expm_along = Operator(
    "expm_along",
    _expm_along_type,
    raising("expm_along", _expm_along_reference),
    _expm_along_pullback,
    batch_first,
    None,
    (Case((Sample((3, 3)), Sample((3, 3)))), Case((Sample((2, 2, 2)), Sample((2, 2, 2))))),
    vary=behind_matrices(),
)
r"""The derivative of the exponential of ``a`` along a direction :math:`e`.

It stands in the corner of the exponential of :math:`\begin{pmatrix} a & e \\ 0 & a \end{pmatrix}`. Source: R.
Mathias, *A chain rule for matrix functions and applications*, SIAM J. Matrix Anal. Appl. 17, 1996.
"""
