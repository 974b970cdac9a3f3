"""LAPACK's routines, in the library that NumPy brings: called at their addresses out of compiled programs.

NumPy's own functions for matrices are made for Python: a program that calls them takes the interpreter's lock
and copies what it hands over. The library that they stand on is found beside them, or in SciPy where that is
installed. Without either, programs call NumPy's functions.

LAPACK stores matrices by columns. A matrix of NumPy's is there its transpose: its lower triangle is an upper one.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

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
    WorkAt,
    results,
)

__all__ = [
    "NoRoutine",
    "address",
    "eigenvalues",
    "lu",
    "lu_solution",
    "orthogonal",
    "positive_factor",
    "singular_values",
    "triangular_solution",
    "triangulation",
]

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


class NoRoutine(LookupError):
    """Nobody has a routine of LAPACK's: no operation can be made of it."""


def _found(dtype: np.dtype, name: str) -> tuple[int, np.dtype]:
    """Where the routine ``name``, without the letter of its dtype, is, and the integers that it takes."""
    found = address(_LETTER[dtype] + name)
    if found is None:
        raise NoRoutine(name)
    return found


def integer(dtype: np.dtype, name: str) -> np.dtype:
    """The integers of the routine ``name``."""
    return _found(dtype, name)[1]


class _Work(NamedTuple):
    """A workspace of so many elements; of as many as the routine asks for, which it is told behind, for ``None``."""

    dtype: np.dtype
    size: int | None = None


def _routine(name: str, dtype: np.dtype, arguments: Sequence[Any], count: int) -> Routine:
    """The routine with ``arguments``; plain integers and letters become numbers of its own kind."""
    where, kind = _found(dtype, name)
    wanted = iter(_wanted(where, kind, tuple(arguments)))
    offset, given = 0, []
    for argument in arguments:
        if not isinstance(argument, _Work):
            given.append(_given(argument, kind))
            continue
        given.append(WorkAt(offset))
        size = argument.size
        if size is None:
            size = next(wanted)
            given.append(Scalar(size, kind))
        offset += -(-size * argument.dtype.itemsize // 8) * 8
    return Routine(_LETTER[dtype] + name, where, tuple(given), count, workspace=offset)


def _given(x: Any, kind: np.dtype) -> Any:
    return Scalar(ord(x), _CHARACTER) if isinstance(x, str) else Scalar(x, kind) if isinstance(x, int) else x


@cache
def _wanted(where: int, kind: np.dtype, arguments: tuple[Any, ...]) -> list[int]:
    """The sizes that a routine tells, each as the first element of a workspace, where it is told -1 for them."""
    asked = [x for x in arguments if isinstance(x, _Work) and x.size is None]
    if not asked:
        return []
    arrays: list[Array] = []
    for argument in arguments:
        given = _given(argument, kind)
        whole = isinstance(given, Scalar)
        arrays.append(
            np.full(1, given.value, given.dtype) if whole else np.zeros(1, getattr(given, "dtype", None))
        )
        if argument in asked:
            arrays.append(np.full(1, -1, kind))
    _call(where, [array.ctypes.data for array in arrays])
    return [int(array[0]) for array, behind in itertools.pairwise(arrays) if behind[0] == -1]


def _call(where: int, addresses: Sequence[int]) -> None:
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(addresses))(where)(*addresses)


