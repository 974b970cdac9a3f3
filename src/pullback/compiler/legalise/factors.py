"""Linear algebra by written-out elimination for small matrices, and by LAPACK for others.

Solutions, inverses and determinants of one matrix share its factors, also those of the transposed matrix, as
the backward pass needs them: each is made of the same node of ``lapack_lu``, and equal nodes are one.

>>> import numpy as np
>>> import pullback.numpy as pnp
>>> from pullback.graph import Graph, Type, Variable, format_graph
>>> a, b = (Variable(Type(np.dtype(np.float64), shape), name) for shape, name in (((1, 1), "a"), ((1, 1), "b")))
>>> graph = Graph((a, b), (pnp.linalg.solve(a, b),))
>>> len(graph.nodes()), any("solve" in repr(node) for node in with_factors(graph).nodes())
(3, False)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from pullback.compiler.schedules.cost import MOST_COFACTOR_ROWS, MOST_ELIMINATED_ROWS, MOST_HALVINGS
from pullback.control.unbounded import unbounded
from pullback.graph import (
    OPERATORS,
    Graph,
    Node,
    Operation,
    Variable,
    apply,
    constant,
    every_node,
    results,
    substitute,
    with_regions,
)
from pullback.operators import lapack
from pullback.operators.indexing import MATRIX_FAULTS
from pullback.operators.linalg import BLOCK, blocks, halved, nodes, pade_quotient

__all__ = ["with_factors"]

SINGULAR = "Singular matrix"
INDEFINITE = "Matrix is not positive definite"
NO_EIGENVALUES, NO_SINGULAR_VALUES = "Eigenvalues did not converge", "SVD did not converge"
MATRIX_FAULTS.update(f"{name}: {SINGULAR}" for name in ("solve", "inv", "triangular_solve", "expm"))
MATRIX_FAULTS.add(f"cholesky: {INDEFINITE}")
MATRIX_FAULTS.update(f"{name}: {NO_EIGENVALUES}" for name in ("eigh", "eigvalsh"))
MATRIX_FAULTS.update(f"{name}: {NO_SINGULAR_VALUES}" for name in ("svd", "svdvals", "cofactor"))
_ZERO = constant(np.float64(0))


def _sound(fault: Node, what: str) -> Any:
    """Whether a matrix is as it must be: where ``fault`` is not 0 the program raises the error ``what``."""
    return OPERATORS["check_index"](fault, extent=1, what=what, wrap=False) == 0


def _turned(node: Node) -> Node | None:
    """The matrix that ``node`` is the transpose of, if it is one."""
    if not isinstance(node, Operation) or node.operator.name != "transpose":
        return None
    last = (*range(node.ndim - 2), node.ndim - 1, node.ndim - 2)
    return node.inputs[0] if node.attributes["axes"] == last else None


# -- elimination, written out

Rows = list[Any]


def _rows(x: Node) -> Rows:
    whole: Any = x
    return [whole[..., k, :] for k in range(x.shape[-2])]


def _less(row: Any, factor: Any, other: Any) -> Any:
    """``row - factor * other``; the product is rounded by itself, so that equal rows leave zeros."""
    return row - OPERATORS["rounded"](factor[..., None] * other)


def _eliminated(rows: Rows) -> tuple[Rows, Any]:
    """Rows with zeros below the diagonal, each step with the largest pivot, and whether rows were exchanged oddly."""
    rows, odd = list(rows), None
    n = len(rows)
    for k in range(n):
        for i in range(k + 1, n):
            swap = nodes.abs(rows[i][..., k]) > nodes.abs(rows[k][..., k])
            odd = swap if odd is None else odd ^ swap
            wide = swap[..., None]
            rows[k], rows[i] = nodes.where(wide, rows[i], rows[k]), nodes.where(wide, rows[k], rows[i])
        pivot = rows[k][..., k]
        safe = nodes.where(pivot == 0, nodes.ones_like(pivot), pivot)
        for i in range(k + 1, n):
            rows[i] = _less(rows[i], rows[i][..., k] / safe, rows[k])
    return rows, odd


def _substituted(rows: Rows, right: Rows, order: Sequence[int]) -> Any:
    """The solution of triangular equations, the unknowns found in ``order``."""
    found: dict[int, Any] = {}
    for k in order:
        rest = right[k]
        for j, known in found.items():
            rest = rest - rows[k][..., j, None] * known
        found[k] = rest / rows[k][..., k, None]
    return nodes.stack([found[k] for k in sorted(found)], axis=-2)


def _zero_on_diagonal(rows: Rows) -> Any:
    """1 where a pivot is zero, else 0."""
    zero = rows[0][..., 0] == 0
    for k in range(1, len(rows)):
        zero = zero | (rows[k][..., k] == 0)
    return zero.astype(np.int64)


def _kept(found: Any, sound: Any) -> Any:
    """``found`` where the matrix is sound: what an error makes of it nobody sees, but it depends on the check."""
    wide = sound.reshape(*sound.shape, *(1,) * (found.ndim - sound.ndim))
    return nodes.where(wide, found, nodes.zeros_like(found))


def _written_solution(name: str, a: Node, b: Any) -> Any:
    n = a.shape[-1]
    rows, _ = _eliminated(_rows(nodes.concatenate([a, b], axis=-1)))
    found = _substituted(rows, [row[..., n:] for row in rows], range(n - 1, -1, -1))
    return _kept(found, _sound(_zero_on_diagonal(rows), f"{name}: {SINGULAR}"))


def _written_factor(a: Node) -> Any:
    """Cholesky's factor by columns. A pivot of NaN is no fault, as with LAPACK: the factor is NaN from there on."""
    rest: Any = a
    n = a.shape[-1]
    columns, fault = [], None
    for k in range(n):
        pivot = rest[..., k, k]
        bad = pivot <= 0
        fault = bad if fault is None else fault | bad
        column = nodes.where(np.arange(n) >= k, rest[..., :, k], np.zeros((), a.dtype))
        columns.append(column / nodes.sqrt(nodes.where(bad, nodes.ones_like(pivot), pivot))[..., None])
        if k + 1 < n:
            rest = rest - columns[-1][..., :, None] * columns[-1][..., None, :]
    assert fault is not None
    sound = _sound(fault.astype(np.int64), f"cholesky: {INDEFINITE}")
    return _kept(nodes.stack(columns, axis=-1), sound)


