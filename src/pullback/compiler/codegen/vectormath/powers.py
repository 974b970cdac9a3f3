"""General powers and the remainders of division."""

from __future__ import annotations

import math

from pullback.compiler.codegen.vectormath.exponential import Exponential

__all__ = ["Powers"]

# ln 2 with a first piece so short that its products with exponents are exact.
_LN2_SHORT = {"float": (0.693145752, 1.42860677e-06), "double": (0.6931471805598903, 5.497923018708371e-14)}
# 2/3 in two pieces.
_TWO_THIRDS = {"float": (0.666666687, -1.98682155e-08), "double": (0.6666666666666666, 3.700743415417188e-17)}
# (2 artanh(s)/s - 2 - 2z/3) / z² with z = s²; error relative to the logarithm 2^-34.5 for |s| <= 1/5 (float)
# and 2^-66.0 for |s| <= 3 - 2√2 (double); minimax, found as the coefficients of the exponentials were.
_LOG_TAIL = {
    "float": (0.40000394, 0.285254598, 0.238751084),
    "double": (
        0.4000000000000226,
        0.2857142857009656,
        0.2222222252048218,
        0.18181784316488092,
        0.15386759737526798,
        0.13256760090269543,
        0.13196878089097072,
    ),
}


class Powers(Exponential):
    """``power``, ``remainder`` and ``floor_divide`` with NumPy's edge cases."""

    def power(self, x: str, y: str) -> str:
        """``x^y = e^(y·log|x|)`` with the logarithm in two pieces, so that large exponents lose no bits.

        A negative ``x`` takes integer ``y`` only; ``x^0 = 1^y = 1`` even for NaN, as in C and NumPy.
        """
        zero, one = self.constant(0.0), self.constant(1.0)
        a = self.abs(x)
        magnitude = self._exp_of_product(y, *self._logarithm_pieces(a))
        magnitude = self.select(self.compare("oeq", a, one), one, magnitude)

        half = self.mul(y, self.constant(0.5))
        whole = self.compare("oeq", y, self.trunc(y))
        odd = self.combine("and", whole, self.compare("one", half, self.trunc(half)))
        infinite = self.compare("oeq", a, self.constant(math.inf))
        signed = self.select(odd, self.copysign(magnitude, x), magnitude)
        below = self.compare("olt", x, zero)
        defined = self.combine("or", whole, infinite)
        undefined = self.select(defined, signed, self.constant(math.nan))
        result = self.select(below, undefined, signed)
        trivial = self.combine("or", self.compare("oeq", y, zero), self.compare("oeq", x, one))
        return self.select(trivial, one, result)

    def _logarithm_pieces(self, a: str) -> tuple[str, str]:
        """``log a`` for ``a >= 0`` as a sum of two numbers, to a few bits more than twice the last place."""
        f, exponent = self._split(a)
        # s = f / (2 + f) with its remainder.
        two = self.constant(2.0)
        denominator = self.add(f, two)
        inverse = self.reciprocal(denominator)
        s = self.mul(f, inverse)
        lost = self.sub(f, self.sub(denominator, two))
        remainder = self.fma(self.neg(s), lost, self.fma(self.neg(s), denominator, f))
        s_low = self.mul(remainder, inverse)
        # (2/3)·s³ in two pieces, then the rest of the series, small enough for one.
        z = self.mul(s, s)
        s2 = self.add(s, s)
        z_low = self.fma(s2, s_low, self.fma(s, s, self.neg(z)))
        cube = self.mul(z, s)
        cube_low = self.fma(z_low, s, self.fma(z, s_low, self.fma(z, s, self.neg(cube))))
        high, low = (self.constant(piece) for piece in _TWO_THIRDS[self.kind])
        term = self.mul(cube, high)
        term_low = self.fma(cube, low, self.fma(cube_low, high, self.fma(cube, high, self.neg(term))))
        tail = self.mul(self.mul(cube, z), self.polynomial(z, _LOG_TAIL[self.kind]))
        rest = self.add(self.add(tail, term_low), self.add(s_low, s_low))
        head, rest = self._sum_ordered(s2, term, rest)
        ln2_high, ln2_low = (self.constant(piece) for piece in _LN2_SHORT[self.kind])
        head, rest = self._sum_ordered(self.mul(exponent, ln2_high), head, self.fma(exponent, ln2_low, rest))
        total = self.add(head, rest)
        total_low = self.add(self.sub(head, total), rest)
        # Only the first piece has to know the edges; beside an infinite one the second must not be NaN.
        zero, infinity = self.constant(0.0), self.constant(math.inf)
        at_zero = self.compare("oeq", a, zero)
        finite = self.compare("olt", a, infinity)
        total = self.select(finite, self.select(at_zero, self.constant(-math.inf), total), a)
        return total, self.select(at_zero, zero, self.select(finite, total_low, zero))

    def _sum_ordered(self, a: str, b: str, rest: str) -> tuple[str, str]:
        """``a + b + rest`` as two numbers, ``a`` zero or not smaller than ``b``."""
        total = self.add(a, b)
        return total, self.add(self.add(self.sub(a, total), b), rest)

    def _exp_of_product(self, y: str, high: str, low: str) -> str:
        """``e^(y·(high + low))``"""
        product = self.mul(y, high)
        product_low = self.fma(y, low, self.fma(y, high, self.neg(product)))
        held = self.clamp(product, *self._exp_range)
        # Where the product was cut off its second piece means nothing, and may be NaN.
        kept = self.compare("oeq", held, product)
        product_low = self.select(kept, product_low, self.constant(0.0))
        total, rest = self._parted_by_ln2(held, 2 * self.exponent_bias)
        r = self.add(rest, product_low)
        first, second = self._power_factors(total)
        return self.mul(self.fma(self._expm1_reduced(r), first, first), second)

    def remainder(self, x: str, y: str) -> str:
        """What whole multiples of ``y`` leave of ``x``, with the sign of ``y``, as ``np.remainder``."""
        left, turned = self._fmod(x, y)
        signed = self.select(turned, self.add(left, y), left)
        zero = self.constant(0.0)
        return self.select(self.compare("oeq", left, zero), self.copysign(zero, y), signed)

    def floor_divide(self, x: str, y: str) -> str:
        """``⌊x/y⌋`` that agrees with :meth:`remainder`, as ``np.floor_divide``; ``x/y`` where ``y`` is 0."""
        zero, one = self.constant(0.0), self.constant(1.0)
        left, turned = self._fmod(x, y)
        multiple = self.div(self.sub(x, left), y)
        multiple = self.select(turned, self.sub(multiple, one), multiple)
        # What was divided is a multiple of y up to rounding: the nearest integer is the one meant.
        below = self.floor(multiple)
        far = self.compare("ogt", self.sub(multiple, below), self.constant(0.5))
        nearest = self.select(far, self.add(below, one), below)
        quotient = self.div(x, y)
        nearest = self.select(self.compare("oeq", multiple, zero), self.copysign(zero, quotient), nearest)
        return self.select(self.compare("oeq", y, zero), quotient, nearest)

    def _fmod(self, x: str, y: str) -> tuple[str, str]:
        """``x - y·trunc(x/y)``, exact, and a mask of where its sign is not that of ``y``."""
        quotient = self.trunc(self.div(x, y))
        left = self.fma(self.neg(quotient), y, x)
        # A quotient that was rounded up to the next integer took one multiple too many.
        left = self.select(self._signs_differ(left, x), self.add(left, self.copysign(y, x)), left)
        large = self.compare("uge", self.abs(quotient), self.constant(2.0 ** (self.mantissa_bits - 1)))
        infinite = self.compare("oeq", self.abs(y), self.constant(math.inf))
        left = self.rarely(
            self.combine("or", large, infinite),
            self.copysign(left, x),
            lambda: self.outlined("frem", x, y),
        )
        return left, self._signs_differ(left, y)

    def _signs_differ(self, a: str, b: str) -> str:
        """A mask of where ``a`` is not zero and the sign bits differ."""
        difference = self.floating(self.integers("xor", self.bits(a), self.bits(b)))
        return self.combine("and", self.negative(difference), self.compare("one", a, self.constant(0.0)))
