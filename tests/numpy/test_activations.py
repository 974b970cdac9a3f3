"""Activations against their formulas, traced and concrete, and their derivatives."""

import math

import numpy as np
import pytest

import pullback as pb
import pullback.numpy as pnp
from pullback.errors import DTypeError
from pullback.testing import check_grads
from pullback.tracing import trace

X = np.array([-7.3, -2.6, -1.2, -0.4, 0.3, 1.1, 2.4, 7.9])
ERF = np.array([math.erf(value) for value in X])
NORMAL = 0.5 * (1 + np.array([math.erf(value / math.sqrt(2)) for value in X]))
SIGMOID = 1 / (1 + np.exp(-X))
SOFTPLUS = np.log(1 + np.exp(X))
FORMULAS = {
    "celu": np.where(X > 0, X, np.exp(X) - 1),
    "elu": np.where(X > 0, X, np.exp(X) - 1),
    "erf": ERF,
    "gelu": X * NORMAL,
    "hard_sigmoid": np.clip(X / 6 + 0.5, 0, 1),
    "hard_swish": X * np.clip(X / 6 + 0.5, 0, 1),
    "hard_tanh": np.clip(X, -1, 1),
    "leaky_relu": np.where(X > 0, X, 0.01 * X),
    "log_sigmoid": np.log(SIGMOID),
    "mish": X * np.tanh(SOFTPLUS),
    "relu": np.maximum(X, 0),
    "relu6": np.clip(X, 0, 6),
    "selu": 1.0507009873554805 * np.where(X > 0, X, 1.6732632423543772 * (np.exp(X) - 1)),
    "sigmoid": SIGMOID,
    "silu": X * SIGMOID,
    "softplus": SOFTPLUS,
    "softsign": X / (1 + np.abs(X)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FORMULAS)
def test_formulas(name, dtype, agrees):
    function, x = getattr(pb, name), X.astype(dtype)
    agrees(function, x, expected=FORMULAS[name].astype(dtype))
    concrete = function(x)
    assert isinstance(concrete, np.ndarray)
    assert concrete.dtype == dtype
    np.testing.assert_allclose(concrete, FORMULAS[name], rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", FORMULAS)
def test_derivatives(name):
    check_grads(getattr(pb, name), [X])


@pytest.mark.parametrize("name", [name for name in FORMULAS if name != "erf"])
def test_no_overflow(name):
    with np.errstate(over="raise", invalid="raise"):
        value = getattr(pb, name)(np.array([-1000.0, 1000.0]))
    gradient = pb.grad(lambda x: getattr(pb, name)(x).sum())(np.array([-1000.0, 1000.0]))
    assert np.isfinite(value).all()
    assert np.isfinite(gradient).all()


def test_scalars_and_integers(agrees):
    agrees(pb.sigmoid, 0.0, expected=np.float64(0.5))
    agrees(pb.relu, np.array([-1, 2]), expected=np.array([0.0, 2.0]))
    assert pb.sigmoid(0.0) == 0.5
    assert pb.relu(np.array([-1, 2], np.int32)).dtype == np.float64


def test_with_other_constants(agrees):
    agrees(lambda x: pb.leaky_relu(x, 0.2), X, expected=np.where(X > 0, X, 0.2 * X))
    agrees(lambda x: pb.elu(x, 2.0), X, expected=np.where(X > 0, X, 2 * (np.exp(X) - 1)))
    agrees(lambda x: pb.celu(x, 2.0), X, expected=np.where(X > 0, X, 2 * (np.exp(X / 2) - 1)))
    inner = np.sqrt(2 / np.pi) * (X + 0.044715 * X**3)
    agrees(lambda x: pb.gelu(x, approximate=True), X, expected=0.5 * X * (1 + np.tanh(inner)))


@pytest.mark.parametrize("axis", [0, -1, (0, 1), None])
def test_softmax(axis, agrees):
    x = X.reshape(2, 4)
    powers = np.exp(x)
    expected = powers / powers.sum(axis, keepdims=True)
    agrees(lambda x: pb.softmax(x, axis), x, expected=expected)
    agrees(lambda x: pb.log_softmax(x, axis), x, expected=np.log(expected))
    np.testing.assert_allclose(pb.softmax(x, axis), expected)
    np.testing.assert_allclose(pb.log_softmax(x, axis), np.log(expected))
    check_grads(lambda x: (pb.softmax(x, axis), pb.log_softmax(x, axis)), [x])


def test_softmax_of_large_numbers():
    x = np.array([1e4, 1e4, -np.inf])
    np.testing.assert_array_equal(pb.softmax(x), [0.5, 0.5, 0.0])
    np.testing.assert_allclose(pb.grad(lambda x: pb.log_softmax(x)[0])(np.array([1e4, 1e4])), [0.5, -0.5])


def test_gated_unit(agrees):
    agrees(pb.glu, X, expected=X[:4] * SIGMOID[4:])
    np.testing.assert_allclose(pb.glu(X), X[:4] * SIGMOID[4:])


def test_one_hot(agrees):
    labels = np.array([[2, 0], [1, 3]], np.uint8)
    expected = np.eye(3, dtype=np.float32)[np.minimum(labels, 2)] * (labels < 3)[..., None]
    agrees(lambda i: pb.one_hot(i, 3), labels, expected=expected.astype(np.float32))
    np.testing.assert_array_equal(pb.one_hot(labels, 3), expected)
    assert pb.one_hot(labels, 3, bool).dtype == bool
    with pytest.raises(DTypeError, match="labels are integers"):
        pb.one_hot(X, 3)


def test_the_namespace_has_them_too():
    for name in FORMULAS:
        assert getattr(pnp, name) is getattr(pb, name)
    assert trace(pnp.softmax, X).graph.outputs[0].shape == X.shape


@pytest.mark.parametrize("function", [pb.elu, pb.celu, lambda x: pb.elu(x, 0.5)])
def test_at_zero_the_slope_is_that_of_the_left(function):
    slope = float(pb.grad(function)(0.0))
    assert slope == pytest.approx(float(pb.grad(function)(-1e-9)), rel=1e-6)


def test_large_numbers_do_not_overflow_in_the_branch_not_taken():
    np.testing.assert_array_equal(pb.vmap(pb.grad(pb.celu))(np.array([1e4, 0.0, -1e4])), [1.0, 1.0, 0.0])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_gelu_has_the_sign_of_its_argument(dtype):
    x = np.array([0.0, -0.0, 1e-30, -1e-30, 50.0, -50.0, np.inf, -np.inf], dtype)
    for found in (pb.gelu(x), pb.jit(pb.gelu)(x)):
        np.testing.assert_array_equal(np.signbit(found), np.signbit(x))
