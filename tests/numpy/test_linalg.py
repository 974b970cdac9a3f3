"""Linear algebra against NumPy: values, derivatives of both modes to second order, batches, and what is refused."""

import re
import warnings

import numpy as np
import pytest

import pullback as pb
import pullback.scipy.linalg
from pullback.errors import MatrixError, ShapeError, TracingError
from pullback.operators import lapack
from pullback.testing import check_grads

RANDOM = np.random.default_rng(8)


def regular(*shape):
    return RANDOM.normal(size=shape) + 3 * np.eye(*shape[-2:])


def positive(*shape):
    x = RANDOM.normal(size=shape)
    return x @ np.swapaxes(x, -1, -2) + 2 * np.eye(shape[-1])


def symmetric(x):
    return (x + np.swapaxes(x, -1, -2)) / 2


A3, A5, A9, BATCH = regular(3, 3), regular(5, 5), regular(9, 9), regular(2, 3, 3)
TALL, WIDE = RANDOM.normal(size=(5, 3)), RANDOM.normal(size=(3, 5))
CASES = {
    "solve": (np.linalg.solve, (A5, RANDOM.normal(size=(5, 2)))),
    "solve of a vector": (np.linalg.solve, (A3, RANDOM.normal(size=3))),
    "solve of one": (np.linalg.solve, (np.array([[2.0]]), RANDOM.normal(size=1))),
    "solve of batches": (np.linalg.solve, (BATCH, RANDOM.normal(size=(4, 1, 3, 2)))),
    "solve of a batch of columns": (np.linalg.solve, (A5, RANDOM.normal(size=(3, 5, 2)))),
    "solve of a factor": (
        lambda a, b: np.linalg.solve(np.linalg.cholesky(symmetric(a)), b),
        (positive(5, 5), TALL),
    ),
    "solve of a turned factor": (
        lambda a, b: np.linalg.solve(np.linalg.cholesky(symmetric(a)).T, b),
        (positive(3, 3), RANDOM.normal(size=3)),
    ),
    "inv": (np.linalg.inv, (A5,)),
    "inv of a batch": (np.linalg.inv, (BATCH,)),
    "det of 1": (np.linalg.det, (np.array([[3.0]]),)),
    "det of 2": (np.linalg.det, (regular(2, 2),)),
    "det of 3": (np.linalg.det, (BATCH,)),
    "det of 5": (np.linalg.det, (A5,)),
    "slogdet": (lambda a: np.linalg.slogdet(a)[1], (A9,)),
    "slogdet of a batch": (lambda a: np.linalg.slogdet(a).logabsdet, (BATCH,)),
    "cholesky": (np.linalg.cholesky, (positive(5, 5),)),
    "cholesky of a batch": (np.linalg.cholesky, (positive(2, 3, 3),)),
    "cholesky of many": (
        lambda x: np.linalg.cholesky(x @ x.T + 5 * np.eye(70)),
        (RANDOM.normal(size=(70, 70)) / 8,),
    ),
    "eigh": (lambda a: tuple(np.linalg.eigh(symmetric(a))), (A5,)),
    "eigh of the upper triangle": (lambda a: np.linalg.eigh(a, "U")[0], (A3,)),
    "eigvalsh": (np.linalg.eigvalsh, (BATCH,)),
    "svd": (lambda a: tuple(np.linalg.svd(a, full_matrices=False)), (TALL,)),
    "svd of a wide one": (lambda a: tuple(np.linalg.svd(a, full_matrices=False)), (WIDE,)),
    "svd of a square one": (lambda a: tuple(np.linalg.svd(a)), (BATCH,)),
    "singular values": (lambda a: np.linalg.svd(a, compute_uv=False), (WIDE,)),
    "qr": (lambda a: tuple(np.linalg.qr(a)), (TALL,)),
    "qr of a wide one": (lambda a: tuple(np.linalg.qr(a)), (regular(3, 5),)),
    "qr, r alone": (lambda a: np.linalg.qr(a, "r"), (A3,)),
    "pinv": (np.linalg.pinv, (TALL,)),
    "pinv of a wide one": (np.linalg.pinv, (WIDE,)),
    "pinv with a cut": (lambda a: np.linalg.pinv(a, 1e-3), (A3,)),
    "lstsq": (lambda a, b: np.linalg.lstsq(a, b, rcond=None)[0], (TALL, RANDOM.normal(size=5))),
    "lstsq residuals": (lambda a, b: np.linalg.lstsq(a, b, rcond=None)[1], (TALL, RANDOM.normal(size=5))),
    "lstsq of columns": (
        lambda a, b: np.linalg.lstsq(a, b, rcond=None)[1],
        (TALL, RANDOM.normal(size=(5, 2))),
    ),
    "matrix_power": (lambda a: np.linalg.matrix_power(a, 5), (A3 / 3,)),
    "negative power": (lambda a: np.linalg.matrix_power(a, -3), (A3,)),
    "power 0": (lambda a: np.linalg.matrix_power(a, 0) + a, (A3,)),
    "multi_dot": (lambda a, b, c: np.linalg.multi_dot([a, b, c]), (A3, WIDE, TALL)),
    "multi_dot of vectors": (
        lambda a, b, c: np.linalg.multi_dot([a, b, c]),
        (RANDOM.normal(size=3), WIDE, RANDOM.normal(size=5)),
    ),
    "tensorsolve": (np.linalg.tensorsolve, (regular(6, 6).reshape(2, 3, 6), RANDOM.normal(size=(2, 3)))),
    "tensorinv": (lambda a: np.linalg.tensorinv(a, ind=1), (regular(6, 6).reshape(6, 2, 3),)),
    "norm 2": (lambda a: np.linalg.norm(a, 2), (TALL,)),
    "norm -2": (lambda a: np.linalg.norm(a, -2), (WIDE,)),
    "nuclear norm": (lambda a: np.linalg.norm(a, "nuc", axis=(1, 2), keepdims=True), (BATCH,)),
    "nuclear norm of other axes": (lambda a: np.linalg.norm(a, "nuc", axis=(2, 0)), (BATCH,)),
    "cond": (np.linalg.cond, (A5,)),
    "cond of order 1": (lambda a: np.linalg.cond(a, 1), (A3,)),
    "cond of order fro": (lambda a: np.linalg.cond(a, "fro"), (A3,)),
    "cond of order -2": (lambda a: np.linalg.cond(a, -2), (A3,)),
}


