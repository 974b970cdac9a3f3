"""Special functions as polynomials and recurrences that are compiled in place.

All are computed in double precision, whatever the dtype, so a result of ``float32`` is rounded once.
``ACCURACY`` states the largest error of each in units of the last place, against multiple precision.

Source of recurrences, reflections and expansions: *NIST Digital Library of Mathematical Functions*, https://dlmf.nist.gov,
chapters 5, 7, 10 and 25.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from pullback.graph import OPERATORS, Node
from pullback.operators import special_tables as tables
from pullback.operators.elementwise import filled, where, zeros_like
from pullback.operators.steps import horner, in_doubles
from pullback.operators.transcendental import exp

__all__ = [
    "ACCURACY",
    "digamma",
    "erfc",
    "erfcx",
    "erfinv",
    "gamma",
    "gammaln",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "j0",
    "j1",
    "log_ndtr",
    "ndtr",
    "ndtri",
    "polygamma",
    "zeta",
]

ROOT_2, ROOT_PI = math.sqrt(2), math.sqrt(math.pi)


# -- the error function's kin


def _scaled_erfc(m: Any, x: Any) -> Any:
    """``e^(x²) erfc x`` for ``x`` from 0 on."""
    t = 1.0 - 6.0 / (x + 3.0)
    return horner(tables.ERFCX, t) / (1.0 + 2.0 * x)


def _gauss(m: Any, x: Any, factor: float) -> Any:
    """``e^(-factor x²)`` for ``x`` from 0 on: the square of a short part of ``x`` is exact, the rest is small."""
    held = m.minimum(x, 64.0)
    short = m.floor(held * 16.0) * 0.0625
    rest = (held - short) * (held + short)
    return m.exp(-factor * (short * short)) * m.exp(-factor * rest)


def _erfc(m: Any, x: Any) -> Any:
    size = m.absolute(x)
    tail = _scaled_erfc(m, size) * _gauss(m, size, 1.0)
    return m.where(x < 0.0, 2.0 - tail, tail)


def _erfcx(m: Any, x: Any) -> Any:
    size = m.absolute(x)
    value = _scaled_erfc(m, size)
    held = m.minimum(size, 64.0)
    short = m.floor(held * 16.0) * 0.0625
    whole = m.exp(short * short) * m.exp((held - short) * (held + short))
    return m.where(x < 0.0, 2.0 * whole - value, value)


def _ndtr(m: Any, x: Any) -> Any:
    size = m.absolute(x)
    tail = 0.5 * _scaled_erfc(m, size * math.sqrt(0.5)) * _gauss(m, size, 0.5)
    return m.where(x < 0.0, tail, 1.0 - tail)


def _log_ndtr(m: Any, x: Any) -> Any:
    size = m.absolute(x)
    scaled = 0.5 * _scaled_erfc(m, size * math.sqrt(0.5))
    return m.where(x < 0.0, m.log(scaled) - 0.5 * (x * x), m.log1p(-scaled * _gauss(m, size, 0.5)))


def _erfinv_quotient(m: Any, w: Any) -> Any:
    """``erfinv(x) / x`` for ``w = -log(1 - x²)``."""
    s = m.sqrt(w)
    found = horner(tables.ERFINV_CENTRE, w / 3.125 - 1.0)
    for table, low, high in (
        (tables.ERFINV_MIDDLE, 2.5, 4.0),
        (tables.ERFINV_TAIL, 4.0, 6.5),
        (tables.ERFINV_FAR, 6.5, 13.0),
        (tables.ERFINV_END, 13.0, 28.0),
    ):
        middle, half = (low + high) / 2, (high - low) / 2
        found = m.where(s > low, s * horner(table, (s - middle) / half), found)
    return found


def _erfinv(m: Any, x: Any) -> Any:
    end = m.absolute(x) == 1.0
    inside = m.where(end, 0.0, x)
    found = inside * _erfinv_quotient(m, -m.log((1.0 - inside) * (1.0 + inside)))
    return m.where(end, x * math.inf, found)


def _ndtri(m: Any, p: Any) -> Any:
    end = (p == 0.0) | (p == 1.0)
    inside = m.where(end, 0.5, p)
    # Of 4 p (1 - p) the logarithm in parts: the product of a subnormal number is rough.
    w = -(m.log(inside) + m.log1p(-inside) + math.log(4))
    centre = m.absolute(inside - 0.5) < 0.25
    apart = 2.0 * (inside - 0.5)
    w = m.where(centre, -m.log1p(-apart * apart), w)
    found = ROOT_2 * apart * _erfinv_quotient(m, m.maximum(w, 0.0))
    return m.where(end, (p - 0.5) * math.inf, found)


def _bell(x: Node) -> Any:
    """``e^(-x²)``."""
    return exp(-x * x)


erfc = in_doubles("erfc", _erfc, [lambda g, y, x: g * (-2 / ROOT_PI * _bell(x))], [(-2.0, 2.0)], 75.0)
"""``1 - erf(x)``, exact to the last bits where it is small."""

erfcx = in_doubles("erfcx", _erfcx, [lambda g, y, x: g * (2 * x * y - 2 / ROOT_PI)], [(-2.0, 2.0)], 75.0)
"""``e ** (x * x) * erfc(x)``, which neither underflows nor overflows for positive ``x``."""

ndtr = in_doubles(
    "ndtr", _ndtr, [lambda g, y, x: g * (exp(-0.5 * x * x) / math.sqrt(2 * math.pi))], [(-2.0, 2.0)], 75.0
)
"""The probability that a normal number is below ``x``."""

log_ndtr = in_doubles(
    "log_ndtr",
    _log_ndtr,
    [lambda g, y, x: g * (exp(-0.5 * x * x - y) / math.sqrt(2 * math.pi))],
    [(-2.0, 2.0)],
    100.0,
)
"""The logarithm of ``ndtr``, also where that underflows."""

erfinv = in_doubles("erfinv", _erfinv, [lambda g, y, x: g * (ROOT_PI / 2 * exp(y * y))], [(-0.9, 0.9)], 150.0)
"""``y`` with ``erf(y) = x``; infinite at -1 and 1, NaN beyond."""

ndtri = in_doubles(
    "ndtri",
    _ndtri,
    [lambda g, y, p: g * (math.sqrt(2 * math.pi) * exp(0.5 * y * y))],
    [(0.05, 0.95)],
    180.0,
)
"""``y`` with ``ndtr(y) = p``; infinite at 0 and 1, NaN beyond."""


# -- the gamma function's kin


def _bernoulli(count: int) -> list[Fraction]:
    """Bernoulli's numbers of even index, from the second on."""
    found = [Fraction(1)]
    for n in range(1, 2 * count + 1):
        found.append(-sum((math.comb(n + 1, k) * found[k] for k in range(n)), Fraction(0)) / (n + 1))
    return found[2::2]


