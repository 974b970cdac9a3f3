"""Names of LLVM types for dtypes, and conversions between dtypes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from pullback.compiler.llvm.function import Function, float_literal

__all__ = [
    "bytes_of",
    "constants",
    "convert",
    "first_lanes",
    "from_memory",
    "is_signed",
    "literal",
    "mangled",
    "memory_type",
    "read_element",
    "scalar_type",
    "splat",
    "to_memory",
    "vector_of",
    "write_element",
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
    return constants("i1", ["true" if lane < count else "false" for lane in range(lanes)])


def constants(kind: str, values: Iterable[object]) -> str:
    """A vector of constants, one a lane."""
    return f"<{', '.join(f'{kind} {value}' for value in values)}>"


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
        differs, zero = ("fcmp une", "0.0") if old.kind == "f" else ("icmp ne", "0")
        return f.value(f"{differs} {source} {value}, {zero if count == 1 else 'zeroinitializer'}")
    if old.kind == "f" and new.kind == "f":
        name = "fpext" if new.itemsize > old.itemsize else "fptrunc"
        return f.value(f"{name} {source} {value} to {target}")
    if old.kind == "f":
        name = "fptosi" if is_signed(new) else "fptoui"
        suffix = f"{mangled(scalar_type(new), count)}.{mangled(scalar_type(old), count)}"
        return f.call(target, f"llvm.{name}.sat.{suffix}", (source, value))
    if new.kind == "f":
        return f.value(f"{'sitofp' if is_signed(old) else 'uitofp'} {source} {value} to {target}")
    if old.kind == "b" or new.itemsize > old.itemsize:
        return f.value(f"{'sext' if is_signed(old) else 'zext'} {source} {value} to {target}")
    return value if new.itemsize == old.itemsize else f.value(f"trunc {source} {value} to {target}")


def from_memory(f: Function, value: str, dtype: np.dtype, count: int = 1) -> str:
    """What was read as it is in a register: the bit that the byte of a bool stands for."""
    return convert(f, value, _BYTE, dtype, count) if dtype.kind == "b" else value


def to_memory(f: Function, value: str, dtype: np.dtype, count: int = 1) -> str:
    """What is in a register as it is written to memory."""
    return convert(f, value, dtype, _BYTE, count) if dtype.kind == "b" else value


def read_element(f: Function, address: str, dtype: np.dtype) -> str:
    """The element that lies at an address."""
    value = f.value(f"load {memory_type(dtype)}, ptr {address}, align {dtype.itemsize}")
    return from_memory(f, value, dtype)


def write_element(f: Function, address: str, value: str, dtype: np.dtype) -> None:
    """Put one element at an address."""
    stored = to_memory(f, value, dtype)
    f.do(f"store {memory_type(dtype)} {stored}, ptr {address}, align {dtype.itemsize}")
