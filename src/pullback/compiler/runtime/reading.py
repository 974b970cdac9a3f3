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

__all__ = [
    "ALIGNED",
    "ARGUMENT",
    "ARGUMENT_BYTES",
    "C_CONTIGUOUS",
    "FIELDS",
    "HEAD",
    "READING",
    "SCALAR_KINDS",
    "WRITEABLE",
    "array_layout_holds",
    "numpy_scalar",
    "reading_names",
]

# The record of an argument. The first fields are those of a result's record, too.
ARGUMENT = {
    "DTYPE": 0,  # numpy.dtype object
    "RANK": 8,  # -1: no array is taken
    "SHAPE": 16,  # ptr to i64 extents
    "OBJECT": 24,  # the object given in this call, which is held until it ends
    "SLICED": 32,  # i64: 1 if the first axis is that of the steps of a run
    "STRIDE": 40,  # i64: bytes from one step to the next
    "FLAGS": 48,  # array flags that must be set
    "BYTES": 56,  # of one step
    "NUMPY": 64,  # the type of NumPy scalars that are taken, or null
    "SCALAR": 72,  # the kind of Python numbers taken, see SCALAR_KINDS
    "STORAGE": 80,  # where such a number is put
    "DONATED": 88,
    "CHECKED": 96,  # the address last found not to overlap
    "CURRENT": 104,  # the address in this call
}
ARGUMENT_BYTES = 112
SCALAR_KINDS = {"float32": 1, "float64": 2, "int32": 3, "int64": 4, "bool": 5}

C_CONTIGUOUS, ALIGNED, WRITEABLE = 0x1, 0x100, 0x400
HEAD = object.__basicsize__  # the object header, 16 bytes except in free-threaded builds
FIELDS = {
    "TYPE": HEAD - 8,
    "DATA": HEAD,
    "RANK": HEAD + 8,
    "SHAPE": HEAD + 16,
    "DTYPE": HEAD + 40,
    "FLAGS": HEAD + 48,
}
_DTYPE = {"SCALAR_TYPE": HEAD, "ORDER": HEAD + 10}

