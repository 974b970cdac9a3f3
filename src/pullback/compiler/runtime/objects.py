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

from pullback.compiler.llvm.language import Record

__all__ = ["CALLABLE", "CALLING", "CallableObject", "called_directly", "set_entry"]

_HEAD = object.__basicsize__
# Where in an object the address of the machine code stands, and the slot after it.
CALLABLE = Record(ENTRY=(_HEAD, "ptr"), SLOT="ptr")

CALLING = """
# A call of an object by what its slot __call__ holds, which may get something else meanwhile.
def pullback_forward(self: Callable, arguments: Pointers, given: i64, names: ptr) -> ptr:
    called = self.SLOT
    if called is None:
        PyErr_BadInternalCall()
        return None
    Py_IncRef(called)
    result = call_object(called, arguments, given, names)
    Py_DecRef(called)
    return result

# Call an object with an array of arguments.
def call_object(called: ptr, arguments: Pointers, flagged: i64, names: ptr) -> ptr:
    if VECTORCALL:
        return PyObject_Vectorcall(called, arguments, flagged, names)
    # Python 3.10 has it in its headers only
    if names is None:
        return PyObject_VectorcallDict(called, arguments, flagged, None)
    result: ptr = None
    keywords = PyDict_New()
    if keywords is not None:
        if add_pairs(keywords, names, arguments + 8 * (flagged & LONGEST)):
            result = PyObject_VectorcallDict(called, arguments, flagged, keywords)
        Py_DecRef(keywords)
    return result

def add_pairs(keywords: ptr, names: ptr, values: Pointers) -> i1:
    for index in range(PyTuple_Size(names)):
        if PyDict_SetItem(keywords, PyTuple_GetItem(names, index), values[index]) < 0:
            return False
    return True
"""

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
    members = (_Member * 2)(_Member(b"__vectorcalloffset__", _SSIZE, CALLABLE["ENTRY"], _READ_ONLY, None))
    slots = (_Slot * 2)(_Slot(_MEMBERS, ctypes.addressof(members)))
    name = f"{__name__}.CallableObject".encode()
    spec = _Spec(name, CALLABLE["SLOT"], 0, _FLAG_BASE, ctypes.addressof(slots))
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
    if laid_out and flags.value == cls.__flags__ and offset.value == CALLABLE["ENTRY"]:
        flags.value |= _FLAG_VECTORCALL
        if cls.__flags__ & _FLAG_VECTORCALL:
            _direct.add(cls)
    return cls


def set_entry(instance: Any, address: int) -> None:
    """Have ``instance`` called by machine code, that of ``pullback_forward``; 0 for none."""
    slot = ctypes.c_int64.from_address(id(instance) + CALLABLE["SLOT"])
    if type(instance) in _direct and slot.value == id(instance.__call__):
        ctypes.c_int64.from_address(id(instance) + CALLABLE["ENTRY"]).value = address
