"""The machine code that all programs of a process share: driver, entry and worker pool, loaded once."""

from __future__ import annotations

import ctypes
import sys
import threading

from pullback.compiler.runtime.cache import default_cache
from pullback.compiler.runtime.engine import Loaded, add_symbols, compile_object
from pullback.compiler.runtime.handwritten import PYTHON_FUNCTIONS, machine_text
from pullback.compiler.runtime.reading import HEAD, array_layout_holds
from pullback.compiler.runtime.recycling import Recycler
from pullback.compiler.runtime.threads import Pool
from pullback.compiler.target import Processor
from pullback.undisturbed import undisturbed

__all__ = ["Machine", "machine"]


class Machine:
    """Driver and entry in memory for the rest of the process, with the functions that Python calls."""

    def __init__(self) -> None:
        processor = Processor.host()
        python = ctypes.pythonapi
        add_symbols(
            {
                name: ctypes.cast(getattr(python, name), ctypes.c_void_p).value or 0
                for name in PYTHON_FUNCTIONS
            }
        )
        key = f"machine code of all programs, Python {sys.version_info[:2]}, objects from {HEAD}"
        data = default_cache().load(key, processor)
        if data is None:
            data = compile_object(machine_text(processor.architecture), processor)
            default_cache().store(key, processor, data)
        code = Loaded([data], processor)
        code.make_immortal()
        self.code = code
        called = "pullback_failure", "pullback_call", "pullback_ask"  # by programs
        add_symbols({name: code.address(name) for name in called})
        self.pool = Pool(code)
        self.recycler = Recycler(code.address("pullback_recycle"))
        pointer, integer = ctypes.c_void_p, ctypes.c_int64
        # PYFUNCTYPE keeps the interpreter lock, which the driver gives up by itself.
        self.run = ctypes.PYFUNCTYPE(integer, pointer, integer)(code.address("pullback_run"))
        self.take = ctypes.PYFUNCTYPE(ctypes.c_int32, pointer)(code.address("pullback_take"))
        self.give = ctypes.PYFUNCTYPE(None, pointer)(code.address("pullback_give"))
        self._release = code.address("pullback_release")
        self.reads_arrays = array_layout_holds()

    def hold(self, context: int, owners: tuple[object, ...]) -> object:
        """An object that keeps ``owners`` until it is dropped and no worker is in ``context`` any more."""
        python = ctypes.pythonapi
        capsule = _new_capsule(context, None, self._release)
        python.Py_IncRef(ctypes.py_object(owners))
        python.PyCapsule_SetContext(ctypes.py_object(capsule), ctypes.c_void_p(id(owners)))
        return capsule


_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)

_machine: Machine | None = None
_lock = threading.Lock()
"""Held in calls that a fork waits for, so none finds it taken."""


def machine() -> Machine:
    """The one machine of this process, made on first use."""
    return _machine or undisturbed(_made)


def _made() -> Machine:
    global _machine
    with _lock:
        if _machine is None:
            _machine = Machine()
        return _machine
