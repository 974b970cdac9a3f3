"""Names of LLVM types for dtypes, and conversions between dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.compiler.llvm.function import Function, float_literal

__all__ = [
    "bytes_of",
    "convert",
    "first_lanes",
    "from_memory",
    "is_signed",
    "literal",
    "mangled",
    "memory_type",
    "scalar_type",
    "splat",
    "to_memory",
    "vector_of",
]

_BYTE = np.dtype(np.uint8)


def scalar_type(dtype: np.dtype) -> str:
    """The type of one value in a register; a bool is one bit."""
    if dtype.kind == "f":
        return "float" if dtype.itemsize == 4 else "double"
    return "i1" if dtype.kind == "b" else f"i{8 * dtype.itemsize}"


def memory_type(dtype: np.dtype) -> str:
    """The type of one value in memory; a bool is a byte."""
    return "i8" if dtype.kind == "b" else scalar_type(dtype)


def vector_of(kind: str, count: int) -> str:
    """``<count x kind>``, or the scalar for a count of one."""
    return kind if count == 1 else f"<{count} x {kind}>"


def bytes_of(kind: str) -> int:
    """How many bytes of memory one value of a type takes."""
    return {"float": 4, "double": 8}.get(kind) or int(kind[1:]) // 8


def mangled(kind: str, count: int) -> str:
    """The type of ``count`` lanes as intrinsic names spell it: ``v8f32``, ``i64``."""
    element = {"float": "f32", "double": "f64"}.get(kind, kind)
    return element if count == 1 else f"v{count}{element}"


def first_lanes(count: int, lanes: int) -> str:
    """A mask of the first ``count`` of so many lanes."""
    return "<" + ", ".join(f"i1 {'true' if lane < count else 'false'}" for lane in range(lanes)) + ">"


def is_signed(dtype: np.dtype) -> bool:
    """Whether integers of ``dtype`` have a sign."""
    return dtype.kind == "i"


def literal(dtype: np.dtype, value: Any, count: int = 1) -> str:
    """A constant, repeated over ``count`` lanes."""
    kind = scalar_type(dtype)
    text = float_literal(kind, float(value)) if dtype.kind == "f" else str(int(value))
    if dtype.kind == "b":
        text = "true" if value else "false"
    return text if count == 1 else f"splat ({kind} {text})"


def splat(f: Function, value: str, kind: str, count: int) -> str:
    """One scalar in every lane."""
    vector = vector_of(kind, count)
    first = f.pure(f"insertelement {vector} poison, {kind} {value}, i32 0")
    return f.pure(f"shufflevector {vector} {first}, {vector} poison, <{count} x i32> zeroinitializer")


def convert(f: Function, value: str, old: np.dtype, new: np.dtype, count: int) -> str:
    """``value`` cast as NumPy casts it; floats outside an integer's range saturate and NaN becomes 0."""
    if old == new:
        return value
    source, target = vector_of(scalar_type(old), count), vector_of(scalar_type(new), count)
    if new.kind == "b":
        if old.kind == "f":
            return f.value(
                f"fcmp une {source} {value}, zeroinitializer"
                if count > 1
                else f"fcmp une {source} {value}, 0.0"
            )
        return f.value(f"icmp ne {source} {value}, {'zeroinitializer' if count > 1 else '0'}")
    if old.kind == "f" and new.kind == "f":
        return f.value(
            f"{'fpext' if new.itemsize > old.itemsize else 'fptrunc'} {source} {value} to {target}"
        )
    if old.kind == "f":
        name = "fptosi" if is_signed(new) else "fptoui"
        suffix = f"{mangled(scalar_type(new), count)}.{mangled(scalar_type(old), count)}"
        return f.call(target, f"llvm.{name}.sat.{suffix}", (source, value))
    if new.kind == "f":
        return f.value(f"{'sitofp' if is_signed(old) else 'uitofp'} {source} {value} to {target}")
    old_bits = 1 if old.kind == "b" else 8 * old.itemsize
    new_bits = 8 * new.itemsize
    if old_bits == new_bits:
        return value
    if new_bits < old_bits:
        return f.value(f"trunc {source} {value} to {target}")
    return f.value(f"{'sext' if is_signed(old) else 'zext'} {source} {value} to {target}")


def from_memory(f: Function, value: str, dtype: np.dtype, count: int = 1) -> str:
    """What was read as it is in a register: the bit that the byte of a bool stands for."""
    return convert(f, value, _BYTE, dtype, count) if dtype.kind == "b" else value


def to_memory(f: Function, value: str, dtype: np.dtype, count: int = 1) -> str:
    """What is in a register as it is written to memory."""
    return convert(f, value, dtype, _BYTE, count) if dtype.kind == "b" else value
