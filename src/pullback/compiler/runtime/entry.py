"""The compiled Python entry: one machine-code function behind every program's ``entry``.

It is a ``PyCFunction`` bound to a tuple ``(address of a descriptor, owner of the memory)``. For
each argument it compares type, dtype, shape, order, alignment and, where the argument is donated,
writability; it refuses donated memory that overlaps another argument; it makes the results, fills
the context's slots and runs the driver. Nothing but the results is allocated. Whatever it does not
take (other array classes, other byte orders, a program that is busy in another thread, workers not
yet started) it answers with ``NotImplemented``, and Python takes over.

Arrays are read through the fields that NumPy's own header inlines into every extension module,
after a check that they lie where the header says (``array_layout_holds``).
"""

from __future__ import annotations

import ctypes
from string import Template
from typing import Any

import numpy as np

from pullback.compiler.runtime import driver, layout

__all__ = ["array_layout_holds", "entry_text", "make_function"]

# The descriptor of a program's entry, in bytes.
DESCRIPTOR = {
    "CONTEXT": 0,
    "POOL": 8,
    "ARGUMENTS": 16,  # i64: how many
    "RESULTS": 24,
    "FLAGS": 32,  # i64: USE_POOL, RELEASE_LOCK
    "ARRAY_TYPE": 40,  # numpy.ndarray
    "NOT_IMPLEMENTED": 48,
    "NEW_ARRAY": 56,  # PyArray_NewFromDescr
    "FAILED": 64,  # a callable that raises what the failure record says
    "FLOAT_TYPE": 72,
    "INT_TYPE": 80,
    "BOOL_TYPE": 88,
    "TRUE": 96,
    "DONATED": 104,  # i64: how many arguments are donated
    "SPECS": 112,
    "RESULT_SPECS": 120,
}
DESCRIPTOR_BYTES = 128

ARGUMENT = {
    "DTYPE": 0,  # numpy.dtype object
    "RANK": 8,
    "SHAPE": 16,  # ptr to i64 extents
    "FLAGS": 24,  # array flags that must be set
    "BYTES": 32,
    "SCALAR": 40,  # the kind of Python scalar taken, see SCALAR_KINDS
    "STORAGE": 48,  # where such a scalar is put
    "DONATED": 56,
    "CHECKED": 64,  # the address last found not to overlap
    "CURRENT": 72,  # the address in this call
}
ARGUMENT_BYTES = 80
RESULT = {"DTYPE": 0, "RANK": 8, "SHAPE": 16, "ALIAS": 24}  # ALIAS: the donated argument's index, or -1
RESULT_BYTES = 32
SCALAR_KINDS = {"float32": 1, "float64": 2, "int32": 3, "int64": 4, "bool": 5}

C_CONTIGUOUS, ALIGNED, WRITEABLE = 0x1, 0x100, 0x400
_NEW_FROM_DESCR = 94  # the index in NumPy's table of functions, fixed for all versions 1.x and 2.x
_HEAD = object.__basicsize__  # the object header, 16 bytes except in free-threaded builds
_FIELDS = {
    "TYPE": _HEAD - 8,
    "DATA": _HEAD,
    "RANK": _HEAD + 8,
    "SHAPE": _HEAD + 16,
    "DTYPE": _HEAD + 40,
    "FLAGS": _HEAD + 48,
}
_DTYPE = {"SCALAR_TYPE": _HEAD, "ORDER": _HEAD + 10}
_METH_FASTCALL = 0x80

