"""Arithmetic on lanes: the instructions that every vector function is made of, for one lane or many.

A lane is one element of a vector register. The same emitter writes scalar code with one lane and vector code
with 2, 4, 8, 16 …, so a result does not depend on which of them computed it: each operation below is rounded
once, as IEEE 754 says, and none is reordered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from pullback.compiler.codegen.types import mangled, vector_of
from pullback.compiler.llvm.function import Function, float_literal

__all__ = ["Arithmetic"]

_FORMATS = {"float": (32, 23, 127), "double": (64, 52, 1023)}
"""Bits in all, of them those of the mantissa, and the bias of the exponent."""


class Arithmetic:
    """Instructions on ``count`` lanes of ``kind``, appended to a function.

    Operands and results are the strings that LLVM prints: ``%v3``, or a constant from :meth:`constant`.

    ``type``, ``int_type`` and ``mask_type`` are the LLVM types of a value, of its bits and of a comparison.

    >>> from pullback.compiler.llvm.function import Module
    >>> function = Module().function("twice", [("<4 x float>", "x")], result="<4 x float>")
    >>> lanes = Arithmetic(function, "float", 4)
    >>> lanes.add("%x", "%x"), lanes.type, lanes.int_type, lanes.mask_type
    ('%v1', '<4 x float>', '<4 x i32>', '<4 x i1>')
    """

    def __init__(self, function: Function, kind: str, count: int) -> None:
        self.function = function
        self.kind = kind
        self.count = count
        self.width, self.mantissa_bits, self.exponent_bias = _FORMATS[kind]
        self.type, self.int_type, self.mask_type = (
            vector_of(element, count) for element in (kind, f"i{self.width}", "i1")
        )
        self._suffix = mangled(kind, count)

    # Constants and memory

    def constant(self, value: float) -> str:
        """``value`` in every lane, rounded to the lanes' kind."""
        literal = float_literal(self.kind, value)
        return literal if self.count == 1 else f"splat ({self.kind} {literal})"

    def integer(self, value: int) -> str:
        """An integer of the lanes' width in every lane."""
        return str(value) if self.count == 1 else f"splat (i{self.width} {value})"

    def load(self, address: str) -> str:
        """The lanes that lie one after the other at ``address``, aligned as one element is."""
        return self.function.value(f"load {self.type}, ptr {address}, align {self.width // 8}")

    def store(self, value: str, address: str) -> None:
        """Put the lanes one after the other at ``address``."""
        self.function.do(f"store {self.type} {value}, ptr {address}, align {self.width // 8}")

    # Arithmetic, each rounded once

    def _operate(self, instruction: str, *operands: str) -> str:
        return self.function.value(f"{instruction} {self.type} {', '.join(operands)}")

    def intrinsic(self, name: str, *operands: str) -> str:
        """LLVM's own ``llvm.<name>`` on these lanes."""
        typed = [(self.type, operand) for operand in operands]
        return self.function.call(self.type, f"llvm.{name}.{self._suffix}", *typed)

    def add(self, a: str, b: str) -> str:
        """``a + b``"""
        return self._operate("fadd", a, b)

    def sub(self, a: str, b: str) -> str:
        """``a - b``"""
        return self._operate("fsub", a, b)

    def mul(self, a: str, b: str) -> str:
        """``a * b``"""
        return self._operate("fmul", a, b)

    def div(self, a: str, b: str) -> str:
        """``a / b``"""
        return self._operate("fdiv", a, b)

    def neg(self, a: str) -> str:
        """``a`` with its sign bit turned over."""
        return self._operate("fneg", a)

    def fma(self, a: str, b: str, c: str) -> str:
        """``a * b + c`` with a single rounding."""
        return self.intrinsic("fma", a, b, c)

    def abs(self, a: str) -> str:
        """``|a|``"""
        return self.intrinsic("fabs", a)

    def sqrt(self, a: str) -> str:
        """``√a``, correctly rounded; NaN below zero, ``-0.0`` at ``-0.0``."""
        return self.intrinsic("sqrt", a)

    def floor(self, a: str) -> str:
        """The largest integer not above ``a``."""
        return self.intrinsic("floor", a)

    def ceil(self, a: str) -> str:
        """The smallest integer not below ``a``."""
        return self.intrinsic("ceil", a)

    def trunc(self, a: str) -> str:
        """``a`` without its fraction."""
        return self.intrinsic("trunc", a)

    def rint(self, a: str) -> str:
        """The nearest integer, the even one of two that are equally near."""
        return self.intrinsic("roundeven", a)

    def copysign(self, magnitude: str, sign: str) -> str:
        """``|magnitude|`` with the sign bit of ``sign``."""
        return self.intrinsic("copysign", magnitude, sign)

    def square(self, a: str) -> str:
        """``a²``"""
        return self.mul(a, a)

    def reciprocal(self, a: str) -> str:
        """``1 / a``"""
        return self.div(self.constant(1.0), a)

    # Comparison and choice

    def compare(self, predicate: str, a: str, b: str) -> str:
        """A mask by one of LLVM's predicates: ``olt``, ``oeq``, ``uno`` (either is NaN), ``une`` …"""
        return self.function.value(f"fcmp {predicate} {self.type} {a}, {b}")

    def select(self, mask: str, a: str, b: str) -> str:
        """``a`` where the mask is set, ``b`` elsewhere."""
        return self.function.value(f"select {self.mask_type} {mask}, {self.type} {a}, {self.type} {b}")

    def combine(self, operation: str, a: str, b: str) -> str:
        """Two masks joined by ``and``, ``or`` or ``xor``."""
        return self.function.value(f"{operation} {self.mask_type} {a}, {b}")

    def any(self, mask: str) -> str:
        """One ``i1`` that is set if the mask is set in any lane."""
        if self.count == 1:
            return mask
        return self.function.call("i1", f"llvm.vector.reduce.or.v{self.count}i1", (self.mask_type, mask))

    def minimum(self, a: str, b: str) -> str:
        """The smaller one, -0 below +0; NaN if either is: IEEE 754-2019's ``minimum``."""
        return self._extremum("minimum", "lt", -0.0, a, b)

    def maximum(self, a: str, b: str) -> str:
        """The larger one, +0 above -0; NaN if either is: IEEE 754-2019's ``maximum``."""
        return self._extremum("maximum", "gt", 0.0, a, b)

    def _extremum(self, name: str, beats: str, winning_zero: float, a: str, b: str) -> str:
        # Beside a constant one instruction does, or two where that is the zero which wins against the other.
        if not self._may_be_nan(b):
            a, b = b, a
        if self._may_be_nan(a):
            return self.intrinsic(name, a, b)
        if a == self.constant(winning_zero):
            return self.select(self.compare(f"u{beats}", b, a), b, a)
        return self.select(self.compare(f"o{beats}", a, b), a, b)

    def _may_be_nan(self, a: str) -> bool:
        return a.startswith("%") or any(float_literal(self.kind, nan) in a for nan in (math.nan, -math.nan))

    def clamp(self, a: str, low: float, high: float) -> str:
        """``a`` held between two constants; NaN stays NaN."""
        return self.minimum(self.maximum(a, self.constant(low)), self.constant(high))

    def sign(self, a: str) -> str:
        """-1, 0 or 1 as ``a`` is negative, zero or positive; NaN at NaN."""
        zero = self.constant(0.0)
        unit = self.copysign(self.constant(1.0), a)
        nonzero = self.select(self.compare("one", a, zero), unit, zero)
        return self.select(self.compare("uno", a, a), a, nonzero)

    # Bits

    def bits(self, a: str) -> str:
        """The lanes' bits as integers."""
        return self.function.value(f"bitcast {self.type} {a} to {self.int_type}")

    def floating(self, a: str) -> str:
        """Integers taken as the bits of floating-point numbers."""
        return self.function.value(f"bitcast {self.int_type} {a} to {self.type}")

    def integers(self, operation: str, a: str, b: str) -> str:
        """An integer instruction (``add``, ``and``, ``shl``, ``lshr``, ``xor`` …) on bits."""
        return self.function.value(f"{operation} {self.int_type} {a}, {b}")

    def sign_bit(self, a: str) -> str:
        """Only the sign bit of ``a``, as an integer."""
        return self.integers("and", self.bits(a), self.integer(-(1 << (self.width - 1))))

    def negative(self, a: str) -> str:
        """A mask of the lanes whose sign bit is set, ``-0.0`` among them."""
        return self.function.value(f"icmp slt {self.int_type} {self.bits(a)}, {self.integer(0)}")

    def flip(self, a: str, *sign_bits: str) -> str:
        """``a`` with its sign turned over once for each of the given sign bits that is set."""
        result = self.bits(a)
        for bit in sign_bits:
            result = self.integers("xor", result, bit)
        return self.floating(result)

    # Building blocks of the functions

    def polynomial(self, x: str, coefficients: Sequence[float], square: str | None = None) -> str:
        """``c₀ + c₁x + c₂x² + …`` by fused steps.

        With ``square`` = ``x²`` at hand the even and the odd powers form two chains, half as long, at no more
        steps.
        """
        if square is not None and len(coefficients) > 3:
            even = self.polynomial(square, coefficients[0::2])
            odd = self.polynomial(square, coefficients[1::2])
            return self.fma(odd, x, even)
        result = self.constant(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            result = self.fma(result, x, self.constant(coefficient))
        return result

    def round_in_place(self, x: str, factor: float, offset: int) -> tuple[str, str]:
        """``n = rint(x · factor)`` by adding a number so large that no fraction bits are left.

        Returns the large sum and ``n``. The low bits of the sum, read as an integer, are those of ``n +
        offset``: an exponent or a parity without any conversion. Valid for ``|n|`` below 2²¹ (float) or 2⁵⁰
        (double).
        """
        large = self.constant(1.5 * 2.0**self.mantissa_bits + offset)
        total = self.fma(x, self.constant(factor), large)
        return total, self.sub(total, large)

    def power_of_two(self, biased: str) -> str:
        """``2^(k - bias)`` from integers whose low bits are ``k``; the bits above are shifted out."""
        return self.floating(self.integers("shl", biased, self.integer(self.mantissa_bits)))

    def rarely(self, mask: str, usual: str, rare: Callable[[], str]) -> str:
        """``usual``, but what ``rare`` emits in the lanes of the mask; jumped over if no lane needs it."""
        function = self.function
        before, inside, after = function.block, function.fresh("rare"), function.fresh("usual")
        function.do(f"br i1 {self.any(mask)}, label %{inside}, label %{after}")
        function.label(inside)
        mended = self.select(mask, rare(), usual)
        end = function.block
        function.branch(after)
        function.label(after)
        return function.value(f"phi {self.type} [{usual}, %{before}], [{mended}, %{end}]")

    def outlined(self, instruction: str, *operands: str) -> str:
        """``sin``, ``cos`` or ``frem`` of the C library lane by lane, in a cold function of the same module.

        Kept out of line because a call for each lane is long, and marked cold so that the way past it stays
        free.
        """
        module = self.function.module
        name = f"pullback_{instruction}_{self._suffix}"
        labels = "xy"[: len(operands)]
        if name not in module.functions:
            parameters = [(self.type, label) for label in labels]
            body = module.function(name, parameters, self.type, attributes="noinline cold nounwind")
            lanes = Arithmetic(body, self.kind, self.count)
            emit = lanes._operate if instruction == "frem" else lanes.intrinsic
            body.returns(emit(instruction, *(body[label] for label in labels)))
        return self.function.call(self.type, name, *[(self.type, operand) for operand in operands])
