"""The machine code that all programs share, as one unit of the small language (``llvm/language.py``).

Its texts stand with what they are about: the driver (``driver.py``, ``sharing.py``, ``claiming.py``, ``waiting.py``),
and the calls from Python (``entry.py``, ``nodes.py``, ``reading.py``, ``returning.py``, ``recycling.py``,
``objects.py``). Here is what they name.
"""

from __future__ import annotations

import sys
from typing import Any

from pullback.compiler.llvm.language import Record, Unit
from pullback.compiler.llvm.subnormals import mode_functions
from pullback.compiler.runtime import (
    claiming,
    driver,
    entry,
    layout,
    nodes,
    objects,
    reading,
    recycling,
    returning,
    sharing,
    signature,
)
from pullback.compiler.runtime.waiting import WAITING
from pullback.compiler.target import runs, waiting

__all__ = ["PYTHON_FUNCTIONS", "machine_text"]

_RECORDS = {
    name.title(): value
    for module in (layout, reading, recycling, nodes, objects, signature, entry)
    for name, value in vars(module).items()
    if isinstance(value, Record)
}

_PYTHON = {
    "PyCapsule_GetContext": "ptr (ptr)",
    "PyCapsule_GetName": "ptr (ptr)",
    "PyCapsule_GetPointer": "ptr (ptr, ptr)",
    "PyCapsule_New": "ptr (ptr, ptr, ptr)",
    "PyCapsule_SetContext": "i32 (ptr, ptr)",
    "PyDict_GetItemWithError": "Object (ptr, ptr)",
    "PyDict_New": "Object ()",
    "PyDict_Next": "i32 (ptr, ptr, ptr, ptr)",
    "PyDict_SetItem": "i32 (ptr, ptr, ptr)",
    "PyDict_Size": "i64 (ptr)",
    "PyErr_BadInternalCall": "void ()",
    "PyErr_CheckSignals": "i32 ()",
    "PyErr_Clear": "void ()",
    "PyErr_Fetch": "void (ptr, ptr, ptr)",
    "PyErr_NormalizeException": "void (ptr, ptr, ptr)",
    "PyErr_Restore": "void (ptr, ptr, ptr)",
    "PyEval_RestoreThread": "void (ptr)",
    "PyEval_SaveThread": "ptr ()",
    "PyException_SetTraceback": "i32 (ptr, ptr)",
    "PyFloat_AsDouble": "double (ptr)",
    "PyGILState_Ensure": "i32 ()",
    "PyGILState_Release": "void (i32)",
    "PyList_GetItem": "Object (ptr, i64)",
    "PyList_New": "Object (i64)",
    "PyList_SetItem": "i32 (ptr, i64, ptr)",
    "PyList_Size": "i64 (ptr)",
    "PyLong_AsLongLongAndOverflow": "i64 (ptr, ptr)",
    "PyLong_AsVoidPtr": "ptr (ptr)",
    "PyLong_FromLongLong": "ptr (i64)",
    "PyLong_FromVoidPtr": "ptr (ptr)",
    "PyObject_CallFunctionObjArgs": "Object (ptr, ...)",
    "PyObject_CallObject": "ptr (ptr, ptr)",
    "PyObject_GenericGetDict": "Object (ptr, ptr)",
    "PyObject_GenericSetAttr": "i32 (ptr, ptr, ptr)",
    "PyObject_GetAttr": "Object (ptr, ptr)",
    "PyObject_RichCompareBool": "i32 (ptr, ptr, i32)",
    "PyTuple_GetItem": "Object (ptr, i64)",
    "PyTuple_New": "Object (i64)",
    "PyTuple_Pack": "ptr (i64, ...)",
    "PyTuple_SetItem": "i32 (ptr, i64, ptr)",
    "PyTuple_Size": "i64 (ptr)",
    "Py_DecRef": "void (ptr)",
    "Py_IncRef": "void (ptr)",
}
_HAS_VECTORCALL = sys.version_info >= (3, 11)
_PYTHON["PyObject_Vectorcall" if _HAS_VECTORCALL else "PyObject_VectorcallDict"] = "ptr (ptr, ptr, i64, ptr)"

PYTHON_FUNCTIONS = tuple(sorted(_PYTHON))
"""The functions of Python's interface that the texts call, in its versions from 3.10 to 3.14."""

_SYSTEM = {
    "GetTickCount64": "i64 ()",
    "Sleep": "void (i32)",
    "SwitchToThread": "i32 ()",
    "clock_gettime": "i32 (i32, ptr)",
    "llvm.aarch64.hint": "void (i32)",
    "llvm.x86.sse2.pause": "void ()",
    "sched_yield": "i32 ()",
    "syscall": "i64 (i64, ...)",
    "usleep": "i32 (i32)",
}
_MODES = {"flushed": "i64 (i1)", "unflushed": "void (i1, i64)"}

_MONOTONIC = {"darwin": 6, "linux": 6}
"""The numbers of clocks that never go back; of Linux' two the coarse one, which costs least."""

_PRECISE = {"darwin": 6}
"""And of those that tell nanoseconds."""

_FUTEX_NUMBER = {"x86_64": 202, "aarch64": 98, "riscv64": 98, "ppc64le": 221}

_CONSTANTS: dict[str, Any] = {
    **{
        name: value
        for module in (layout, waiting, runs, reading, recycling)
        for name, value in vars(module).items()
        if isinstance(value, int)
    },
    **{f"KIND_{kind}": number for number, kind in enumerate(nodes.KINDS)},
    "FIRST_ARGUMENT": layout.slot_offset(1),
    "NATIVE": ord("="),
    "NO_ORDER": ord("|"),  # elements of one byte
    "NO_ALIAS": -1,
    "LONGEST": (1 << 63) - 1,
    "CARRAY": reading.C_CONTIGUOUS | reading.ALIGNED | reading.WRITEABLE,
    "VECTORCALL": _HAS_VECTORCALL,
}


def machine_text(architecture: str, system: str = sys.platform) -> str:
    """The shared machine code for an architecture (``x86_64``, ``aarch64``, …) and a system (``sys.platform``)."""
    constants = _CONSTANTS | {
        "ARCHITECTURE": architecture,
        "SYSTEM": system,
        "CLOCK": _MONOTONIC.get(system, 1),
        "PRECISE_CLOCK": _PRECISE.get(system, 1),
        "FUTEX": _FUTEX_NUMBER.get(architecture, 0) if system.startswith("linux") else 0,
    }
    unit = Unit(_RECORDS, constants, _PYTHON | _SYSTEM, _MODES)
    texts = (
        driver.DRIVER,
        sharing.TRIALS,
        claiming.SHARING,
        WAITING,
        reading.READING,
        nodes.WALKING,
        recycling.RECYCLING,
        returning.RETURNING,
        entry.ENTRY,
        objects.CALLING,
    )
    return unit.compiled(*texts) + mode_functions(architecture)
