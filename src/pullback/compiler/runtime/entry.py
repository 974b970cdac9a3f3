"""The compiled Python entry: the machine code behind every compiled function, without Python in between.

It is a ``PyCFunction`` bound to a tuple ``(address of a table, what is in it)``, which takes an array of arguments and
the tuple of keywords' names, as calls hand them over (compiled functions pass them on, ``objects.py``). A table lists
descriptors of signatures, and what is called when none of them fits. For each signature in turn the entry compares the
trees of arguments (``nodes.py``) and their leaves (``reading.py``); it refuses donated memory that overlaps another
argument; it makes the results, fills the context's slots, runs the driver and builds the tree of results. Nothing but
the results is allocated. Whatever it does not take (other classes, other byte orders, a program that is busy in another
thread, workers not yet started) it leaves to the function at the end of the table, or answers with ``NotImplemented``.

Arguments are held until the call ends: while the program runs without the interpreter lock, others may change the
containers that they came in.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from string import Template
from typing import Any

from pullback.compiler.runtime import driver, layout, objects
from pullback.compiler.runtime.nodes import NODE_FUNCTIONS, WALKING, node_names
from pullback.compiler.runtime.reading import ARGUMENT_BYTES, READING, reading_names
from pullback.compiler.runtime.returning import RETURNING
from pullback.compiler.runtime.signature import DESCRIPTOR, RESULT, RESULT_BYTES, Signature

__all__ = ["PYTHON_FUNCTIONS", "entry_text", "make_function"]

# The table: what is asked when no signature fits (or null), NotImplemented, int, how many descriptors, and these.
TABLE = {"LAST": 0, "NOT_IMPLEMENTED": 8, "INT_TYPE": 16, "COUNT": 24, "DESCRIPTORS": 32}

_METH_KEYWORDS, _METH_FASTCALL = 0x2, 0x80

_ENTRY = """
; Whether these arguments, held in their records, are what a signature says: so many positional ones, and then those of
; keywords, if there is a tuple of their names.
define internal i1 @takes(
    ptr %descriptor, ptr %arguments, i64 %given, ptr %names, i64 %steps) nounwind {
entry:
  $LOAD(taken, ptr, %descriptor, $DESCRIPTOR_TAKEN)
  $LOAD(keywords_taken, ptr, %descriptor, $DESCRIPTOR_KEYWORDS)
  $LOAD(count, i64, %descriptor, $DESCRIPTOR_ARGUMENTS)
  $LOAD(specs, ptr, %descriptor, $DESCRIPTOR_SPECS)
  $LOAD(donated, i64, %descriptor, $DESCRIPTOR_DONATED)
  $LOAD(positional, i64, %taken, $NODE_COUNT)
  $LOAD(parts, ptr, %taken, $NODE_PARTS)
  %as_many = icmp eq i64 %given, %positional
  br i1 %as_many, label %next, label %no
next:
  %index = phi i64 [0, %entry], [%index_1, %one]
  %index_1 = add i64 %index, 1
  %more = icmp ult i64 %index, %given
  br i1 %more, label %one, label %named
one:
  %object_at = getelementptr ptr, ptr %arguments, i64 %index
  %object = load ptr, ptr %object_at, align 8
  %part_offset = mul i64 %index, $NODE_BYTES_EACH
  %part = getelementptr i8, ptr %parts, i64 %part_offset
  %fits = call i1 @match(ptr %descriptor, ptr %part, ptr %object)
  br i1 %fits, label %next, label %no
named:
  %unnamed = icmp eq ptr %names, null
  %none_taken = icmp eq ptr %keywords_taken, null
  br i1 %unnamed, label %without, label %with
without:
  br i1 %none_taken, label %donations, label %no
with:
  %names_given = call i64 @PyTuple_Size(ptr %names)
  br i1 %none_taken, label %empty, label %keywords
empty:
  %no_names = icmp eq i64 %names_given, 0
  br i1 %no_names, label %donations, label %no
keywords:
  $LOAD(names_taken, i64, %keywords_taken, $NODE_COUNT)
  $LOAD(pairs, ptr, %keywords_taken, $NODE_PARTS)
  %values = getelementptr ptr, ptr %arguments, i64 %given
  %as_many_names = icmp eq i64 %names_given, %names_taken
  br i1 %as_many_names, label %next_name, label %no
next_name:
  %place = phi i64 [0, %keywords], [%place_1, %value]
  %place_1 = add i64 %place, 1
  %more_names = icmp ult i64 %place, %names_given
  br i1 %more_names, label %name, label %donations
name:
  %pair_offset = mul i64 %place, $NODE_BYTES_TWO
  %name_part = getelementptr i8, ptr %pairs, i64 %pair_offset
  %name_given = call ptr @PyTuple_GetItem(ptr %names, i64 %place)
  %name_fits = call i1 @match(ptr %descriptor, ptr %name_part, ptr %name_given)
  br i1 %name_fits, label %value, label %no
value:
  %value_part = getelementptr i8, ptr %name_part, i64 $NODE_BYTES_EACH
  %value_at = getelementptr ptr, ptr %values, i64 %place
  %value_given = load ptr, ptr %value_at, align 8
  %value_fits = call i1 @match(ptr %descriptor, ptr %value_part, ptr %value_given)
  br i1 %value_fits, label %next_name, label %no
donations:
  %nothing_donated = icmp eq i64 %donated, 0
  br i1 %nothing_donated, label %yes, label %compare
compare:
  %clash = call i1 @overlaps(ptr %specs, i64 %count, i64 %steps)
  br i1 %clash, label %no, label %yes
yes:
  ret i1 true
no:
  ret i1 false
}