# -- the rules


def _solved(name: str, a: Node, b: Any) -> Any:
    if a.shape[-1] <= MOST_ELIMINATED_ROWS:
        return _written_solution(name, a, b)
    (factors, pivots, fault), transposed = _lu(a)
    found: Any = results(lapack.lu_solution(factors, pivots, b.mT, transposed=transposed))[0]
    return _kept(found.mT, _sound(fault, f"{name}: {SINGULAR}"))


def _lu(a: Node) -> tuple[Sequence[Node], bool]:
    """The factors of a matrix, its pivots and its fault, or those of the one that it is the transpose of."""
    base = _turned(a)
    return results(lapack.lu(a if base is None else base)), base is not None


def _inv(node: Operation, a: Node) -> Any:
    return _solved("inv", a, np.eye(a.shape[-1], dtype=a.dtype) + nodes.zeros_like(a))


def _by_triangle(a: Node, b: Any, lower: bool, transposed: bool) -> Any:
    n = a.shape[-1]
    if n <= MOST_ELIMINATED_ROWS:
        whole: Any = a
        rows = _rows(whole.mT if transposed else whole)
        sound = _sound(_zero_on_diagonal(rows), f"triangular_solve: {SINGULAR}")
        order = range(n) if lower != transposed else range(n - 1, -1, -1)
        return _kept(_substituted(rows, _rows(b), order), sound)
    found: Any
    found, fault = results(lapack.triangular_solution(a, b.mT, lower=lower, transposed=transposed))
    return _kept(found.mT, _sound(fault, f"triangular_solve: {SINGULAR}"))


def _cholesky(node: Operation, a: Node) -> Any:
    if a.shape[-1] <= MOST_ELIMINATED_ROWS:
        return _written_factor(a)
    found, fault = results(lapack.positive_factor(a))
    sound = _sound(fault, f"cholesky: {INDEFINITE}")
    below = np.tri(a.shape[-1], dtype=bool)
    return nodes.where(sound[..., None, None] & below, found, np.zeros((), a.dtype))


def _cholesky_cotangent(node: Operation, factor: Any, bar: Any) -> Any:
    return _cotangent_by_halves(factor, bar, max(BLOCK, -(-factor.shape[-1] >> MOST_HALVINGS)))


