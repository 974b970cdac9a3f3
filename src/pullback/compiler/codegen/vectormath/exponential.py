"""Exponentials and logarithms.

Coefficients are minimax: Remez' exchange in 45-digit arithmetic for the relative error of the whole function
on the stated interval, then rounded to the lanes' kind (single precision: with a search over neighbouring
roundings). The error beside each table is that of the rounded polynomial in exact arithmetic; rounding of the
steps comes on top.
"""

from __future__ import annotations

import math

from pullback.compiler.codegen.vectormath.lanes import Arithmetic

__all__ = ["Exponential"]

# (e^r - 1 - r) / r² for |r| <= ln(2)/2, error relative to e^r - 1: 2^-26.1 and 2^-54.8.
_EXPM1 = {
    "float": (0.49999997, 0.166665435, 0.0416673422, 0.00836665556, 0.00138826773),
    "double": (
        0.5000000000000006,
        0.16666666666666588,
        0.0416666666665761,
        0.008333333333389963,
        0.001388888893179708,
        0.0001984126971831754,
        2.480150497680977e-05,
        2.7557407897437824e-06,
        2.7626162125558834e-07,
        2.5053763550737627e-08,
    ),
}
# ln 2 in two pieces of the lanes' kind.
_LN2 = {"float": (0.693147182, -1.90465421e-09), "double": (0.6931471805599453, 2.3190468138462996e-17)}
# log2(e), log10(e) and log10(2) in two pieces; the first piece of log10(2) is short, so that its products
# with an exponent are exact.
_LOG2_E = {"float": (1.44269502, 1.92596303e-08), "double": (1.4426950408889634, 2.0355273740931033e-17)}
_LOG10_E = {"float": (0.434294492, -1.010305e-08), "double": (0.4342944819032518, 1.098319650216765e-17)}
_LOG10_2 = {"float": (0.301025391, 4.60503907e-06), "double": (0.30102999566395283, 2.8363394551044964e-14)}

# float: (log(1 + f) - f) / f² for |f| <= 1/3, error 2^-25.1 relative to log(1 + f).
_LOG_FLOAT = (
    -0.499999374,
    0.333331972,
    -0.250078052,
    0.200111851,
    -0.16415967,
    0.139958203,
    -0.153885126,
    0.140262946,
)
# double: (2 artanh(s) / s - 2) / z with z = s², |s| <= 3 - 2√2, error 2^-59.5.
_LOG_DOUBLE = (
    0.6666666666666735,
    0.39999999999409347,
    0.2857142874369237,
    0.2222219842787511,
    0.18183572436599102,
    0.15313829501028559,
    0.14798290747391124,
)
# The smallest mantissa that stays with its exponent: 2/3 and √½ as bits.
_LEAST_MANTISSA = {"float": 0x3F2AAAAB, "double": 0x3FE6A09E667F3BCD}


