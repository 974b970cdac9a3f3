"""Objects of Python classes that are called as builtins are: by the address of a function that stands in the object.

Python calls an object of a class with ``__call__`` by way of a tuple of the arguments and a look at the class. Builtin
functions are called by an address instead, which is given the arguments where they lie ("vectorcall", PEP 590). A class
may offer the same: a flag says so, and where in its objects the address stands; while it is null, ``__call__`` is
looked up as ever. ``CallableObject`` has room for the address, ``called_directly`` sets the flag, which Python does not
give to classes that are written in Python, and machine code hands the arguments to whatever the object's slot
``__call__`` holds at that time. Where objects are not laid out as expected, calls go on as ever, a few hundredths of a
microsecond slower.

Source: https://peps.python.org/pep-0590, ``cpython/object.h``.

>>> @called_directly
... class Answer(CallableObject):
...     __slots__ = ("__call__",)
>>> answer = Answer()
>>> answer.__call__ = lambda: 42
>>> set_entry(answer, 0)
>>> answer()
42
"""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["CALLING", "CALLING_FUNCTIONS", "FORWARDING", "CallableObject", "called_directly", "set_entry"]

_HEAD = object.__basicsize__
# Where in an object the address of the machine code stands, and the slot after it.
_ENTRY, _SLOT = _HEAD, _HEAD + 8

FORWARDING = f"""
; A call of an object by what its slot __call__ holds, which may get something else meanwhile.
define ptr @pullback_forward(ptr %self, ptr %arguments, i64 %given, ptr %names) nounwind {{
entry:
  %slot = getelementptr i8, ptr %self, i64 {_SLOT}
  %called = load ptr, ptr %slot, align 8
  %deleted = icmp eq ptr %called, null
  br i1 %deleted, label %wrong, label %call
wrong:
  call void @PyErr_BadInternalCall()
  ret ptr null
call:
  call void @Py_IncRef(ptr %called)
  %result = call ptr @PyObject_Vectorcall(ptr %called, ptr %arguments, i64 %given, ptr %names)
  call void @Py_DecRef(ptr %called)
  ret ptr %result
}}

declare void @PyErr_BadInternalCall()
"""

CALLING_FUNCTIONS = ("PyObject_Vectorcall",) if sys.version_info >= (3, 11) else ("PyObject_Call",)
CALLING = (
    "declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)\n"
    if sys.version_info >= (3, 11)
    else """
; Python 3.10 has it in its headers only.
define internal ptr @PyObject_Vectorcall(ptr %called, ptr %arguments, i64 %flagged, ptr %names) nounwind {
entry:
  %given = and i64 %flagged, 9223372036854775807
  %values = getelementptr ptr, ptr %arguments, i64 %given
  %tuple = call ptr @PyTuple_New(i64 %given)
  %no_tuple = icmp eq ptr %tuple, null
  br i1 %no_tuple, label %short, label %next
short:
  ret ptr null
next:
  %index = phi i64 [0, %entry], [%index_1, %one]
  %index_1 = add i64 %index, 1
  %more = icmp ult i64 %index, %given
  br i1 %more, label %one, label %named
one:
  %object_at = getelementptr ptr, ptr %arguments, i64 %index
  %object = load ptr, ptr %object_at, align 8
  call void @Py_IncRef(ptr %object)
  %set = call i32 @PyTuple_SetItem(ptr %tuple, i64 %index, ptr %object)
  br label %next
named:
  %unnamed = icmp eq ptr %names, null
  br i1 %unnamed, label %call, label %make
make:
  %keywords = call ptr @PyDict_New()
  %no_keywords = icmp eq ptr %keywords, null
  br i1 %no_keywords, label %leave, label %count
count:
  %size = call i64 @PyTuple_Size(ptr %names)
  br label %next_name
next_name:
  %place = phi i64 [0, %count], [%place_1, %name]
  %place_1 = add i64 %place, 1
  %more_names = icmp ult i64 %place, %size
  br i1 %more_names, label %name, label %call
name:
  %key = call ptr @PyTuple_GetItem(ptr %names, i64 %place)
  %value_at = getelementptr ptr, ptr %values, i64 %place
  %value = load ptr, ptr %value_at, align 8
  %added = call i32 @PyDict_SetItem(ptr %keywords, ptr %key, ptr %value)
  %failed = icmp slt i32 %added, 0
  br i1 %failed, label %drop, label %next_name
call:
  %passed = phi ptr [null, %named], [%keywords, %next_name]
  %result = call ptr @PyObject_Call(ptr %called, ptr %tuple, ptr %passed)
  %no_dict = icmp eq ptr %passed, null
  br i1 %no_dict, label %leave, label %drop
drop:
  %result_drop = phi ptr [null, %name], [%result, %call]
  %dict = phi ptr [%keywords, %name], [%passed, %call]
  call void @Py_DecRef(ptr %dict)
  br label %leave
leave:
  %result_leave = phi ptr [null, %make], [%result, %call], [%result_drop, %drop]
  call void @Py_DecRef(ptr %tuple)
  ret ptr %result_leave
}

declare ptr @PyObject_Call(ptr, ptr, ptr)
"""
)
"""How machine code calls an object with an array of arguments."""

