"""How compiled code reads what it is called with: one argument compared with its record, and the check of overlaps.

An argument is taken as it is or not at all. An array must have the dtype, shape, order, alignment and, where it is
donated, the writability that its record says; a NumPy scalar is read where it lies, as its value follows the head of
the object; Python's numbers are put into the record's own storage. Arrays and scalars are read through the fields that
NumPy's own headers inline into every extension module, after a check that they lie where these say
(``layout_holds``).

Source: ``numpy/ndarraytypes.h`` and ``numpy/arrayscalars.h``.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np

from pullback.compiler.llvm.language import Record

__all__ = [
    "ALIGNED",
    "C_CONTIGUOUS",
    "DTYPE",
    "HEAD",
    "OBJECT",
    "PYTHON_NUMBERS",
    "READING",
    "SPEC",
    "WRITEABLE",
    "array_layout_holds",
    "numpy_scalar",
]

# The record of an argument or of a result.
SPEC = Record(
    DTYPE="Dtype",  # numpy.dtype object
    RANK="i64",  # -1: no array is taken
    SHAPE="Words",  # extents
    OBJECT="Object",  # given in this call, held until it ends, or made in it, until it stands in a tree
    SLICED="i64",  # 1 if the first axis is that of the steps of a run
    STRIDE="i64",  # bytes from one step to the next
    BYTES="i64",  # of one step
    STORAGE="ptr",  # where a Python number is put, and the value of a NumPy scalar that is returned; null for an array
    SCALAR="ptr",  # the type of NumPy scalars that are taken, or made with the value behind the object's head, or null
    # Of an argument:
    FLAGS="i64",  # array flags that must be set
    PYTHON="ptr",  # the class of Python's numbers that are taken, or null
    DONATED="i64",
    CHECKED="i64",  # the address last found not to overlap
    CURRENT="ptr",  # the address in this call
    # Of a result:
    ALIAS="i64",  # the donated argument's index, or -1
    ALLOCATE="ptr",  # the scalar type's function for new instances without a value
)
PYTHON_NUMBERS = {"float32": float, "float64": float, "int32": int, "int64": int, "bool": bool}

C_CONTIGUOUS, ALIGNED, WRITEABLE = 0x1, 0x100, 0x400
HEAD = object.__basicsize__  # the object header, 16 bytes except in free-threaded builds
OBJECT = Record(
    TYPE=(HEAD - 8, "ptr"), DATA="ptr", RANK="i32", SHAPE="Words", DTYPE=(HEAD + 40, "Dtype"), FLAGS="i32"
)
DTYPE = Record(SCALAR_TYPE=(HEAD, "ptr"), ORDER=(HEAD + 10, "i8"))

READING = """
def read_argument(descriptor: Descriptor, spec: Spec, object: Object) -> i1:
    type = object.TYPE
    if type == descriptor.ARRAY_TYPE:
        if object.DTYPE != spec.DTYPE and not as_good(object.DTYPE, spec.DTYPE):
            return False
        if object.RANK != i32(spec.RANK) or (object.FLAGS & i32(spec.FLAGS)) != i32(spec.FLAGS):
            return False
        for axis in range(spec.RANK):
            if object.SHAPE[axis] != spec.SHAPE[axis]:
                return False
        spec.CURRENT = object.DATA
        return True
    if type == spec.SCALAR:
        spec.CURRENT = object + HEAD
        return True
    if type != spec.PYTHON:
        return False
    storage = spec.STORAGE
    spec.CURRENT = storage
    if type == descriptor.FLOAT_TYPE:
        value = PyFloat_AsDouble(object)
        if spec.BYTES == 4:
            Floats(storage)[0] = float(value)
        else:
            Doubles(storage)[0] = value
    else:
        overflow: Ints = reserve(4)
        integer = PyLong_AsLongLongAndOverflow(object, overflow)
        if overflow[0] != 0 or (spec.BYTES == 4 and i64(i32(integer)) != integer):
            return False
        Words(storage)[0] = integer
    return True

# An array that was unpickled has a dtype object of its own: the same scalar type in native order is as good.
def as_good(dtype: Dtype, wanted: Dtype) -> i1:
    return dtype.SCALAR_TYPE == wanted.SCALAR_TYPE and (dtype.ORDER == NATIVE or dtype.ORDER == NO_ORDER)

# How many bytes of an argument or a result are read or written in all steps.
def bytes_of(spec: Spec, steps: i64) -> i64:
    return spec.BYTES * steps if spec.SLICED != 0 else spec.BYTES

# Does donated memory overlap another argument? Only pairs with an address that changed, or a size, are asked.
def overlaps(specs: Spec, count: i64, steps: i64) -> i1:
    for i in range(count):
        a = specs[i]
        start = i64(a.CURRENT)
        size = bytes_of(a, steps)
        if size == 0 or (start == a.CHECKED and a.SLICED == 0):
            continue
        for j in range(count):
            b = specs[j]
            other = i64(b.CURRENT)
            other_size = bytes_of(b, steps)
            if i != j and (a.DONATED | b.DONATED) != 0 and other_size != 0:
                if start < other + other_size and other < start + size:
                    return True
    for i in range(count):
        specs[i].CHECKED = i64(specs[i].CURRENT)
    return False
"""


def array_layout_holds() -> bool:
    """Whether this NumPy's arrays have their fields where its header says; a sample array is read to see."""
    sample = np.zeros((3, 5), np.float32)[1:]
    here = id(sample)

    def field(name: str, kind: Any) -> Any:
        return kind.from_address(here + OBJECT[name]).value

    dtype = id(sample.dtype)
    shape = (ctypes.c_int64 * 2).from_address(field("SHAPE", ctypes.c_int64))
    flags = C_CONTIGUOUS | ALIGNED | WRITEABLE
    return (
        field("TYPE", ctypes.c_int64) == id(np.ndarray)
        and field("DATA", ctypes.c_int64) == sample.ctypes.data
        and field("RANK", ctypes.c_int32) == 2
        and tuple(shape) == sample.shape
        and field("DTYPE", ctypes.c_int64) == dtype
        and ctypes.c_int64.from_address(dtype + DTYPE["SCALAR_TYPE"]).value == id(np.float32)
        and ctypes.c_char.from_address(dtype + DTYPE["ORDER"]).value == b"="
        and field("FLAGS", ctypes.c_int32) & flags == flags
    )


@cache
def numpy_scalar(dtype: np.dtype[Any]) -> type | None:
    """The type of this dtype's scalars, if their value follows the head of the object; a sample is read to see.

    >>> numpy_scalar(np.dtype("float32"))
    <class 'numpy.float32'>
    """
    if dtype.kind not in "biufc" or dtype.itemsize > 16:
        return None
    pattern = (
        np.arange(1, 1 + dtype.itemsize, dtype=np.uint8).view(dtype)
        if dtype.kind != "b"
        else np.ones(1, dtype)
    )
    sample = pattern[0]
    size: int = type(sample).__basicsize__
    if size < HEAD + -(-dtype.itemsize // 8) * 8:  # whole words are written
        return None
    there = ctypes.string_at(id(sample) + HEAD, dtype.itemsize)
    return type(sample) if there == pattern.tobytes() else None