READING = """
define internal i1 @read_argument(ptr %descriptor, ptr %spec, ptr %object) nounwind {
entry:
  %overflow_at = alloca i32, align 4
  $LOAD(array_type, ptr, %descriptor, $DESCRIPTOR_ARRAY_TYPE)
  $LOAD(type, ptr, %object, $FIELD_TYPE)
  %current_at = getelementptr i8, ptr %spec, i64 $ARGUMENT_CURRENT
  %is_array = icmp eq ptr %type, %array_type
  br i1 %is_array, label %array, label %scalar
array:
  $LOAD(dtype, ptr, %object, $FIELD_DTYPE)
  $LOAD(dtype_wanted, ptr, %spec, $ARGUMENT_DTYPE)
  %one_dtype = icmp eq ptr %dtype, %dtype_wanted
  br i1 %one_dtype, label %rank_and_flags, label %equal_dtype
equal_dtype:
  ; an array that was unpickled has a dtype object of its own: the same scalar type in native order is as good
  $LOAD(scalar_type, ptr, %dtype, $DTYPE_SCALAR_TYPE)
  $LOAD(scalar_type_wanted, ptr, %dtype_wanted, $DTYPE_SCALAR_TYPE)
  %same_scalar = icmp eq ptr %scalar_type, %scalar_type_wanted
  %order_at = getelementptr i8, ptr %dtype, i64 $DTYPE_ORDER
  %order = load i8, ptr %order_at, align 1
  %native = icmp eq i8 %order, $NATIVE
  %of_bytes = icmp eq i8 %order, $NO_ORDER
  %in_order = or i1 %native, %of_bytes
  %same_dtype = and i1 %same_scalar, %in_order
  br i1 %same_dtype, label %rank_and_flags, label %bad
rank_and_flags:
  $LOAD(rank_int, i32, %object, $FIELD_RANK)
  %rank = sext i32 %rank_int to i64
  $LOAD(rank_wanted, i64, %spec, $ARGUMENT_RANK)
  %same_rank = icmp eq i64 %rank, %rank_wanted
  $LOAD(flags_int, i32, %object, $FIELD_FLAGS)
  %flags = zext i32 %flags_int to i64
  $LOAD(flags_wanted, i64, %spec, $ARGUMENT_FLAGS)
  %flags_there = and i64 %flags, %flags_wanted
  %same_flags = icmp eq i64 %flags_there, %flags_wanted
  %same_both = and i1 %same_rank, %same_flags
  br i1 %same_both, label %shape, label %bad
shape:
  $LOAD(shape_at, ptr, %object, $FIELD_SHAPE)
  $LOAD(shape_wanted_at, ptr, %spec, $ARGUMENT_SHAPE)
  br label %axis
axis:
  %index = phi i64 [0, %shape], [%index_1, %compare]
  %more = icmp ult i64 %index, %rank
  br i1 %more, label %compare, label %address
compare:
  %extent_at = getelementptr i64, ptr %shape_at, i64 %index
  %extent = load i64, ptr %extent_at, align 8
  %extent_wanted_at = getelementptr i64, ptr %shape_wanted_at, i64 %index
  %extent_wanted = load i64, ptr %extent_wanted_at, align 8
  %index_1 = add i64 %index, 1
  %same = icmp eq i64 %extent, %extent_wanted
  br i1 %same, label %axis, label %bad
address:
  $LOAD(data, ptr, %object, $FIELD_DATA)
  store ptr %data, ptr %current_at, align 8
  ret i1 true
scalar:
  $LOAD(numpy_type, ptr, %spec, $ARGUMENT_NUMPY)
  %is_numpy = icmp eq ptr %type, %numpy_type
  br i1 %is_numpy, label %numpy, label %number
numpy:
  %value_at = getelementptr i8, ptr %object, i64 $HEAD
  store ptr %value_at, ptr %current_at, align 8
  ret i1 true
number:
  $LOAD(kind, i64, %spec, $ARGUMENT_SCALAR)
  $LOAD(storage, ptr, %spec, $ARGUMENT_STORAGE)
  store ptr %storage, ptr %current_at, align 8
  switch i64 %kind, label %bad
      [i64 1, label %float i64 2, label %float i64 3, label %int i64 4, label %int i64 5, label %bool]
float:
  $LOAD(float_type, ptr, %descriptor, $DESCRIPTOR_FLOAT_TYPE)
  %is_float = icmp eq ptr %type, %float_type
  br i1 %is_float, label %float_value, label %bad
float_value:
  %double = call double @PyFloat_AsDouble(ptr %object)
  %single = icmp eq i64 %kind, 1
  br i1 %single, label %store_float, label %store_double
store_float:
  %narrow = fptrunc double %double to float
  store float %narrow, ptr %storage, align 8
  ret i1 true
store_double:
  store double %double, ptr %storage, align 8
  ret i1 true
int:
  $LOAD(int_type, ptr, %descriptor, $DESCRIPTOR_INT_TYPE)
  %is_int = icmp eq ptr %type, %int_type
  br i1 %is_int, label %int_value, label %bad
int_value:
  %integer = call i64 @PyLong_AsLongLongAndOverflow(ptr %object, ptr %overflow_at)
  %overflow = load i32, ptr %overflow_at, align 4
  %fits_long = icmp eq i32 %overflow, 0
  %low = trunc i64 %integer to i32
  %back = sext i32 %low to i64
  %fits_narrow = icmp eq i64 %back, %integer
  %is_wide = icmp eq i64 %kind, 4
  %fits_kind = or i1 %is_wide, %fits_narrow
  %fits = and i1 %fits_long, %fits_kind
  br i1 %fits, label %store_int, label %bad
store_int:
  store i64 %integer, ptr %storage, align 8
  ret i1 true
bool:
  $LOAD(bool_type, ptr, %descriptor, $DESCRIPTOR_BOOL_TYPE)
  %is_bool = icmp eq ptr %type, %bool_type
  br i1 %is_bool, label %bool_value, label %bad
bool_value:
  $LOAD(true_object, ptr, %descriptor, $DESCRIPTOR_TRUE)
  %truth = icmp eq ptr %object, %true_object
  %byte = zext i1 %truth to i8
  store i8 %byte, ptr %storage, align 8
  ret i1 true
bad:
  ret i1 false
}

; How many bytes of an argument are read or written in all steps.
define internal i64 @bytes_of(ptr %spec, i64 %steps) nounwind {
  $LOAD(bytes, i64, %spec, $ARGUMENT_BYTES_AT)
  $LOAD(sliced, i64, %spec, $ARGUMENT_SLICED)
  %all = mul i64 %bytes, %steps
  %is_sliced = icmp ne i64 %sliced, 0
  %size = select i1 %is_sliced, i64 %all, i64 %bytes
  ret i64 %size
}

; Does donated memory overlap another argument? Only pairs with an address that changed, or a size, are asked.
define internal i1 @overlaps(ptr %specs, i64 %count, i64 %steps) nounwind {
entry:
  br label %first
first:
  %i = phi i64 [0, %entry], [%i_1, %first_over]
  %more_i = icmp ult i64 %i, %count
  %i_1 = add i64 %i, 1
  br i1 %more_i, label %look, label %note
look:
  %i_offset = mul i64 %i, $ARGUMENT_BYTES
  %a = getelementptr i8, ptr %specs, i64 %i_offset
  $LOAD(a_start, i64, %a, $ARGUMENT_CURRENT)
  $LOAD(a_checked, i64, %a, $ARGUMENT_CHECKED)
  $LOAD(a_donated, i64, %a, $ARGUMENT_DONATED)
  $LOAD(a_sliced, i64, %a, $ARGUMENT_SLICED)
  %a_bytes = call i64 @bytes_of(ptr %a, i64 %steps)
  %a_end = add i64 %a_start, %a_bytes
  %moved = icmp ne i64 %a_start, %a_checked
  %resized = icmp ne i64 %a_sliced, 0
  %changed = or i1 %moved, %resized
  %holds = icmp ne i64 %a_bytes, 0
  %ask = and i1 %changed, %holds
  br i1 %ask, label %second, label %first_over
second:
  %j = phi i64 [0, %look], [%j_1, %second_over]
  %more_j = icmp ult i64 %j, %count
  br i1 %more_j, label %compare, label %first_over
compare:
  %j_offset = mul i64 %j, $ARGUMENT_BYTES
  %b = getelementptr i8, ptr %specs, i64 %j_offset
  $LOAD(b_start, i64, %b, $ARGUMENT_CURRENT)
  $LOAD(b_donated, i64, %b, $ARGUMENT_DONATED)
  %b_bytes = call i64 @bytes_of(ptr %b, i64 %steps)
  %b_end = add i64 %b_start, %b_bytes
  %j_1 = add i64 %j, 1
  %either = or i64 %a_donated, %b_donated
  %matters = icmp ne i64 %either, 0
  %other = icmp ne i64 %i, %j
  %b_holds = icmp ne i64 %b_bytes, 0
  %a_before = icmp ult i64 %a_start, %b_end
  %b_before = icmp ult i64 %b_start, %a_end
  %meet = and i1 %a_before, %b_before
  %there = and i1 %other, %b_holds
  %pair = and i1 %matters, %there
  %clash = and i1 %meet, %pair
  br i1 %clash, label %refuse, label %second_over
second_over:
  br label %second
first_over:
  br label %first
refuse:
  ret i1 true
note:
  %k = phi i64 [0, %first], [%k_1, %note_one]
  %more_k = icmp ult i64 %k, %count
  br i1 %more_k, label %note_one, label %out
note_one:
  %k_offset = mul i64 %k, $ARGUMENT_BYTES
  %c = getelementptr i8, ptr %specs, i64 %k_offset
  $LOAD(c_start, i64, %c, $ARGUMENT_CURRENT)
  %c_checked_at = getelementptr i8, ptr %c, i64 $ARGUMENT_CHECKED
  store i64 %c_start, ptr %c_checked_at, align 8
  %k_1 = add i64 %k, 1
  br label %note
out:
  ret i1 false
}
"""