def _cotangent_by_halves(factor: Any, bar: Any, most: int) -> Any:
    """The cotangent of ``l @ l.T``, a lower triangle, from that of the factor ``l``; above diagonals nothing is read.

    With ``l = [[a, 0], [c, b]]`` the matrix is ``[[a aᵀ, ·], [c aᵀ, c cᵀ + b bᵀ]]``: first that of ``b bᵀ``, then
    that of ``c aᵀ``, to which ``c cᵀ`` has added, and that of ``a aᵀ`` at last. Of at ``most`` so many rows it is the
    lower triangle of ``p + p.T`` with ``p = l⁻ᵀ Φ(lᵀ bar) l⁻¹``, four times the work.
    """
    n = factor.shape[-1]
    if n <= most:
        inner = halved(nodes.tril(factor).mT @ nodes.tril(bar))
        half = _divided(factor, inner + inner.mT)
        return halved(_divided(factor, half.mT))
    k = n // 2
    a, b, c = factor[..., :k, :k], factor[..., k:, k:], factor[..., k:, :k]
    last = _cotangent_by_halves(b, bar[..., k:, k:], most)
    under = _divided(a, (bar[..., k:, :k] - (last + last.mT) @ c).mT).mT
    first = _cotangent_by_halves(a, bar[..., :k, :k] - under.mT @ c, most)
    made = nodes.zeros_like(factor).at[..., :k, :k].set(first)
    return made.at[..., k:, :k].set(under).at[..., k:, k:].set(last)


def _divided(factor: Any, right: Any) -> Any:
    """``l⁻ᵀ right`` of a lower triangular ``l``."""
    return _by_triangle(factor, right, lower=True, transposed=True)


def _cofactor(node: Operation, a: Any) -> Any:
    """By minors, which are polynomials, for what is written out; by singular values of larger matrices."""
    n = a.shape[-1]
    if n > MOST_COFACTOR_ROWS:
        return _wide(_cofactor_by_values)(node, a)
    if n == 1:
        return nodes.ones_like(a)
    kept = [[k for k in range(n) if k != i] for i in range(n)]

    def minor(rows: Sequence[int], columns: Sequence[int]) -> Any:
        first, *others = rows
        if not others:
            return a[..., first, columns[0]]
        terms = [
            (-1) ** k * a[..., first, column] * minor(others, [c for c in columns if c != column])
            for k, column in enumerate(columns)
        ]
        return sum(terms[1:], terms[0])

    lines = [
        nodes.stack([(-1) ** (i + j) * minor(kept[i], kept[j]) for j in range(n)], axis=-1) for i in range(n)
    ]
    return nodes.stack(lines, axis=-2)


def _wide(rule: Callable[..., Any]) -> Callable[..., Any]:
    """``rule`` in double precision, in which NumPy computes everything of the kind."""

    def wide(node: Operation, *inputs: Any) -> Any:
        return rule(node, *(x.astype(np.float64) for x in inputs)).astype(node.dtype)

    return wide


def _cofactor_by_values(node: Operation, a: Node) -> Any:
    """As the operator's reference does it."""
    values, u, v = _singular_values("cofactor", a)
    sign: Any = _det(node, u.mT @ v.mT)
    others = nodes.where(np.eye(a.shape[-1], dtype=bool), 1, values[..., None, :])
    scale = nodes.rint(sign)[..., None] * nodes.prod(others, axis=-1)
    return (u.mT * scale[..., None, :]) @ v.mT


def _pivots(a: Node) -> tuple[Any, Any]:
    """The pivots, and 1 or -1 as rows were exchanged evenly or oddly."""
    one = np.ones((), a.dtype)
    n = a.shape[-1]
    if n <= MOST_ELIMINATED_ROWS:
        rows, odd = _eliminated(_rows(a))
        pivots = nodes.stack([rows[k][..., k] for k in range(n)], axis=-1)
        return pivots, nodes.ones_like(pivots[..., 0]) if odd is None else nodes.where(odd, -one, one)
    (factors, exchanged, _), _ = _lu(a)
    moved = (exchanged != np.arange(1, n + 1)).astype(np.int64)
    odd = nodes.sum(moved, axis=-1) % 2 == 1
    return nodes.diagonal(factors, axis1=-2, axis2=-1), nodes.where(odd, -one, one)