@pytest.mark.parametrize(("function", "arguments"), CASES.values(), ids=CASES)
def test_values_and_derivatives(function, arguments):
    wanted = function(*arguments)
    traced = pb.trace(function, *arguments).evaluate(list(arguments))
    compiled = pb.jit(function)(*arguments)
    several = isinstance(wanted, tuple)
    for want, found, ran in zip(*((x if several else (x,)) for x in (wanted, traced, compiled)), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(ran, want, rtol=1e-9, atol=1e-11)
        assert np.shape(found) == np.shape(want)
    check_grads(function, arguments, tolerance=1e-5)


@pytest.mark.parametrize("name", ["solve", "inv", "det of 5", "cholesky", "slogdet", "solve of a factor"])
def test_compiled_gradients_in_single_precision(name):
    function, arguments = CASES[name]
    gradient = pb.grad(lambda *x: np.sum(function(*x) ** 2) / 10, tuple(range(len(arguments))))
    wanted = gradient(*arguments)
    for found, want in zip(pb.jit(gradient)(*(x.astype(np.float32) for x in arguments)), wanted):
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, want, rtol=2e-4, atol=1e-4 * np.abs(want).max())


@pytest.mark.parametrize("size", [2, 6])
@pytest.mark.parametrize("name", ["solve", "inv", "cholesky"])
def test_singular_matrices_are_numpys_error(name, size):
    function = getattr(np.linalg, name)
    arguments = (np.ones((size, size)),) + ((np.ones(size),) if name == "solve" else ())
    for run in (function, pb.jit(function), lambda *x: pb.vjp(function, *x)):
        with pytest.raises(np.linalg.LinAlgError, match=r"Singular matrix|not positive definite"):
            run(*arguments)
    with pytest.raises(MatrixError, match=r"test_linalg\.py"):
        pb.jit(lambda a: function(a, *arguments[1:]))(arguments[0])