def reading_names() -> dict[str, str]:
    """What the text calls offsets and numbers."""
    names = {f"ARGUMENT_{name}": str(offset) for name, offset in ARGUMENT.items()}
    names |= {f"FIELD_{name}": str(offset) for name, offset in FIELDS.items()}
    names |= {f"DTYPE_{name}": str(offset) for name, offset in _DTYPE.items()}
    names["ARGUMENT_BYTES_AT"] = names["ARGUMENT_BYTES"]
    names["ARGUMENT_BYTES"] = str(ARGUMENT_BYTES)
    names["HEAD"] = str(HEAD)
    names["NATIVE"] = str(ord("="))
    names["NO_ORDER"] = str(ord("|"))  # elements of one byte
    return names


def array_layout_holds() -> bool:
    """Whether this NumPy's arrays have their fields where its header says; a sample array is read to see."""
    sample = np.zeros((3, 5), np.float32)[1:]
    here = id(sample)

    def field(name: str, kind: Any) -> Any:
        return kind.from_address(here + FIELDS[name]).value

    dtype = id(sample.dtype)
    shape = (ctypes.c_int64 * 2).from_address(field("SHAPE", ctypes.c_int64))
    flags = C_CONTIGUOUS | ALIGNED | WRITEABLE
    return (
        field("TYPE", ctypes.c_int64) == id(np.ndarray)
        and field("DATA", ctypes.c_int64) == sample.ctypes.data
        and field("RANK", ctypes.c_int32) == 2
        and tuple(shape) == sample.shape
        and field("DTYPE", ctypes.c_int64) == dtype
        and ctypes.c_int64.from_address(dtype + _DTYPE["SCALAR_TYPE"]).value == id(np.float32)
        and ctypes.c_char.from_address(dtype + _DTYPE["ORDER"]).value == b"="
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
