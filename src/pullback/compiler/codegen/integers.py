"""The vocabulary on integers and bools, for any number of lanes; what needs no mathematics."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from pullback.compiler.codegen.types import is_signed, literal, scalar_type, vector_of
from pullback.compiler.llvm.function import Function

__all__ = ["COMPARISONS", "Integers", "comparison", "integer_function"]

COMPARISONS = {
    "equal": ("oeq", "eq", "eq"),
    "not_equal": ("une", "ne", "ne"),
    "less": ("olt", "slt", "ult"),
    "less_equal": ("ole", "sle", "ule"),
    "greater": ("ogt", "sgt", "ugt"),
    "greater_equal": ("oge", "sge", "uge"),
}
"""The predicates of floats, signed and unsigned integers."""


def comparison(name: str, dtype: np.dtype) -> str:
    """The instruction that compares numbers of ``dtype``."""
    floats, signed, unsigned = COMPARISONS[name]
    return f"fcmp {floats}" if dtype.kind == "f" else f"icmp {signed if is_signed(dtype) else unsigned}"


_DIRECT = {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
    "logical_and": "and",
    "logical_or": "or",
    "logical_xor": "xor",
}
_ON_BOOLS = {"add": "or", "multiply": "and", "maximum": "or", "minimum": "and"}


def integer_function(f: Function, name: str, operands: Sequence[str], dtype: np.dtype, count: int) -> str:
    """Emit ``name`` on operands of ``dtype``; wraps around as NumPy's integers do, division by zero gives 0."""
    on, instruction = Integers(f, dtype, count), _DIRECT.get(name)
    if dtype.kind == "b":
        instruction = _ON_BOOLS.get(name, instruction)
    if instruction is not None:
        return on.do(instruction, *operands)
    emit: Callable[..., str] = vars(Integers)[name]
    return emit(on, *operands)