; Whether the first argument is of another class, or rank, than a signature says; nothing is written to see that.
define internal i1 @differs(ptr %descriptor, ptr %arguments, i64 %given) nounwind {
entry:
  $LOAD(spec, ptr, %descriptor, $DESCRIPTOR_FIRST)
  $LOAD(array_type, ptr, %descriptor, $DESCRIPTOR_ARRAY_TYPE)
  %unsaid = icmp eq ptr %spec, null
  br i1 %unsaid, label %perhaps, label %count
count:
  %none = icmp eq i64 %given, 0
  br i1 %none, label %perhaps, label %look
perhaps:
  ret i1 false
look:
  %object = load ptr, ptr %arguments, align 8
  $LOAD(type, ptr, %object, $FIELD_TYPE)
  %is_array = icmp eq ptr %type, %array_type
  br i1 %is_array, label %array, label %scalar
array:
  $LOAD(rank_int, i32, %object, $FIELD_RANK)
  $LOAD(rank_wanted, i64, %spec, $ARGUMENT_RANK)
  %rank = sext i32 %rank_int to i64
  %other_rank = icmp ne i64 %rank, %rank_wanted
  ret i1 %other_rank
scalar:
  $LOAD(numpy_type, ptr, %spec, $ARGUMENT_NUMPY)
  $LOAD(kind, i64, %spec, $ARGUMENT_SCALAR)
  %not_numpy = icmp ne ptr %type, %numpy_type
  %not_number = icmp eq i64 %kind, 0
  %neither = and i1 %not_numpy, %not_number
  ret i1 %neither
}

