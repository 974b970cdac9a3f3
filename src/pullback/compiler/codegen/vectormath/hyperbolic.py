"""Hyperbolic functions and their inverses, the logistic function, softplus and the error function.

The coefficients were found as those of the exponentials were; rational ones by repeated linear exchanges,
weighted with the last denominator.
"""

from __future__ import annotations

import math

from pullback.compiler.codegen.vectormath.exponential import Exponential

__all__ = ["Hyperbolic"]

# float: tanh(x) / x = P(x²) / Q(x²) for |x| <= 8.9: error 2^-25.6 in exact arithmetic. The rounding of the
# steps is the larger part, so the roundings of the coefficients were chosen by running the steps over the
# whole range.
_TANH_LIMIT = 8.9
_TANH_NUMERATOR = (1.0, 0.133904442, 0.00350669725, 2.07891244e-05, 1.35997782e-08)
_TANH_DENOMINATOR = (1.0, 0.467237622, 0.025919443, 0.000330367882, 7.87773956e-07)

# (log(1 + v) - v) / v² for 0 <= v <= 1, error relative to log(1 + v): 2^-30.1 and 2^-59.1.
_LOG1P = {
    "float": (
        -0.499999881,
        0.333327144,
        -0.249888644,
        0.198996231,
        -0.161351711,
        0.124795295,
        -0.0832389519,
        0.0421148241,
        -0.0136916712,
        0.00208454439,
    ),
    "double": (
        -0.499999999999999,
        0.33333333333313947,
        -0.24999999998631872,
        0.19999999950436606,
        -0.16666665578744574,
        0.1428569837661874,
        -0.12499835228381163,
        0.111098501296947,
        -0.09992646841175312,
        0.09057473689713039,
        -0.08212640171697397,
        0.07341413464860316,
        -0.06310936980852427,
        0.0503906230983968,
        -0.035877296679760265,
        0.021808359792431373,
        -0.010808019284625096,
        0.0041398812015400015,
        -0.0011396599028157942,
        0.00019945002826186577,
        -1.6599145030631535e-05,
    ),
}
# float: erf(x) / x = P(x²) / Q(x²) for |x| <= 3.93: error 2^-25.6, roundings chosen in the same way.
_ERF_LIMIT = 3.93
_ERF_NUMERATOR = (1.12837911, 0.190785617, 0.0527905747, 0.00377969374, 0.000284812792, 2.04201456e-06)
_ERF_DENOMINATOR = (1.0, 0.502412021, 0.114258304, 0.0149976155, 0.00116523635, 3.80046149e-05)
# double: -log(1 - erf(x)) / x for 0 <= x <= 5.93, error relative to erf(x): 2^-55.4.
_ERF_EXPONENT = (
    1.1283791670955126,
    0.6366197723675909,
    0.10277260330131524,
    -0.019128446993089444,
    -0.00020919485399436183,
    0.0016962076704490467,
    -0.0005901324332441188,
    2.5904511065831132e-05,
    6.442044225162325e-05,
    -2.9575609034873363e-05,
    3.169583221815636e-06,
    3.133066835666515e-06,
    -2.037285954545056e-06,
    5.707043292733222e-07,
    -1.1750193128632524e-08,
    -6.571411979585471e-08,
    3.457775138421331e-08,
    -1.0771315714932402e-08,
    2.360063277110798e-09,
    -3.759952489949447e-10,
    4.3008528092158304e-11,
    -3.3635595700902497e-12,
    1.6144593871794864e-13,
    -3.591202344404745e-15,
)
# From here on 1 + x² is x² in both kinds, and x² still finite.
_LARGE = 2.0**60