class Integers:
    """``count`` lanes of integers or bools of one ``dtype``: instructions, and the functions made of several.

    The functions have the names of the vocabulary.
    """

    def __init__(self, f: Function, dtype: np.dtype, count: int) -> None:
        self.f, self.dtype, self.count, self.signed = f, dtype, count, is_signed(dtype)
        self.kind, self.mask = vector_of(scalar_type(dtype), count), vector_of("i1", count)

    def number(self, value: int) -> str:
        """A constant in every lane."""
        return literal(self.dtype, value, self.count)

    def do(self, instruction: str, x: str, y: int | str) -> str:
        """An instruction on two operands, the second of which may be a constant."""
        return self.f.pure(f"{instruction} {self.kind} {x}, {self.number(y) if isinstance(y, int) else y}")

    def compare(self, predicate: str, x: str, y: int | str) -> str:
        """A mask by one of LLVM's predicates."""
        return self.do(f"icmp {predicate}", x, y)

    def select(self, mask: str, x: str, y: str) -> str:
        """``x`` where the mask is set, ``y`` elsewhere."""
        return self.f.pure(f"select {self.mask} {mask}, {self.kind} {x}, {self.kind} {y}")

    def negative(self, x: str) -> str:
        """``-x``"""
        return self.do("sub", self.number(0), x)

    def invert(self, x: str) -> str:
        """All bits turned over."""
        return self.do("xor", x, 1 if self.dtype.kind == "b" else -1)

    logical_not = invert

    def maximum(self, x: str, y: str) -> str:
        """The larger one."""
        return self.select(self.do(comparison("greater", self.dtype), x, y), x, y)

    def minimum(self, x: str, y: str) -> str:
        """The smaller one."""
        return self.select(self.do(comparison("less", self.dtype), x, y), x, y)

    def absolute(self, x: str) -> str:
        """``|x|``"""
        if not self.signed:
            return x
        below = self.compare("slt", x, 0)
        return self.select(below, self.negative(x), x)

    def sign(self, x: str) -> str:
        """-1, 0 or 1 as ``x`` is negative, zero or positive."""
        zero, one = self.number(0), self.number(1)
        if not self.signed:
            return self.select(self.compare("eq", x, zero), zero, one)
        above = self.select(self.compare("sgt", x, zero), one, zero)
        return self.select(self.compare("slt", x, zero), self.number(-1), above)

    def _divided(self, x: str, y: str) -> tuple[str | None, str, str]:
        """Where the divisor is zero, the quotient towards minus infinity, and the remainder with the divisor's sign.

        Of a positive divisor that is known, as those of most indices are, nothing is asked.
        """
        known = re.fullmatch(r"(?:splat \(\w+ )?(\d+)\)?", y)
        if known and int(known[1]):
            if not self.signed:
                return None, self.do("udiv", x, y), self.do("urem", x, y)
            quotient, remainder = self.do("sdiv", x, y), self.do("srem", x, y)
            return None, *self._floored(self.compare("slt", remainder, 0), quotient, remainder, y)
        by_zero = self.compare("eq", y, 0)
        divisor = self.select(by_zero, self.number(1), y)
        if not self.signed:
            return by_zero, self.do("udiv", x, divisor), self.do("urem", x, divisor)
        # The most negative integer divided by -1 traps; dividing by 1 and negating wraps as NumPy does.
        minus = self.compare("eq", divisor, -1)
        safe = self.select(minus, self.number(1), divisor)
        quotient, remainder = self.do("sdiv", x, safe), self.do("srem", x, safe)
        quotient = self.select(minus, self.negative(quotient), quotient)
        mixed = self.do("xor", remainder, divisor)
        inexact, opposite = self.compare("ne", remainder, 0), self.compare("slt", mixed, 0)
        step = self.f.pure(f"and {self.mask} {inexact}, {opposite}")
        return by_zero, *self._floored(step, quotient, remainder, divisor)

    def _floored(self, step: str, quotient: str, remainder: str, divisor: str) -> tuple[str, str]:
        """Quotient and remainder where the truncated quotient is one too large in the lanes of ``step``."""
        lowered, raised = self.do("sub", quotient, 1), self.do("add", remainder, divisor)
        return self.select(step, lowered, quotient), self.select(step, raised, remainder)

    def floor_divide(self, x: str, y: str) -> str:
        """``⌊x/y⌋``"""
        by_zero, quotient, _ = self._divided(x, y)
        return quotient if by_zero is None else self.select(by_zero, self.number(0), quotient)

    def remainder(self, x: str, y: str) -> str:
        """What whole multiples of ``y`` leave of ``x``, with the sign of ``y``."""
        by_zero, _, remainder = self._divided(x, y)
        return remainder if by_zero is None else self.select(by_zero, self.number(0), remainder)

    def divided_below(self, x: str, divisor: int, end: int) -> tuple[str, str]:
        """Quotient and remainder by a constant of a number that is below ``end``, 2³¹ or less, and not negative.

        With ``m = ⌊2^s / d⌋ + 1`` and ``e = m d - 2^s`` the quotient is ``⌊m x / 2^s⌋`` where ``e x < 2^s`` (Granlund
        and Montgomery, 1994). LLVM finds no such product for vectors of 64-bit integers, and divides lane by lane.
        """
        if self.count == 1 or divisor & (divisor - 1) == 0:
            return self.do("udiv", x, divisor), self.do("urem", x, divisor)
        shift = divisor.bit_length()
        while (divisor - (1 << shift) % divisor) * end > 1 << shift:
            shift += 1
        quotient = self.do("lshr", self.do("mul", x, (1 << shift) // divisor + 1), shift)
        return quotient, self.do("sub", x, self.do("mul", quotient, divisor))

    def left_shift(self, x: str, y: str) -> str:
        """``x · 2^y``"""
        return self._shifted("shl", x, y)

    def right_shift(self, x: str, y: str) -> str:
        """``⌊x / 2^y⌋``"""
        return self._shifted("ashr" if self.signed else "lshr", x, y)

    def _shifted(self, instruction: str, x: str, y: str) -> str:
        """Shifts by the width or more give 0, or the sign for a right shift of a signed integer."""
        bits = 8 * self.dtype.itemsize
        inside = self.compare("ult", y, bits)
        shifted = self.do(instruction, x, self.select(inside, y, self.number(bits - 1)))
        return shifted if instruction == "ashr" else self.select(inside, shifted, self.number(0))

    def power(self, x: str, y: str) -> str:
        """By repeated squaring, one turn for each bit of the exponent; a negative one gives 0 but for bases ±1."""
        carried = [(self.kind, each) for each in (self.number(1), x, y)]
        with self.f.loop("0", str(8 * self.dtype.itemsize), carried=carried) as loop:
            result, base, exponent = loop.values
            odd = self.compare("ne", self.do("and", exponent, 1), 0)
            product = self.do("mul", result, base)
            loop.carry(
                self.select(odd, product, result), self.do("mul", base, base), self.do("lshr", exponent, 1)
            )
        if not self.signed:
            return loop.results[0]
        negative = self.compare("slt", y, 0)
        unit = self.compare("eq", self.do("mul", x, x), 1)
        kept = self.select(unit, loop.results[0], self.number(0))
        return self.select(negative, kept, loop.results[0])
