"""Circular functions and their inverses.

Arguments are reduced by multiples of π (of π/2 for ``tan``) held in three pieces; the fused steps make the
reduction exact to the last bit up to the stated limit. Beyond it the C library is asked, in lanes that need
it only. The coefficients were found as those of the exponentials were.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from pullback.compiler.codegen.vectormath.lanes import Arithmetic

__all__ = ["Trigonometric"]

# π as a sum of three numbers of the kind.
_PI = {
    "float": (3.14159274, -8.74227766e-08, -3.43024902e-15),
    "double": (3.141592653589793, 1.2246467991473532e-16, -2.9947698097183397e-33),
}
# Up to here the reduction has all its bits: beyond, multiples of the third piece would need a fourth.
_REDUCTION_LIMIT = {"float": 2.0**17, "double": 2.0**30}

# (sin(r)/r - 1) / z with z = r², |r| <= π/2, error relative to sin(r): 2^-25.8 and 2^-61.6. The
# single-precision ones were chosen among their neighbours by running the steps on every number near π/2: no
# result exceeds one, and sin π/2 is one.
_SIN = {
    "float": (-0.166666597, 0.00833306741, -0.000198097536, 2.60608749e-06),
    "double": (
        -0.16666666666666666,
        0.008333333333333207,
        -0.0001984126984121248,
        2.7557319211569486e-06,
        -2.5052106904416828e-08,
        1.605894100114582e-10,
        -7.643019304101934e-13,
        2.7214182926090792e-15,
    ),
}
# The same for |r| <= π/4: 2^-27.9 and 2^-57.9.
_SIN_SHORT = {
    "float": (-0.166666552, 0.00833218824, -0.000195180954),
    "double": (
        -0.1666666666666663,
        0.00833333333332184,
        -0.00019841269829358533,
        2.755731353851757e-06,
        -2.5050734389931774e-08,
        1.589543333355048e-10,
    ),
}
# (cos(r) - 1 + z/2) / z² for |r| <= π/4, error relative to cos(r): 2^-33.0 and 2^-63.9.
_COS_SHORT = {
    "float": (0.0416666456, -0.00138873095, 2.44323273e-05),
    "double": (
        0.041666666666666595,
        -0.0013888888888873325,
        2.480158728898371e-05,
        -2.755731421009371e-07,
        2.0875704274943617e-09,
        -1.1358683604744113e-11,
    ),
}
# (arctan(t)/t - 1) / z with z = t², 0 <= t <= 1, error relative to arctan(t): 2^-25.8 and 2^-55.0.
_ARCTAN = {
    "float": (
        -0.333331525,
        0.199937671,
        -0.14211008,
        0.106658407,
        -0.0755193233,
        0.0432092883,
        -0.0163667072,
        0.00292044482,
    ),
    "double": (
        -0.3333333333333186,
        0.19999999999755178,
        -0.14285714271341024,
        0.11111110678882377,
        -0.09090901237181935,
        0.07692212946733362,
        -0.06665860467467254,
        0.05877308266411681,
        -0.0523923477348895,
        0.04673954460432712,
        -0.04092648475356944,
        0.03406797864874817,
        -0.025827008712535866,
        0.01697824074084231,
        -0.009184707882273843,
        0.003856053236809484,
        -0.0011641000349672593,
        0.00022302865161475988,
        -2.025919126288762e-05,
    ),
}
# (arcsin(t)/t - 1) / z with z = t², 0 <= z <= 1/4, error relative to arcsin(t): 2^-27.6 and 2^-55.9.
_ARCSIN = {
    "float": (0.166667521, 0.0749530643, 0.0454697721, 0.0241807736, 0.0421664119),
    "double": (
        0.16666666666665403,
        0.07500000000338594,
        0.04464285682693384,
        0.030381959197465808,
        0.0223717565393982,
        0.017359728342356787,
        0.01388499559107645,
        0.012170828278168478,
        0.006520816621131587,
        0.01954828423818626,
        -0.01625630323669303,
        0.031934654801185826,
    ),
}


class Trigonometric(Arithmetic):
    """``sin``, ``cos``, ``tan`` and their inverses."""

    def sin(self, x: str) -> str:
        """``(-1)^n sin(r)`` with ``r = x - nπ``, so that one polynomial serves."""
        a = self.abs(x)
        total, n = self.round_in_place(a, 1.0 / math.pi, 0)
        sine = self._half_turn_sine(self._reduce(a, n, 1.0))
        usual = self.flip(sine, self._parity(total), self.sign_bit(x))
        return self._beyond_reduction(a, usual, lambda: self.outlined("sin", x))

    def cos(self, x: str) -> str:
        """``(-1)^n sin(r)`` with ``r = (n + ½)π - |x|``."""
        a = self.abs(x)
        large = self.constant(1.5 * 2.0**self.mantissa_bits)
        total = self.add(self.fma(a, self.constant(1.0 / math.pi), self.constant(-0.5)), large)
        half_turns = self.add(self.sub(total, large), self.constant(0.5))
        r = self._reduce(self.neg(a), half_turns, -1.0)
        usual = self.flip(self._half_turn_sine(r), self._parity(total))
        return self._beyond_reduction(a, usual, lambda: self.outlined("cos", x))

    def tan(self, x: str) -> str:
        """``sin(r)/cos(r)`` or ``-cos(r)/sin(r)`` with ``r = x - nπ/2``, as ``n`` is even or odd."""
        a = self.abs(x)
        total, n = self.round_in_place(a, 2.0 / math.pi, 0)
        r = self._reduce(a, n, 0.5)
        z = self.mul(r, r)
        sine = self._odd(r, _SIN_SHORT[self.kind])
        start = self.fma(z, self.constant(-0.5), self.constant(1.0))
        cosine = self.fma(self.mul(z, z), self.polynomial(z, _COS_SHORT[self.kind]), start)
        parity = self._parity(total)
        odd = self.function.value(f"icmp ne {self.int_type} {parity}, {self.integer(0)}")
        quotient = self.div(self.select(odd, cosine, sine), self.select(odd, sine, cosine))
        usual = self.flip(quotient, parity, self.sign_bit(x))
        return self._beyond_reduction(
            a, usual, lambda: self.div(self.outlined("sin", x), self.outlined("cos", x))
        )

    def _reduce(self, a: str, n: str, unit: float) -> str:
        """``a - n·unit·π`` by three fused steps."""
        for piece in _PI[self.kind]:
            a = self.fma(n, self.constant(-piece * unit), a)
        return a

    def _half_turn_sine(self, r: str) -> str:
        """``sin r`` for ``|r| <= π/2``, never beyond ±1."""
        sine = self._odd(r, _SIN[self.kind])
        return sine if self.kind == "float" else self.clamp(sine, -1.0, 1.0)

    def _odd(self, r: str, coefficients: tuple[float, ...]) -> str:
        """``r + r³·p(r²)``, the last step of ``p`` by itself so that its larger rounding happens once."""
        z = self.mul(r, r)
        square = self.mul(z, z) if len(coefficients) > 5 else None
        tail = self.polynomial(z, coefficients[1:], square)
        factor = self.fma(tail, z, self.constant(coefficients[0]))
        return self.fma(factor, self.mul(z, r), r)

    def _parity(self, total: str) -> str:
        """The lowest bit in the place of the sign."""
        return self.integers("shl", self.bits(total), self.integer(self.width - 1))

    def _beyond_reduction(self, a: str, usual: str, rare: Callable[[], str]) -> str:
        beyond = self.compare("ogt", a, self.constant(_REDUCTION_LIMIT[self.kind]))
        return self.rarely(beyond, usual, rare)

    def arcsin(self, x: str) -> str:
        """``t + t³·p(t²)`` up to one half, ``π/2 - 2·arcsin √((1-|x|)/2)`` above; NaN beyond one."""
        outer, angle = self._arcsin_angle(x)
        mirrored = self.fma(angle, self.constant(-2.0), self.constant(math.pi / 2))
        return self.copysign(self.select(outer, mirrored, angle), x)

    def arccos(self, x: str) -> str:
        """``π/2 - arcsin x`` up to one half, ``2·arcsin √((1-|x|)/2)`` or its supplement above."""
        outer, angle = self._arcsin_angle(x)
        below = self.negative(x)
        zero, half, whole = self.constant(0.0), self.constant(math.pi / 2), self.constant(math.pi)
        signed = self.copysign(angle, x)
        inner = self.sub(half, signed)
        return self.select(outer, self.add(self.select(below, whole, zero), self.add(signed, signed)), inner)

    def _arcsin_angle(self, x: str) -> tuple[str, str]:
        """A mask ``|x| >= ½`` and the arcsine of ``|x|`` below, of ``√((1-|x|)/2)`` above."""
        a, half = self.abs(x), self.constant(0.5)
        outer = self.compare("oge", a, half)
        z = self.select(outer, self.fma(a, self.constant(-0.5), half), self.mul(a, a))
        t = self.select(outer, self.sqrt(z), a)
        square = self.mul(z, z)
        return outer, self.fma(self.polynomial(z, _ARCSIN[self.kind], square), self.mul(z, t), t)

    def arctan(self, x: str) -> str:
        """``arctan t`` with ``t = |x|`` up to one, ``π/2 - arctan 1/|x|`` above, the sign of ``x``."""
        a, one = self.abs(x), self.constant(1.0)
        steep = self.compare("ogt", a, one)
        ratio = self.div(self.select(steep, one, a), self.select(steep, a, one))
        return self.copysign(self._angle_from_ratio(ratio, steep), x)

    def _angle_from_ratio(self, ratio: str, steep: str) -> str:
        """``arctan(ratio)``, or its complement to π/2 where the mask ``steep`` is set."""
        z = self.mul(ratio, ratio)
        angle = self.fma(self.polynomial(z, _ARCTAN[self.kind], self.mul(z, z)), self.mul(z, ratio), ratio)
        _, low, _ = _PI[self.kind]
        complement = self.sub(self.constant(math.pi / 2), self.sub(angle, self.constant(low / 2)))
        return self.select(steep, complement, angle)

    def arctan2(self, y: str, x: str) -> str:
        """The angle of the point ``(x, y)`` from -π to π, signed zeros and infinities as in C."""
        a, b, zero, one = self.abs(y), self.abs(x), self.constant(0.0), self.constant(1.0)
        steep = self.compare("ogt", a, b)
        small, large = self.select(steep, b, a), self.select(steep, a, b)
        # Equal sides give one, infinite ones too; the origin gives zero.
        equal = self.select(self.compare("oeq", large, zero), zero, one)
        ratio = self.select(self.compare("oeq", small, large), equal, self.div(small, large))
        angle = self._angle_from_ratio(ratio, steep)
        _, low, _ = _PI[self.kind]
        supplement = self.sub(self.constant(math.pi), self.sub(angle, self.constant(low)))
        return self.copysign(self.select(self.negative(x), supplement, angle), y)
