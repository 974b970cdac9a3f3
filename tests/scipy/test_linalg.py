"""Functions of ``scipy.linalg``'s names: SciPy's values where it is installed, and derivatives."""

import numpy as np
import pytest

import pullback as pb
from pullback.errors import MatrixError, ShapeError
from pullback.scipy import linalg
from pullback.testing import check_grads

RANDOM = np.random.default_rng(4)
A = RANDOM.normal(size=(5, 5)) + 4 * np.eye(5)
P = A @ A.T
B = RANDOM.normal(size=(5, 2))

CASES = {
    "solve_triangular": (lambda la, a, b: la.solve_triangular(a, b), (A, B)),
    "lower": (lambda la, a, b: la.solve_triangular(a, b, lower=True), (A, B[:, 0])),
    "transposed": (lambda la, a, b: la.solve_triangular(a, b, trans="T", lower=True), (A, B)),
    "unit diagonal": (lambda la, a, b: la.solve_triangular(a, b, unit_diagonal=True), (A, B)),
    "cholesky": (lambda la, a: la.cholesky(a), (P,)),
    "lower cholesky": (lambda la, a: la.cholesky(a, lower=True), (P,)),
    "cho_solve": (lambda la, a, b: la.cho_solve(la.cho_factor(a), b), (P, B)),
    "lower cho_solve": (lambda la, a, b: la.cho_solve(la.cho_factor(a, lower=True), b), (P, B)),
    "solve": (lambda la, a, b: la.solve(a, b), (A, B)),
    "solve pos": (lambda la, a, b: la.solve(a, b, assume_a="pos"), (P, B[:, 0])),
    "solve sym": (lambda la, a, b: la.solve(a, b, assume_a="sym"), (A, B)),
    "solve transposed": (lambda la, a, b: la.solve(a, b, transposed=True), (A, B)),
    "inv": (lambda la, a: la.inv(a), (A,)),
    "det": (lambda la, a: la.det(a), (A,)),
    "expm": (lambda la, a: la.expm(a), (A / 3,)),
    "large expm": (lambda la, a: la.expm(a), (A,)),
    "eigh": (lambda la, a: la.eigh(a)[0], (P,)),
    "general eigh": (lambda la, a, b: la.eigh(a, b, eigvals_only=True), (A + A.T, P)),
    "vectors of a general eigh": (lambda la, a, b: abs(la.eigh(a, b)[1]), (A + A.T, P)),
    "eigvalsh of the upper triangle": (lambda la, a: la.eigvalsh(a, lower=False), (A,)),
    "svd": (lambda la, a: abs(la.svd(a, full_matrices=False)[2]), (B,)),
    "svdvals": (lambda la, a: la.svdvals(a), (B,)),
    "qr": (lambda la, a: la.qr(a, mode="economic")[1], (B,)),
    "pinv": (lambda la, a: la.pinv(a), (B,)),
    "lstsq": (lambda la, a, b: la.lstsq(a, b)[0], (B, B[:, 0] + 1)),
    "norm": (lambda la, a: la.norm(a, 2), (A,)),
    "block_diag": (lambda la, a, b: la.block_diag(a, b, b[:1]), (A, B)),
    "toeplitz": (lambda la, c, r: la.toeplitz(c, r), (A[0], B[:, 0])),
    "symmetric toeplitz": (lambda la, c: la.toeplitz(c), (A[0],)),
}


@pytest.mark.parametrize(("function", "arguments"), CASES.values(), ids=CASES)
def test_values_are_scipys(function, arguments):
    scipy = pytest.importorskip("scipy.linalg")
    wanted = function(scipy, *arguments)
    for found in (
        function(linalg, *arguments),
        pb.jit(lambda *x: function(linalg, *x))(*arguments),
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("function", "arguments"), CASES.values(), ids=CASES)
def test_derivatives(function, arguments):
    check_grads(lambda *x: function(linalg, *x), arguments, tolerance=1e-5)


def test_a_zero_on_the_diagonal():
    a = np.triu(A)
    a[2, 2] = 0
    for size in (3, 5):
        for run in (linalg.solve_triangular, pb.jit(linalg.solve_triangular)):
            with pytest.raises(np.linalg.LinAlgError, match="Singular"):
                run(a[:size, :size], np.ones(size))


def test_matrix_equations():
    scipy_linalg = pytest.importorskip("scipy.linalg")
    random = np.random.default_rng(5)
    a, b, q = (
        random.normal(size=(3, 3)) + 4 * np.eye(3),
        random.normal(size=(2, 2)),
        random.normal(size=(3, 2)),
    )
    for run in (lambda f: f, pb.jit):
        np.testing.assert_allclose(
            run(linalg.solve_sylvester)(a, b, q), scipy_linalg.solve_sylvester(a, b, q), rtol=1e-12
        )
        np.testing.assert_allclose(run(linalg.sqrtm)(a @ a.T), scipy_linalg.sqrtm(a @ a.T), rtol=1e-12)
        np.testing.assert_allclose(run(linalg.sqrtm)(-a + 0j), scipy_linalg.sqrtm(-a + 0j), rtol=1e-12)
        with pytest.raises(MatrixError, match="an eigenvalue is negative; give a complex one"):
            run(linalg.sqrtm)(-np.eye(2))
    check_grads(lambda a: linalg.sqrtm(a @ a.T), (a,))
    batch = pb.vmap(linalg.solve_sylvester, (None, 0, 0))(a, np.stack([b, -b]), np.stack([q, q]))
    np.testing.assert_allclose(batch[1], scipy_linalg.solve_sylvester(a, -b, q), rtol=1e-12)


def test_solve_banded():
    scipy_linalg = pytest.importorskip("scipy.linalg")
    random = np.random.default_rng(6)
    for below, above in ((1, 1), (2, 0), (0, 3)):
        ab, b = random.normal(size=(below + above + 1, 6)), random.normal(size=(6, 2))
        ab[above] += 5
        wanted = scipy_linalg.solve_banded((below, above), ab, b)
        for run in (lambda f: f, pb.jit):
            found = run(lambda ab, b, k=(below, above): linalg.solve_banded(k, ab, b))(ab, b)
            np.testing.assert_allclose(found, wanted, rtol=1e-12)
        check_grads(lambda ab, b, k=(below, above): linalg.solve_banded(k, ab, b), (ab, b), order=1)
    with pytest.raises(ShapeError, match="give 3 rows"):
        linalg.solve_banded((1, 1), np.ones((2, 4)), np.ones(4))
