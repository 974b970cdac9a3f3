"""Pocketfft, in the library that NumPy brings: its loops, called at their addresses out of compiled programs.

From version 2.0 on NumPy's transforms are ufuncs, whose loops take addresses, extents and distances, and neither the
interpreter's lock nor Python objects. Where they are not found, programs call NumPy's functions.

Source: ``numpy/ufuncobject.h``, whose fields every extension module may read.
"""

from __future__ import annotations

import ctypes
import math
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from pullback.graph import Addresses, InputAt, OutputAt, Routine, Scalar, Type, Words, part_dtype

__all__ = ["transform"]

_HEAD = object.__basicsize__
_COUNTS = (_HEAD, _HEAD + 4, _HEAD + 8, _HEAD + 32)
"""Where a ufunc has the numbers of its inputs, its results, both together, and its loops."""
_LOOPS = _HEAD + 16
_LETTERS = {"float32": "f", "float64": "d", "complex64": "F", "complex128": "D"}
_BYTE = np.dtype(np.int8)


def transform(name: str, x: Type, y: Type, axis: int, factor: float, forward: bool = True) -> Routine | None:
    """The ufunc ``name`` on ``x``, giving ``y``, both times ``factor``; ``None`` where NumPy has none of that name."""
    kind = x.dtype if x.dtype.kind == "f" else part_dtype(x.dtype)
    letters = "".join(_LETTERS[dtype.name] for dtype in (x.dtype, kind, y.dtype))
    address = _loop(name, letters)
    if address is None:
        return None
    behind = math.prod(x.shape[axis + 1 :])
    given, made = x.dtype.itemsize, y.dtype.itemsize
    arguments = (
        Addresses((InputAt(0), Scalar(factor, kind), OutputAt(0))),
        Words((behind, x.shape[axis], y.shape[axis])),
        Words((given, 0, made, given * behind, made * behind)),
        Scalar(int(forward), _BYTE),
    )
    count = math.prod(x.shape[:axis]) if behind else 0
    return Routine(f"{name}.{letters}", address, arguments, count)


@cache
def _loop(name: str, letters: str) -> int | None:
    """The address of a ufunc's loop for these types."""
    try:
        ufunc: Any = getattr(import_module("numpy.fft._pocketfft_umath"), name)
    except (ImportError, AttributeError):
        return None
    found = [ctypes.c_int.from_address(id(ufunc) + place).value for place in _COUNTS]
    types = f"{letters[:-1]}->{letters[-1]}"
    if found != [ufunc.nin, ufunc.nout, ufunc.nargs, ufunc.ntypes] or types not in ufunc.types:
        return None
    loops = ctypes.c_void_p.from_address(id(ufunc) + _LOOPS).value
    number = ufunc.types.index(types)
    return None if loops is None else ctypes.c_void_p.from_address(loops + 8 * number).value
