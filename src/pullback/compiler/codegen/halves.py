"""``float16`` to ``float`` and back, for any number of lanes: by the processor's conversions, or by integer arithmetic.

Where a processor has none, LLVM would call functions of a compiler's library, which no program here is linked with.
Both ways give the same bits.

Source: IEEE 754-2019, 3.4 and 4.3.1; for the rounding to odd Boldo & Melquiond, *When double rounding is odd*, 2005.
"""

from __future__ import annotations

import numpy as np

from pullback.compiler.codegen.integers import Integers
from pullback.compiler.codegen.types import literal, mangled, vector_of
from pullback.compiler.llvm.function import Function
from pullback.compiler.target import Processor

__all__ = ["half_bits", "half_value"]

_SIGN, _INFINITY = -0x80000000, 0x7F800000
_REBIAS = 112 << 23
"""By how much the exponents of a float and a half differ, at its place in a float."""
_LEAST, _BEYOND = 0x38800000, 0x477FF000
"""The bits of the least normal half, and of the first number that is nearer to infinity than to the largest half."""


class _Words(Integers):
    """Lanes of 32 bits, as numbers and as floats."""

    def __init__(self, f: Function, count: int) -> None:
        super().__init__(f, np.dtype(np.int32), count)
        self.float = vector_of("float", count)

    def bits(self, x: str) -> str:
        return self.f.pure(f"bitcast {self.float} {x} to {self.kind}")

    def value(self, bits: str) -> str:
        return self.f.pure(f"bitcast {self.kind} {bits} to {self.float}")


def half_bits(f: Function, x: str, wide: bool, count: int, processor: Processor) -> str:
    """The bits, as ``i16``, of the ``float16`` nearest to a float, or with ``wide`` to a double; ties to even."""
    x = _to_odd(f, x, count) if wide else x
    short = vector_of("i16", count)
    if processor.converts_halves:
        half = vector_of("half", count)
        near = f.pure(f"fptrunc {vector_of('float', count)} {x} to {half}")
        return f.pure(f"bitcast {half} {near} to {short}")
    on = _Words(f, count)
    bits = on.bits(x)
    size = on.do("and", bits, 0x7FFFFFFF)
    sign = on.do("lshr", on.do("and", bits, _SIGN), 16)
    odd = on.do("and", on.do("lshr", size, 13), 1)
    normal = on.do("lshr", on.do("add", on.do("add", size, 0xFFF - _REBIAS), odd), 13)
    # Added to one half, a number below the least normal one is rounded to the last place that halves have there.
    raised = f.pure(f"fadd {on.float} {on.value(size)}, {literal(np.dtype(np.float32), 0.5, count)}")
    small = on.do("sub", on.bits(raised), 0x3F000000)
    nan = on.do("or", on.do("and", on.do("lshr", size, 13), 0x3FF), 0x7E00)
    found = on.select(on.compare("ult", size, _LEAST), small, normal)
    found = on.select(on.compare("uge", size, _BEYOND), on.number(0x7C00), found)
    found = on.select(on.compare("ugt", size, _INFINITY), nan, found)
    return f.pure(f"trunc {on.kind} {on.do('or', found, sign)} to {short}")


def half_value(f: Function, bits: str, count: int, processor: Processor) -> str:
    """The ``float16`` that has these bits, an ``i16``, as a float."""
    short, on = vector_of("i16", count), _Words(f, count)
    if processor.converts_halves:
        half = vector_of("half", count)
        return f.pure(f"fpext {half} {f.pure(f'bitcast {short} {bits} to {half}')} to {on.float}")
    word = f.pure(f"zext {short} {bits} to {on.kind}")
    sign = on.do("shl", on.do("and", word, 0x8000), 16)
    size = on.do("shl", on.do("and", word, 0x7FFF), 13)
    # A subnormal half is what lies above the least normal one with the same digits; where the bits themselves
    # were taken for a float, that would be subnormal, and so a zero where those are flushed.
    least = on.value(on.number(_LEAST))
    above = on.bits(f.pure(f"fsub {on.float} {on.value(on.do('add', size, _LEAST))}, {least}"))
    number = on.select(on.compare("ult", size, 1 << 23), above, on.do("add", size, _REBIAS))
    beyond = on.do("or", size, _INFINITY)
    quiet = on.select(on.compare("ugt", size, 0x7C00 << 13), on.do("or", beyond, 1 << 22), beyond)
    found = on.select(on.compare("uge", size, 0x7C00 << 13), quiet, number)
    return on.value(on.do("or", found, sign))


def _to_odd(f: Function, x: str, count: int) -> str:
    """A double as the float next to it whose last bit is set, unless it is one: rounded again it is rounded once."""
    on, double = _Words(f, count), vector_of("double", count)
    near = f.pure(f"fptrunc {double} {x} to {on.float}")
    back = f.pure(f"fpext {on.float} {near} to {double}")
    fabs = f"llvm.fabs.{mangled('double', count)}"
    sizes = [f.call(double, fabs, (double, each)) for each in (back, x)]
    above = f.pure(f"fcmp ogt {double} {sizes[0]}, {sizes[1]}")
    bits = on.bits(near)
    moved = on.select(above, on.do("sub", bits, 1), on.do("add", bits, 1))
    even = on.compare("eq", on.do("and", bits, 1), 0)
    inexact = f.pure(f"fcmp one {double} {back}, {x}")
    return on.value(on.select(f.pure(f"and {on.mask} {even}, {inexact}"), moved, bits))