class Exponential(Arithmetic):
    """``exp``, ``log`` and their relatives."""

    def exp(self, x: str) -> str:
        """``e^x = e^r · 2^n`` with ``x = n·ln 2 + r``.

        ``2^n`` is the product of two powers of two that are both ordinary numbers, so overflow and gradual
        underflow come from the last multiplication by itself.
        """
        fraction, first, second = self._exp_factors(self.clamp(x, *self._exp_range))
        return self.mul(self.fma(fraction, first, first), second)

    @property
    def _exp_range(self) -> tuple[float, float]:
        """Where ``e^x`` leaves zero, and where it has reached infinity."""
        return (-104.0, 89.0) if self.kind == "float" else (-746.0, 710.0)

    def _exp_factors(self, x: str) -> tuple[str, str, str]:
        """``(q, s, t)`` with ``e^x = (1 + q)·s·t``, ``s`` and ``t`` powers of two and ``|q| < 1/2``."""
        total, r = self._parted_by_ln2(x, 2 * self.exponent_bias)
        return self._expm1_reduced(r), *self._power_factors(total)

    def _power_factors(self, total: str) -> tuple[str, str]:
        """Two powers of two, product ``2^n``, from a sum whose low bits are ``n`` plus twice the bias."""
        bits = self.bits(total)
        half = self.integers("lshr", bits, self.integer(1))
        return self.power_of_two(half), self.power_of_two(self.integers("sub", bits, half))

    def bell(self, x: str) -> str:
        """``e^(-x²)``."""
        return self._falling(x, 1.0)

    def half_bell(self, x: str) -> str:
        """``e^(-x²/2)``."""
        return self._falling(x, 0.5)

    def _falling(self, x: str, factor: float) -> str:
        """``e^(-factor x²)`` for a power of two.

        What is lost where the square is rounded is added to what is left of it between multiples of ``ln 2``. The
        power of two is a factor ``2^64`` too large, so that it is an ordinary number wherever the result is not 0.
        """
        lowest, _ = self._exp_range
        held = self.minimum(self.abs(x), self.constant(math.sqrt(-lowest / factor)))
        scaled = self.mul(held, self.constant(-factor))
        exponent = self.mul(held, scaled)
        lost = self.fma(held, scaled, self.neg(exponent))
        total, n = self.round_in_place(exponent, 1.0 / math.log(2.0), self.exponent_bias + 64)
        high, low = _LN2[self.kind]
        r = self.add(self.fma(n, self.constant(-high), exponent), self.fma(n, self.constant(-low), lost))
        power = self.power_of_two(self.bits(total))
        return self.mul(self.fma(self._expm1_reduced(r), power, power), self.constant(2.0**-64))

    def decay(self, x: str) -> str:
        """``e^-|x|``."""
        excess, power = self._decay_factors(x)
        return self.mul(self.fma(excess, power, power), self.constant(2.0**-64))

    def rise(self, x: str) -> str:
        """``1 - e^-|x|``; beside ``decay`` of the same operand a few steps more."""
        excess, power = self._decay_factors(x)
        scale = self.mul(power, self.constant(2.0**-64))
        return self.fma(self.neg(excess), scale, self.sub(self.constant(1.0), scale))

    def _decay_factors(self, x: str) -> tuple[str, str]:
        """``(q, s)`` with ``e^-|x| = (1 + q)·s·2^-64``."""
        lowest, _ = self._exp_range
        exponent = self.maximum(self.neg(self.abs(x)), self.constant(lowest))
        total, r = self._parted_by_ln2(exponent, self.exponent_bias + 64)
        return self._expm1_reduced(r), self.power_of_two(self.bits(total))

    def expm1(self, x: str) -> str:
        """``e^x - 1`` without cancellation near zero."""
        quarter = self._scaled_expm1(x, 2)
        return self._identity_at_zero(x, self.mul(quarter, self.constant(4.0)))

    def _identity_at_zero(self, x: str, usual: str) -> str:
        """``x`` itself where it is so small, zeros among them, that the function is the identity."""
        return self.select(self.compare("olt", self.abs(x), self.constant(2.0**-60)), x, usual)

    def _scaled_expm1(self, x: str, shift: int) -> str:
        """``(e^x - 1) / 2^shift``, which with a shift of two is finite wherever ``sinh x`` is."""
        low, high = (-18.0, 89.5) if self.kind == "float" else (-38.0, 710.5)
        return self._expm1_within(self.clamp(x, low, high), shift)

    def _expm1_within(self, held: str, shift: int) -> str:
        """The same of what lies in that range."""
        total, r = self._parted_by_ln2(held, self.exponent_bias - shift)
        scale = self.power_of_two(self.bits(total))
        return self.fma(self._expm1_reduced(r), scale, self.sub(scale, self.constant(0.5**shift)))

    def _parted_by_ln2(self, x: str, offset: int) -> tuple[str, str]:
        """A sum whose low bits are ``n + offset``, and ``r`` with ``x = n·ln 2 + r``."""
        total, n = self.round_in_place(x, 1.0 / math.log(2.0), offset)
        high, low = _LN2[self.kind]
        return total, self.fma(n, self.constant(-low), self.fma(n, self.constant(-high), x))

    def _expm1_reduced(self, r: str) -> str:
        """``e^r - 1`` for ``|r| <= ln(2)/2``."""
        square = self.mul(r, r)
        return self.fma(self.polynomial(r, _EXPM1[self.kind], square), square, r)

    def exp2(self, x: str) -> str:
        """``2^x``, exact at integers."""
        low, high = (-151.0, 129.0) if self.kind == "float" else (-1076.0, 1025.0)
        held = self.clamp(x, low, high)
        total, n = self.round_in_place(held, 1.0, 2 * self.exponent_bias)
        r = self.mul(self.sub(held, n), self.constant(math.log(2.0)))
        first, second = self._power_factors(total)
        return self.mul(self.fma(self._expm1_reduced(r), first, first), second)

    def log(self, x: str) -> str:
        """The natural logarithm: ``x = 2^e (1 + f)``, ``e·ln 2 + log(1 + f)``."""
        f, exponent = self._split(x)
        natural = self.fma(exponent, self.constant(math.log(2.0)), self._log_reduced(f))
        return self._logarithm_edges(x, natural)

    def log2(self, x: str) -> str:
        """The logarithm to base 2, exact at powers of two."""
        f, exponent = self._split(x)
        return self._logarithm_edges(x, self._other_base(f, exponent, 1.0, 0.0, _LOG2_E[self.kind]))

    def log10(self, x: str) -> str:
        """The logarithm to base 10."""
        f, exponent = self._split(x)
        decimal = self._other_base(f, exponent, *_LOG10_2[self.kind], _LOG10_E[self.kind])
        return self._logarithm_edges(x, decimal)

    def _other_base(self, f: str, exponent: str, high: float, low: float, factor: tuple[float, float]) -> str:
        """``exponent·(high + low) + log(1 + f)·factor``, the factor in two pieces."""
        natural = self._log_reduced(f)
        rest = self.fma(natural, self.constant(factor[1]), self.mul(exponent, self.constant(low)))
        return self.fma(exponent, self.constant(high), self.fma(natural, self.constant(factor[0]), rest))

    def log1p(self, x: str) -> str:
        """``log(1 + x)``: the rounded sum only picks the exponent, so ``f`` keeps every bit of ``x``."""
        total = self.add(x, self.constant(1.0))
        f, exponent, whole = self._split_bits(total)
        one = self.integer(self.exponent_bias << self.mantissa_bits)
        inverse = self.floating(self.integers("sub", one, whole))
        precise = self.fma(x, inverse, self.sub(inverse, self.constant(1.0)))
        # For large x the one is lost in the sum anyway, and the inverse power of two could underflow.
        f = self.select(self.compare("ogt", x, self.constant(2.0**60)), f, precise)
        result = self.fma(exponent, self.constant(math.log(2.0)), self._log_reduced(f))
        return self._identity_at_zero(x, self._logarithm_edges(total, result))

    def _split(self, x: str) -> tuple[str, str]:
        """``(f, e)`` with ``x = 2^e (1 + f)`` for positive finite ``x``, subnormal numbers included."""
        smallest, lift = (2.0**-126, 25) if self.kind == "float" else (2.0**-1022, 54)
        tiny = self.compare("olt", x, self.constant(smallest))
        lifted = self.select(tiny, self.mul(x, self.constant(2.0**lift)), x)
        f, exponent, _ = self._split_bits(lifted)
        return f, self.select(tiny, self.sub(exponent, self.constant(lift)), exponent)

    def _split_bits(self, x: str) -> tuple[str, str, str]:
        """``(f, e, e's bits in the place of an exponent)`` for normal ``x``."""
        least, bits = self.integer(_LEAST_MANTISSA[self.kind]), self.bits(x)
        mask = self.integer(-(1 << self.mantissa_bits))
        whole = self.integers("and", self.integers("sub", bits, least), mask)
        f = self.sub(self.floating(self.integers("sub", bits, whole)), self.constant(1.0))
        return f, self._exponent(whole), whole

    def _exponent(self, whole: str) -> str:
        """The integer that stands in the exponent's place, as a number."""
        if self.kind == "float":
            shifted = self.integers("ashr", whole, self.integer(self.mantissa_bits))
            return self.function.value(f"sitofp {self.int_type} {shifted} to {self.type}")
        # Few processors convert vectors of i64: the exponent becomes the low bits of a large number instead.
        lifted = self.integers("add", whole, self.integer(self.exponent_bias << self.mantissa_bits))
        small = self.integers("lshr", lifted, self.integer(self.mantissa_bits))
        large = 2.0**self.mantissa_bits
        exponent_of_large = (self.exponent_bias + self.mantissa_bits) << self.mantissa_bits
        number = self.floating(self.integers("or", small, self.integer(exponent_of_large)))
        return self.sub(number, self.constant(large + self.exponent_bias))

    def _log_reduced(self, f: str) -> str:
        """``log(1 + f)`` for ``1 + f`` within a factor 4/3 (float) or √2 (double) of one."""
        square = self.mul(f, f)
        if self.kind == "float":
            return self.fma(self.polynomial(f, _LOG_FLOAT, square), square, f)
        # log(1 + f) = 2 artanh(s) with s = f / (2 + f), written so that f itself is the leading term.
        s = self.div(f, self.add(f, self.constant(2.0)))
        z = self.mul(s, s)
        tail = self.mul(z, self.polynomial(z, _LOG_DOUBLE, self.mul(z, z)))
        half = self.mul(square, self.constant(0.5))
        return self.sub(f, self.sub(half, self.mul(s, self.add(half, tail))))

    def _logarithm_edges(self, x: str, usual: str) -> str:
        """-inf at zero, NaN below it and at NaN, inf at inf, ``usual`` elsewhere."""
        zero, infinity = self.constant(0.0), self.constant(math.inf)
        at_zero = self.compare("oeq", x, zero)
        edge = self.select(at_zero, self.constant(-math.inf), self.constant(math.nan))
        defined = self.select(self.compare("oeq", x, infinity), x, usual)
        return self.select(self.compare("ogt", x, zero), defined, edge)
