"""Functions made of others, compiled, against multiple precision: errors in units in the last place."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

import pullback as pb
from pullback.numpy import activations
from pullback.numpy.composite import ACCURACY
from pullback.operators.accuracy import DERIVATIVES


def spread(random, low, high, size):
    """Both signs, magnitudes even in their logarithm."""
    return random.choice([-1, 1], size) * np.exp(random.uniform(np.log(low), np.log(high), size))


def logaddexp(base):
    def exact(x, y):
        return max(x, y) + mpmath.log1p(mpmath.power(base, -abs(x - y))) / mpmath.log(base)

    return exact


EXACT = {
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
    "hypot": lambda x, y: mpmath.sqrt(x * x + y * y),
    "logaddexp": logaddexp(mpmath.e),
    "logaddexp2": logaddexp(2),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", sorted(ACCURACY))
def test_errors_are_as_stated(name, dtype):
    random, size, limits = np.random.default_rng(4), 300, np.finfo(dtype)
    least, most = float(limits.smallest_subnormal), float(limits.max) / 2

    def operand():
        near, far = random.uniform(-3, 3, size), spread(random, least, most, size)
        subnormal, small = (
            spread(random, least, 9 * float(limits.tiny), size),
            spread(random, 1e-8, 1e3, size),
        )
        return np.concatenate([near, far, subnormal, small]).astype(dtype)

    operands = [operand() for _ in range(1 if name == "cbrt" else 2)]
    found = pb.jit(getattr(np, name))(*operands)
    assert found.dtype == dtype
    with mpmath.workprec(2400 if name.startswith("log") else 200):
        for value, *given in zip(found.tolist(), *[x.tolist() for x in operands]):
            exact = EXACT[name](*map(mpmath.mpf, given))
            reach = max(abs(exact), abs(max(given)) if name.startswith("log") else 0)
            exponent = max(mpmath.frexp(reach)[1] - 1, int(limits.minexp))
            error = abs(mpmath.mpf(value) - exact) / mpmath.ldexp(1, exponent - limits.nmant)
            assert error <= ACCURACY[name], (given, value)


def test_every_bound_has_a_test():
    assert set(EXACT) == set(ACCURACY)


def expit(x):
    return 1 / (1 + mpmath.exp(-x))


ACTIVATIONS = {
    "gelu": lambda x: x * mpmath.erfc(-x / mpmath.sqrt(mpmath.mpf(2))) / 2,
    "mish": lambda x: x * mpmath.tanh(mpmath.log1p(mpmath.exp(x))),
    "silu": lambda x: x * expit(x),
    "softsign": lambda x: x / (1 + abs(x)),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_errors_of_activations_are_as_stated(name, dtype, compiled):
    """Far out too, where they vanish."""
    random, limits = np.random.default_rng(4), np.finfo(dtype)
    given = np.concatenate([random.uniform(-40, 40, 300), spread(random, 1e-30, 1, 100)]).astype(dtype)
    function = getattr(pb.numpy, name)
    found = (pb.jit(function) if compiled else function)(given)
    with mpmath.workprec(2400):
        for x, value in zip(given.tolist(), found.tolist()):
            exact = ACTIVATIONS[name](mpmath.mpf(x))
            if abs(exact) > limits.tiny:
                unit = mpmath.ldexp(1, mpmath.frexp(abs(exact))[1] - 1 - limits.nmant)
                assert abs(value - exact) / unit <= activations.ACCURACY[name], (x, value)


@pytest.mark.parametrize("compiled", [False, True])
def test_gelu_of_float32_and_its_derivative_at_many_numbers(compiled):
    """Against ``float64``; where both parts of the derivative cancel in units of the larger one."""
    random = np.random.default_rng(9)
    given = np.concatenate([random.uniform(-13, 13, 100_000), random.uniform(-4, 4, 100_000)]).astype(
        np.float32
    )
    density = np.exp(-(given.astype(np.float64) ** 2) / 2) / np.sqrt(2 * np.pi)

    def slope(x):
        return pb.grad(lambda x: np.sum(pb.gelu(x)))(x)

    for function, parts, bound in (
        (pb.gelu, 0.0, activations.ACCURACY["gelu"]),
        (slope, np.abs(given * density), DERIVATIVES["gelu"][0]),
    ):
        found = (pb.jit(function) if compiled else function)(given)
        exact = function(given.astype(np.float64))
        size = np.maximum(np.maximum(np.abs(exact), parts), np.finfo(np.float32).tiny)
        assert found.dtype == np.float32
        assert (np.abs(found - exact) <= bound * 2.0 ** (np.floor(np.log2(size)) - 23)).all()


def test_every_bound_of_an_activation_has_a_test():
    assert set(ACTIVATIONS) == set(activations.ACCURACY)