_EVEN = _bernoulli(12)
_STIRLING = tuple(float(b / (2 * k * (2 * k - 1))) for k, b in enumerate(_EVEN[:9], 1))
_PSI = tuple(float(b / (2 * k)) for k, b in enumerate(_EVEN[:9], 1))
_ZETA = tuple(b / math.factorial(2 * k) for k, b in enumerate(_EVEN, 1))


def _sine_of_turns(m: Any, x: Any) -> tuple[Any, Any, Any]:
    """``sin(πx)`` and ``cos(πx)`` but for the sign of both, and the whole number next to ``x``."""
    whole = m.rint(x)
    rest = (x - whole) * math.pi
    return m.sin(rest), m.cos(rest), whole


def _reduced(m: Any, y: Any) -> tuple[Any, Any]:
    """``(p, d)`` with ``Γ(y) = p Γ(2 + d)`` and ``|d| ≤ 1/2``, for ``y`` from 0 to 8."""
    z, product = y, 1.0 + 0.0 * y
    for _ in range(6):
        more = z >= 2.5
        product = m.where(more, product * (z - 1.0), product)
        z = m.where(more, z - 1.0, z)
    product = m.where(y < 0.5, 1.0 / (y * (1.0 + y)), m.where(y < 1.5, 1.0 / y, product))
    return product, m.where(y < 0.5, y, m.where(y < 1.5, y - 1.0, z - 2.0))


def _log_gamma_of_small(m: Any, d: Any) -> Any:
    return d * horner(tables.GAMMALN, 2.0 * d)


def _stirling(m: Any, y: Any) -> Any:
    inverse = 1.0 / y
    return inverse * horner(_STIRLING, inverse * inverse)


