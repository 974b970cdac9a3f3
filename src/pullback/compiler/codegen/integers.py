"""The vocabulary on integers and bools, for any number of lanes; what needs no mathematics."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from pullback.compiler.codegen.types import is_signed, literal, scalar_type, vector_of
from pullback.compiler.llvm.function import Function

__all__ = ["COMPARISONS", "integer_function"]

COMPARISONS = {
    "equal": ("oeq", "eq", "eq"),
    "not_equal": ("une", "ne", "ne"),
    "less": ("olt", "slt", "ult"),
    "less_equal": ("ole", "sle", "ule"),
    "greater": ("ogt", "sgt", "ugt"),
    "greater_equal": ("oge", "sge", "uge"),
}
"""The predicates of floats, signed and unsigned integers."""

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
    kind = vector_of(scalar_type(dtype), count)
    if dtype.kind == "b" and name in _ON_BOOLS:
        return f.pure(f"{_ON_BOOLS[name]} {kind} {operands[0]}, {operands[1]}")
    if name in _DIRECT:
        return f.pure(f"{_DIRECT[name]} {kind} {operands[0]}, {operands[1]}")
    return _FUNCTIONS[name](f, operands, dtype, count)


def _negative(f: Function, operands: Sequence[str], dtype: np.dtype, count: int) -> str:
    kind = vector_of(scalar_type(dtype), count)
    return f.pure(f"sub {kind} {literal(dtype, 0, count)}, {operands[0]}")


def _invert(f: Function, operands: Sequence[str], dtype: np.dtype, count: int) -> str:
    ones = literal(dtype, 1 if dtype.kind == "b" else -1, count)
    return f.pure(f"xor {vector_of(scalar_type(dtype), count)} {operands[0]}, {ones}")


def _select(f: Function, mask: str, x: str, y: str, dtype: np.dtype, count: int) -> str:
    kind = vector_of(scalar_type(dtype), count)
    return f.pure(f"select {vector_of('i1', count)} {mask}, {kind} {x}, {kind} {y}")


def _compare(f: Function, predicate: str, x: str, y: str, dtype: np.dtype, count: int) -> str:
    return f.pure(f"icmp {predicate} {vector_of(scalar_type(dtype), count)} {x}, {y}")


def _extreme(name: str) -> Callable[[Function, Sequence[str], np.dtype, int], str]:
    def emit(f: Function, operands: Sequence[str], dtype: np.dtype, count: int) -> str:
        predicate = COMPARISONS["greater" if name == "maximum" else "less"][1 if is_signed(dtype) else 2]
        mask = _compare(f, predicate, operands[0], operands[1], dtype, count)
        return _select(f, mask, operands[0], operands[1], dtype, count)

    return emit


def _absolute(f: Function, operands: Sequence[str], dtype: np.dtype, count: int) -> str:
    if not is_signed(dtype):
        return operands[0]
    below = _compare(f, "slt", operands[0], literal(dtype, 0, count), dtype, count)
    return _select(f, below, _negative(f, operands, dtype, count), operands[0], dtype, count)


def _sign(f: Function, operands: Sequence[str], dtype: np.dtype, count: int) -> str:
    zero, one = literal(dtype, 0, count), literal(dtype, 1, count)
    if not is_signed(dtype):
        return _select(f, _compare(f, "eq", operands[0], zero, dtype, count), zero, one, dtype, count)
    above = _select(f, _compare(f, "sgt", operands[0], zero, dtype, count), one, zero, dtype, count)
    below = _compare(f, "slt", operands[0], zero, dtype, count)
    return _select(f, below, literal(dtype, -1, count), above, dtype, count)


def _divided(
    f: Function, operands: Sequence[str], dtype: np.dtype, count: int
) -> tuple[str | None, str, str]:
    """Where the divisor is zero, the quotient towards minus infinity, and the remainder with the divisor's sign.

    Of a positive divisor that is known, as those of most indices are, nothing is asked.
    """
    kind, zero = vector_of(scalar_type(dtype), count), literal(dtype, 0, count)
    one = literal(dtype, 1, count)
    x, y = operands
    known = re.fullmatch(r"(?:splat \(\w+ )?(\d+)\)?", y)
    if known and int(known[1]):
        signed = "s" if is_signed(dtype) else "u"
        quotient, remainder = f.pure(f"{signed}div {kind} {x}, {y}"), f.pure(f"{signed}rem {kind} {x}, {y}")
        if is_signed(dtype):
            step = _compare(f, "slt", remainder, zero, dtype, count)
            lowered, raised = f.pure(f"sub {kind} {quotient}, {one}"), f.pure(f"add {kind} {remainder}, {y}")
            quotient = _select(f, step, lowered, quotient, dtype, count)
            remainder = _select(f, step, raised, remainder, dtype, count)
        return None, quotient, remainder
    by_zero = _compare(f, "eq", y, zero, dtype, count)
    divisor = _select(f, by_zero, one, y, dtype, count)
    if not is_signed(dtype):
        return by_zero, f.pure(f"udiv {kind} {x}, {divisor}"), f.pure(f"urem {kind} {x}, {divisor}")
    # The most negative integer divided by -1 traps; dividing by 1 and negating wraps as NumPy does.
    minus = _compare(f, "eq", divisor, literal(dtype, -1, count), dtype, count)
    safe = _select(f, minus, literal(dtype, 1, count), divisor, dtype, count)
    quotient, remainder = f.pure(f"sdiv {kind} {x}, {safe}"), f.pure(f"srem {kind} {x}, {safe}")
    quotient = _select(f, minus, _negative(f, [quotient], dtype, count), quotient, dtype, count)
    mixed = f.pure(f"xor {kind} {remainder}, {divisor}")
    inexact = _compare(f, "ne", remainder, zero, dtype, count)
    opposite = _compare(f, "slt", mixed, zero, dtype, count)
    step = f.pure(f"and {vector_of('i1', count)} {inexact}, {opposite}")
    lowered = f.pure(f"sub {kind} {quotient}, {one}")
    raised = f.pure(f"add {kind} {remainder}, {divisor}")
    return (
        by_zero,
        _select(f, step, lowered, quotient, dtype, count),
        _select(f, step, raised, remainder, dtype, count),
    )


def _floor_divide(f: Function, operands: Sequence[str], dtype: np.dtype, count: int) -> str:
    by_zero, quotient, _ = _divided(f, operands, dtype, count)
    if by_zero is None:
        return quotient
    return _select(f, by_zero, literal(dtype, 0, count), quotient, dtype, count)


def _remainder(f: Function, operands: Sequence[str], dtype: np.dtype, count: int) -> str:
    by_zero, _, remainder = _divided(f, operands, dtype, count)
    if by_zero is None:
        return remainder
    return _select(f, by_zero, literal(dtype, 0, count), remainder, dtype, count)


def _shift(instruction: str) -> Callable[[Function, Sequence[str], np.dtype, int], str]:
    def emit(f: Function, operands: Sequence[str], dtype: np.dtype, count: int) -> str:
        """Shifts by the width or more give 0, or the sign for a right shift of a signed integer."""
        kind, bits = vector_of(scalar_type(dtype), count), 8 * dtype.itemsize
        name = (
            "ashr"
            if instruction == "right" and is_signed(dtype)
            else {"right": "lshr", "left": "shl"}[instruction]
        )
        inside = _compare(f, "ult", operands[1], literal(dtype, bits, count), dtype, count)
        most = literal(dtype, bits - 1, count)
        shifted = f.pure(
            f"{name} {kind} {operands[0]}, {_select(f, inside, operands[1], most, dtype, count)}"
        )
        if name == "ashr":
            return shifted
        return _select(f, inside, shifted, literal(dtype, 0, count), dtype, count)

    return emit


def _power(f: Function, operands: Sequence[str], dtype: np.dtype, count: int) -> str:
    """By repeated squaring, one turn for each bit of the exponent; a negative exponent gives 0 but for bases ±1."""
    kind = vector_of(scalar_type(dtype), count)
    one, zero = literal(dtype, 1, count), literal(dtype, 0, count)
    carried = [(kind, one), (kind, operands[0]), (kind, operands[1])]
    with f.loop("0", str(8 * dtype.itemsize), carried=carried) as loop:
        result, base, exponent = loop.values
        odd = _compare(f, "ne", f.pure(f"and {kind} {exponent}, {one}"), zero, dtype, count)
        product = f.pure(f"mul {kind} {result}, {base}")
        loop.carry(
            _select(f, odd, product, result, dtype, count),
            f.pure(f"mul {kind} {base}, {base}"),
            f.pure(f"lshr {kind} {exponent}, {one}"),
        )
    if not is_signed(dtype):
        return loop.results[0]
    negative = _compare(f, "slt", operands[1], zero, dtype, count)
    squared = f.pure(f"mul {kind} {operands[0]}, {operands[0]}")
    unit = _compare(f, "eq", squared, one, dtype, count)
    kept = _select(f, unit, loop.results[0], zero, dtype, count)
    return _select(f, negative, kept, loop.results[0], dtype, count)


_FUNCTIONS: dict[str, Callable[[Function, Sequence[str], np.dtype, int], str]] = {
    "negative": _negative,
    "invert": _invert,
    "logical_not": _invert,
    "absolute": _absolute,
    "sign": _sign,
    "maximum": _extreme("maximum"),
    "minimum": _extreme("minimum"),
    "floor_divide": _floor_divide,
    "remainder": _remainder,
    "left_shift": _shift("left"),
    "right_shift": _shift("right"),
    "power": _power,
}