# How the arguments are read: one loop that leaves every address in its specification, then the
# check of overlaps.
_READ = """
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

; Does donated memory overlap another argument? Only pairs with an address that changed are asked.
define internal i1 @overlaps(ptr %specs, i64 %count) nounwind {
entry:
  br label %first
first:
  %i = phi i64 [0, %entry], [%i_1, %first_over]
  %more_i = icmp ult i64 %i, %count
  %i_1 = add i64 %i, 1
  br i1 %more_i, label %look, label %accept
look:
  %i_offset = mul i64 %i, $ARGUMENT_BYTES
  %a = getelementptr i8, ptr %specs, i64 %i_offset
  $LOAD(a_start, i64, %a, $ARGUMENT_CURRENT)
  $LOAD(a_checked, i64, %a, $ARGUMENT_CHECKED)
  $LOAD(a_bytes, i64, %a, $ARGUMENT_BYTES_AT)
  $LOAD(a_donated, i64, %a, $ARGUMENT_DONATED)
  %a_end = add i64 %a_start, %a_bytes
  %changed = icmp ne i64 %a_start, %a_checked
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
  $LOAD(b_bytes, i64, %b, $ARGUMENT_BYTES_AT)
  $LOAD(b_donated, i64, %b, $ARGUMENT_DONATED)
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
accept:
  br label %note
note:
  %k = phi i64 [0, %accept], [%k_1, %note_one]
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

_RESULTS = """
; The tuple of results, their addresses put into the slots; null with Python's error set if memory is short.
define internal ptr @make_results(ptr %descriptor, ptr %arguments, ptr %slots) nounwind {
entry:
  $LOAD(count, i64, %descriptor, $DESCRIPTOR_RESULTS)
  $LOAD(specs, ptr, %descriptor, $DESCRIPTOR_RESULT_SPECS)
  $LOAD(argument_specs, ptr, %descriptor, $DESCRIPTOR_SPECS)
  $LOAD(array_type, ptr, %descriptor, $DESCRIPTOR_ARRAY_TYPE)
  $LOAD(new_array, ptr, %descriptor, $DESCRIPTOR_NEW_ARRAY)
  %tuple = call ptr @PyTuple_New(i64 %count)
  %no_tuple = icmp eq ptr %tuple, null
  br i1 %no_tuple, label %out_of_memory, label %next
next:
  %index = phi i64 [0, %entry], [%index_1, %put]
  %more = icmp ult i64 %index, %count
  br i1 %more, label %make, label %out
make:
  %offset = mul i64 %index, $RESULT_BYTES
  %spec = getelementptr i8, ptr %specs, i64 %offset
  $LOAD(alias, i64, %spec, $RESULT_ALIAS)
  %is_new = icmp slt i64 %alias, 0
  br i1 %is_new, label %fresh, label %aliased
fresh:
  $LOAD(dtype, ptr, %spec, $RESULT_DTYPE)
  $LOAD(rank, i64, %spec, $RESULT_RANK)
  $LOAD(shape, ptr, %spec, $RESULT_SHAPE)
  %rank_int = trunc i64 %rank to i32
  call void @Py_IncRef(ptr %dtype)
  %array = call ptr %new_array(
      ptr %array_type, ptr %dtype, i32 %rank_int, ptr %shape, ptr null, ptr null, i32 0, ptr null)
  %none = icmp eq ptr %array, null
  br i1 %none, label %release, label %fresh_address
fresh_address:
  $LOAD(fresh_data, ptr, %array, $FIELD_DATA)
  br label %put
aliased:
  %argument_at = getelementptr ptr, ptr %arguments, i64 %alias
  %argument = load ptr, ptr %argument_at, align 8
  call void @Py_IncRef(ptr %argument)
  %argument_offset = mul i64 %alias, $ARGUMENT_BYTES
  %argument_spec = getelementptr i8, ptr %argument_specs, i64 %argument_offset
  $LOAD(taken_data, ptr, %argument_spec, $ARGUMENT_CURRENT)
  br label %put
put:
  %object = phi ptr [%array, %fresh_address], [%argument, %aliased]
  %data = phi ptr [%fresh_data, %fresh_address], [%taken_data, %aliased]
  %slot_offset = mul i64 %index, $SLOT_BYTES
  %slot = getelementptr i8, ptr %slots, i64 %slot_offset
  store ptr %data, ptr %slot, align 8
  %ignored = call i32 @PyTuple_SetItem(ptr %tuple, i64 %index, ptr %object)
  %index_1 = add i64 %index, 1
  br label %next
release:
  call void @Py_DecRef(ptr %tuple)
  br label %out_of_memory
out_of_memory:
  ret ptr null
out:
  ret ptr %tuple
}
"""

_ENTRY = """
define ptr @pullback_entry(ptr %self, ptr %arguments, i64 %given) nounwind {
entry:
  %address = call ptr @PyTuple_GetItem(ptr %self, i64 0)
  %descriptor = call ptr @PyLong_AsVoidPtr(ptr %address)
  $LOAD(context, ptr, %descriptor, $DESCRIPTOR_CONTEXT)
  $LOAD(pool, ptr, %descriptor, $DESCRIPTOR_POOL)
  $LOAD(count, i64, %descriptor, $DESCRIPTOR_ARGUMENTS)
  $LOAD(flags, i64, %descriptor, $DESCRIPTOR_FLAGS)
  $LOAD(specs, ptr, %descriptor, $DESCRIPTOR_SPECS)
  %as_many = icmp eq i64 %given, %count
  br i1 %as_many, label %workers, label %decline
workers:
  %pooled = and i64 %flags, $USE_POOL
  %alone = icmp eq i64 %pooled, 0
  $LOAD(started, i64, %pool, $POOL_STARTED)
  $LOAD(wanted, i64, %pool, $POOL_WANTED)
  %alive = add i64 %started, 1
  %enough = icmp uge i64 %alive, %wanted
  %ready = or i1 %alone, %enough
  br i1 %ready, label %take, label %decline
take:
  %busy = call i32 @pullback_take(ptr %context)
  %free = icmp eq i32 %busy, 0
  br i1 %free, label %read, label %decline
read:
  %index = phi i64 [0, %take], [%index_1, %read_on]
  %more = icmp ult i64 %index, %count
  br i1 %more, label %read_one, label %overlap
read_one:
  %object_at = getelementptr ptr, ptr %arguments, i64 %index
  %object = load ptr, ptr %object_at, align 8
  %offset = mul i64 %index, $ARGUMENT_BYTES
  %spec = getelementptr i8, ptr %specs, i64 %offset
  %index_1 = add i64 %index, 1
  %fits = call i1 @read_argument(ptr %descriptor, ptr %spec, ptr %object)
  br i1 %fits, label %read_on, label %decline_taken
read_on:
  %current_at = getelementptr i8, ptr %spec, i64 $ARGUMENT_CURRENT
  %current = load ptr, ptr %current_at, align 8
  %slot_offset = mul i64 %index_1, $SLOT_BYTES
  %slot_offset_all = add i64 %slot_offset, $SLOTS_OFFSET
  %slot = getelementptr i8, ptr %context, i64 %slot_offset_all
  store ptr %current, ptr %slot, align 8
  br label %read
overlap:
  $LOAD(donated, i64, %descriptor, $DESCRIPTOR_DONATED)
  %any_donated = icmp ne i64 %donated, 0
  br i1 %any_donated, label %ask_overlap, label %results
ask_overlap:
  %clash = call i1 @overlaps(ptr %specs, i64 %count)
  br i1 %clash, label %decline_taken, label %results
results:
  %count_1 = add i64 %count, 1
  %result_offset = mul i64 %count_1, $SLOT_BYTES
  %result_offset_all = add i64 %result_offset, $SLOTS_OFFSET
  %result_slots = getelementptr i8, ptr %context, i64 %result_offset_all
  %tuple = call ptr @make_results(ptr %descriptor, ptr %arguments, ptr %result_slots)
  %made = icmp ne ptr %tuple, null
  br i1 %made, label %run, label %no_result
run:
  %status = call i64 @pullback_run(ptr %context, ptr %pool, i64 1, i64 %flags)
  switch i64 %status, label %finish
      [i64 $STATUS_FAILED, label %failure i64 $STATUS_INTERRUPTED, label %no_tuple]
finish:
  call void @pullback_give(ptr %context)
  ret ptr %tuple
failure:
  $LOAD(raiser, ptr, %descriptor, $DESCRIPTOR_FAILED)
  %null = call ptr @PyObject_CallObject(ptr %raiser, ptr null)
  br label %no_tuple
no_tuple:
  call void @Py_DecRef(ptr %tuple)
  br label %no_result
no_result:
  call void @pullback_give(ptr %context)
  ret ptr null
decline_taken:
  call void @pullback_give(ptr %context)
  br label %decline
decline:
  $LOAD(not_implemented, ptr, %descriptor, $DESCRIPTOR_NOT_IMPLEMENTED)
  call void @Py_IncRef(ptr %not_implemented)
  ret ptr %not_implemented
}

declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare ptr @PyTuple_GetItem(ptr, i64)
declare ptr @PyLong_AsVoidPtr(ptr)
declare i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)
declare double @PyFloat_AsDouble(ptr)
declare ptr @PyObject_CallObject(ptr, ptr)
declare void @Py_IncRef(ptr)
declare ptr @PyCapsule_GetPointer(ptr, ptr)
declare ptr @PyCapsule_GetContext(ptr)

; The end of a capsule that holds a context: what it lies in is let go once no worker is in it. A finaliser written in
; Python would be the place where Ctrl-C is dropped, and where it keeps the workers from being waited for.
define void @pullback_release(ptr %capsule) nounwind {
  %context = call ptr @PyCapsule_GetPointer(ptr %capsule, ptr null)
  %pool_at = getelementptr i8, ptr %context, i64 $CONTEXT_POOL
  %pool = load ptr, ptr %pool_at, align 8
  call void @pullback_quiesce(ptr %pool, ptr %context)
  %owners = call ptr @PyCapsule_GetContext(ptr %capsule)
  call void @Py_DecRef(ptr %owners)
  ret void
}
"""

# The functions of Python's interface that driver and entry call.
PYTHON_FUNCTIONS = (
    "PyCapsule_GetContext",
    "PyCapsule_GetPointer",
    "PyErr_CheckSignals",
    "PyEval_RestoreThread",
    "PyEval_SaveThread",
    "PyFloat_AsDouble",
    "PyGILState_Ensure",
    "PyGILState_Release",
    "PyLong_AsLongLongAndOverflow",
    "PyLong_AsVoidPtr",
    "PyLong_FromVoidPtr",
    "PyObject_CallObject",
    "PyObject_CallOneArg",
    "PyTuple_GetItem",
    "PyTuple_New",
    "PyTuple_SetItem",
    "Py_DecRef",
    "Py_IncRef",
)


def entry_text() -> str:
    """The entry as LLVM IR, to stand in one module with ``driver_text``."""
    values = driver.names()
    values["SLOTS_OFFSET"] = str(layout.SLOTS_OFFSET)
    values["SLOT_BYTES"] = str(layout.SLOT_BYTES)
    for prefix, offsets in (
        ("DESCRIPTOR", DESCRIPTOR),
        ("ARGUMENT", ARGUMENT),
        ("RESULT", RESULT),
        ("FIELD", _FIELDS),
        ("DTYPE", _DTYPE),
    ):
        values.update({f"{prefix}_{name}": str(offset) for name, offset in offsets.items()})
    values["NATIVE"] = str(ord("="))
    values["NO_ORDER"] = str(ord("|"))  # elements of one byte
    values["ARGUMENT_BYTES_AT"] = values["ARGUMENT_BYTES"]
    values["ARGUMENT_BYTES"] = str(ARGUMENT_BYTES)
    values["RESULT_BYTES"] = str(RESULT_BYTES)
    text = "".join(_expand_loads(part) for part in (_READ, _RESULTS, _ENTRY))
    return Template(text).substitute(values)


def _expand_loads(text: str) -> str:
    """``$LOAD(name, type, base, offset)`` is written out as an address and a load."""
    lines = []
    for line in text.splitlines():
        if line.strip().startswith("$LOAD("):
            name, kind, base, offset = (part.strip() for part in line.strip()[len("$LOAD(") : -1].split(","))
            lines.append(f"  %{name}_field = getelementptr i8, ptr {base}, i64 {offset}")
            align = 4 if kind == "i32" else 8
            lines.append(f"  %{name} = load {kind}, ptr %{name}_field, align {align}")
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


def array_layout_holds() -> bool:
    """Whether this NumPy's arrays have their fields where its header says; a sample array is read to see."""
    sample = np.zeros((3, 5), np.float32)[1:]
    here = id(sample)

    def field(name: str, kind: Any) -> Any:
        return kind.from_address(here + _FIELDS[name]).value

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


def new_array_address() -> int:
    """The address of ``PyArray_NewFromDescr`` in NumPy's table of functions."""
    core = getattr(np, "_core", None) or np.core
    capsule = core.multiarray._ARRAY_API
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    table = get(capsule, None)
    return int(ctypes.c_int64.from_address(table + 8 * _NEW_FROM_DESCR).value)


class _MethodDefinition(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("documentation", ctypes.c_char_p),
    ]


_definitions: dict[int, _MethodDefinition] = {}


def make_function(entry_address: int, descriptor_address: int, owner: object) -> Any:
    """A Python builtin that runs the entry on a descriptor; it keeps ``owner`` alive."""
    if entry_address not in _definitions:
        _definitions[entry_address] = _MethodDefinition(
            b"program", entry_address, _METH_FASTCALL, b"Run a compiled program on arrays."
        )
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = (
        ctypes.py_object,
        [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p],
    )
    return make(ctypes.addressof(_definitions[entry_address]), (descriptor_address, owner), None)