def _gammaln(m: Any, x: Any) -> Any:
    y = m.absolute(x)
    large = y >= 8.0
    product, d = _reduced(m, m.where(large, 2.0, y))
    # The inverse of y is exact in its logarithm only.
    argument = m.where(large, y, m.where(y < 0.5, y * (1.0 + y), m.where(y < 1.5, y, product)))
    logarithm = m.log(argument)
    near = m.where(y < 1.5, -logarithm, logarithm) + _log_gamma_of_small(m, d)
    held = m.where(large, y, 8.0)
    far = (held - 0.5) * (logarithm - 1.0) + (0.5 * math.log(2 * math.pi) - 0.5) + _stirling(m, held)
    value = m.where(large, far, near)
    value = m.where(y == math.inf, math.inf, value)
    sine, _, whole = _sine_of_turns(m, y)
    turned = math.log(math.pi) - m.log(y * m.absolute(sine)) - value
    return m.where(x < 0.0, m.where(whole == y, math.inf, turned), value)


def _gamma(m: Any, x: Any) -> Any:
    y = m.absolute(x)
    large = y >= 8.0
    product, d = _reduced(m, m.where(large, 2.0, y))
    near = product * m.exp(_log_gamma_of_small(m, d))
    held = m.minimum(m.where(large, y, 8.0), 180.0)
    # The power in two factors, each of which is finite wherever the product is.
    half = m.power(held, 0.5 * held - 0.25)
    far = math.sqrt(2 * math.pi) * m.exp(_stirling(m, held)) * (half * m.exp(-held)) * half
    value = m.where(large, far, near)
    sine, _, whole = _sine_of_turns(m, y)
    odd = whole - 2.0 * m.floor(whole * 0.5)
    turned = -math.pi / (y * sine * value) * (1.0 - 2.0 * odd)
    negative = m.where(whole == y, math.nan, turned)
    return m.where(x == 0.0, 1.0 / x, m.where(x < 0.0, negative, m.where(y > 171.7, math.inf, value)))


def _digamma(m: Any, x: Any) -> Any:
    y = m.absolute(x)
    large = y >= 8.0
    inverse = 1.0 / m.where(large, y, 8.0)
    square = inverse * inverse
    far = m.log(m.where(large, y, 8.0)) - 0.5 * inverse - square * horner(_PSI, square)
    z = m.where(large, 1.5, m.where(y < 1.0, y + 1.0, y))
    total = m.where(y < 1.0, -1.0 / y, 0.0)
    for _ in range(6):
        more = z >= 2.0
        z = m.where(more, z - 1.0, z)
        total = m.where(more, total + 1.0 / z, total)
    root, rest = tables.DIGAMMA_ROOT
    near = total + ((z - root) - rest) * horner(tables.DIGAMMA, 2.0 * z - 3.0)
    value = m.where(large, far, near)
    sine, cosine, whole = _sine_of_turns(m, x)
    turned = value + 1.0 / y - math.pi * cosine / sine
    negative = m.where(whole == x, math.nan, turned)
    return m.where(x == 0.0, -1.0 / x, m.where(x < 0.0, negative, value))


def _power(x: Any, n: int) -> Any:
    """``x`` multiplied ``n`` times, by squaring."""
    found = None
    while n:
        n, odd = divmod(n, 2)
        if odd:
            found = x if found is None else found * x
        x = x * x if n else x
    return found


def _polygamma(m: Any, x: Any, order: int) -> Any:
    """Euler's and Maclaurin's sum of the powers of ``1 / (x + k)``."""
    turned = x < 0.0
    q = m.where(turned, 1.0 - x, x)
    steps = 10 + order
    total = 0.0 * q
    for k in range(steps):
        total = total + _power(1.0 / (q + float(k)), order + 1)
    w = q + float(steps)
    inverse = 1.0 / w
    square = inverse * inverse
    factor, coefficients = Fraction(1), []
    for k, b in enumerate(_ZETA[:11], 1):
        factor *= (order + 2 * k - 1) * (order + 2 * k - 2 if k > 1 else 1)
        coefficients.append(float(b * factor))
    tail = 1.0 / order + inverse * (0.5 + inverse * horner(coefficients, square))
    total = (total + _power(inverse, order) * tail) * float((-1) ** (order + 1) * math.factorial(order))
    cotangent = [0, 1]  # the derivatives of the cotangent as polynomials of it
    for _ in range(order):
        slope = [k * c for k, c in enumerate(cotangent)][1:]
        cotangent = [-(a + b) for a, b in zip([*slope, 0, 0], [0, 0, *slope])]
    sine, cosine, _ = _sine_of_turns(m, x)
    other = horner([float(c) for c in cotangent], cosine / sine) * math.pi ** (order + 1)
    return m.where(turned, float((-1) ** order) * total - other, total)


