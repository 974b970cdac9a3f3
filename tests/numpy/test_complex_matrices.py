"""Linear algebra of complex matrices: NumPy's and SciPy's values, and derivatives in both modes to second order."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.errors import MatrixError
from pullback.scipy import linalg
from pullback.testing import check_grads

RANDOM = np.random.default_rng(3)


def matrix(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape) + 1j * RANDOM.normal(size=shape)


A, B, TALL, WIDE, RIGHT = matrix(4, 4), matrix(2, 3, 3), matrix(5, 3), matrix(3, 5), matrix(4, 2)


def positive(a: Any) -> Any:
    return a @ np.swapaxes(a.conj(), -1, -2) + np.eye(a.shape[-1])


FUNCTIONS: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
    "eigh": (np.linalg.eigh, A),
    "eigh upper": (lambda a: np.linalg.eigh(a, "U"), A),
    "eigh batch": (np.linalg.eigh, B),
    "eigvalsh": (np.linalg.eigvalsh, B),
    "eigvalsh upper": (lambda a: np.linalg.eigvalsh(a, "U"), B),
    "eig": (np.linalg.eig, A),
    "eig batch": (np.linalg.eig, B),
    "eigvals": (np.linalg.eigvals, B),
    "svd": (np.linalg.svd, A),
    "svd tall": (lambda a: np.linalg.svd(a, full_matrices=False), TALL),
    "svd wide": (lambda a: np.linalg.svd(a, full_matrices=False), WIDE),
    "svdvals": (lambda a: np.linalg.svd(a, compute_uv=False), B),
    "cholesky": (lambda a: np.linalg.cholesky(positive(a)), B),
    "cholesky upper": (lambda a: linalg.cholesky(positive(a)), A),
    "qr": (np.linalg.qr, A),
    "qr tall": (np.linalg.qr, TALL),
    "qr wide": (np.linalg.qr, WIDE),
    "qr r": (lambda a: np.linalg.qr(a, "r"), B),
    "pinv": (np.linalg.pinv, TALL),
    "pinv wide": (np.linalg.pinv, WIDE),
    "pinv hermitian": (lambda a: np.linalg.pinv(a + a.conj().T, hermitian=True), A),
    "lstsq": (lambda a: np.linalg.lstsq(a, np.ones((5, 2), complex), rcond=None)[:2], TALL),
    "slogdet": (np.linalg.slogdet, B),
    "det": (np.linalg.det, A),
    "matrix_power": (lambda a: np.linalg.matrix_power(a, 3), B),
    "matrix_power of the inverse": (lambda a: np.linalg.matrix_power(a, -2), A),
    "nuclear norm": (lambda a: np.linalg.norm(a, "nuc"), TALL),
    "spectral norm": (lambda a: np.linalg.norm(a, 2), WIDE),
    "cond": (np.linalg.cond, A),
    "multi_dot": (lambda a: np.linalg.multi_dot([a, TALL, WIDE]), WIDE),
    "expm": (linalg.expm, A),
    "solve_triangular": (lambda a: linalg.solve_triangular(a, RIGHT, lower=True), A),
    "solve_triangular transposed": (lambda a: linalg.solve_triangular(a, RIGHT, trans="T"), A),
    "solve_triangular adjoint": (lambda a: linalg.solve_triangular(a, RIGHT, trans="C"), A),
    "cho_solve": (lambda a: linalg.cho_solve(linalg.cho_factor(positive(a)), RIGHT), A),
    "solve positive": (lambda a: linalg.solve(positive(a), RIGHT, assume_a="pos"), A),
    "solve hermitian": (lambda a: linalg.solve(a, RIGHT, assume_a="her"), A),
    "solve symmetric": (lambda a: linalg.solve(a, RIGHT, assume_a="sym", lower=True), A),
    "scipy eigh": (lambda a: linalg.eigh(a, np.eye(4) * 2 + 0j), A),
}


def parts(made: Any) -> list[Any]:
    return list(made) if isinstance(made, (tuple, list)) else [made]


def reference(name: str, a: np.ndarray) -> list[np.ndarray]:
    """What NumPy and SciPy make of concrete arrays."""
    scipy_linalg = pytest.importorskip("scipy.linalg")
    globals_of = {**globals(), "linalg": scipy_linalg}
    function = FUNCTIONS[name][0]
    code = getattr(function, "__code__", None)
    if function is linalg.expm:
        function = scipy_linalg.expm
    elif code is not None and "linalg" in code.co_names and function.__module__ == __name__:
        function = types.FunctionType(code, globals_of)
    return [np.asarray(part) for part in parts(function(a))]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_are_those_of_numpy(name: str) -> None:
    function, a = FUNCTIONS[name]

    def several(a: Any) -> tuple[Any, ...]:
        return tuple(parts(function(a)))

    wanted = reference(name, a)
    for found in (
        pb.vjp(several, a)[0],
        pb.jit(several)(a),
        [x[1] for x in pb.vmap(several)(np.stack([a, a]))],
    ):
        for one, other in zip(found, wanted, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_are_those_of_what_is_computed(name: str) -> None:
    function, a = FUNCTIONS[name]

    def several(a: Any) -> tuple[Any, ...]:
        return tuple(parts(function(a)))

    check_grads(several, (a,))
    check_grads(pb.jit(several), (a,), order=1)


def test_what_does_not_depend_on_the_angles_of_vectors_has_the_same_derivative() -> None:
    """Also where the element that LAPACK keeps real is nearly zero, and where it is zero."""
    turned = np.linalg.qr(matrix(4, 4))[0]
    for a in (np.diag([1.0 + 0j, 3.0, 4.0, 9.0]), np.diag([1.0 + 0j, 3.0, 4.0, 9.0]) + 1e-15 * A):
        for f in (
            lambda a: np.sum(np.abs(np.linalg.eigh(a)[1] @ turned) ** 3),
            lambda a: np.sum(np.abs(turned @ np.linalg.svd(a)[0]) ** 3),
        ):
            found = pb.grad(f)(a)
            assert np.isfinite(found).all()
            assert np.abs(found).max() < 10


def test_eigenvalues_of_real_matrices() -> None:
    a = RANDOM.normal(size=(5, 5))
    for function in (np.linalg.eig, np.linalg.eigvals):
        for one, other in zip(parts(pb.jit(function)(a)), parts(function(a)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
            assert one.dtype == np.complex128
    check_grads(lambda a: tuple(np.linalg.eig(a)), (a,))
    np.testing.assert_allclose(pb.grad(lambda a: np.sum(np.linalg.eigvals(a)).real)(a), np.eye(5), atol=1e-12)


def test_a_matrix_without_enough_vectors_has_values_and_no_derivative() -> None:
    a = np.array([[1.0, 1.0], [0.0, 1.0]])
    np.testing.assert_array_equal(pb.jit(np.linalg.eigvals)(a), [1, 1])
    for gradient in (pb.grad, lambda f: pb.jit(pb.grad(f))):
        with pytest.raises(MatrixError, match="fewer than 2 independent eigenvectors"):
            gradient(lambda a: np.abs(np.linalg.eigvals(a)).sum())(a)
