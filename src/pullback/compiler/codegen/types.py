"""Names of LLVM types for dtypes, and conversions between dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.compiler.llvm.function import Function, float_literal

__all__ = ["convert", "is_signed", "literal", "memory_type", "scalar_type", "vector_of"]


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
        suffix = f"{_mangled(new, count)}.{_mangled(old, count)}"
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


def _mangled(dtype: np.dtype, count: int) -> str:
    """The type as intrinsic names spell it: ``v8f32``, ``i64``."""
    bits = 8 * dtype.itemsize
    kind = ("f" if dtype.kind == "f" else "i") + str(bits)
    return kind if count == 1 else f"v{count}{kind}"