def _zeta(m: Any, s: Any, q: Any) -> Any:
    """Euler's and Maclaurin's sum."""
    total, w = m.power(q, -s), q
    for _ in range(9):
        w = w + 1.0
        total = total + m.power(w, -s)
    last = m.power(w, -s)
    total = total + last * w / (s - 1.0) - 0.5 * last
    factor = s * last / w
    for k, b in enumerate(_ZETA, 1):
        total = total + factor * float(b)
        factor = factor * (s + float(2 * k - 1)) * (s + float(2 * k)) / (w * w)
    total = m.where(q == 0.0, math.inf, m.where(q < 0.0, math.nan, total))
    return m.where(s > 1.0, total, m.where(s == 1.0, math.inf, math.nan))


gammaln = in_doubles("gammaln", _gammaln, [lambda g, y, x: g * digamma(x)], [(0.3, 3.0)], 110.0)
"""The logarithm of the gamma function's size; infinite at 0, -1, -2, …"""

gamma = in_doubles("gamma", _gamma, [lambda g, y, x: g * (y * digamma(x))], [(0.3, 3.0)], 130.0)
"""The gamma function, which at ``n + 1`` is ``n!``; NaN at -1, -2, …"""

digamma: Any = in_doubles(
    "digamma", _digamma, [lambda g, y, x: g * polygamma(x, order=1)], [(0.3, 3.0)], 110.0
)
"""The derivative of ``gammaln``; NaN at -1, -2, …"""

polygamma: Any = in_doubles(
    "polygamma",
    _polygamma,
    [lambda g, y, x: g * polygamma(x, order=y.attributes["order"] + 1)],
    [(0.8, 3.0)],
    130.0,
    [{"order": 1}, {"order": 2}, {"order": 3}],
)
"""The derivative of ``digamma`` of ``order`` 1, 2, …"""


zeta: Any = in_doubles(
    "zeta",
    _zeta,
    [lambda g, y, s, q: zeros_like(s), lambda g, y, s, q: g * (-s * zeta(s + 1.0, q))],
    [(1.5, 4.0), (0.8, 3.0)],
    400.0,
    [{}],
    differentiable=(1,),
)
"""Hurwitz' zeta function, the sum of ``(q + k) ** -s`` for ``k`` from 0 on; infinite for ``s`` 1, NaN below.

Its derivative by ``s`` is no function that is here: the ``s`` that it is given is ``fixed``.
"""


# -- Bessel's functions


def _scaled_i(m: Any, y: Any, near: Any, far: Any) -> Any:
    small = y <= 8.0
    held = m.where(small, 8.0, y)
    outside = horner(far, 16.0 / held - 1.0) / m.sqrt(held)
    return small, horner(near, m.minimum(y, 8.0) * 0.25 - 1.0), outside


def _i0e(m: Any, x: Any) -> Any:
    small, near, far = _scaled_i(m, m.absolute(x), tables.I0_NEAR, tables.I0_FAR)
    return m.where(small, near, far)


def _i1e(m: Any, x: Any) -> Any:
    y = m.absolute(x)
    small, near, far = _scaled_i(m, y, tables.I1_NEAR, tables.I1_FAR)
    value = m.where(small, y * near, far)
    return m.where(x < 0.0, -value, value)


def _i0(m: Any, x: Any) -> Any:
    half = m.exp(0.5 * m.absolute(x))
    return m.where(m.absolute(x) == math.inf, math.inf, half * _i0e(m, x) * half)


def _i1(m: Any, x: Any) -> Any:
    half = m.exp(0.5 * m.absolute(x))
    return m.where(m.absolute(x) == math.inf, x, half * _i1e(m, x) * half)


def _between_roots(x: Any, roots: Any) -> Any:
    """``(x² - a²) (x² - b²)`` for roots in two pieces."""
    product: Any = 1.0
    for high, low in roots:
        product = product * (((x - high) - low) * (x + high))
    return product


