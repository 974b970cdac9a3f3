"""The error function's kin: complements, the normal distribution, inverses, and their derivatives.

Where the derivative of one of them, written with the function itself, would cancel or lose what a rounded exponent
has lost, it is an operator of its own, exact to the last bits as well.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pullback.graph import OPERATORS
from pullback.loops.functions import FUNCTIONS
from pullback.operators import special_tables as tables
from pullback.operators.elementwise import elementwise
from pullback.operators.steps import horner, in_doubles

__all__ = [
    "bell",
    "erfc",
    "erfcx",
    "erfcx_slope",
    "erfinv",
    "erfinv_slope",
    "half_bell",
    "log_ndtr",
    "log_ndtr_slope",
    "ndtr",
    "ndtri",
    "ndtri_slope",
    "normal_density",
]

ROOT_2, ROOT_PI = math.sqrt(2), math.sqrt(math.pi)


def _is_short(x: Any) -> bool:
    """Whether ``x``, an array or a value of the loop vocabulary, is of single precision."""
    return bool(getattr(x, "expression", x).dtype == np.float32)


def _scaled_erfc(m: Any, x: Any) -> Any:
    """``e^(x²) erfc x`` for ``x`` from 0 on."""
    t = 1.0 - 6.0 / (x + 3.0)
    return horner(tables.ERFCX_SHORT if _is_short(x) else tables.ERFCX, t) / (1.0 + 2.0 * x)


def _erfc(m: Any, x: Any) -> Any:
    size = m.absolute(x)
    tail = _scaled_erfc(m, size) * m.bell(x)
    return m.where(x < 0.0, 2.0 - tail, tail)


def _growing(m: Any, size: Any) -> Any:
    """``e^(x²)``, infinite beyond the largest number."""
    held = m.minimum(size, 64.0)
    short = m.floor(held * 16.0) * 0.0625
    return m.exp(short * short) * m.exp((held - short) * (held + short))


def _erfcx(m: Any, x: Any) -> Any:
    size = m.absolute(x)
    value = _scaled_erfc(m, size)
    return m.where(x < 0.0, 2.0 * _growing(m, size) - value, value)


def _erfcx_slope(m: Any, x: Any, order: int) -> Any:
    size = m.absolute(x)
    t = 1.0 - 6.0 / (size + 3.0)
    scale = 1.0 / (1.0 + 2.0 * size)
    if order == 1:
        falling = horner(tables.ERFCX_SLOPE, t) * scale * scale
        return m.where(x < 0.0, -4.0 * size * _growing(m, size) - falling, -falling)
    falling = horner(tables.ERFCX_CURVATURE, t) * scale * scale * scale
    return m.where(x < 0.0, (4.0 + 8.0 * size * size) * _growing(m, size) - falling, falling)


def _ndtr(m: Any, x: Any) -> Any:
    size = m.absolute(x)
    tail = 0.5 * _scaled_erfc(m, size * math.sqrt(0.5)) * m.half_bell(x)
    return m.where(x < 0.0, tail, 1.0 - tail)


def _log_ndtr(m: Any, x: Any) -> Any:
    size = m.absolute(x)
    scaled = 0.5 * _scaled_erfc(m, size * math.sqrt(0.5))
    return m.where(x < 0.0, m.log(scaled) - 0.5 * (x * x), m.log1p(-scaled * m.half_bell(x)))


def _log_ndtr_slope(m: Any, x: Any, order: int) -> Any:
    u = m.absolute(x) * math.sqrt(0.5)
    scaled, falling = _scaled_erfc(m, u), m.half_bell(x)
    near = math.sqrt(2 / math.pi) / scaled
    first = m.where(x < 0.0, near, falling / math.sqrt(2 * math.pi) / (1.0 - 0.5 * scaled * falling))
    if order == 1:
        return first
    return m.where(x < 0.0, _erfcx_slope(m, u, 1) / scaled * near * math.sqrt(0.5), -first * (x + first))


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


def _erfinv_slope(m: Any, x: Any) -> Any:
    """``√π/2 e^(y²)`` with ``y = erfinv x``, by ``erfc y = 1 - x``, which is exact where ``e^(y²)`` is not."""
    return 0.5 * ROOT_PI * _scaled_erfc(m, m.absolute(_erfinv(m, x))) / (1.0 - m.absolute(x))


def _ndtri_slope(m: Any, p: Any) -> Any:
    """``√(2π) e^(y²/2)`` with ``y = ndtri p``, likewise."""
    scaled = _scaled_erfc(m, m.absolute(_ndtri(m, p)) * math.sqrt(0.5))
    return math.sqrt(0.5 * math.pi) * scaled / m.minimum(p, 1.0 - p)


bell = elementwise("bell", FUNCTIONS["bell"], [lambda g, y, x: g * (-2 * x * y)], cost=18.0)
"""``e ** -(x * x)``, exact to the last bits far out as well."""

half_bell = elementwise("half_bell", FUNCTIONS["half_bell"], [lambda g, y, x: g * (-x * y)], cost=18.0)
"""``e ** -(x * x / 2)``, likewise."""


def normal_density(x: Any) -> Any:
    """The density of a normal number, ``e ** -(x * x / 2) / sqrt(2 * pi)``."""
    return 1 / math.sqrt(2 * math.pi) * half_bell(x)


erfc = in_doubles("erfc", _erfc, [lambda g, y, x: g * (-2 / ROOT_PI * bell(x))], [(-2.0, 2.0)], 75.0)
"""``1 - erf(x)``, exact to the last bits where it is small."""

erfcx = in_doubles("erfcx", _erfcx, [lambda g, y, x: g * erfcx_slope(x, order=1)], [(-2.0, 2.0)], 75.0)
"""``e ** (x * x) * erfc(x)``, which neither underflows nor overflows for positive ``x``."""


def _next_slope(g: Any, y: Any, x: Any) -> Any:
    """The second derivative, and the third by those before it, which cancel for large ``x``."""
    if y.attributes["order"] == 1:
        return g * erfcx_slope(x, order=2)
    return g * (2 * x * y + 4 * erfcx_slope(x, order=1))


erfcx_slope: Any = in_doubles(
    "erfcx_slope", _erfcx_slope, [_next_slope], [(-2.0, 2.0)], 80.0, [{"order": 1}, {"order": 2}]
)
"""The derivative of ``erfcx`` of ``order`` 1 or 2."""

ndtr = in_doubles("ndtr", _ndtr, [lambda g, y, x: g * normal_density(x)], [(-2.0, 2.0)], 75.0)
"""The probability that a normal number is below ``x``."""

log_ndtr = in_doubles(
    "log_ndtr", _log_ndtr, [lambda g, y, x: g * log_ndtr_slope(x, order=1)], [(-2.0, 2.0)], 100.0
)
"""The logarithm of ``ndtr``, also where that underflows."""


def _slope_after(g: Any, h: Any, x: Any) -> Any:
    """The second derivative, and the third by those before it, which cancel for very negative ``x``."""
    if h.attributes["order"] == 1:
        return g * log_ndtr_slope(x, order=2)
    first = log_ndtr_slope(x, order=1)
    return g * -(h * (x + first) + first * (1 + h))


log_ndtr_slope: Any = in_doubles(
    "log_ndtr_slope", _log_ndtr_slope, [_slope_after], [(-2.0, 2.0)], 130.0, [{"order": 1}, {"order": 2}]
)
"""The derivative of ``log_ndtr`` of ``order`` 1 or 2; the first is the density over ``ndtr``, Mills' ratio inverted."""

erfinv = in_doubles("erfinv", _erfinv, [lambda g, y, x: g * erfinv_slope(x)], [(-0.9, 0.9)], 150.0)
"""``y`` with ``erf(y) = x``; infinite at -1 and 1, NaN beyond."""

erfinv_slope: Any = in_doubles(
    "erfinv_slope",
    _erfinv_slope,
    [lambda g, y, x: g * (2 * OPERATORS["erfinv"](x) * y * y)],
    [(-0.9, 0.9)],
    220.0,
)
"""The derivative of ``erfinv``."""

ndtri = in_doubles("ndtri", _ndtri, [lambda g, y, p: g * ndtri_slope(p)], [(0.05, 0.95)], 180.0)
"""``y`` with ``ndtr(y) = p``; infinite at 0 and 1, NaN beyond."""

ndtri_slope: Any = in_doubles(
    "ndtri_slope",
    _ndtri_slope,
    [lambda g, y, p: g * (OPERATORS["ndtri"](p) * y * y)],
    [(0.05, 0.95)],
    250.0,
)
"""The derivative of ``ndtri``."""
