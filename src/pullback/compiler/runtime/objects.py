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
from pullback.compiler.runtime.memory import structure

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


def _made() -> tuple[Any, Any]:
    """The class, and the records that Python goes on to read."""
    texts = (b"__vectorcalloffset__", f"{__name__}.CallableObject".encode())
    names = [ctypes.create_string_buffer(text) for text in texts]
    member, name = map(ctypes.addressof, names)
    # PyMemberDef, PyType_Slot and PyType_Spec; a zero ends either list.
    members = structure("PinIPP", member, _SSIZE, CALLABLE["ENTRY"], _READ_ONLY, 0, 0)
    slots = structure("iPi", _MEMBERS, ctypes.addressof(members), 0)
    spec = structure("PiiIP", name, CALLABLE["SLOT"], 0, _FLAG_BASE, ctypes.addressof(slots))
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p)(("PyType_FromSpec", ctypes.pythonapi))
    return make(ctypes.addressof(spec)), (members, slots, names, spec)


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