_FLAG_BASE, _FLAG_VECTORCALL = 1 << 10, 1 << 11
_MEMBERS = 72  # in Python's stable interface
_SSIZE, _READ_ONLY = 19, 1
_TYPE_OFFSET, _TYPE_FLAGS = 56, 168  # where a type object has the place of the address, and its flags


class _Member(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_int),
        ("offset", ctypes.c_ssize_t),
        ("flags", ctypes.c_int),
        ("documentation", ctypes.c_char_p),
    ]


class _Slot(ctypes.Structure):
    _fields_ = [("slot", ctypes.c_int), ("function", ctypes.c_void_p)]


class _Spec(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("basicsize", ctypes.c_int),
        ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("slots", ctypes.c_void_p),
    ]


def _made() -> tuple[Any, Any]:
    """The class, and the records that Python goes on to read."""
    members = (_Member * 2)(_Member(b"__vectorcalloffset__", _SSIZE, _ENTRY, _READ_ONLY, None))
    slots = (_Slot * 2)(_Slot(_MEMBERS, ctypes.addressof(members)))
    name = f"{__name__}.CallableObject".encode()
    spec = _Spec(name, _ENTRY + 8, 0, _FLAG_BASE, ctypes.addressof(slots))
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p)(("PyType_FromSpec", ctypes.pythonapi))
    return make(ctypes.addressof(spec)), (members, slots, name, spec)


_CallableObject, _records = _made()

if TYPE_CHECKING:

    class CallableObject:
        """The base of classes whose objects hold the address of what they are called by."""
else:
    CallableObject = _CallableObject

_direct: set[type] = set()
_C = TypeVar("_C", bound=type)


def called_directly(cls: _C) -> _C:
    """Have the objects of a class called by the address that they hold; its first slot is ``__call__``."""
    flags = ctypes.c_ulong.from_address(id(cls) + _TYPE_FLAGS)
    offset = ctypes.c_ssize_t.from_address(id(cls) + _TYPE_OFFSET)
    laid_out = sys.implementation.name == "cpython" and ctypes.sizeof(ctypes.c_void_p) == _HEAD // 2 == 8
    if laid_out and flags.value == cls.__flags__ and offset.value == _ENTRY:
        flags.value |= _FLAG_VECTORCALL
        if cls.__flags__ & _FLAG_VECTORCALL:
            _direct.add(cls)
    return cls


def set_entry(instance: Any, address: int) -> None:
    """Have ``instance`` called by machine code, which is ``FORWARDING``'s; 0 for none."""
    slot = ctypes.c_int64.from_address(id(instance) + _SLOT)
    if type(instance) in _direct and slot.value == id(instance.__call__):
        ctypes.c_int64.from_address(id(instance) + _ENTRY).value = address
