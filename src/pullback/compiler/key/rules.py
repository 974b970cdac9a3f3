"""Whether what an operator's rules do is known by the operator's name, for the key of programs.

The rules of the package's own operators are known by the digest of its files. Those of others are Python functions
whose text nobody has stored, and that may refer to anything: programs with such operators are not stored.

>>> is_own(np.sin), is_own(("x", 1)), is_own(lambda x: x + 1)
(True, True, False)
"""

from __future__ import annotations

import sys
from types import FunctionType
from typing import Any

import numpy as np

from pullback.graph import Type, remembered

__all__ = ["is_own", "is_plain"]

_PLAIN = (type(None), type(...), bool, int, float, complex, str, bytes)
_REMEMBERED = type(remembered(len))


def is_plain(value: Any) -> bool:
    """Whether ``repr(value)`` says all of a value, its type included."""
    if type(value) is tuple:
        return all(map(is_plain, value))
    builtin = isinstance(value, np.dtype) and value.isbuiltin == 1
    return builtin or type(value) in _PLAIN or isinstance(value, Type)


def is_own(rule: Any) -> bool:
    """Whether a rule is one of the package's or NumPy's functions, and holds nothing from elsewhere."""
    if type(rule) is FunctionType and _home(rule) == __name__.partition(".")[0]:
        cells = tuple(cell.cell_contents for cell in rule.__closure__ or ())
        return is_own((rule.__defaults__, *(rule.__kwdefaults__ or {}).values(), *cells))
    if type(rule) is tuple:
        return all(map(is_own, rule))
    if type(rule) is _REMEMBERED:
        return is_own(rule.__wrapped__)
    return is_plain(rule) or _is_numpys(rule)


def _home(function: FunctionType) -> str:
    """The package whose module's names the function looks up, whatever it is called; empty for no module."""
    name = function.__globals__.get("__name__")
    module = sys.modules.get(name) if isinstance(name, str) else None
    if module is None or vars(module) is not function.__globals__:
        return ""
    return module.__name__.partition(".")[0]


def _is_numpys(function: Any) -> bool:
    """Whether NumPy has a function under its name."""
    name = getattr(function, "__module__", None) or "numpy"  # of ufuncs, some versions say no module
    module = sys.modules.get(name) if isinstance(name, str) else None
    found = getattr(module, str(getattr(function, "__name__", "")), None)
    return found is function and name.partition(".")[0] == "numpy"
