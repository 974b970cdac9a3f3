"""Derivatives of first and second order against multiple precision: errors in units in the last place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.operators.accuracy import DERIVATIVES
from pullback.scipy import special

Draw = Callable[[np.random.Generator, int], np.ndarray]
pi, exp, log, sqrt, erfc, psi = mpmath.pi, mpmath.exp, mpmath.log, mpmath.sqrt, mpmath.erfc, mpmath.psi


def spread(random: np.random.Generator, low: float, high: float, size: int) -> np.ndarray:
    """Magnitudes even in their logarithm."""
    return np.exp(random.uniform(np.log(low), np.log(high), size))


def positive(high: float, low: float = 1e-30) -> Draw:
    """Numbers of all magnitudes, ordinary ones, and ones near 1."""

    def draw(random: np.random.Generator, size: int) -> np.ndarray:
        near = 1 + random.choice([-1, 1], size) * spread(random, 1e-6, 0.5, size)
        ordinary = random.uniform(0, min(high, 50), size)
        return np.concatenate([spread(random, low, high, size), ordinary, near])

    return draw


def signed(high: float, low: float = 1e-30) -> Draw:
    def draw(random: np.random.Generator, size: int) -> np.ndarray:
        found = positive(high, low)(random, size)
        return found * random.choice([-1, 1], len(found))

    return draw


def share(random: np.random.Generator, size: int) -> np.ndarray:
    """Numbers between 0 and 1, many near the ends and the middle."""
    ends = spread(random, 1e-30, 1, size), 1 - spread(random, 1e-7, 1, size)
    return np.concatenate([*ends, 0.5 + random.choice([-1, 1], size) * spread(random, 1e-5, 0.5, size)])


def within(random: np.random.Generator, size: int) -> np.ndarray:
    found = share(random, size)
    return found * random.choice([-1, 1], len(found))


def beyond(random: np.random.Generator, size: int) -> np.ndarray:
    return 1 + positive(1e30, 1e-6)(random, size)


def above_minus_one(random: np.random.Generator, size: int) -> np.ndarray:
    return np.concatenate([positive(1e30)(random, size), -share(random, size)])


def between(low: float, high: float) -> Draw:
    return lambda random, size: random.uniform(low, high, 3 * size)


def density(x: Any) -> Any:
    return exp(-x * x / 2) / sqrt(2 * pi)


def normal(x: Any) -> Any:
    return erfc(-x / sqrt(mpmath.mpf(2))) / 2


def expit(x: Any) -> Any:
    return 1 / (1 + exp(-x))


def hazard(x: Any) -> Any:
    return density(x) / normal(x)


def erfcx_slope(x: Any) -> Any:
    return 2 * x * exp(x * x) * erfc(x) - 2 / sqrt(pi)


def quantile(p: Any) -> Any:
    """The root of ``normal(x) = p``, or of its complement where that is smaller."""
    size = mpmath.mpf(2) * min(p, 1 - p)
    guess = sqrt(-2 * log(size)) if size < 0.1 else sqrt(pi) / 2 * (1 - size)
    for _ in range(60):
        step = log(erfc(guess) / size) * erfc(guess) * sqrt(pi) / 2 * exp(guess * guess)
        guess += step
        if abs(step) < mpmath.mpf(10) ** -60:
            break
    return guess * sqrt(mpmath.mpf(2)) * (-1 if p < 0.5 else 1)


def bessel(n: int, x: Any) -> Any:
    return mpmath.besseli(n, x)


def inverse_slope(p: Any) -> Any:
    return 1 / density(quantile(p))


def log_ratio(x: Any) -> Any:
    return log(x / 2)


def beta(x: Any) -> Any:
    return mpmath.beta(x, 3)


def beta_slope(x: Any) -> Any:
    return psi(0, x) - psi(0, x + 3)


def beta_curvature(x: Any) -> Any:
    return psi(1, x) - psi(1, x + 3)


def rooted(x: Any) -> Any:
    return sqrt(1 - x * x)


def moment(n: int, x: Any) -> Any:
    """The integral of ``t ** n * exp(x * t)`` from 0 to 1."""
    value = mpmath.expm1(x) / x
    for k in range(1, n + 1):
        value = (exp(x) - k * value) / x
    return value


def rise(x: Any) -> Any:
    """The sum of ``1 / (x + k)`` for k of 0, 1 and 2."""
    return 1 / x + 1 / (x + 1) + 1 / (x + 2)


Exact = tuple[Callable[..., Any], Callable[[Any], Any], Callable[[Any], Any], Draw]
ONE = mpmath.mpf(1)
FUNCTIONS: dict[str, Exact] = {
    "exp": (np.exp, exp, exp, signed(80)),
    "expm1": (np.expm1, exp, exp, signed(80)),
    "log": (np.log, lambda x: 1 / x, lambda x: -1 / x**2, positive(1e15, 1e-15)),
    "log1p": (np.log1p, lambda x: 1 / (1 + x), lambda x: -1 / (1 + x) ** 2, above_minus_one),
    "sqrt": (
        np.sqrt,
        lambda x: 1 / sqrt(x) / 2,
        lambda x: -(x ** mpmath.mpf(-1.5)) / 4,
        positive(1e20, 1e-20),
    ),
    "sin": (np.sin, mpmath.cos, lambda x: -mpmath.sin(x), signed(1e4)),
    "tan": (
        np.tan,
        lambda x: 1 / mpmath.cos(x) ** 2,
        lambda x: 2 * mpmath.tan(x) / mpmath.cos(x) ** 2,
        signed(1e4),
    ),
    "arcsin": (np.arcsin, lambda x: 1 / rooted(x), lambda x: x / rooted(x) ** 3, within),
    "arccos": (np.arccos, lambda x: -1 / rooted(x), lambda x: -x / rooted(x) ** 3, within),
    "arctan": (np.arctan, lambda x: 1 / (1 + x * x), lambda x: -2 * x / (1 + x * x) ** 2, signed(1e9)),
    "tanh": (
        np.tanh,
        lambda x: 1 / mpmath.cosh(x) ** 2,
        lambda x: -2 * mpmath.tanh(x) / mpmath.cosh(x) ** 2,
        signed(40),
    ),
    "arcsinh": (np.arcsinh, lambda x: 1 / sqrt(1 + x * x), lambda x: -x / sqrt(1 + x * x) ** 3, signed(1e18)),
    "arccosh": (
        np.arccosh,
        lambda x: 1 / sqrt(x * x - 1),
        lambda x: -x / sqrt(x * x - 1) ** 3,
        beyond,
    ),
    "arctanh": (np.arctanh, lambda x: 1 / (1 - x * x), lambda x: 2 * x / (1 - x * x) ** 2, within),
    "erf": (
        special.erf,
        lambda x: 2 / sqrt(pi) * exp(-x * x),
        lambda x: -4 * x / sqrt(pi) * exp(-x * x),
        signed(20),
    ),
    "erfc": (
        special.erfc,
        lambda x: -2 / sqrt(pi) * exp(-x * x),
        lambda x: 4 * x / sqrt(pi) * exp(-x * x),
        signed(20),
    ),
    "erfcx": (
        special.erfcx,
        erfcx_slope,
        lambda x: 2 * exp(x * x) * erfc(x) + 2 * x * erfcx_slope(x),
        lambda random, size: np.concatenate(
            [random.uniform(-15, 40, 2 * size), spread(random, 1e-30, 1, size)]
        ),
    ),
    "erfinv": (
        special.erfinv,
        lambda x: inverse_slope((1 + x) / 2) / sqrt(8 * ONE),
        lambda x: quantile((1 + x) / 2) * inverse_slope((1 + x) / 2) ** 2 / sqrt(32 * ONE),
        within,
    ),
    "ndtr": (special.ndtr, density, lambda x: -x * density(x), signed(30)),
    "log_ndtr": (
        special.log_ndtr,
        hazard,
        lambda x: -hazard(x) * (x + hazard(x)),
        lambda random, size: np.concatenate(
            [random.uniform(-40, 30, 2 * size), -spread(random, 1, 1e4, size)]
        ),
    ),
    "ndtri": (special.ndtri, inverse_slope, lambda p: quantile(p) * inverse_slope(p) ** 2, share),
    "sigmoid": (
        pb.sigmoid,
        lambda x: expit(x) * expit(-x),
        lambda x: -expit(x) * expit(-x) * mpmath.tanh(x / 2),
        signed(80),
    ),
    "softplus": (pb.softplus, expit, lambda x: expit(x) * expit(-x), signed(80)),
    "logit": (special.logit, lambda p: 1 / (p * (1 - p)), lambda p: (2 * p - 1) / (p * (1 - p)) ** 2, share),
    "softsign": (
        pb.softsign,
        lambda x: 1 / (1 + abs(x)) ** 2,
        lambda x: -2 * mpmath.sign(x) / (1 + abs(x)) ** 3,
        signed(1e9),
    ),
    "gelu": (
        nn.gelu,
        lambda x: normal(x) + x * density(x),
        lambda x: (2 - x * x) * density(x),
        signed(30),
    ),
    "silu": (
        nn.silu,
        lambda x: expit(x) * (1 + x * expit(-x)),
        lambda x: expit(x) * expit(-x) * (2 - x * mpmath.tanh(x / 2)),
        signed(80),
    ),
    "gammaln": (special.gammaln, mpmath.digamma, lambda x: psi(1, x), positive(1e15, 1e-15)),
    "gamma": (
        special.gamma,
        lambda x: mpmath.gamma(x) * psi(0, x),
        lambda x: mpmath.gamma(x) * (psi(0, x) ** 2 + psi(1, x)),
        between(2, 30),
    ),
    "digamma": (special.digamma, lambda x: psi(1, x), lambda x: psi(2, x), positive(1e9, 1e-9)),
    "rgamma": (
        special.rgamma,
        lambda x: -mpmath.rgamma(x) * psi(0, x),
        lambda x: mpmath.rgamma(x) * (psi(0, x) ** 2 - psi(1, x)),
        between(4, 30),
    ),
    "exprel": (special.exprel, lambda x: moment(1, x), lambda x: moment(2, x), signed(70, 1e-9)),
    "kl_div": (lambda x: special.kl_div(x, 2.0), log_ratio, lambda x: 1 / x, positive(1e15, 1e-15)),
    "betaln": (
        lambda x: special.betaln(x, 3.0),
        lambda x: -rise(x),
        lambda x: 1 / x**2 + 1 / (x + 1) ** 2 + 1 / (x + 2) ** 2,
        positive(50, 1e-9),
    ),
    "beta": (
        lambda x: special.beta(x, 3.0),
        lambda x: -beta(x) * rise(x),
        lambda x: beta(x) * (rise(x) ** 2 + 1 / x**2 + 1 / (x + 1) ** 2 + 1 / (x + 2) ** 2),
        positive(50, 1e-9),
    ),
    "i0": (special.i0, lambda x: bessel(1, x), lambda x: (bessel(0, x) + bessel(2, x)) / 2, signed(60)),
    "i1": (
        special.i1,
        lambda x: (bessel(0, x) + bessel(2, x)) / 2,
        lambda x: (3 * bessel(1, x) + bessel(3, x)) / 4,
        signed(60),
    ),
}
DTYPES = [np.float32, np.float64]
BY_RESULT = {("sigmoid", 1), ("sigmoid", 2), ("tanh", 1), ("tanh", 2), ("softplus", 2), ("silu", 2)}
"""Derivatives that ``float32`` has from the result of the function; their errors are units of one."""


def reach(name: str, dtype: type, order: int, x: Any) -> Any:
    """A size in whose units errors are counted where the derivative is smaller."""
    if name == "gelu":  # two parts each, which cancel at a zero
        return abs(x * density(x)) if order == 1 else density(x)
    if name == "silu" and (dtype is np.float64 or order == 1):
        return (abs(x) if order == 1 else 2) * expit(x) * expit(-x)
    return 1 if dtype is np.float32 and (name, order) in BY_RESULT else 0


def units(value: float, exact: Any, least: Any, limits: Any) -> float:
    exponent = max(mpmath.frexp(max(abs(exact), least))[1] - 1, int(limits.minexp))
    return float(abs(value - exact) / mpmath.ldexp(1, exponent - limits.nmant))


def errors(name: str, dtype: type, order: int, compiled: bool, size: int) -> list[tuple[float, float]]:
    function, *derivatives, draw = FUNCTIONS[name]
    limits = np.finfo(dtype)
    points = draw(np.random.default_rng(4), size).astype(dtype)
    points = points[np.abs(points) < 1] if draw in (share, within) else points
    points = (
        points[points > -1] if draw is above_minus_one else points[points > 1] if draw is beyond else points
    )
    sought = pb.grad(lambda x: np.sum(function(x)))
    if order == 2:
        first = sought
        sought = pb.grad(lambda x: np.sum(first(x)))
    found = (pb.jit(sought) if compiled else sought)(points)
    assert found.dtype == dtype
    made = []
    with mpmath.workdps(90):
        for x, value in zip(points.tolist(), found.tolist()):
            exact = derivatives[order - 1](mpmath.mpf(x))
            if limits.tiny < abs(exact) < limits.max * 1e-3:
                made.append((units(value, exact, reach(name, dtype, order, mpmath.mpf(x)), limits), x))
    return made


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_derivatives_are_as_exact_as_stated(name: str, dtype: type, compiled: bool) -> None:
    bounds = DERIVATIVES[name]
    for order in (1, 2):
        bound = bounds[2 * DTYPES.index(dtype) + order - 1]
        error, x = max(errors(name, dtype, order, compiled, 12))
        assert error <= bound, (order, x)


def test_every_bound_has_a_test() -> None:
    assert set(FUNCTIONS) == set(DERIVATIVES)
