"""Ratios of gamma functions: beta, binomials, rising factorials, and what their derivatives are made of.

Logarithms of gamma functions nearly cancel in them, and exponentials multiply what logarithms have lost. Here ratios
are products of gamma functions where these are finite, and else Stirling's expansions of which the large terms are
taken together before anything is rounded.

Sources: *NIST Digital Library of Mathematical Functions*, chapter 5; of the densities C. Loader, *Fast and accurate
computation of binomial probabilities*, 2000.
"""

from __future__ import annotations

import math
from typing import Any

from pullback.graph import OPERATORS
from pullback.operators.special import (
    PSI,
    digamma,
    digamma_steps,
    gamma_steps,
    polygamma,
    stirling,
)
from pullback.operators.steps import horner, in_doubles
from pullback.operators.transcendental import log

__all__ = [
    "beta",
    "betaln",
    "binom",
    "digamma_gap",
    "gamma_density",
    "kl_div",
    "log_ratio",
    "poch",
    "relative_excess",
    "rgamma",
]

_LARGEST = 170.0
"""Up to which gamma functions are finite."""

_HALF_LOG = 0.5 * math.log(2 * math.pi)
_ATANH = tuple(1 / (2 * k + 1) for k in range(1, 18))


# -- differences that would cancel


def _series(m: Any, r: Any) -> Any:
    """``atanh(r) / r - 1`` for ``r`` up to 1/3."""
    square = r * r
    return square * horner(_ATANH, square)


def _excess_of_log(m: Any, w: Any) -> Any:
    """``w - log(1 + w)`` for ``w`` from 0 to 1."""
    r = w / (2.0 + w)
    return r * (w - 2.0 * _series(m, r))


def _log_ratio(m: Any, x: Any, y: Any) -> Any:
    alike = (x < 2.0 * y) & (y < 2.0 * x)
    quotient = x / m.where(alike, x, y)
    plain = (quotient > 1e-300) & (quotient < 1e300)
    apart = m.where(plain, m.log(m.where(plain, quotient, 1.0)), m.log(x) - m.log(y))
    return m.where(alike, m.log1p(m.where(alike, x - y, 0.0) / y), apart)


def _kl_div(m: Any, x: Any, y: Any) -> Any:
    alike = (x < 2.0 * y) & (y < 2.0 * x)
    apart = m.where(alike, x - y, 0.0)
    r = apart / m.where(alike, x + y, 1.0)
    near = r * (apart + 2.0 * x * _series(m, r))
    return m.where(alike, near, x * (_log_ratio(m, x, y) - 1.0) + y)


log_ratio = in_doubles(
    "log_ratio", _log_ratio, [lambda g, z, x, y: g / x, lambda g, z, x, y: -g / y], [(0.3, 3.0)] * 2, 40.0
)
"""``log(x / y)`` of positive numbers, exact to the last bits where they are alike."""

relative_excess = in_doubles(
    "relative_excess",
    lambda m, x, y: (y - x) / y,
    [lambda g, z, x, y: -g / y, lambda g, z, x, y: g * (x / y / y)],
    [(0.3, 3.0)] * 2,
    8.0,
)
"""``(y - x) / y``, whose own derivative does not cancel."""

kl_div = in_doubles(
    "kl_div",
    _kl_div,
    [lambda g, z, x, y: g * log_ratio(x, y), lambda g, z, x, y: g * relative_excess(x, y)],
    [(0.3, 3.0)] * 2,
    90.0,
)
"""``x log(x / y) - x + y`` of positive numbers, exact to the last bits where they are alike."""


def _digamma_gap(m: Any, a: Any, b: Any) -> Any:
    low, high, total = a, a + b, 0.0 * a
    for _ in range(8):
        more = m.minimum(low, high) < 8.0
        total = m.where(more, total + b / low / high, total)
        low, high = m.where(more, low + 1.0, low), m.where(more, high + 1.0, high)
    s, t = 1.0 / (low * low), 1.0 / (high * high)
    polynomial = (0.0, *PSI)
    value, divided = polynomial[-1] + 0.0 * s, 0.0 * s  # a polynomial's difference over that of its arguments
    for coefficient in reversed(polynomial[:-1]):
        divided = divided * t + value
        value = value * s + coefficient
    far = 0.5 * b / low / high + b / low / high * (1.0 / low + 1.0 / high) * divided
    found = total + m.log1p(b / low) + far
    positive = (a > 0.0) & (a + b > 0.0)
    return m.where(positive, found, digamma_steps(m, a + b) - digamma_steps(m, a))


digamma_gap: Any = in_doubles(
    "digamma_gap",
    _digamma_gap,
    [
        lambda g, y, a, b: g * (polygamma(a + b, order=1) - polygamma(a, order=1)),
        lambda g, y, a, b: g * polygamma(a + b, order=1),
    ],
    [(0.3, 3.0)] * 2,
    400.0,
)
"""``digamma(a + b) - digamma(a)``, exact to the last bits for positive ``a`` and ``a + b``."""