; The results of a call by one signature, null with Python's error set, or the pool's address if it does not fit.
define internal ptr @attempt(
    ptr %descriptor, ptr %arguments, i64 %given, ptr %names, i64 %steps) nounwind {
entry:
  %error_type = alloca ptr, align 8
  %error_at = alloca ptr, align 8
  %trace_at = alloca ptr, align 8
  $LOAD(context, ptr, %descriptor, $DESCRIPTOR_CONTEXT)
  $LOAD(pool, ptr, %descriptor, $DESCRIPTOR_POOL)
  $LOAD(count, i64, %descriptor, $DESCRIPTOR_ARGUMENTS)
  $LOAD(specs, ptr, %descriptor, $DESCRIPTOR_SPECS)
  $LOAD(result_count, i64, %descriptor, $DESCRIPTOR_RESULTS)
  $LOAD(result_specs, ptr, %descriptor, $DESCRIPTOR_RESULT_SPECS)
  $LOAD(share_from, i64, %descriptor, $DESCRIPTOR_SHARE_FROM)
  $LOAD(release_from, i64, %descriptor, $DESCRIPTOR_RELEASE_FROM)
  $LOAD(most_steps, i64, %descriptor, $DESCRIPTOR_MOST_STEPS)
  $LOAD(is_run, i64, %descriptor, $DESCRIPTOR_IS_RUN)
  $LOAD(shown, ptr, %descriptor, $DESCRIPTOR_SHOWN)
  %running = icmp ne i64 %is_run, 0
  %share = icmp uge i64 %steps, %share_from
  %release = icmp uge i64 %steps, %release_from
  %share_flag = select i1 %share, i64 $USE_POOL, i64 0
  %release_flag = select i1 %release, i64 $RELEASE_LOCK, i64 0
  %flags = or i64 %share_flag, %release_flag
  %few = icmp ule i64 %steps, %most_steps
  br i1 %few, label %first, label %decline
first:
  %another = call i1 @differs(ptr %descriptor, ptr %arguments, i64 %given)
  br i1 %another, label %decline, label %workers
workers:
  $LOAD(started, i64, %pool, $POOL_STARTED)
  $LOAD(wanted, i64, %pool, $POOL_WANTED)
  %alive = add i64 %started, 1
  %enough = icmp uge i64 %alive, %wanted
  %alone = xor i1 %share, true
  %ready = or i1 %alone, %enough
  br i1 %ready, label %take, label %decline
take:
  %busy = call i32 @pullback_take(ptr %context)
  %free = icmp eq i32 %busy, 0
  br i1 %free, label %ours, label %decline
ours:
  br i1 %running, label %size, label %compare
size:
  call void @set_steps(ptr %specs, i64 %count, i64 $ARGUMENT_BYTES, i64 %steps)
  call void @set_steps(ptr %result_specs, i64 %result_count, i64 $RESULT_BYTES, i64 %steps)
  br label %compare
compare:
  %fits = call i1 @takes(ptr %descriptor, ptr %arguments, i64 %given, ptr %names, i64 %steps)
  br i1 %fits, label %place, label %others
others:
  call void @release(ptr %specs, i64 %count, i64 $ARGUMENT_BYTES)
  call void @pullback_give(ptr %context)
  br label %decline
decline:
  ret ptr %pool
place:
  %slots = getelementptr i8, ptr %context, i64 $FIRST_ARGUMENT
  call void @point(ptr %specs, i64 %count, ptr %slots)
  %result_offset = mul i64 %count, $SLOT_BYTES
  %result_slots = getelementptr i8, ptr %slots, i64 %result_offset
  %made = call i1 @make_results(ptr %descriptor, ptr %result_slots)
  br i1 %made, label %run, label %wrong
run:
  %status = call i64 @pullback_run(ptr %context, ptr %pool, i64 %steps, i64 %flags)
  switch i64 %status, label %finish
      [i64 $STATUS_FAILED, label %failure i64 $STATUS_INTERRUPTED, label %wrong]
failure:
  $LOAD(raiser, ptr, %descriptor, $DESCRIPTOR_FAILED)
  %null = call ptr @PyObject_CallObject(ptr %raiser, ptr null)
  br label %wrong
finish:
  %scaled = call i1 @make_scalars(ptr %descriptor)
  br i1 %scaled, label %build, label %wrong
build:
  $LOAD(tree, ptr, %descriptor, $DESCRIPTOR_MADE)
  %results = call ptr @build(ptr %descriptor, ptr %tree)
  %no_results = icmp eq ptr %results, null
  br i1 %no_results, label %wrong, label %complete
complete:
  br i1 %running, label %pair, label %done
pair:
  $LOAD(steps_done, i64, %context, $CONTEXT_STEPS_DONE)
  %both = call ptr @pair_with(ptr %results, i64 %steps_done)
  br label %done
done:
  %answer = phi ptr [%results, %complete], [%both, %pair]
  call void @release(ptr %specs, i64 %count, i64 $ARGUMENT_BYTES)
  call void @pullback_give(ptr %context)
  ret ptr %answer
wrong:
  ; whatever is let go of must not meet the exception
  call void @PyErr_Fetch(ptr %error_type, ptr %error_at, ptr %trace_at)
  call void @release(ptr %specs, i64 %count, i64 $ARGUMENT_BYTES)
  call void @release(ptr %result_specs, i64 %result_count, i64 $RESULT_BYTES)
  call void @pullback_give(ptr %context)
  %as_it_is = icmp eq ptr %shown, null
  br i1 %as_it_is, label %restore, label %show
restore:
  %type_as = load ptr, ptr %error_type, align 8
  %error_as = load ptr, ptr %error_at, align 8
  %trace_as = load ptr, ptr %trace_at, align 8
  call void @PyErr_Restore(ptr %type_as, ptr %error_as, ptr %trace_as)
  ret ptr null
show:
  call void @PyErr_NormalizeException(ptr %error_type, ptr %error_at, ptr %trace_at)
  %type = load ptr, ptr %error_type, align 8
  %error = load ptr, ptr %error_at, align 8
  %trace = load ptr, ptr %trace_at, align 8
  %untraced = icmp eq ptr %trace, null
  br i1 %untraced, label %tell, label %traced
traced:
  %ignored = call i32 @PyException_SetTraceback(ptr %error, ptr %trace)
  call void @Py_DecRef(ptr %trace)
  br label %tell
tell:
  %told = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(ptr %shown, ptr %error, ptr null)
  call void @Py_DecRef(ptr %error)
  call void @Py_DecRef(ptr %type)
  ret ptr null
}