def _det(node: Operation, a: Node) -> Any:
    pivots, sign = _pivots(a)
    return sign * nodes.prod(pivots, axis=-1)


def _slogdet(node: Operation, a: Node) -> Any:
    pivots, sign = _pivots(a)
    return nodes.stack(
        [sign * nodes.prod(nodes.sign(pivots), axis=-1), nodes.sum(nodes.log(nodes.abs(pivots)), axis=-1)],
        axis=-1,
    )


def _qr(node: Operation, a: Any) -> Any:
    k = min(a.shape[-2:])
    triangle, factors, _ = results(lapack.triangulation(a.mT))
    reflections: Any = triangle
    q = results(lapack.orthogonal(reflections[..., :k, :], factors))[0]
    return nodes.concatenate((q, nodes.triu(reflections.mT[..., :k, :])), axis=-1)


def _eigh(node: Operation, a: Any) -> Any:
    """The eigenvalues, and below them the vectors, if these are wanted as well."""
    name, lower = node.operator.name, node.attributes["lower"]
    rows, values, fault = results(lapack.eigenvalues(a.mT, vectors=name == "eigh", lower=lower))
    made = nodes.concatenate((values[..., None, :], rows.mT), axis=-2) if name == "eigh" else values
    return _kept(made, _sound(fault, f"{name}: {NO_EIGENVALUES}"))


def _singular_values(name: str, a: Any, vectors: bool = True) -> Sequence[Any]:
    """The singular values, and with ``vectors`` ``u`` transposed and ``v``."""
    _, values, *others, fault = results(lapack.singular_values(a.mT, vectors=vectors))
    return _kept(values, _sound(fault, f"{name}: {NO_SINGULAR_VALUES}")), *others


def _svd(node: Operation, a: Any) -> Any:
    values, u, v = _singular_values("svd", a)
    return nodes.concatenate((u.mT, values[..., None, :], v), axis=-2)


def _expm(node: Operation, a: Any) -> Any:
    """As the operator's reference does it, in a loop that squares as often as the largest matrix was halved."""
    below, above, halvings = pade_quotient(a)
    start = _solved("expm", below, above)
    often, turn, value = variables = tuple(Variable(x.type, "carry") for x in (halvings, _ZERO, start))
    squared = nodes.where((turn < often)[..., None, None], value @ value, value)
    condition, body = Graph(variables, (turn < nodes.max(often),)), Graph(variables, (turn + 1, squared))
    return results(unbounded(halvings, _ZERO, start, condition=condition, body=body, consts=1))[1]


def _expm_along(node: Operation, a: Any, direction: Any) -> Any:
    n = a.shape[-1]
    return _expm(node, blocks(a, direction, nodes.zeros_like(a), a))[..., :n, n:]


RULES: dict[str, Callable[..., Node]] = {
    "cholesky": _cholesky,
    "cholesky_cotangent": _cholesky_cotangent,
    "cofactor": _cofactor,
    "det": _det,
    "eigh": _wide(_eigh),
    "eigvalsh": _wide(_eigh),
    "expm": _wide(_expm),
    "expm_along": _wide(_expm_along),
    "inv": _inv,
    "qr": _wide(_qr),
    "slogdet": _slogdet,
    "solve": lambda node, a, b: _solved("solve", a, b),
    "svd": _wide(_svd),
    "svdvals": _wide(lambda node, a: _singular_values("svdvals", a, vectors=False)[0]),
    "triangular_solve": lambda node, a, b: _by_triangle(a, b, **node.attributes),
}


def _has_matrices(node: Node) -> bool:
    return isinstance(node, Operation) and node.operator.name in RULES


def with_factors(graph: Graph) -> Graph:
    """``graph`` with its matrices eliminated in the program, or by LAPACK; what neither does is left as it is."""
    if not any(map(_has_matrices, every_node(graph))):
        return graph

    def rebuild(node: Operation, inputs: tuple[Node, ...]) -> Node:
        if _has_matrices(node) and all(x.size for x in inputs):
            with suppress(lapack.NoRoutine):
                return RULES[node.operator.name](node, *inputs)
        return apply(node.operator, inputs, with_regions(node.attributes, with_factors))

    return replace(graph, outputs=substitute(graph.outputs, {}, rebuild))