# -- the beta function


def _short(x: Any) -> Any:
    """The upper half of the digits."""
    scaled = x * 134217728.0
    return (x + scaled) - scaled


def _power_of_quotient(m: Any, x: Any, c: Any, p: Any) -> Any:
    """``(x / c) ** p``: the quotient's upper half, and what is left as a small exponent."""
    q = _short(x / c)
    high = _short(c)
    rest = (x - q * high) - q * (c - high)  # products of halves are exact
    return m.power(q, p) * m.exp(p * m.log1p(rest / (q * c)))


def _small_beta(m: Any, high: Any, low: Any, total: Any, far: Any, of_low: Any) -> Any:
    """A product of gamma functions, of ``low`` the one that is given, where the numbers are not ``far`` out."""
    one = 0.0 * high + 1.0
    ratio = gamma_steps(m, m.where(far, one, high)) / gamma_steps(m, m.where(far, one, total))
    # What the sum has lost counts as often as the logarithm's slope there, roughly.
    positive = m.where(total > 0.0, total, one)
    lost = low - (total - high)
    return of_low * ratio * (1.0 - lost * (m.log(positive) - 0.5 / positive))


def _far_out(m: Any, a: Any, b: Any) -> tuple[Any, ...]:
    """The larger and the smaller and their sum, where that is far out, all three there, and exponents for them.

    There ``high`` is above 85. The first exponent is of ``(high / total) ** (high - 1/2) e ** low``, taken together.
    """
    high, low = m.maximum(a, b), m.minimum(a, b)
    total = high + low
    far = (total > _LARGEST) & (low > 0.0)
    x, y, c = m.where(far, high, 100.0), m.where(far, low, 100.0), m.where(far, total, 200.0)
    bent = x * _excess_of_log(m, y / x) + 0.5 * m.log1p(y / x)
    return high, low, total, far, x, y, c, bent, stirling(m, x) - stirling(m, c)


def _beta(m: Any, a: Any, b: Any) -> Any:
    high, low, total, far, x, y, c, bent, rest = _far_out(m, a, b)
    few = low < 8.0
    of_low = gamma_steps(m, m.where(far & (low >= 8.0), 1.0, low))
    z = m.where(few, 8.0, y)
    apart = y < x * (1.0 / 256.0)
    # What the sum has lost, as often as it is a factor.
    lost = m.where(far, low - (total - high), 0.0) / c
    unbalanced = of_low * m.exp(bent) * m.power(c, -m.where(few, y, 8.0)) * m.exp(rest - y * lost)
    together = m.exp(-z) * m.exp(m.where(apart, bent, 0.0))
    first = m.where(apart, together, _power_of_quotient(m, x, c, m.where(apart, 0.0, x - 0.5)))
    second = _power_of_quotient(m, z, c, z - 0.5) / m.sqrt(c)
    rest = rest + stirling(m, z) - m.where(apart, y, c - 0.5) * lost
    balanced = math.sqrt(2 * math.pi) * first * second * m.exp(rest)
    return m.where(far, m.where(few, unbalanced, balanced), _small_beta(m, high, low, total, far, of_low))


def _betaln(m: Any, a: Any, b: Any) -> Any:
    high, low, total, far, _, y, c, bent, rest = _far_out(m, a, b)
    few, tiny = low < 8.0, low < 0.5
    of_low = gamma_steps(m, m.where(tiny, 1.0 + low, m.where(far & (low >= 8.0), 1.0, low)))
    inverse = m.where(tiny, m.log(m.where(tiny, low, 1.0)), 0.0)
    near = m.log(_small_beta(m, high, low, total, far, of_low)) - inverse
    unbalanced = m.log(of_low) - inverse - y * m.log(c) + bent + rest
    z = m.where(few, 8.0, y)
    terms = (_HALF_LOG + stirling(m, z)) - z + (z - 0.5) * m.log(z / c) - 0.5 * m.log(c)
    return m.where(far, m.where(few, unbalanced, terms + bent + rest), near)


beta = in_doubles(
    "beta",
    _beta,
    [lambda g, y, a, b: -g * (y * digamma_gap(a, b)), lambda g, y, a, b: -g * (y * digamma_gap(b, a))],
    [(0.3, 3.0)] * 2,
    900.0,
)
"""``gamma(a) * gamma(b) / gamma(a + b)``; of large negative numbers NaN."""

betaln = in_doubles(
    "betaln",
    _betaln,
    [lambda g, y, a, b: -g * digamma_gap(a, b), lambda g, y, a, b: -g * digamma_gap(b, a)],
    [(0.3, 3.0)] * 2,
    700.0,
)
"""The logarithm of ``beta`` for positive numbers."""


def _one_more(m: Any, x: Any) -> tuple[Any, Any]:
    """``x + 1``, and what rounding takes from it."""
    more = x + 1.0
    return more, m.where(x > 1.0, 1.0 - (more - x), x - (more - 1.0))


