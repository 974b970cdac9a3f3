"""Special functions made of others, compiled, against multiple precision: errors in units in the last place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

import pullback as pb
from pullback.scipy import special


def spread(random: np.random.Generator, low: float, high: float, size: int) -> np.ndarray:
    """Magnitudes even in their logarithm."""
    return np.exp(random.uniform(np.log(low), np.log(high), size))


def positive(random: np.random.Generator, size: int) -> np.ndarray:
    return np.concatenate([random.uniform(0, 3, size), spread(random, 1e-8, 1e3, size)])


def signed(random: np.random.Generator, size: int) -> np.ndarray:
    return positive(random, size) * random.choice([-1, 1], 2 * size)


def share(random: np.random.Generator, size: int) -> np.ndarray:
    near = 1 - spread(random, 1e-6, 1, size)
    found = np.concatenate([random.uniform(0, 1, size), spread(random, 1e-9, 1, size), near])
    return found[(found > 0) & (np.float32(found) < 1)]


def side(random: np.random.Generator, size: int) -> np.ndarray:
    """Arguments of gamma functions, from near 0 on, whose ratios need not overflow."""
    parts = spread(random, 1e-3, 1e2, size), spread(random, 1, 500, size), random.uniform(0, 40, size)
    return np.concatenate(parts)


def whole(random: np.random.Generator, size: int) -> np.ndarray:
    """Larger than what ``side`` gives, mostly; far larger too."""
    return np.concatenate([spread(random, 1, 1e6, size), spread(random, 1, 800, 2 * size)])


def rows(random: np.random.Generator, size: int) -> np.ndarray:
    """Rows whose largest elements are alike, or far apart, or of which the sum of powers is about 1."""
    scale = random.choice([1, 3, 60], (size, 1))
    return random.uniform(-1, 1, (size, 6)) * scale - random.choice([0, 2], (size, 1))


def softplus(x: Any) -> Any:
    return mpmath.log1p(mpmath.exp(x))


EXACT: dict[str, tuple[Callable[..., Any], tuple[Callable[..., np.ndarray], ...]]] = {
    "beta": (mpmath.beta, (side, whole)),
    "betaln": (lambda a, b: mpmath.loggamma(a) + mpmath.loggamma(b) - mpmath.loggamma(a + b), (side, whole)),
    "binom": (mpmath.binomial, (whole, side)),
    "entr": (lambda x: -x * mpmath.log(x), (positive,)),
    "erfcinv": (lambda y: mpmath.erfinv(1 - y), (share,)),
    "expit": (lambda x: 1 / (1 + mpmath.exp(-x)), (signed,)),
    "exprel": (lambda x: mpmath.expm1(x) / x, (signed,)),
    "kl_div": (lambda x, y: x * mpmath.log(x / y) - x + y, (positive, positive)),
    "log_expit": (lambda x: -softplus(-x), (signed,)),
    "logit": (lambda x: mpmath.log(x / (1 - x)), (share,)),
    "poch": (mpmath.rf, (side, side)),
    "pseudo_huber": (lambda d, r: d * d * (mpmath.sqrt(1 + (r / d) ** 2) - 1), (positive, signed)),
    "rel_entr": (lambda x, y: x * mpmath.log(x / y), (positive, positive)),
    "rgamma": (mpmath.rgamma, (lambda random, size: random.uniform(-20, 30, size),)),
    "xlog1py": (lambda x, y: x * mpmath.log1p(y), (signed, positive)),
    "xlogy": (lambda x, y: x * mpmath.log(y), (signed, positive)),
}
OF_ROWS: dict[str, Callable[..., list[Any]]] = {
    "log_softmax": lambda row, total: [x - mpmath.log(total) for x in row],
    "logsumexp": lambda row, total: [mpmath.log(total)],
    "softmax": lambda row, total: [mpmath.exp(x) / total for x in row],
}
DTYPES = [np.float32, np.float64]


def units(value: float, exact: Any, reach: Any, limits: Any) -> float:
    """The error in units in the last place of what reaches farther, the result or what it is made of."""
    exponent = max(mpmath.frexp(max(abs(exact), reach))[1] - 1, int(limits.minexp))
    return float(abs(value - exact) / mpmath.ldexp(1, exponent - limits.nmant))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", sorted(EXACT))
def test_errors_are_as_stated(name: str, dtype: type) -> None:
    random, limits = np.random.default_rng(4), np.finfo(dtype)
    function, of = EXACT[name]
    operands = [each(random, 150).astype(dtype) for each in of]
    if name in ("rel_entr", "kl_div"):  # numbers that are alike, as well
        operands[1][::3] = operands[0][::3] * (1 + spread(random, 1e-6, 0.5, 100))
    found = pb.jit(getattr(special, name))(*operands)
    assert found.dtype == dtype
    with mpmath.workprec(250):
        for value, *given in zip(found.tolist(), *[x.tolist() for x in operands]):
            if name == "binom" and given[1] > given[0] + 0.5:  # where a gamma function has a pole near
                continue
            exact = function(*map(mpmath.mpf, given))
            if not limits.tiny < abs(exact) < limits.max * 1e-3:
                continue
            reach = 1 if name == "betaln" else 0
            bound = special.ACCURACY[name][DTYPES.index(dtype)]
            assert units(value, exact, reach, limits) <= bound, (given, value)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", sorted(OF_ROWS))
def test_errors_over_rows_are_as_stated(name: str, dtype: type) -> None:
    limits, given = np.finfo(dtype), rows(np.random.default_rng(4), 200).astype(dtype)
    found = pb.jit(lambda x: getattr(special, name)(x, axis=1))(given)
    bound = special.ACCURACY[name][DTYPES.index(dtype)]
    with mpmath.workprec(250):
        for values, row in zip(np.reshape(found, (len(given), -1)).tolist(), given.tolist()):
            total, most = mpmath.fsum(map(mpmath.exp, row)), max(map(abs, row))
            for place, (value, exact) in enumerate(zip(values, OF_ROWS[name](row, total))):
                times = 1 + max(row) - row[place] if name == "softmax" else 1
                reach = 0 if name == "softmax" else most
                assert units(value, exact, reach, limits) <= bound * times, (row, value)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_zeros_of_sinc_are_exact(dtype: type) -> None:
    sinc, limits = pb.jit(np.sinc), np.finfo(dtype)
    assert not sinc(np.concatenate([np.arange(1, 99), -np.arange(1.0, 9), [2.0**60]]).astype(dtype)).any()
    given = signed(np.random.default_rng(4), 300).astype(dtype)
    with mpmath.workprec(250):
        for x, value in zip(given.tolist(), sinc(given).tolist()):
            exact = mpmath.sinpi(x) / (mpmath.pi * mpmath.mpf(x))
            assert units(value, exact, 0, limits) <= 3, (x, value)


def test_every_bound_has_a_test() -> None:
    assert {*EXACT, *OF_ROWS} == set(special.ACCURACY)
