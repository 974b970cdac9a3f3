"""Ends of the activations, exactness of references, and what a gradient keeps."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from pullback.graph import Type, Variable, constant, topological
from pullback.operators.transcendental import erf, exp, relu, sigmoid, softplus, tanh
from pullback.transforms.reverse import cotangents


def test_relu_at_zero_has_slope_zero(gradients) -> None:  # type: ignore[no-untyped-def]
    assert gradients(relu, np.array([-1.0, 0.0, 2.0]))[0].tolist() == [0, 0, 1]


def test_relu_passes_nan_on(compute) -> None:  # type: ignore[no-untyped-def]
    assert np.isnan(compute(relu, np.array([np.nan]))).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_activations_do_not_overflow(compute, gradients, dtype) -> None:  # type: ignore[no-untyped-def]
    x = np.array([-1000.0, 0.0, 1000.0], dtype)
    assert compute(sigmoid, x).tolist() == [0, 0.5, 1]
    assert compute(softplus, x).tolist() == [0, dtype(np.log(2)), 1000]
    assert gradients(sigmoid, x)[0].tolist() == [0, 0.25, 0]
    assert gradients(softplus, x)[0].tolist() == [0, 0.5, 1]


@pytest.mark.parametrize(
    ("operator", "truth"),
    [
        (erf, mpmath.erf),
        (sigmoid, lambda x: 1 / (1 + mpmath.exp(-x))),
        (softplus, lambda x: mpmath.log1p(mpmath.exp(x))),
    ],
)
def test_references_are_exact(operator, truth) -> None:  # type: ignore[no-untyped-def]
    x = np.linspace(-20, 20, 81)
    with mpmath.workdps(30):
        expected = np.array([float(truth(mpmath.mpf(value))) for value in x])
    np.testing.assert_allclose(operator.reference(x), expected, rtol=5e-16, atol=0)


@pytest.mark.parametrize("operator", [exp, tanh, sigmoid, relu])
def test_gradients_are_made_of_the_result(operator) -> None:  # type: ignore[no-untyped-def]
    x = Variable(Type(np.dtype(np.float32), (3,)))
    y = operator(x)
    (bar,) = cotangents([y], [constant(np.ones(3), np.float32)], [x])
    users_of_x = [node for node in topological([bar]) if any(child is x for child in node.inputs)]
    assert all(user is y for user in users_of_x)