def _binom(m: Any, n: Any, k: Any) -> Any:
    apart = n - k
    back = apart - n
    lost = (n - (apart - back)) - (k + back)
    rest, lost_of_rest = _one_more(m, apart)
    chosen, lost_of_chosen = _one_more(m, k)
    value = 1.0 / ((n + 1.0) * _beta(m, rest, chosen))
    slopes = (lost + lost_of_rest) * _digamma_gap(m, rest, chosen)
    return value * (1.0 + slopes + lost_of_chosen * _digamma_gap(m, chosen, rest))


binom = in_doubles(
    "binom",
    _binom,
    [
        lambda g, y, n, k: g * (y * digamma_gap(n - k + 1, k)),
        lambda g, y, n, k: g * (y * digamma_gap(k + 1, n - 2 * k)),
    ],
    [(2.3, 4.0), (0.3, 2.0)],
    1400.0,
)
"""``gamma(n + 1) / (gamma(k + 1) gamma(n - k + 1))`` for ``k`` above -1 and ``n`` above ``k - 1``."""


def _poch(m: Any, z: Any, n: Any) -> Any:
    """The ratio of the larger of ``z`` and ``z + n`` to the smaller one, or its inverse."""
    c = z + n
    back = c - z
    lost = (z - (c - back)) + (n - back)  # of the sum
    up = n >= 0.0
    high, low = m.maximum(z, c), m.minimum(z, c)
    far = (high > _LARGEST) & (low >= 8.0)
    one = 0.0 * z + 1.0
    near = gamma_steps(m, m.where(far, one, c)) / gamma_steps(m, m.where(far, one, z))
    x, y = m.where(far, high, 200.0), m.where(far, low, 100.0)
    b = m.where(far, m.absolute(n), 100.0)
    w = b / y
    apart = w < 1.0 / 256.0
    held = m.where(apart, w, 0.0)
    bent = m.exp(-y * _excess_of_log(m, held) - 0.5 * m.log1p(held))
    whole = _power_of_quotient(m, y, x, m.where(apart, 0.0, 0.5 - y)) * m.exp(-b)
    half = m.power(x, 0.5 * b)  # the whole may overflow
    ratio = half * m.where(apart, bent, whole) * m.exp(stirling(m, x) - stirling(m, y)) * half
    by_sum = m.where(
        up, m.where(apart, b, b + y - 0.5) / x, m.where(apart, 0.0, m.log(x / y) - (y - 0.5) / y)
    )
    ratio = ratio * (1.0 + lost * by_sum)
    slope = m.where(far | (lost == 0.0), 0.0, lost * digamma_steps(m, c))
    return m.where(far, m.where(up, ratio, 1.0 / ratio), near * (1.0 + slope))


poch = in_doubles(
    "poch",
    _poch,
    [
        lambda g, y, z, n: g * (y * digamma_gap(z, n)),
        lambda g, y, z, n: g * (y * OPERATORS["digamma"](z + n)),
    ],
    [(0.3, 3.0), (0.3, 3.0)],
    900.0,
)
"""``gamma(z + n) / gamma(z)``."""

rgamma = in_doubles(
    "rgamma",
    lambda m, x: 1.0 / gamma_steps(m, x),
    [lambda g, y, x: -g * (y * digamma(x))],
    [(0.3, 3.0)],
    140.0,
)
"""``1 / gamma(x)``, with its derivative for positive ``x``."""


# -- densities


def _gamma_density(m: Any, a: Any, x: Any) -> Any:
    inside = (a > 0.0) & (a < math.inf) & (x > 0.0) & (x < math.inf)
    z = m.where(inside, x, 1.0)
    # Of a large exponent the last bits are lost; below the shape the product is finite.
    beside = _kl_div(m, m.where(inside, a, 1.0), z) < 16.0
    large = inside & (a >= 8.0) & (beside | (a >= 130.0) | (x > a))
    held = m.where(inside, m.where(large, 1.0, a), 1.0)
    near = m.power(z, held - 1.0) * m.exp(-z) / gamma_steps(m, held)
    y = m.where(large, a, 8.0)
    far = m.exp(-_kl_div(m, y, z)) * m.exp(-stirling(m, y)) * m.sqrt(y * (0.5 / math.pi)) / z
    start = m.where(a < 1.0, math.inf, m.where(a == 1.0, 1.0, 0.0))
    edge = m.where((a > 0.0) & (x >= 0.0), m.where(x == 0.0, start, 0.0), math.nan)
    return m.where(inside, m.where(large, far, near), edge)


gamma_density = in_doubles(
    "gamma_density",
    _gamma_density,
    [lambda g, y, a, x: g * (y * (log(x) - digamma(a))), lambda g, y, a, x: g * (y * ((a - 1 - x) / x))],
    [(0.5, 3.0)] * 2,
    500.0,
)
"""The density of the gamma distribution, ``x ** (a - 1) * exp(-x) / gamma(a)``."""