def _far_wave(m: Any, y: Any, p: Any, q: Any, cosine: Any, sine: Any) -> Any:
    inverse = 8.0 / y
    u = 2.0 * (inverse * inverse) - 1.0
    # The phase's root of one half goes into the factor.
    return m.sqrt(1.0 / (math.pi * y)) * (horner(p, u) * cosine - inverse * horner(q, u) * sine)


def _j0(m: Any, x: Any) -> Any:
    y = m.absolute(x)
    held = m.minimum(y, 8.0)
    near = _between_roots(held, tables.J0_ROOTS) * horner(tables.J0_NEAR, held * held * 0.03125 - 1.0)
    z = m.maximum(y, 8.0)
    sine, cosine = m.sin(z), m.cos(z)
    far = _far_wave(m, z, tables.J0_P, tables.J0_Q, cosine + sine, sine - cosine)
    return m.where(y == math.inf, 0.0, m.where(y <= 8.0, near, far))


def _j1(m: Any, x: Any) -> Any:
    y = m.absolute(x)
    held = m.minimum(y, 8.0)
    near = held * _between_roots(held, tables.J1_ROOTS) * horner(tables.J1_NEAR, held * held * 0.03125 - 1.0)
    z = m.maximum(y, 8.0)
    sine, cosine = m.sin(z), m.cos(z)
    far = _far_wave(m, z, tables.J1_P, tables.J1_Q, sine - cosine, -sine - cosine)
    value = m.where(y == math.inf, 0.0, m.where(y <= 8.0, near, far))
    return m.where(x < 0.0, -value, value)


def _per(y: Any, x: Any) -> Any:
    """``y / x`` for a function with the slope 1/2 at 0."""
    zero = OPERATORS["equal"](x, filled(0, x.dtype, x.shape))
    half, one = filled(0.5, x.dtype, x.shape), filled(1, x.dtype, x.shape)
    return where(zero, half, y / where(zero, one, x))


i0e: Any = in_doubles(
    "i0e", _i0e, [lambda g, y, x: g * (i1e(x) - OPERATORS["sign"](x) * y)], [(-3.0, 3.0)], 80.0
)
"""``e ** -|x|`` times the modified function of Bessel of order 0."""

i1e: Any = in_doubles(
    "i1e",
    _i1e,
    [lambda g, y, x: g * (i0e(x) - OPERATORS["sign"](x) * y - _per(y, x))],
    [(0.3, 3.0)],
    80.0,
)
"""``e ** -|x|`` times the modified function of Bessel of order 1."""

i0: Any = in_doubles("i0", _i0, [lambda g, y, x: g * i1(x)], [(-3.0, 3.0)], 95.0)
"""The modified function of Bessel of the first kind and order 0."""

i1: Any = in_doubles("i1", _i1, [lambda g, y, x: g * (i0(x) - _per(y, x))], [(-3.0, 3.0)], 95.0)
"""The modified function of Bessel of the first kind and order 1."""

j0: Any = in_doubles("j0", _j0, [lambda g, y, x: -g * j1(x)], [(-10.0, 10.0)], 100.0)
"""The function of Bessel of the first kind and order 0."""

j1: Any = in_doubles("j1", _j1, [lambda g, y, x: g * (j0(x) - _per(y, x))], [(-10.0, 10.0)], 100.0)
"""The function of Bessel of the first kind and order 1."""

ACCURACY = {
    "erfc": 6.0,
    "erfcx": 6.0,
    "ndtr": 6.0,
    "log_ndtr": 7.0,
    "erfinv": 3.5,
    "ndtri": 4.5,
    "gammaln": 6.0,
    "gamma": 6.0,
    "digamma": 4.0,
    "polygamma": 12.0,
    "zeta": 8.0,
    "i0e": 6.0,
    "i1e": 8.0,
    "i0": 6.0,
    "i1": 9.0,
    "j0": 16.0,
    "j1": 16.0,
}
"""The largest error in units in the last place of doubles; of ``float32`` it is just above one half.

Of ``gammaln`` and ``digamma`` that holds for positive numbers; next to a zero between poles the error is below
1e-13. Of ``j0`` and ``j1`` it holds up to 8, but for the third zero, beyond which the error is below 2e-16 √(8
/ x) times 4. ``zeta`` and ``polygamma`` were measured for positive ``q`` and orders up to 5.
"""
