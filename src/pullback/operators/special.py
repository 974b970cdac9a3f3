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

from pullback.graph import OPERATORS
from pullback.operators import special_tables as tables
from pullback.operators.elementwise import zeros_like
from pullback.operators.steps import horner, in_doubles

__all__ = [
    "ACCURACY",
    "PSI",
    "bessel_gap",
    "bessel_share",
    "digamma",
    "digamma_steps",
    "exponential_share",
    "gamma",
    "gamma_steps",
    "gammaln",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "j0",
    "j1",
    "polygamma",
    "stirling",
    "zeta",
]

# -- the gamma function's kin


def _bernoulli(count: int) -> list[Fraction]:
    """Bernoulli's numbers of even index, from the second on."""
    found = [Fraction(1)]
    for n in range(1, 2 * count + 1):
        found.append(-sum((math.comb(n + 1, k) * found[k] for k in range(n)), Fraction(0)) / (n + 1))
    return found[2::2]


_EVEN = _bernoulli(12)
_STIRLING = tuple(float(b / (2 * k * (2 * k - 1))) for k, b in enumerate(_EVEN[:9], 1))
PSI = tuple(float(b / (2 * k)) for k, b in enumerate(_EVEN[:9], 1))
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


def stirling(m: Any, y: Any) -> Any:
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
    far = (held - 0.5) * (logarithm - 1.0) + (0.5 * math.log(2 * math.pi) - 0.5) + stirling(m, held)
    value = m.where(large, far, near)
    value = m.where(y == math.inf, math.inf, value)
    sine, _, whole = _sine_of_turns(m, y)
    turned = math.log(math.pi) - m.log(y * m.absolute(sine)) - value
    return m.where(x < 0.0, m.where(whole == y, math.inf, turned), value)


def gamma_steps(m: Any, x: Any) -> Any:
    y = m.absolute(x)
    large = y >= 8.0
    product, d = _reduced(m, m.where(large, 2.0, y))
    near = product * m.exp(_log_gamma_of_small(m, d))
    held = m.minimum(m.where(large, y, 8.0), 180.0)
    # The power in two factors, each of which is finite wherever the product is.
    half = m.power(held, 0.5 * held - 0.25)
    far = math.sqrt(2 * math.pi) * m.exp(stirling(m, held)) * (half * m.exp(-held)) * half
    value = m.where(large, far, near)
    sine, _, whole = _sine_of_turns(m, y)
    odd = whole - 2.0 * m.floor(whole * 0.5)
    turned = -math.pi / (y * sine * value) * (1.0 - 2.0 * odd)
    negative = m.where(whole == y, math.nan, turned)
    return m.where(x == 0.0, 1.0 / x, m.where(x < 0.0, negative, m.where(y > 171.7, math.inf, value)))


def digamma_steps(m: Any, x: Any) -> Any:
    y = m.absolute(x)
    large = y >= 8.0
    inverse = 1.0 / m.where(large, y, 8.0)
    square = inverse * inverse
    far = m.log(m.where(large, y, 8.0)) - 0.5 * inverse - square * horner(PSI, square)
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

gamma = in_doubles("gamma", gamma_steps, [lambda g, y, x: g * (y * digamma(x))], [(0.3, 3.0)], 130.0)
"""The gamma function, which at ``n + 1`` is ``n!``; NaN at -1, -2, …"""