; A tuple of the results, whose reference is taken, and a number; null with Python's error set if memory is short.
define internal ptr @pair_with(ptr %results, i64 %number) nounwind {
entry:
  %count = call ptr @PyLong_FromLongLong(i64 %number)
  %no_count = icmp eq ptr %count, null
  br i1 %no_count, label %drop, label %make
make:
  %pair = call ptr @PyTuple_New(i64 2)
  %no_pair = icmp eq ptr %pair, null
  br i1 %no_pair, label %drop_count, label %fill
fill:
  %first = call i32 @PyTuple_SetItem(ptr %pair, i64 0, ptr %results)
  %second = call i32 @PyTuple_SetItem(ptr %pair, i64 1, ptr %count)
  ret ptr %pair
drop_count:
  call void @Py_DecRef(ptr %count)
  br label %drop
drop:
  call void @Py_DecRef(ptr %results)
  ret ptr null
}

; The first signature of a table that fits makes the results; null is returned in %fitting if there is none.
define internal ptr @attempts(
    ptr %table, ptr %arguments, i64 %given, ptr %names, i64 %steps, ptr %fitting) nounwind {
entry:
  $LOAD(count, i64, %table, $TABLE_COUNT)
  %descriptors = getelementptr i8, ptr %table, i64 $TABLE_DESCRIPTORS
  br label %next
next:
  %index = phi i64 [0, %entry], [%index_1, %one]
  %index_1 = add i64 %index, 1
  %more = icmp ult i64 %index, %count
  br i1 %more, label %one, label %none
one:
  %descriptor_at = getelementptr ptr, ptr %descriptors, i64 %index
  %descriptor = load ptr, ptr %descriptor_at, align 8
  $LOAD(declined, ptr, %descriptor, $DESCRIPTOR_POOL)
  %answer = call ptr @attempt(ptr %descriptor, ptr %arguments, i64 %given, ptr %names, i64 %steps)
  %other = icmp eq ptr %answer, %declined
  br i1 %other, label %next, label %found
found:
  store ptr %descriptor, ptr %fitting, align 8
  ret ptr %answer
none:
  store ptr null, ptr %fitting, align 8
  ret ptr null
}