def _called(routine: Routine, promised: TupleType, arrays: Sequence[Array]) -> list[Array]:
    """The results of a routine, called at once."""
    inputs = [np.ascontiguousarray(array) for array in arrays]
    outputs = [np.zeros(type.shape, type.dtype) for type in promised.types]
    for argument in routine.arguments:
        if isinstance(argument, OutputAt) and argument.start is not None:
            outputs[argument.number][...] = inputs[argument.start]
    assert routine.address is not None
    work = np.zeros(routine.workspace, np.uint8)
    for turn in range(routine.count):
        given: list[Any] = []
        kept = []
        for argument in routine.arguments:
            if isinstance(argument, Scalar):
                kept.append(np.array(argument.value, argument.dtype))
                given.append(kept[-1].ctypes.data)
            elif isinstance(argument, WorkAt):
                given.append(work.ctypes.data + argument.offset)
            else:
                array = (inputs if isinstance(argument, InputAt) else outputs)[argument.number]
                given.append(array.ctypes.data + turn * (array.nbytes // routine.count))
        _call(routine.address, given)
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


def _fault(x: Type, name: str) -> Type:
    """What a routine says of each matrix."""
    return Type(integer(x.dtype, name), _lead(x))


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
    return TupleType.of([Type(b.dtype, b.shape), _fault(b, "getrs")])


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


def _triangulation_type(a: Type) -> TupleType:
    k = min(a.shape[-2:])
    return TupleType.of([Type(a.dtype, a.shape), Type(a.dtype, (*_lead(a), k)), _fault(a, "geqrf")])


def _triangulation_routine(a: Type) -> Routine:
    columns, rows = a.shape[-2:]
    given = (rows, columns, OutputAt(0, start=0), rows, OutputAt(1), _Work(a.dtype), OutputAt(2))
    return _routine("geqrf", a.dtype, given, math.prod(_lead(a)))


triangulation = _operator("lapack_triangulation", _triangulation_type, _triangulation_routine)
"""Of ``a.T`` the triangle ``r.T``, above it the vectors of the reflections that lead to it, their factors, and 0."""


def _orthogonal_type(reflections: Type, factors: Type) -> TupleType:
    return TupleType.of([reflections, _fault(reflections, "orgqr")])


def _orthogonal_routine(reflections: Type, factors: Type) -> Routine:
    k, rows = reflections.shape[-2:]
    dtype = reflections.dtype
    given = (rows, k, k, OutputAt(0, start=0), rows, InputAt(1), _Work(dtype), OutputAt(1))
    return _routine("orgqr", dtype, given, math.prod(_lead(reflections)))


orthogonal = _operator("lapack_orthogonal", _orthogonal_type, _orthogonal_routine)
"""``q.T`` of the first rows of what ``triangulation`` gives, and 0."""


def _eigenvalues_type(a: Type, vectors: bool, lower: bool) -> TupleType:
    return TupleType.of([Type(a.dtype, a.shape), Type(a.dtype, a.shape[:-1]), _fault(a, "syevd")])


def _eigenvalues_routine(a: Type, vectors: bool, lower: bool) -> Routine:
    n = a.shape[-1]
    letters = "V" if vectors else "N", "L" if lower else "U"
    works = _Work(a.dtype), _Work(integer(a.dtype, "syevd"))
    given = (*letters, n, OutputAt(0, start=0), n, OutputAt(1), *works, OutputAt(2))
    return _routine("syevd", a.dtype, given, math.prod(_lead(a)))


eigenvalues = _operator("lapack_eigenvalues", _eigenvalues_type, _eigenvalues_routine)
"""Of ``a.T`` the eigenvectors, each a row, if they are asked for, the eigenvalues, and 0 if these were found."""


def _singular_values_type(a: Type, vectors: bool) -> TupleType:
    columns, rows = a.shape[-2:]
    k = min(rows, columns)
    extents = ((columns, rows), (k,), *(((k, rows), (columns, k)) if vectors else ()))
    return TupleType.of([*(Type(a.dtype, (*_lead(a), *extent)) for extent in extents), _fault(a, "gesdd")])


def _singular_values_routine(a: Type, vectors: bool) -> Routine:
    columns, rows = a.shape[-2:]
    k = min(rows, columns)
    u, v = (OutputAt(2), OutputAt(3)) if vectors else (OutputAt(0), OutputAt(0))
    values = (OutputAt(0, start=0), rows, OutputAt(1))
    works = _Work(a.dtype), _Work(integer(a.dtype, "gesdd"), 8 * k)
    given = (
        "S" if vectors else "N",
        rows,
        columns,
        *values,
        u,
        rows,
        v,
        k,
        *works,
        OutputAt(4 if vectors else 2),
    )
    return _routine("gesdd", a.dtype, given, math.prod(_lead(a)))


singular_values = _operator("lapack_singular_values", _singular_values_type, _singular_values_routine)
"""Of ``a.T`` nothing, the singular values, if they are asked for ``u.T`` and ``v``, and 0 if these were found."""