digamma: Any = in_doubles(
    "digamma", digamma_steps, [lambda g, y, x: g * polygamma(x, order=1)], [(0.3, 3.0)], 110.0
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


def _share(m: Any, x: Any, order: int, kind: str) -> Any:
    """The power series near zero, in which nothing cancels, and the recurrence of the orders elsewhere."""
    y = m.absolute(x)
    near = y < order + 1.0
    square = m.where(near, y, 0.0) * m.where(near, y, 0.0) * (-0.25 if kind == "j" else 0.25)
    series = horner(
        [1 / (math.factorial(k) * math.factorial(order + k) * 2.0**order) for k in range(24)], square
    )
    if kind == "i0e":
        series = series * m.exp(-m.where(near, y, 0.0))
    held = m.where(near, 1.0, y)
    functions = {"i0": (_i0, _i1), "i0e": (_i0e, _i1e), "j": (_j0, _j1)}
    before, value = (function(m, held) for function in functions[kind])
    for k in range(1, order):
        step = 2.0 * k / held * value
        before, value = value, (step - before if kind == "j" else before - step)
    for _ in range(order):
        value = value / held
    return m.where(near, series, value)


def _share_slope(g: Any, y: Any, x: Any) -> Any:
    """``(I_n / x^n)' = I_(n+1) / x^n``, and ``(J_n / x^n)' = -J_(n+1) / x^n``."""
    order, kind = y.attributes["order"], y.attributes["kind"]
    slope = x * bessel_share(x, order=order + 1, kind=kind)
    if kind == "i0e":
        return g * (slope - OPERATORS["sign"](x) * y)
    return g * (-slope if kind == "j" else slope)


bessel_share: Any = in_doubles(
    "bessel_share",
    _share,
    [_share_slope],
    [(0.3, 5.0)],
    160.0,
    [
        {"order": order, "kind": kind}
        for order, kind in ((1, "i0"), (1, "i0e"), (1, "j"), (2, "i0"), (2, "j"))
    ],
)
"""A function of Bessel of the first kind over ``x ** order``: ``"j"``, or of the modified ones ``"i0"``, or that
times ``e ** -|x|``, ``"i0e"``.
"""


def _bessel_gap(m: Any, x: Any) -> Any:
    y = m.absolute(x)
    small, near, far = _scaled_i(m, y, tables.I_GAP_NEAR, tables.I_GAP_FAR)
    return m.where(small, near, far / m.where(small, 1.0, y))


bessel_gap: Any = in_doubles(
    "bessel_gap",
    _bessel_gap,
    [lambda g, y, x: g * (OPERATORS["sign"](x) * (bessel_share(x, order=1, kind="i0e") - 2 * y))],
    [(0.3, 3.0)],
    80.0,
)
"""``e ** -|x|`` times what the modified function of Bessel of order 0 is above that of order 1 of ``|x|``."""

i0e: Any = in_doubles(
    "i0e", _i0e, [lambda g, y, x: g * (-OPERATORS["sign"](x) * bessel_gap(x))], [(-3.0, 3.0)], 80.0
)
"""``e ** -|x|`` times the modified function of Bessel of order 0."""

i1e: Any = in_doubles(
    "i1e",
    _i1e,
    [lambda g, y, x: g * (bessel_gap(x) - bessel_share(x, order=1, kind="i0e"))],
    [(0.3, 3.0)],
    80.0,
)
"""``e ** -|x|`` times the modified function of Bessel of order 1."""

i0: Any = in_doubles("i0", _i0, [lambda g, y, x: g * i1(x)], [(-3.0, 3.0)], 95.0)
"""The modified function of Bessel of the first kind and order 0."""

i1: Any = in_doubles(
    "i1", _i1, [lambda g, y, x: g * (i0(x) - bessel_share(x, order=1, kind="i0"))], [(-3.0, 3.0)], 95.0
)
"""The modified function of Bessel of the first kind and order 1."""

j0: Any = in_doubles("j0", _j0, [lambda g, y, x: -g * j1(x)], [(-10.0, 10.0)], 100.0)
"""The function of Bessel of the first kind and order 0."""

j1: Any = in_doubles(
    "j1", _j1, [lambda g, y, x: g * (j0(x) - bessel_share(x, order=1, kind="j"))], [(-10.0, 10.0)], 100.0
)
"""The function of Bessel of the first kind and order 1."""


# -- exponentials


def _exponential_share(m: Any, x: Any, order: int) -> Any:
    """The power series near zero; elsewhere integration by parts."""
    near = m.absolute(x) <= 1.0
    short = m.where(near, x, 0.0)
    series = horner([1 / (math.factorial(k) * (order + k + 1)) for k in range(19)], short)
    held = m.where(near, 1.0, x)
    value = m.expm1(held) / held
    for k in range(1, order + 1):
        value = (m.exp(held) - k * value) / held
    return m.where(near, series, m.where(x == math.inf, math.inf, value))


exponential_share: Any = in_doubles(
    "exponential_share",
    _exponential_share,
    [lambda g, y, x: g * exponential_share(x, order=y.attributes["order"] + 1)],
    [(-2.0, 2.0)],
    60.0,
    [{"order": 0}, {"order": 1}, {"order": 2}],
)
"""The integral of ``t ** order * exp(x * t)`` for ``t`` from 0 to 1; of order 0 it is ``expm1(x) / x``."""

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