@pytest.mark.parametrize("size", [3, 6])
def test_what_is_donated_is_whole_after_an_error(size):
    def step(weights, a):
        return weights * 2 + np.linalg.solve(a, weights)

    compiled = pb.jit(step, donate_argnums=0)
    weights = np.arange(1.0, size + 1)
    with pytest.raises(np.linalg.LinAlgError):
        compiled(weights, np.ones((size, size)))
    np.testing.assert_array_equal(weights, np.arange(1.0, size + 1))
    np.testing.assert_allclose(compiled(weights, np.eye(size)), 3 * np.arange(1.0, size + 1))


def test_one_singular_matrix_of_a_batch():
    batch = np.stack([np.eye(5), np.ones((5, 5))])
    for run in (pb.jit(np.linalg.inv), pb.jit(pb.vmap(np.linalg.inv))):
        with pytest.raises(np.linalg.LinAlgError):
            run(batch)


def test_determinants_of_singular_matrices():
    for n in (2, 3, 5):
        a = RANDOM.normal(size=(n, n))
        a[-1] = a[0]
        for run in (pb.grad(np.linalg.det), pb.jit(pb.grad(np.linalg.det))):
            found = run(a)
            for k in range(n):
                minor = np.delete(np.delete(a, 0, 0), k, 1)
                np.testing.assert_allclose(found[0, k], (-1) ** k * np.linalg.det(minor), atol=1e-9)
    sign, logarithm = pb.jit(np.linalg.slogdet)(np.zeros((5, 5)))
    assert (sign, logarithm) == (0, -np.inf)


def test_equal_eigenvalues_do_no_harm():
    """The derivative of what does not depend on the vectors' choice: of a function of the matrix."""

    def powered(a):
        w, v = np.linalg.eigh(symmetric(a))
        return np.sum(np.sin((v * w**3) @ v.T))

    def directly(a):
        a = symmetric(a)
        return np.sum(np.sin(a @ a @ a))

    for a in (np.eye(4), np.diag([1.0, 2.0, 2.0, 5.0])):
        np.testing.assert_allclose(
            pb.grad(lambda a: np.sum(np.linalg.eigvalsh(a) ** 2))(a), 2 * a, atol=1e-12
        )
    a = np.diag([1.0, 2.0, 3.0])
    np.testing.assert_allclose(pb.grad(powered)(a), pb.grad(directly)(a), atol=1e-9)
    for function in (lambda a: np.linalg.svd(a)[0], lambda a: np.linalg.eigh(a)[1]):
        assert np.isfinite(pb.grad(lambda a, function=function: np.sum(function(a)))(np.eye(3))).all()


@pytest.mark.parametrize("shape", [(4, 4), (6, 3), (3, 5)])
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_the_orthogonal_factor_next_to_equal_singular_values(shape, dtype):
    """What turns both vectors of a value alike has no part in it."""
    random = np.random.default_rng(shape)

    def drawn(*shape):
        return (random.standard_normal(shape) + 1j * random.standard_normal(shape)).astype(dtype)

    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
        tall = np.linalg.qr(drawn(max(shape), min(shape)))[0]
        a, c, t = 3 * (tall if shape[0] >= shape[1] else tall.T), drawn(*shape), drawn(*shape)

    def loss(a):
        u, _, v = np.linalg.svd(a, full_matrices=False)
        return np.sum(np.real(c * (u @ v)))

    quotient = (loss(a + 1e-5 * t) - loss(a - 1e-5 * t)) / 2e-5
    for gradient in (pb.grad(loss), pb.jit(pb.grad(loss))):
        np.testing.assert_allclose(np.real(np.sum(gradient(a) * t)), quotient, rtol=1e-7)


