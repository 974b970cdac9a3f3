"""LAPACK's routines, in the library that NumPy brings: called at their addresses out of compiled programs.

NumPy's own functions for matrices are made for Python: a program that calls them takes the interpreter's lock
and copies what it hands over. The library that they stand on is found beside them, or in SciPy where that is
installed. Without either, programs call NumPy's functions.

LAPACK stores matrices by columns. A matrix of NumPy's is there its transpose: its lower triangle is an upper one.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from pullback.graph import (
    InputAt,
    Node,
    Operation,
    Operator,
    OutputAt,
    Routine,
    Scalar,
    TupleType,
    Type,
    results,
)

__all__ = ["address", "is_there", "lu", "lu_solution", "positive_factor", "triangular_solution"]

Array = np.ndarray[Any, Any]
_LETTER = {np.dtype(np.float32): "s", np.dtype(np.float64): "d"}
_CHARACTER = np.dtype(np.int8)


@cache
def _library() -> Any:
    """NumPy's module of linear algebra as a library, whose symbols are those of the libraries that it needs, too."""
    try:
        from numpy.linalg import _umath_linalg

        return ctypes.CDLL(_umath_linalg.__file__), getattr(_umath_linalg, "_ilp64", False)
    except (ImportError, OSError, AttributeError):
        return None, False


@cache
def address(name: str) -> tuple[int, np.dtype] | None:
    """Where LAPACK's routine ``name`` is, and the integers that it takes; ``None`` where nobody has it."""
    library, wide = _library()
    symbols = (
        (f"scipy_{name}_64_", True),
        (f"{name}_64_", True),
        (f"scipy_{name}_", wide),
        (f"{name}_", wide),
    )
    for symbol, long in symbols if library is not None else ():
        try:
            found = ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value
        except AttributeError:
            continue
        if found:
            return found, np.dtype(np.int64 if long else np.int32)
    found = _in_scipy(name)
    return None if found is None else (found, np.dtype(np.int32))


def _in_scipy(name: str) -> int | None:
    try:
        from scipy.linalg import cython_lapack

        capsule = cython_lapack.__pyx_capi__[name]
    except (ImportError, KeyError, AttributeError):
        return None
    python = ctypes.pythonapi
    python.PyCapsule_GetName.restype, python.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
    python.PyCapsule_GetPointer.restype = ctypes.c_void_p
    python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    pointer = python.PyCapsule_GetPointer(capsule, python.PyCapsule_GetName(capsule))
    return None if pointer is None else int(pointer)


def is_there(dtype: np.dtype, *names: str) -> bool:
    """Whether the routines ``names``, without the letter of their dtype, can be called."""
    return all(address(_LETTER[dtype] + name) is not None for name in names)


def integer(dtype: np.dtype, name: str) -> np.dtype:
    """The integers of the routine ``name``."""
    found = address(_LETTER[dtype] + name)
    assert found is not None, name
    return found[1]


def _routine(name: str, dtype: np.dtype, arguments: Sequence[Any], count: int) -> Routine:
    """The routine with ``arguments``; plain integers and letters become numbers of its own kind."""
    found = address(_LETTER[dtype] + name)
    assert found is not None, name
    where, kind = found
    given = tuple(
        Scalar(ord(x), _CHARACTER) if isinstance(x, str) else Scalar(x, kind) if isinstance(x, int) else x
        for x in arguments
    )
    return Routine(_LETTER[dtype] + name, where, given, count)


