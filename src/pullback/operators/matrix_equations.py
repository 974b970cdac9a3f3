r"""Equations whose unknown is a matrix: Sylvester's, and the square root.

SciPy solves them, out of the compiled program, by Schur's triangles. All rules are those of holomorphic functions, with
transposes alone: the derivative of a solution is a solution of Sylvester's equation again.

Source: R. H. Bartels and G. W. Stewart, *Solution of the matrix equation AX + XB = C*, Comm. ACM 15, 1972.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.errors import DTypeError, MatrixError, MissingExtra, ShapeError
from pullback.graph import Case, Node, Operation, Operator, Sample, Type
from pullback.operators.batching import all_batched, batch_first
from pullback.operators.linalg import matrix_type, raising
from pullback.operators.varying import behind_matrices

__all__ = ["matrix_root", "sylvester"]

Array = np.ndarray[Any, Any]


def _from_scipy(name: str) -> Callable[..., Any]:
    try:
        import scipy.linalg
    except ImportError:
        raise MissingExtra(
            f"{name} is computed by SciPy, which is not installed: pip install 'pullback[scipy]'"
        ) from None
    return getattr(scipy.linalg, name)  # type: ignore[no-any-return]


def _for_each(function: Callable[..., Any], *matrices: Array) -> Array:
    """``function`` on each example of a batch; the results lie in an array like the last of ``matrices``."""
    made = np.zeros_like(matrices[-1])
    if made.size:
        for place in np.ndindex(made.shape[:-2]):
            made[place] = function(*(a[place] for a in matrices))
    return made


def _sylvester_type(a: Type, b: Type, q: Type) -> Type:
    matrix_type("sylvester", a)
    matrix_type("sylvester", b)
    matrix_type("sylvester", q, square=False)
    if not a.dtype == b.dtype == q.dtype:
        raise DTypeError(
            f"sylvester: dtypes {a.dtype}, {b.dtype} and {q.dtype} differ; cast them with .astype"
        )
    lead = a.shape[:-2]
    if b.shape[:-2] != lead or q.shape != (*lead, a.shape[-1], b.shape[-1]):
        raise ShapeError(
            f"sylvester: shapes {a.shape}, {b.shape} and {q.shape}; give (…, m, m), (…, n, n) and (…, m, n)"
        )
    return Type(q.dtype, q.shape)


def _sylvester_reference(a: Array, b: Array, q: Array) -> Array:
    made = _for_each(_from_scipy("solve_sylvester"), a, b, q)
    if np.isfinite(q).all() and not np.isfinite(made).all():
        raise MatrixError("sylvester: Singular matrix: a and -b have an eigenvalue in common")
    return made


def _sylvester_pullback(node: Any, g: Any) -> list[Node | None]:
    a, b, _ = node.inputs
    back: Any = sylvester(a.mT, b.mT, g)
    return [-(back @ node.mT), -(node.mT @ back), back]


def _batch(node: Operation, inputs: Sequence[Node]) -> Node:
    return node.operator(*all_batched(inputs, node.inputs))


_LEFT, _RIGHT = Sample((3, 3), -1, 1, diagonal=3.0), Sample((2, 2), -1, 1, diagonal=2.0)

sylvester: Operator = Operator(
    "sylvester",
    _sylvester_type,
    raising("sylvester", _sylvester_reference),
    _sylvester_pullback,
    _batch,
    None,
    (
        Case((_LEFT, _RIGHT, Sample((3, 2)))),
        Case((Sample((2, 2, 2), -1, 1, diagonal=2.0), Sample((2, 1, 1), 1, 2), Sample((2, 2, 1)))),
    ),
    vary=behind_matrices(("identity", "identity")),
)
r"""``x`` with ``a @ x + x @ b = q``, for ``a`` (…, m, m), ``b`` (…, n, n) and ``q`` (…, m, n).

With :math:`a^T c + c\, b^T = \bar x` the cotangents are :math:`-c x^T`, :math:`-x^T c` and :math:`c`. Where ``a`` and
``-b`` have nearly an eigenvalue in common the numbers are as large as rounding allows.
"""


def _root_type(a: Type) -> Type:
    matrix_type("matrix_root", a)
    return Type(a.dtype, a.shape)


def _root_reference(a: Array) -> Array:
    root = _from_scipy("sqrtm")

    def one(a: Array) -> Any:
        made = root(a)
        if np.iscomplexobj(made) and not np.iscomplexobj(a):
            values = np.linalg.eigvals(a)
            if np.any((values.imag == 0) & (values.real < 0)):
                raise MatrixError(
                    "sqrtm: the root of this real matrix is complex, since an eigenvalue is negative; give a complex "
                    "one, a.astype(np.complex128)"
                )
            return made.real  # as it came out of complex factors, in SciPy before 1.16
        return made

    return _for_each(one, a)


def _root_pullback(node: Any, g: Any) -> list[Node | None]:
    turned = node.mT
    return [sylvester(turned, turned, g)]


matrix_root = Operator(
    "matrix_root",
    _root_type,
    raising("matrix_root", _root_reference),
    _root_pullback,
    batch_first,
    None,
    (
        Case((Sample((3, 3), -1, 1, diagonal=4.0),)),
        Case((Sample((2, 2, 2), -1, 1, diagonal=3.0),)),
        Case((Sample((0, 0)),)),
    ),
    vary=behind_matrices(),
)
"""The principal ``x`` with ``x @ x = a``, of matrices (…, n, n) without negative eigenvalues, or of complex ones."""