class Hyperbolic(Exponential):
    """``tanh``, ``sigmoid`` and what is built from the exponential in a few steps."""

    def tanh(self, x: str) -> str:
        """``(e^2x - 1) / (e^2x + 1)``; in single precision one rational function and no exponential."""
        if self.kind == "float":
            return self._odd_rational(x, _TANH_LIMIT, _TANH_NUMERATOR, _TANH_DENOMINATOR)
        excess = self._expm1_within(self.minimum(self.abs(self.add(x, x)), self.constant(44.0)), 0)
        return self.copysign(self.div(excess, self.add(excess, self.constant(2.0))), x)

    def _odd_rational(
        self, x: str, limit: float, numerator: tuple[float, ...], denominator: tuple[float, ...]
    ) -> str:
        """``x·P(x²)/Q(x²)``, ``x`` held to ``±limit`` where the function rounds to one, the result to ±1."""
        held = self.clamp(x, -limit, limit)
        z = self.mul(held, held)
        ratio = self.div(self.mul(held, self.polynomial(z, numerator)), self.polynomial(z, denominator))
        return self.clamp(ratio, -1.0, 1.0)

    def sigmoid(self, x: str) -> str:
        """The logistic function ``1 / (1 + e^-x)``.

        With ``e^-x = (1 + q)·s·t`` it is ``s⁻¹ / ((1 + q)·t + s⁻¹)``: nothing overflows on the way, and the
        far negative side ends in gradual underflow.
        """
        low, _ = self._exp_range
        fraction, first, second = self._exp_factors(self.neg(self.clamp(x, low, -low)))
        one_squared = self.integer(2 * self.exponent_bias << self.mantissa_bits)
        inverse = self.floating(self.integers("sub", one_squared, self.bits(first)))
        return self.div(inverse, self.add(self.fma(fraction, second, second), inverse))

    def softplus(self, x: str) -> str:
        """``log(1 + e^x) = max(x, 0) + log(1 + e^-|x|)``, which overflows nowhere."""
        small = self.exp(self.neg(self.abs(x)))
        square = self.mul(small, small)
        logarithm = self.fma(self.polynomial(small, _LOG1P[self.kind]), square, small)
        return self.add(self.maximum(x, self.constant(0.0)), logarithm)

    def relu(self, x: str) -> str:
        """``max(x, 0)``; NaN stays NaN."""
        return self.maximum(x, self.constant(0.0))

    def sinh(self, x: str) -> str:
        """``(E + E/(E + 1)) / 2`` with ``E = e^|x| - 1``."""
        quarter = self._scaled_expm1(self.abs(x), 2)
        half = self.add(quarter, quarter)
        rest = self.div(quarter, self.add(half, self.constant(0.5)))
        return self._identity_at_zero(x, self.copysign(self.add(half, rest), x))

    def cosh(self, x: str) -> str:
        """``e^|x|/2 + 1/(2e^|x|)``"""
        high = 90.0 if self.kind == "float" else 711.0
        fraction, first, second = self._exp_factors(self.minimum(self.abs(x), self.constant(high)))
        half = self.mul(self.mul(self.fma(fraction, first, first), self.constant(0.5)), second)
        return self.add(half, self.div(self.constant(0.25), half))

    def arcsinh(self, x: str) -> str:
        """``log(|x| + √(x² + 1))`` as ``log1p(|x| + x² / (1 + √(x² + 1)))`` with the sign of ``x``."""
        a, one = self.abs(x), self.constant(1.0)
        square = self.mul(a, a)
        root = self.sqrt(self.add(square, one))
        excess = self.add(a, self.div(square, self.add(root, one)))
        return self.copysign(self._log1p_or_double(a, excess), x)

    def arccosh(self, x: str) -> str:
        """``log(x + √(x² - 1))`` as ``log1p(t + √(2t + t²))`` with ``t = x - 1``; NaN below one."""
        one = self.constant(1.0)
        t = self.sub(x, one)
        root = self.sqrt(self.fma(t, t, self.add(t, t)))
        usual = self._log1p_or_double(x, self.add(t, root))
        return self.select(self.compare("ult", x, one), self.constant(math.nan), usual)

    def _log1p_or_double(self, a: str, excess: str) -> str:
        """``log1p(excess)``, but ``log(2a)`` where the square of ``a`` could overflow."""
        large = self.compare("ogt", a, self.constant(_LARGE))
        logarithm = self.log1p(self.select(large, a, excess))
        return self.select(large, self.add(logarithm, self.constant(math.log(2.0))), logarithm)

    def arctanh(self, x: str) -> str:
        """``½ log1p(2|x| / (1 - |x|))`` with the sign of ``x``; infinite at ±1, NaN beyond."""
        a = self.abs(x)
        ratio = self.div(self.add(a, a), self.sub(self.constant(1.0), a))
        return self.copysign(self.mul(self.log1p(ratio), self.constant(0.5)), x)

    def erf(self, x: str) -> str:
        """The error function ``2/√π ∫₀ˣ e^(-t²) dt``."""
        if self.kind == "float":
            return self._odd_rational(x, _ERF_LIMIT, _ERF_NUMERATOR, _ERF_DENOMINATOR)
        a = self.minimum(self.abs(x), self.constant(5.93))
        exponent = self.mul(a, self.polynomial(a, _ERF_EXPONENT, self.mul(a, a)))
        return self.copysign(self._scaled_expm1(self.neg(exponent), 0), x)