def _called(routine: Routine, promised: TupleType, arrays: Sequence[Array]) -> list[Array]:
    """The results of a routine, called at once."""
    inputs = [np.ascontiguousarray(array) for array in arrays]
    outputs = [np.zeros(type.shape, type.dtype) for type in promised.types]
    for argument in routine.arguments:
        if isinstance(argument, OutputAt) and argument.start is not None:
            outputs[argument.number][...] = inputs[argument.start]
    assert routine.address is not None
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(routine.arguments))(routine.address)
    for turn in range(routine.count):
        given: list[Any] = []
        kept = []
        for argument in routine.arguments:
            if isinstance(argument, Scalar):
                kept.append(np.array(argument.value, argument.dtype))
                given.append(kept[-1].ctypes.data)
                continue
            assert isinstance(argument, (InputAt, OutputAt))
            array = (inputs if isinstance(argument, InputAt) else outputs)[argument.number]
            given.append(array.ctypes.data + turn * (array.nbytes // routine.count))
        call(*given)
    return outputs


def _batch(node: Operation, inputs: Sequence[Node]) -> Sequence[Node]:
    from pullback.operators.batching import all_batched

    return results(node.operator(*all_batched(inputs, node.inputs), **node.attributes))


def _operator(name: str, type_rule: Any, routine: Any) -> Operator:
    """An operator that is a routine and nothing else: the compiler makes it, so it needs no derivative."""

    def reference(*arrays: Array, **attributes: Any) -> list[Array]:
        types = [Type(array.dtype, array.shape) for array in arrays]
        return _called(routine(*types, **attributes), type_rule(*types, **attributes), arrays)

    return Operator(name, type_rule, reference, None, _batch, None, (), routine=routine)


def _lead(x: Type) -> tuple[int, ...]:
    return x.shape[:-2]


def _lu_type(a: Type) -> TupleType:
    kind = integer(a.dtype, "getrf")
    return TupleType.of([Type(a.dtype, a.shape), Type(kind, a.shape[:-1]), Type(kind, _lead(a))])


def _lu_routine(a: Type) -> Routine:
    n = a.shape[-1]
    given = (n, n, OutputAt(0, start=0), max(n, 1), OutputAt(1), OutputAt(2))
    return _routine("getrf", a.dtype, given, math.prod(_lead(a)) if n else 0)


lu = _operator("lapack_lu", _lu_type, _lu_routine)
"""Both triangles of ``a.T``, the rows that were exchanged, counted from 1, and 0 or the number of a pivot that is 0."""


def _lu_solution_type(factors: Type, pivots: Type, b: Type, transposed: bool) -> TupleType:
    return TupleType.of([Type(b.dtype, b.shape), Type(pivots.dtype, _lead(b))])


def _lu_solution_routine(factors: Type, pivots: Type, b: Type, transposed: bool) -> Routine:
    columns, n = b.shape[-2:]
    given = (
        "N" if transposed else "T",
        n,
        columns,
        InputAt(0),
        n,
        InputAt(1),
        OutputAt(0, start=2),
        n,
        OutputAt(1),
    )
    return _routine("getrs", b.dtype, given, math.prod(_lead(b)) if b.size else 0)


lu_solution = _operator("lapack_lu_solution", _lu_solution_type, _lu_solution_routine)
"""``x.T`` with ``a @ x = b``, or ``a.T @ x = b``, for right-hand sides ``b.T`` and what ``lu`` made of ``a``."""


def _positive_factor_type(a: Type) -> TupleType:
    return TupleType.of([Type(a.dtype, a.shape), Type(integer(a.dtype, "potrf"), _lead(a))])


def _positive_factor_routine(a: Type) -> Routine:
    n = a.shape[-1]
    return _routine(
        "potrf",
        a.dtype,
        ("U", n, OutputAt(0, start=0), max(n, 1), OutputAt(1)),
        math.prod(_lead(a)) if n else 0,
    )


positive_factor = _operator("lapack_positive_factor", _positive_factor_type, _positive_factor_routine)
"""Cholesky's factor in the lower triangle, with the upper one as it was, and 0 if the matrix is positive definite."""


def _triangular_type(a: Type, b: Type, lower: bool, transposed: bool) -> TupleType:
    return TupleType.of([Type(b.dtype, b.shape), Type(integer(a.dtype, "trtrs"), _lead(b))])


def _triangular_routine(a: Type, b: Type, lower: bool, transposed: bool) -> Routine:
    columns, n = b.shape[-2:]
    letters = "U" if lower else "L", "N" if transposed else "T", "N"
    given = (*letters, n, columns, InputAt(0), n, OutputAt(0, start=1), n, OutputAt(1))
    return _routine("trtrs", a.dtype, given, math.prod(_lead(b)) if b.size else 0)


triangular_solution = _operator("lapack_triangular_solution", _triangular_type, _triangular_routine)
"""``x.T`` with ``t @ x = b`` for right-hand sides ``b.T``, and 0 if no zero is on the diagonal."""
