"""Special functions, compiled, against multiple precision: errors in units of the last place."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

import pullback as pb
from pullback.graph import OPERATORS
from pullback.operators.special import ACCURACY

RANDOM = np.random.default_rng(12)


def between(low, high, count=60):
    return RANDOM.uniform(low, high, count)


def sizes(low, high, count=60):
    return np.exp(RANDOM.uniform(np.log(low), np.log(high), count))


def ndtr(x):
    return mpmath.erfc(-x / mpmath.sqrt(2)) / 2


def inverse(function, slope, start):
    """The solution of ``function(y) = 0`` by Newton's method."""
    y = start
    for _ in range(100):
        step = function(y) / slope(y)
        y -= step
        if abs(step) <= mpmath.mpf(10) ** -40 * abs(y):
            break
    return y


def erfinv(x):
    def excess(y):
        return (
            mpmath.erf(y) - x
            if abs(x) < 0.9
            else (1 - abs(x)) * mpmath.sign(x) - mpmath.sign(x) * mpmath.erfc(abs(y))
        )

    start = mpmath.mpf(float(OPERATORS["erfinv"].reference(np.float64(x))))
    return inverse(excess, lambda y: 2 / mpmath.sqrt(mpmath.pi) * mpmath.exp(-y * y), start)


def ndtri(p):
    start = mpmath.mpf(float(OPERATORS["ndtri"].reference(np.float64(p))))
    return inverse(
        lambda y: ndtr(y) - p if p < 0.5 else (1 - p) - ndtr(-y),
        lambda y: mpmath.exp(-y * y / 2) / mpmath.sqrt(2 * mpmath.pi),
        start,
    )


SAMPLES = {
    "erfc": (mpmath.erfc, np.r_[between(-5, 5), between(0, 26.5), sizes(1e-10, 1)]),
    "erfcx": (lambda x: mpmath.erfc(x) * mpmath.exp(x * x), np.r_[between(-26, 5), sizes(1e-10, 100)]),
    "ndtr": (ndtr, np.r_[between(-5, 5), between(-37, 0)]),
    "log_ndtr": (
        lambda x: mpmath.log(ndtr(x)) if x < 5 else mpmath.log1p(-ndtr(-x)),
        np.r_[between(-5, 5), between(-1000, 0), between(0, 37)],
    ),
    "erfinv": (erfinv, np.r_[between(-1, 1), 1 - sizes(1e-16, 1), sizes(1e-20, 1)]),
    "ndtri": (ndtri, np.r_[between(0, 1), sizes(1e-300, 1), between(0.45, 0.55)]),
    "gammaln": (
        mpmath.loggamma,
        np.r_[between(0, 12), sizes(1e-20, 1e6), between(0.9, 1.1), between(1.9, 2.1)],
    ),
    "gamma": (mpmath.gamma, np.r_[between(0, 12), between(8, 171), between(-20, 0), sizes(1e-20, 1)]),
    "digamma": (mpmath.digamma, np.r_[between(0, 12), sizes(1e-20, 1e6), between(1.4, 1.5)]),
    "i0e": (lambda x: mpmath.exp(-abs(x)) * mpmath.besseli(0, x), np.r_[between(-10, 10), sizes(1e-5, 1e4)]),
    "i1e": (lambda x: mpmath.exp(-abs(x)) * mpmath.besseli(1, x), np.r_[between(-10, 10), sizes(1e-5, 1e4)]),
    "i0": (lambda x: mpmath.besseli(0, x), np.r_[between(-10, 10), between(0, 700)]),
    "i1": (lambda x: mpmath.besseli(1, x), np.r_[between(-10, 10), between(0, 700)]),
    "j0": (lambda x: mpmath.besselj(0, x), np.r_[between(-8, 8), sizes(1e-5, 2)]),
    "j1": (lambda x: mpmath.besselj(1, x), np.r_[between(-8, 8), sizes(1e-5, 2)]),
}


def units(found, function, *points):
    """The largest error in units of the last place."""
    worst = 0.0
    with mpmath.workdps(50):
        for value, *point in zip(found, *points):
            exact = function(*(mpmath.mpf(float(x)) for x in point))
            if abs(exact) > 1e-300:
                unit = mpmath.mpf(float(np.spacing(np.abs(found.dtype.type(exact)))))
                worst = max(worst, float(abs(mpmath.mpf(float(value)) - exact) / unit))
    return worst


@pytest.mark.parametrize("name", SAMPLES)
def test_errors_are_as_stated(name):
    function, points = SAMPLES[name]
    compiled = pb.jit(OPERATORS[name])
    assert units(compiled(points), function, points) <= ACCURACY[name]
    points = points.astype(np.float32)
    most = {"gamma": 30, "i0": 80, "i1": 80, "erfcx": 8, "erfinv": 1, "ndtri": 1}.get(name, np.inf)
    points = points[(np.abs(points) < most) & (points != 0)]
    found = compiled(points)
    usual = np.abs(found) > 1e-36
    assert units(found[usual], function, points[usual]) <= 0.51


def test_errors_of_polygamma_and_zeta():
    points = np.r_[between(0, 3), sizes(1e-3, 1e4)]
    for order in (1, 2, 5):
        found = pb.jit(lambda x, order=order: OPERATORS["polygamma"](x, order=order))(points)
        assert (
            units(found, lambda x, order=order: mpmath.polygamma(order, x), points) <= ACCURACY["polygamma"]
        )
    s, q = np.r_[between(1.01, 5), between(5, 12)], np.r_[sizes(1e-2, 1e2), between(0.1, 20)]
    assert units(pb.jit(OPERATORS["zeta"])(s, q), mpmath.zeta, s, q) <= ACCURACY["zeta"]


def test_absolute_errors_between_poles_and_of_waves():
    negative = between(-20, 0, 200)
    for name, function in (
        ("gammaln", lambda x: mpmath.log(abs(mpmath.gamma(x)))),
        ("digamma", mpmath.digamma),
    ):
        found = pb.jit(lambda x, name=name: OPERATORS[name](x))(negative)
        wanted = np.array([float(function(mpmath.mpf(x))) for x in negative])
        np.testing.assert_allclose(found, wanted, rtol=1e-13, atol=1e-13)
    far = np.r_[between(8, 100), sizes(8, 1e5)]
    for order, name in enumerate(("j0", "j1")):
        found = pb.jit(lambda x, name=name: OPERATORS[name](x))(far)
        wanted = np.array([float(mpmath.besselj(order, mpmath.mpf(x))) for x in far])
        assert (np.abs(found - wanted) <= 8e-16 * np.sqrt(8 / far)).all()
