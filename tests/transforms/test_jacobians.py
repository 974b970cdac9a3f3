"""Jacobians and Hessians: by rows and by columns, of trees, in any nesting."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from pullback import grad, hessian, jacobian, jit, vmap
from pullback.errors import DerivativeError

MATRIX = np.random.default_rng(0).standard_normal((3, 5))


@pytest.mark.parametrize("matrix", [MATRIX, MATRIX.T], ids=["by rows", "by columns"])
def test_of_an_array(matrix):
    function = lambda x: np.tanh(matrix @ x)  # noqa: E731
    x = np.linspace(-1, 1, matrix.shape[1])
    wanted = (1 - function(x) ** 2)[:, None] * matrix
    np.testing.assert_allclose(jacobian(function)(x), wanted)
    np.testing.assert_allclose(jit(jacobian(function))(x), wanted)


def test_axes_are_those_of_the_result_then_those_of_the_argument():
    x = np.arange(6.0).reshape(2, 3)
    for function in (lambda x: x.T * x.sum(), lambda x: np.stack([x.T * x.sum()] * 2)):
        found = jacobian(function)(x)
        assert found.shape == (*function(x).shape, 2, 3)
        step = 1e-6 * np.cos(x)
        slope = (function(x + step) - function(x - step)) / 2e-6
        np.testing.assert_allclose(np.tensordot(found, np.cos(x), 2), slope, rtol=1e-6)


def test_of_numbers():
    assert jacobian(lambda x: x**2)(3.0) == 6.0
    np.testing.assert_array_equal(jacobian(lambda x: x * np.arange(3.0))(2.0), [0.0, 1.0, 2.0])
    assert jacobian(np.sin)(np.zeros(0)).shape == (0, 0)


def test_of_trees():
    def function(t, y):
        return {"product": t["a"] * y, "count": np.array([1, 2]), "free": 1.0}

    t, y = {"a": np.array([1.0, 2.0]), "b": 3.0}, 5.0
    found = jacobian(function)(t, y)
    np.testing.assert_array_equal(found["product"]["a"], 5 * np.eye(2))
    np.testing.assert_array_equal(found["product"]["b"], [0.0, 0.0])
    np.testing.assert_array_equal(found["count"]["a"], np.zeros((2, 2)))
    assert found["free"]["b"] == 0.0
    both = jacobian(function, (1, 0))(t, y)
    np.testing.assert_array_equal(both["product"][0], t["a"])
    np.testing.assert_array_equal(both["product"][1]["a"], 5 * np.eye(2))


def test_of_a_model():
    @dataclasses.dataclass
    class Scale:
        factor: Any
        steps: Any
        units: int = 2

    found = jacobian(lambda model, x: model.factor * x)(
        Scale(np.ones(2), np.array([1, 2])), np.array([3.0, 4.0])
    )
    np.testing.assert_array_equal(found.factor, np.diag([3.0, 4.0]))
    np.testing.assert_array_equal(found.steps, np.zeros((2, 2), int))
    assert found.steps.dtype == int and found.units == 2


@pytest.mark.parametrize("extent", [1, 5])
def test_the_dtype_is_the_arguments(extent):
    x = np.ones(3, np.float32)
    found = jacobian(lambda x: np.repeat(x.sum() * np.float64(2), extent))(x)
    assert (found.dtype, found.shape) == (np.float32, (extent, 3))


def third(function, x):
    step = 1e-5
    units = np.eye(len(x)) * step
    slopes = [(hessian(function)(x + unit) - hessian(function)(x - unit)) / (2 * step) for unit in units]
    return np.stack(slopes, -1)


def test_hessians():
    x = np.array([0.3, -0.7, 1.1])
    function = lambda x: (np.sin(x) * x[::-1] ** 2).sum()  # noqa: E731
    found = hessian(function)(x)
    np.testing.assert_allclose(found, found.T)
    each = [grad(lambda x, k=k: grad(function)(x)[k])(x) for k in range(3)]
    np.testing.assert_allclose(found, each)
    np.testing.assert_allclose(jit(hessian(function))(x), found)
    np.testing.assert_allclose(
        vmap(hessian(function))(np.stack([x, 2 * x])), [found, hessian(function)(2 * x)]
    )
    np.testing.assert_allclose(jacobian(hessian(function))(x), third(function, x), atol=1e-7)
    assert hessian(lambda x: x**3)(2.0) == 12.0
    (_, mixed), (_, last) = hessian(lambda x, y: x * y**2, (0, 1))(3.0, 2.0)
    assert (mixed, last) == (4.0, 6.0)


def test_what_has_no_jacobian():
    with pytest.raises(DerivativeError, match=r"jacobian: argument 0 is int64\[2\].*argnums"):
        jacobian(np.sin)(np.arange(2))
    with pytest.raises(DerivativeError, match="argnums 1 of a function called with 1"):
        jacobian(np.sin, 1)(1.0)
    with pytest.raises(DerivativeError, match="only a scalar has a gradient"):
        hessian(np.sin)(np.ones(2))


def test_the_function_keeps_its_name():
    assert jacobian(third).__name__ == hessian(third).__name__ == "third"


def bent(t):
    h = np.tanh(MATRIX @ t["x"]) * t["scale"]
    return {"h": h, "total": h.sum(), "count": np.array([1, 2])}


@pytest.mark.parametrize("chunk", [None, 1, 2, 3, 5, 100])
@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_modes_and_chunks_give_the_same(mode, chunk):
    t = {"x": np.linspace(-1, 1, 5), "scale": 2.0}
    wanted = jacobian(bent)(t)
    function = jacobian(bent, mode=mode, chunk=chunk)
    for found in (function(t), jit(function)(t)):
        for result, argument in ((r, a) for r in wanted for a in t):
            assert found[result][argument].shape == wanted[result][argument].shape
            np.testing.assert_allclose(found[result][argument], wanted[result][argument], rtol=1e-13)
    many = {"x": np.stack([t["x"], 2 * t["x"]]), "scale": np.array([2.0, 3.0])}
    batch = vmap(function)(many)["h"]["x"]
    np.testing.assert_allclose(batch[0], wanted["h"]["x"], rtol=1e-13)


@pytest.mark.parametrize("mode", ["forward", "reverse"])
@pytest.mark.parametrize("chunk", [None, 4, 7, 16, 59])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_directions_of_large_arrays(mode, chunk, dtype):
    """They are numbers that are compared; every element of the argument has one, in order."""
    x = np.linspace(-1, 1, 60).reshape(4, 3, 5).astype(dtype)
    function = jacobian(lambda x: np.sin(x) * x[::-1], mode=mode, chunk=chunk)
    units = np.eye(60, dtype=dtype).reshape(60, 4, 3, 5)
    wanted = np.stack([np.cos(x) * unit * x[::-1] + np.sin(x) * unit[::-1] for unit in units], -1)
    for derivatives in (function, jit(function)):
        found = derivatives(x)
        assert found.dtype == x.dtype
        np.testing.assert_allclose(found, wanted.reshape(4, 3, 5, 4, 3, 5), rtol=1e-5, atol=1e-6)
    x = np.linspace(0, 1, 60) + 1j
    if mode == "reverse":
        made = jit(jacobian(lambda x: (x * x.conj()).real, mode=mode, chunk=chunk))(x)
        np.testing.assert_allclose(made, np.diag(2 * x.conj()), atol=1e-12)


def test_no_constant_grows_with_the_square_of_the_argument():
    x = np.linspace(0, 1, 500)
    for chunk in (None, 16):
        text = jit(jacobian(lambda x: np.sum(x**3), mode="forward", chunk=chunk)).inspect(x).optimised
        assert "constant ...: float64" not in text, text


def test_chunks_of_hessians_and_higher_derivatives():
    x = np.array([0.3, -0.7, 1.1])
    function = lambda x: (np.sin(x) * x[::-1] ** 2).sum()  # noqa: E731
    np.testing.assert_allclose(hessian(function, chunk=2)(x), hessian(function)(x))
    wanted = jacobian(hessian(function))(x)
    np.testing.assert_allclose(jacobian(hessian(function, chunk=2), chunk=1)(x), wanted)
    np.testing.assert_allclose(jit(jacobian(hessian(function, chunk=2), chunk=1))(x), wanted)


def test_what_comes_along():
    found, extra = jacobian(lambda x: (x**2, {"first": x[0]}), has_aux=True)(np.array([1.0, 2.0]))
    np.testing.assert_array_equal(found, np.diag([2.0, 4.0]))
    assert extra["first"] == 1.0
    found, extra = hessian(lambda x: ((x**3).sum(), x.sum()), has_aux=True)(np.array([1.0, 2.0]))
    np.testing.assert_array_equal(found, np.diag([6.0, 12.0]))
    assert extra == 3.0


def test_modes_and_chunks_that_are_none():
    with pytest.raises(DerivativeError, match="mode='sideways'; give 'forward'"):
        jacobian(np.sin, mode="sideways")
    with pytest.raises(DerivativeError, match="chunk=0"):
        jacobian(np.sin, chunk=0)