define internal ptr @table_of(ptr %self) nounwind {
  %address = call ptr @PyTuple_GetItem(ptr %self, i64 0)
  %table = call ptr @PyLong_AsVoidPtr(ptr %address)
  ret ptr %table
}

; A call with an array of arguments, those of keywords last, and the tuple of their names.
define ptr @pullback_entry(ptr %self, ptr %arguments, i64 %given, ptr %names) nounwind {
entry:
  %fitting = alloca ptr, align 8
  %table = call ptr @table_of(ptr %self)
  %answer = call ptr @attempts(
      ptr %table, ptr %arguments, i64 %given, ptr %names, i64 1, ptr %fitting)
  %fits = load ptr, ptr %fitting, align 8
  %none = icmp eq ptr %fits, null
  br i1 %none, label %otherwise, label %out
out:
  ret ptr %answer
otherwise:
  $LOAD(last, ptr, %table, $TABLE_LAST)
  %nobody = icmp eq ptr %last, null
  br i1 %nobody, label %decline, label %ask
ask:
  %asked = call ptr @PyObject_Vectorcall(ptr %last, ptr %arguments, i64 %given, ptr %names)
  ret ptr %asked
decline:
  $LOAD(not_implemented, ptr, %table, $TABLE_NOT_IMPLEMENTED)
  call void @Py_IncRef(ptr %not_implemented)
  ret ptr %not_implemented
}

; Of a tuple of arguments and a number of steps: the results and the steps done, or NotImplemented.
define ptr @pullback_run_entry(ptr %self, ptr %both, i64 %two, ptr %none_named) nounwind {
entry:
  %fitting = alloca ptr, align 8
  %overflow = alloca i32, align 4
  %table = call ptr @table_of(ptr %self)
  %given = load ptr, ptr %both, align 8
  %number_at = getelementptr ptr, ptr %both, i64 1
  %number = load ptr, ptr %number_at, align 8
  $LOAD(type, ptr, %number, $FIELD_TYPE)
  $LOAD(int_type, ptr, %table, $TABLE_INT_TYPE)
  %is_int = icmp eq ptr %type, %int_type
  br i1 %is_int, label %count, label %decline
count:
  %steps = call i64 @PyLong_AsLongLongAndOverflow(ptr %number, ptr %overflow)
  %some = icmp sgt i64 %steps, 0
  br i1 %some, label %spread, label %decline
spread:
  %size = call i64 @PyTuple_Size(ptr %given)
  %arguments = alloca ptr, i64 %size, align 8
  br label %next
next:
  %index = phi i64 [0, %spread], [%index_1, %one]
  %index_1 = add i64 %index, 1
  %more = icmp ult i64 %index, %size
  br i1 %more, label %one, label %ask
one:
  %object = call ptr @PyTuple_GetItem(ptr %given, i64 %index)
  %object_at = getelementptr ptr, ptr %arguments, i64 %index
  store ptr %object, ptr %object_at, align 8
  br label %next
ask:
  %answer = call ptr @attempts(
      ptr %table, ptr %arguments, i64 %size, ptr null, i64 %steps, ptr %fitting)
  %fits = load ptr, ptr %fitting, align 8
  %none = icmp eq ptr %fits, null
  br i1 %none, label %decline, label %out
out:
  ret ptr %answer
decline:
  $LOAD(not_implemented, ptr, %table, $TABLE_NOT_IMPLEMENTED)
  call void @Py_IncRef(ptr %not_implemented)
  ret ptr %not_implemented
}

declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare ptr @PyTuple_GetItem(ptr, i64)
declare i64 @PyTuple_Size(ptr)
declare ptr @PyList_New(i64)
declare i32 @PyList_SetItem(ptr, i64, ptr)
declare ptr @PyList_GetItem(ptr, i64)
declare i64 @PyList_Size(ptr)
declare ptr @PyDict_New()
declare i32 @PyDict_SetItem(ptr, ptr, ptr)
declare ptr @PyDict_GetItemWithError(ptr, ptr)
declare i32 @PyDict_Next(ptr, ptr, ptr, ptr)
declare i64 @PyDict_Size(ptr)
declare ptr @PyObject_GenericGetDict(ptr, ptr)
declare i32 @PyObject_GenericSetAttr(ptr, ptr, ptr)
declare ptr @PyObject_GetAttr(ptr, ptr)
declare i32 @PyObject_RichCompareBool(ptr, ptr, i32)
declare ptr @PyLong_AsVoidPtr(ptr)
declare i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)
declare ptr @PyLong_FromLongLong(i64)
declare double @PyFloat_AsDouble(ptr)
declare ptr @PyObject_CallObject(ptr, ptr)
declare void @PyErr_Clear()
declare void @PyErr_Fetch(ptr, ptr, ptr)
declare void @PyErr_NormalizeException(ptr, ptr, ptr)
declare void @PyErr_Restore(ptr, ptr, ptr)
declare i32 @PyException_SetTraceback(ptr, ptr)
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

PYTHON_FUNCTIONS = tuple(
    sorted(
        {
            *NODE_FUNCTIONS,
            "PyCapsule_GetContext",
            "PyCapsule_GetPointer",
            "PyErr_BadInternalCall",
            "PyErr_CheckSignals",
            "PyErr_Fetch",
            "PyErr_NormalizeException",
            "PyErr_Restore",
            "PyEval_RestoreThread",
            "PyEval_SaveThread",
            "PyException_SetTraceback",
            "PyFloat_AsDouble",
            "PyGILState_Ensure",
            "PyGILState_Release",
            "PyLong_AsLongLongAndOverflow",
            "PyLong_AsVoidPtr",
            "PyLong_FromLongLong",
            "PyLong_FromVoidPtr",
            "PyObject_CallObject",
            *objects.CALLING_FUNCTIONS,
        }
    )
)
"""The functions of Python's interface that driver and entry call."""


def entry_text() -> str:
    """The entry as LLVM IR, to stand in one module with ``driver_text``."""
    values = driver.names() | reading_names() | node_names()
    values["FIRST_ARGUMENT"] = str(layout.slot_offset(1))
    values["SLOT_BYTES"] = str(layout.SLOT_BYTES)
    for prefix, offsets in (("DESCRIPTOR", DESCRIPTOR), ("RESULT", RESULT), ("TABLE", TABLE)):
        values.update({f"{prefix}_{name}": str(offset) for name, offset in offsets.items()})
    values["RESULT_BYTES"] = str(RESULT_BYTES)
    values["ARGUMENT_BYTES"] = str(ARGUMENT_BYTES)
    text = "".join(_expand_loads(part) for part in (READING, WALKING, RETURNING, _ENTRY))
    return Template(text).substitute(values) + objects.FORWARDING + objects.CALLING


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


class _MethodDefinition(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("documentation", ctypes.c_char_p),
    ]


_definitions: dict[int, _MethodDefinition] = {}


def make_function(
    entry_address: int, signatures: Sequence[Signature], last: Callable[..., Any] | None = None
) -> Any:
    """A Python builtin that calls by the first of the signatures that fits; it keeps them alive.

    ``last`` is called with the arguments that fit none; without it they are answered with ``NotImplemented``.
    """
    if entry_address not in _definitions:
        _definitions[entry_address] = _MethodDefinition(
            b"program", entry_address, _METH_FASTCALL | _METH_KEYWORDS, b"Run a compiled program."
        )
    words = [0 if last is None else id(last), id(NotImplemented), id(int), len(signatures)]
    words += [signature.address for signature in signatures]
    table = (ctypes.c_int64 * len(words))(*words)
    bound = (ctypes.addressof(table), table, tuple(signatures), last)
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = (
        ctypes.py_object,
        [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p],
    )
    return make(ctypes.addressof(_definitions[entry_address]), bound, None)
