"""Sparse Jacobians and Hessians: values against full ones, patterns against where these are not zero, and colours."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.errors import DerivativeError, ShapeError, TreeError

sparse = pytest.importorskip("scipy.sparse")
from pullback.sparse.colouring import column_colours, star_colours  # noqa: E402

X = np.random.default_rng(0).normal(size=8)
PLACES = np.array([1, 2, 2, 5])
BAND = np.diag(np.arange(8.0)) + np.diag(np.ones(7), 1)
STEP = pb.custom_pullback(np.floor).define(lambda x: (np.floor(x), x), lambda x, bar: (bar[::-1] * x,))

FUNCTIONS: dict[str, tuple[Callable[[Any], Any], int | None]] = {
    # each with its number of colours, where it is known to be the least
    "differences": (lambda x: np.diff(x**2), 2),
    "products of neighbours": (lambda x: x[1:] * x[:-1], 2),
    "gathered": (lambda x: x[PLACES] ** 2, 1),
    "rolled": (lambda x: np.roll(x, 1) * x, 2),
    "padded": (lambda x: np.pad(x, 1)[2:] * x, 2),
    "a constant matrix": (lambda x: BAND @ x**2, 2),
    "by blocks": (lambda x: x.reshape(2, 4) @ BAND[:4, :4], 2),
    "joined": (lambda x: np.concatenate([x[:2], x]), 1),
    "total": (lambda x: np.cumsum(x**2), 8),
    "chosen": (lambda x: np.where(x > 0, x * x, 0), 1),
    "outer": (lambda x: np.outer(x[:2], x[2:4]), 2),
    "convolved": (lambda x: np.convolve(x**2, [1.0, -2.0, 1.0]), 3),
    "sums of columns": (lambda x: x.reshape(2, 4).sum(0) ** 2, 1),
    "maxima": (lambda x: x.reshape(2, 4).max(0), 1),
    "turned": (lambda x: x[::-1] * x, 2),
    "transposed": (lambda x: x.reshape(2, 4).T * x.reshape(4, 2), None),
    "an arrow": (lambda x: x[0] * x**2, 2),
    "constant": (lambda x: np.ones(3), None),
    "masked": (lambda x: x * (np.arange(8) % 2), 1),
    "rounded": (lambda x: np.floor(x) + x, 1),
    "all": (lambda x: np.log(np.exp(x).sum()) * x, 8),
    "one number": (lambda x: x.sum(), 1),
    "sorted": (np.sort, 8),
    "in a loop": (lambda x: pb.scan(lambda c, x: (c * x, c), 1.0, x)[1], 8),
    "solved": (lambda x: np.linalg.solve(BAND + np.eye(8), x), 8),
    "at places that depend on it": (lambda x: x[np.argsort(x)] * x, 8),
    "batched": (lambda x: pb.vmap(lambda r: r @ r * r)(x.reshape(4, 2)), 2),
    "checkpointed": (lambda x: pb.checkpoint(np.sin)(x) * x, 1),
    "scattered": (lambda x: pb.at(np.zeros(8))[PLACES].add(x[:4]) * x, 2),
    "set": (lambda x: pb.at(x)[PLACES[:2]].set(x[6:] ** 2), None),
    "by a rule": (STEP, 8),
    "stopped": (lambda x: pb.stop_gradient(x) * x[::-1], 1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_jacobians(name: str):
    function, count = FUNCTIONS[name]
    full = np.asarray(pb.jacobian(function)(X)).reshape(-1, 8)
    slopes = pb.sparse_jacobian(function)
    found = slopes(X)
    np.testing.assert_allclose(found.toarray(), full, rtol=1e-12, atol=1e-14)
    assert found.has_sorted_indices and found.dtype == np.float64
    assert not (full != 0)[~slopes.pattern(X).toarray()].any()
    if count is not None:
        assert slopes.colours(X) == count
    np.testing.assert_allclose(
        slopes(2 * X).toarray(), np.asarray(pb.jacobian(function)(2 * X)).reshape(-1, 8)
    )


@pytest.mark.parametrize("name", FUNCTIONS)
def test_hessians(name: str):
    def total(x: Any) -> Any:
        return np.sum(FUNCTIONS[name][0](x) ** 2)

    full = pb.hessian(total)(X)
    curvature = pb.sparse_hessian(total)
    np.testing.assert_allclose(curvature(X).toarray(), full, rtol=1e-12, atol=1e-12)
    assert curvature.colours(X) <= 8


def test_patterns_are_tight_where_elements_are_moved_and_added():
    for name in (
        "differences",
        "rolled",
        "a constant matrix",
        "by blocks",
        "convolved",
        "masked",
    ):
        function = FUNCTIONS[name][0]
        full = np.asarray(pb.jacobian(function)(X)).reshape(-1, 8)
        np.testing.assert_array_equal(pb.sparse_jacobian(function).pattern(X).toarray(), full != 0)


def test_large_ones_take_few_products():
    def rosenbrock(x: Any) -> Any:
        return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    def arrow(x: Any) -> Any:
        return np.sum(x[0] * x**2) + x[-1] ** 3

    x = np.linspace(-1, 1, 5_000)
    v = np.cos(x)
    for function, count in ((rosenbrock, 3), (arrow, 2)):
        curvature = pb.sparse_hessian(function)
        assert curvature.colours(x) == count
        (product,) = pb.hvp(function, (x,), (v,))[1]
        np.testing.assert_allclose(curvature(x) @ v, product, rtol=1e-10, atol=1e-9)
    grid = np.random.default_rng(1).normal(size=(30, 40))

    def laplacian(u: Any) -> Any:
        wide = np.pad(u, 1)
        return wide[2:, 1:-1] + wide[:-2, 1:-1] + wide[1:-1, 2:] + wide[1:-1, :-2] - 4 * u + u**3

    slopes = pb.sparse_jacobian(laplacian)
    assert slopes.colours(grid) <= 8 and slopes(grid).nnz == 5 * 1200 - 2 * 70
    v = np.sin(grid)
    product = pb.jvp(laplacian, (grid,), (v,))[1]
    np.testing.assert_allclose(slopes(grid) @ v.ravel(), product.ravel(), rtol=1e-10)


def test_other_arguments_dtypes_and_names():
    def function(x: Any, scale: Any = 1.0, *, shift: Any) -> Any:
        return scale * np.diff(x * shift)

    x = X.astype(np.float32)
    slopes = pb.sparse_jacobian(function, "shift")
    found = slopes(x, 2.0, shift=x)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found.toarray(), pb.jacobian(function, "shift")(x, 2.0, shift=x), rtol=1e-6)
    assert slopes(X[:4], 2.0, shift=X[:4]).shape == (3, 4)
    curvature = pb.sparse_hessian(lambda a, x: np.sum(a * x**3), 1)
    np.testing.assert_allclose(curvature(X, X).toarray(), np.diag(6 * X * X))
    assert slopes.__name__ == "function"


def test_a_given_pattern():
    loop = FUNCTIONS["in a loop"][0]
    lower = np.tril(np.ones((8, 8)), -1)
    np.testing.assert_allclose(
        pb.sparse_jacobian(loop, pattern=lower)(X).toarray(), pb.jacobian(loop)(X), atol=1e-15
    )
    diagonal = pb.sparse_jacobian(lambda x: np.sort(x) * 0 + x, pattern=sparse.eye_array(8))
    assert diagonal.colours(X) == 1
    np.testing.assert_array_equal(diagonal(X).toarray(), np.eye(8))
    with pytest.raises(ShapeError, match=r"the pattern has shape \(3, 8\), the derivative \(8, 8\)"):
        pb.sparse_jacobian(loop, pattern=np.ones((3, 8)))(X)


def test_what_is_refused():
    with pytest.raises(TreeError, match="argument and the result are one array each"):
        pb.sparse_jacobian(lambda t: t["x"])({"x": X})
    with pytest.raises(TreeError, match="one array each"):
        pb.sparse_jacobian(lambda x: (x, x))(X)
    with pytest.raises(DerivativeError, match="called outside of jit, grad and vmap"):
        pb.jit(pb.sparse_jacobian(np.sin))(X)
    with pytest.raises(DerivativeError, match="only a scalar has a gradient"):
        pb.sparse_hessian(np.sin)(X)
    with pytest.raises(DerivativeError, match="integers have no derivative"):
        pb.sparse_jacobian(np.sin)(np.arange(3))
    with pytest.raises(
        DerivativeError, match=r"cumprod counts as dense, which makes 100,000,000 entries.*test_sparse"
    ):
        pb.sparse_jacobian(np.cumprod)(np.ones(10_000))


@pytest.mark.parametrize("seed", range(5))
def test_colourings_of_random_patterns(seed: int):
    random = np.random.default_rng(seed)
    matrix = random.random((30, 20)) < 0.1
    colours = column_colours(sparse.csr_array(matrix))
    for row in matrix:
        assert len(set(colours[row])) == row.sum()
    square = random.random((25, 25)) < 0.08
    symmetric = square | square.T | np.eye(25, dtype=bool)
    star = star_colours(sparse.csr_array(symmetric))
    assert star.max() < 25
    for i, j in np.argwhere(symmetric):
        alone = [(star[symmetric[a]] == star[b]).sum() == 1 for a, b in ((i, j), (j, i))]
        assert any(alone)