@pytest.mark.parametrize("shape", [(65, 65), (2, 151, 151), (3, 2, 130, 130)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_cotangent_of_a_factor_is_compiled_by_halves(shape, dtype):
    """Of matrices larger than a block, in batches, with what nobody reads above their diagonals."""
    random = np.random.default_rng(0)
    a = random.standard_normal(shape).astype(dtype) / 20 + 3 * np.eye(shape[-1], dtype=dtype)
    weights = random.standard_normal(shape).astype(dtype)
    gradient = pb.grad(lambda a: np.sum(np.linalg.cholesky(a) * weights))
    close = {"rtol": 1e-4, "atol": 1e-4} if dtype == np.float32 else {"rtol": 1e-11, "atol": 1e-11}
    compiled = pb.jit(gradient)
    np.testing.assert_allclose(compiled(a), gradient(a), **close)
    assert "host_call cholesky" not in compiled.inspect(a).loops
    assert "cholesky_cotangent" not in compiled.inspect(a).loops


FACTORISED = {
    "eigh": lambda a: tuple(np.linalg.eigh(a)),
    "eigh of the upper triangle": lambda a: tuple(np.linalg.eigh(a, "U")),
    "eigvalsh": np.linalg.eigvalsh,
    "svd": lambda a: tuple(np.linalg.svd(a[..., :3], full_matrices=False)),
    "svd of wide ones": lambda a: tuple(np.linalg.svd(a[..., :3, :], full_matrices=False)),
    "svdvals": lambda a: np.linalg.svd(a, compute_uv=False),
    "qr": lambda a: tuple(np.linalg.qr(a[..., :3])),
    "qr of wide ones": lambda a: tuple(np.linalg.qr(a[..., :3, :])),
    "gradient of det": pb.grad(lambda a: np.sum(np.linalg.det(a))),
    "expm": pb.scipy.linalg.expm,
}


@pytest.mark.parametrize("function", FACTORISED.values(), ids=FACTORISED)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_factorisations_are_computed_without_python(function, dtype):
    """By the routines of LAPACK's that NumPy calls, in double precision as there: signs of vectors are the same."""
    a = np.random.default_rng(1).standard_normal((4, 5, 5)).astype(dtype)
    compiled = pb.jit(function)
    assert "host_call" not in re.sub("host_call lapack", "", compiled.inspect(a).loops)
    for found, wanted in zip(pb.flatten(compiled(a))[0], pb.flatten(function(a))[0], strict=True):
        assert found.dtype == dtype
        np.testing.assert_allclose(
            found, wanted, rtol=0, atol=20 * np.finfo(dtype).eps * np.abs(wanted).max()
        )


@pytest.mark.parametrize("function", FACTORISED.values(), ids=FACTORISED)
def test_without_lapack_programs_call_numpy(function, monkeypatch):
    monkeypatch.setattr(lapack, "address", lambda name: None)
    a = np.random.default_rng(1).standard_normal(
        (5, 11, 11)
    )  # of a shape whose routines nobody has asked for
    compiled = pb.jit(function)
    lines = compiled.inspect(a).loops.splitlines()
    assert any(line.startswith("call ") for line in lines) and "lapack" not in "".join(lines)
    for found, wanted in zip(pb.flatten(compiled(a))[0], pb.flatten(function(a))[0], strict=True):
        np.testing.assert_allclose(
            found, wanted, rtol=0, atol=20 * np.finfo(a.dtype).eps * np.abs(wanted).max()
        )


@pytest.mark.parametrize("name", ["eigh", "eigvalsh", "svd", "svdvals"])
def test_what_has_no_factors_is_an_error(name):
    with pytest.raises(MatrixError, match="did not converge"):
        pb.jit(FACTORISED[name])(np.full((4, 5, 5), np.nan))


def test_exponentials_of_one_batch_are_halved_each_by_itself():
    a = np.stack([np.diag([scale, 0.5, -1.0]) for scale in (0.0, 1.0, 30.0, -700.0)])
    found = pb.jit(pb.scipy.linalg.expm)(a)
    np.testing.assert_allclose(found, [np.diag(np.exp(np.diagonal(x))) for x in a], rtol=1e-12)


def test_the_triangle_that_is_not_read_has_no_derivative():
    a = positive(5, 5)
    a[0, 3] = np.nan
    gradient = pb.jit(pb.grad(lambda a: np.sum(np.linalg.cholesky(a))))(a)
    assert np.isfinite(gradient).all() and not np.triu(gradient, 1).any()


def test_matrix_rank():
    ranks = pb.jit(np.linalg.matrix_rank)
    assert ranks(np.ones((3, 4))) == 1 and ranks(np.eye(3)) == 3 and ranks(np.zeros(3)) == 0
    np.testing.assert_array_equal(ranks(np.stack([np.eye(3), np.ones((3, 3))])), [3, 1])
    assert pb.jit(lambda a: np.linalg.matrix_rank(a, 0.5))(np.diag([1.0, 0.1])) == 1


def test_functions_of_the_array_standard():
    x, y = RANDOM.normal(size=(2, 3, 4)), RANDOM.normal(size=(2, 3, 4))
    la = np.linalg
    for function in (
        la.vector_norm,
        lambda x: la.vector_norm(x, axis=(0, 2), keepdims=True, ord=1),
        lambda x: la.matrix_norm(x, ord="nuc"),
        la.matrix_transpose,
        lambda x: la.trace(x, offset=1),
        la.diagonal,
        lambda x: la.vecdot(x, y),
        lambda x: la.matmul(x, la.matrix_transpose(y)),
        lambda x: la.tensordot(x, y, axes=3),
        lambda x: la.outer(x[0, 0], y[0, 0]),
        la.svdvals,
    ):
        np.testing.assert_allclose(pb.trace(function, x).evaluate([x]), function(x), rtol=1e-12)


@pytest.mark.parametrize(
    ("function", "shape", "error", "match"),
    [
        (np.linalg.svd, (2, 3), TracingError, "full_matrices=False"),
        (lambda a: np.linalg.qr(a, "complete"), (3, 2), TracingError, "mode='reduced'"),
        (np.linalg.inv, (2, 3), ShapeError, "square"),
        (np.linalg.cholesky, (3,), ShapeError, "matrices"),
        (lambda a: np.linalg.solve(a, np.ones(3)), (2, 2), ShapeError, "right-hand sides"),
        (lambda a: np.linalg.matrix_power(a, 0.5), (2, 2), TypeError, "integer"),
        (lambda a: np.linalg.eigh(a, "X"), (2, 2), ValueError, "UPLO"),
    ],
)
def test_what_is_refused(function, shape, error, match):
    with pytest.raises(error, match=match):
        pb.trace(function, np.ones(shape))


def test_a_solution_in_a_loop():
    def f(a, xs):
        return pb.scan(lambda c, x: ((y := np.linalg.solve(a + np.diag(x), c)), y), np.ones(a.shape[0]), xs)[
            1
        ]

    for n in (2, 6):
        a, xs = regular(n, n), 1 + RANDOM.random(size=(7, n))
        state, wanted = np.ones(n), []
        for x in xs:
            state = np.linalg.solve(a + np.diag(x), state)
            wanted.append(state)
        np.testing.assert_allclose(pb.jit(f)(a, xs), wanted)
        check_grads(f, [a, xs], order=1, tolerance=1e-5)
        with pytest.raises(MatrixError, match="Singular"):
            pb.jit(f)(np.zeros((n, n)), np.zeros((3, n)))
