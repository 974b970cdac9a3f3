"""Pushforwards at a point, and products with Hessians."""

from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.errors import DerivativeError, TreeError

RANDOM = np.random.default_rng(3)
WEIGHTS = RANDOM.normal(size=(4, 3))
X, V = RANDOM.normal(size=3), RANDOM.normal(size=3)


def layered(t: Any, scale: Any) -> Any:
    h = np.tanh(WEIGHTS @ t["x"] * scale)
    return {"h": np.outer(h, h).sum(1), "steps": np.array([1, 2]), "free": np.zeros(2)}


def test_a_pushforward_is_jvp():
    primals, tangents = ({"x": X}, 1.5), ({"x": V}, 0.3)
    wanted = pb.jvp(layered, primals, tangents)
    value, push = pb.linearize(layered, *primals)
    for found, expected in ((value, wanted[0]), (push(*tangents), wanted[1])):
        assert found.keys() == expected.keys()
        for key in found:
            np.testing.assert_allclose(found[key], expected[key], rtol=1e-14)
            assert found[key].dtype == expected[key].dtype
    np.testing.assert_allclose(push({"x": 2 * V}, 0.6)["h"], 2 * wanted[1]["h"])


def test_the_function_is_called_once_and_its_values_are_kept():
    calls = []

    def slow(x: Any) -> Any:
        calls.append("python")
        kept = pb.pure_callback(lambda x: calls.append("host") or np.cos(x), x, pb.stop_gradient(x))
        return np.sin(x) * kept

    value, push = pb.linearize(slow, X)
    np.testing.assert_allclose(value, np.sin(X) * np.cos(X))
    for factor in (1.0, 2.0):
        np.testing.assert_allclose(push(factor * V), factor * V * np.cos(X) ** 2)
    assert calls == ["python", "host"]


def test_pushforwards_in_other_transformations():
    def along(x: Any, v: Any) -> Any:
        value, push = pb.linearize(lambda x: np.sin(x) * np.sum(x), x)
        return push(v) + value

    wanted = np.cos(X) * V * X.sum() + np.sin(X) * V.sum() + np.sin(X) * X.sum()
    np.testing.assert_allclose(along(X, V), wanted)
    np.testing.assert_allclose(pb.jit(along)(X, V), wanted)
    many = pb.vmap(along, (None, 0))(X, np.stack([V, 2 * V]))
    np.testing.assert_allclose(many[0], wanted)
    slope = pb.grad(lambda x: along(x, V).sum())(X)
    step = 1e-6 * V
    difference = (along(X + step, V).sum() - along(X - step, V).sum()) / 2e-6
    assert slope @ V == pytest.approx(difference, rel=1e-6)
    _, outside = pb.linearize(np.sin, X)
    np.testing.assert_allclose(pb.jit(outside)(V), np.cos(X) * V)
    scale = pb.grad(lambda s: pb.linearize(lambda x: s * x, X)[1](V).sum())(2.0)
    assert scale == pytest.approx(V.sum())


def test_what_comes_along():
    value, push, extra = pb.linearize(lambda x: (x * 2, {"sum": x.sum()}), X, has_aux=True)
    np.testing.assert_allclose(value, 2 * X)
    np.testing.assert_allclose(push(V), 2 * V)
    assert extra["sum"] == X.sum()
    value, tangent, extra = pb.jvp(lambda x: (x * 2, np.sum(x)), (X,), (V,), has_aux=True)
    np.testing.assert_allclose(tangent, 2 * V)
    assert extra == X.sum()
    with pytest.raises(TreeError, match="with has_aux the function returns"):
        pb.linearize(np.sin, X, has_aux=True)


def test_tangents_that_do_not_fit():
    _, push = pb.linearize(lambda x: x, X)
    with pytest.raises(TreeError, match="1 primals and 2 tangents"):
        push(V, V)
    with pytest.raises(DerivativeError, match=r"linearize: the tangent has shape \(2,\), not \(3,\)"):
        push(V[:2])
    with pytest.raises(DerivativeError, match="linearize: argument 0 is int64"):
        pb.linearize(lambda x: x, np.arange(3))


def energy(t: Any, scale: Any) -> Any:
    return np.sum(np.tanh(WEIGHTS @ t["x"] * scale) ** 2)


@pytest.mark.parametrize("run", [lambda f: f, pb.jit])
def test_products_with_hessians(run: Any):
    full = pb.hessian(lambda x: energy({"x": x}, 1.5))(X)
    gradient, product = run(lambda x, v: pb.hvp(lambda x: energy({"x": x}, 1.5), (x,), (v,)))(X, V)
    np.testing.assert_allclose(gradient[0], pb.grad(lambda x: energy({"x": x}, 1.5))(X))
    np.testing.assert_allclose(product[0], full @ V)
    _, (moved, moved_scale) = run(lambda: pb.hvp(energy, ({"x": X}, 1.5), ({"x": V}, 0.3)))()
    step = 1e-6
    ends = [pb.grad(energy, (0, 1))({"x": X + s * V}, 1.5 + 0.3 * s) for s in (step, -step)]
    np.testing.assert_allclose(moved["x"], (ends[0][0]["x"] - ends[1][0]["x"]) / (2 * step), rtol=1e-6)
    assert moved_scale == pytest.approx((ends[0][1] - ends[1][1]) / (2 * step), rel=1e-6)


def test_products_with_hessians_of_many_and_what_comes_along():
    x = np.stack([X, 2 * X])
    products = pb.vmap(lambda x: pb.hvp(lambda x: (x**3).sum(), (x,), (V,))[1][0])(x)
    np.testing.assert_allclose(products, 6 * x * V)
    (slope,), (product,), extra = pb.hvp(lambda x: ((x**3).sum(), x[0]), (X,), (V,), has_aux=True)
    np.testing.assert_allclose([slope, product], [3 * X**2, 6 * X * V])
    assert extra == X[0]
    with pytest.raises(TreeError, match="hvp: primals and tangents are tuples"):
        pb.hvp(np.sum, X, V)
    with pytest.raises(DerivativeError, match="only a scalar has a gradient"):
        pb.hvp(np.sin, (X,), (V,))
    with pytest.raises(TreeError, match="1 primals and 2 tangents"):
        pb.hvp(np.sum, (X,), (V, V))
