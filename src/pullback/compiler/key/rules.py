"""What an operator's rules do, as text: for the key of programs with operators from outside the package.

The rules of the package's own operators are known by the digest of its files. Those of others are Python functions
whose text nobody has stored, so the code is described, and with it everything that it refers to: constants, defaults,
closures, and the functions and values behind its global names, theirs included. Where that cannot be told, such as for
functions written in C, objects of unknown classes, or ``getattr``, programs with that operator are not stored.

>>> describe(lambda x: x + 1) == describe(lambda y: y + 1), describe(lambda x: x + 1) == describe(lambda x: x + 2)
(False, False)
>>> describe(np.sin), describe(1.0), describe(True)
('ufunc numpy.sin', 'float 1.0', 'bool True')
>>> describe(object())
Traceback (most recent call last):
pullback.compiler.key.rules.Untold: an object of object
"""

from __future__ import annotations

import builtins
import dataclasses
import dis
import functools
import hashlib
import sys
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from pullback.graph import Operator, remembered

__all__ = ["Untold", "describe", "is_plain", "rules_text"]

_PACKAGE = __name__.partition(".")[0]

_KNOWN = frozenset(
    {_PACKAGE, "builtins", "numpy", "math", "operator", "_operator", "functools", "_functools", "itertools"}
    | {"collections", "dataclasses", "typing", "abc", "numbers", "__future__"}
)
"""Packages that are the same while the versions are: what they hold is described by its name."""

_PLAIN = (type(None), type(...), bool, int, float, complex, str, bytes)

_HIDING = frozenset(
    {"eval", "exec", "compile", "getattr", "setattr", "delattr", "globals", "locals", "vars", "dir", "id"}
    | {"hash", "open", "input", "load", "loadtxt", "genfromtxt", "fromfile", "memmap", "random", "__import__"}
)
"""Known by name, but they reach what the code does not name, or say another thing in each process."""


_REMEMBERED = type(remembered(len))


class Untold(Exception):
    """Something whose behaviour cannot be told from what there is to see."""


def rules_text(operator: Operator) -> str:
    """What compiling reads of an operator's rules; its name alone if they are the package's own.

    Pullback and batching rule are left out: what they gave is in the graph. Raises ``Untold``.
    """
    if all(_is_own(rule) for rule in (operator.type_rule, operator.reference, operator.lower)):
        return operator.name
    return f"{operator.name} {sys.version} {describe(operator)}"


def is_plain(value: Any) -> bool:
    """Whether ``repr(value)`` says all of a value, its type included."""
    if type(value) is tuple:
        return all(is_plain(item) for item in value)
    return type(value) in _PLAIN or (isinstance(value, np.dtype) and value.isbuiltin == 1)


def describe(value: Any) -> str:
    """A text that two values share only if they behave alike; raises ``Untold`` where that cannot be known."""
    try:
        return _Description().value(value)
    except RecursionError:
        raise Untold("something too deep") from None


class _Description:
    """The text of one value, and what has been met on the way: functions may call each other in circles."""

    def __init__(self) -> None:
        self.met: dict[int, int] = {}

    def value(self, value: Any) -> str:
        known = repr(value) if is_plain(value) else _known_name(value)
        if known is not None:
            return f"{type(value).__name__} {known}"
        if type(value) is not tuple:
            if id(value) in self.met:
                return f"again {self.met[id(value)]}"
            self.met[id(value)] = len(self.met)
        return f"{type(value).__name__} ({', '.join(self.parts(value))})"

    def parts(self, value: Any) -> Iterator[str]:
        kind = type(value)
        if kind is FunctionType:
            yield from self.function(value)
        elif kind is MethodType:
            yield from map(self.value, (value.__self__, value.__func__))
        elif kind is functools.partial:
            yield from map(self.value, (value.func, value.args, value.keywords))
        elif kind in (tuple, list):
            yield from map(self.value, value)
        elif kind in (set, frozenset) and all(is_plain(item) for item in value):
            yield from sorted(map(repr, value))
        elif kind is dict:
            yield from map(self.value, (part for item in value.items() for part in item))
        elif kind is slice:
            yield from map(self.value, (value.start, value.stop, value.step))
        elif (kind is np.ndarray or isinstance(value, np.generic)) and not value.dtype.hasobject:
            yield f"{value.dtype!r} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
        elif kind is Operator:
            rules = (value.type_rule, value.reference, value.lower)
            yield from map(self.value, (value.name, *rules, value.cost, value.linear, value.elementwise))
        elif dataclasses.is_dataclass(kind) and _known_name(kind) is not None:
            fields = dataclasses.fields(kind)
            yield from map(self.value, (getattr(value, field.name) for field in fields))
        else:
            raise Untold(f"an object of {kind.__name__}")

    def function(self, function: FunctionType) -> Iterator[str]:
        yield from self.code(function.__code__)
        yield from map(self.value, _held(function))
        if _home(function) not in _KNOWN:  # looked up now, as they will be when the function is called
            for code in _nested(function.__code__):
                yield from self.references(code, function.__globals__)

    def code(self, code: CodeType) -> Iterator[str]:
        """The instructions and what they number, but not where they were written."""
        yield f"{code.co_code.hex()} {getattr(code, 'co_exceptiontable', b'').hex()}"
        yield f"{code.co_argcount} {code.co_posonlyargcount} {code.co_kwonlyargcount} {code.co_flags}"
        yield f"{code.co_names} {code.co_varnames} {code.co_freevars} {code.co_cellvars}"
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                yield f"code ({', '.join(self.code(constant))})"
            else:
                yield self.value(constant)

    def references(self, code: CodeType, names: Mapping[str, Any]) -> Iterator[str]:
        """What stands behind the code's global names; of a module, what the attributes that follow lead to."""
        waiting: Any = None
        for step in dis.get_instructions(code):
            if step.opname == "EXTENDED_ARG":
                continue
            if isinstance(waiting, ModuleType) and step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                waiting = _looked_up(vars(waiting), step.argval)
                continue
            yield self.value(waiting)
            waiting = None
            if step.opcode not in dis.hasname or "ATTR" in step.opname or "METHOD" in step.opname:
                continue
            if step.opname.startswith("LOAD_"):
                waiting = _looked_up({**vars(builtins), **names}, step.argval)
            elif step.opname == "IMPORT_NAME" and step.argval.partition(".")[0] not in _KNOWN:
                raise Untold(f"an import of {step.argval}")
            elif step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
                raise Untold(f"the name {step.argval}, which is changed")


def _looked_up(names: Mapping[str, Any], name: str) -> Any:
    if name not in names:
        raise Untold(f"the name {name}, which is not there yet")
    return names[name]


def _held(function: FunctionType) -> tuple[Any, ...]:
    """The function's default values, and the values that it closes over."""
    try:
        cells = tuple(cell.cell_contents for cell in function.__closure__ or ())
    except ValueError:
        raise Untold("a closure over what is not there yet") from None
    return (function.__defaults__, tuple((function.__kwdefaults__ or {}).items()), *cells)


def _nested(code: CodeType) -> Iterator[CodeType]:
    """The code and that of all functions within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _home(function: FunctionType) -> str:
    """The package whose module's names the function looks up, whatever it is called; empty for no module."""
    name = function.__globals__.get("__name__")
    module = sys.modules.get(name) if isinstance(name, str) else None
    if module is None or vars(module) is not function.__globals__:
        return ""
    return module.__name__.partition(".")[0]


def _known_name(value: Any) -> str | None:
    """The name of a module, class or function that a known package holds under it."""
    if isinstance(value, ModuleType):
        module, names = value.__name__, []
    else:
        module = getattr(value, "__module__", None) or ("numpy" if isinstance(value, np.ufunc) else "")
        names = str(getattr(value, "__qualname__", getattr(value, "__name__", ""))).split(".")
    if not isinstance(module, str) or module.partition(".")[0] not in _KNOWN:
        return None
    found: Any = sys.modules.get(module)
    for name in names:
        found = getattr(found, name, None)
    if found is not value:
        return None
    full = ".".join((module, *names))
    if not full.startswith(f"{_PACKAGE}.") and not _HIDING.isdisjoint(full.split(".")):
        raise Untold(full)
    return full


def _is_own(rule: Any) -> bool:
    """Whether a rule is one of the package's or NumPy's functions, and holds nothing from elsewhere."""
    if type(rule) is FunctionType and _home(rule) == _PACKAGE:
        return all(_is_own(value) for value in _held(rule))
    if type(rule) is tuple:
        return all(map(_is_own, rule))
    if type(rule) is _REMEMBERED:
        return _is_own(rule.__wrapped__)
    return is_plain(rule) or _known_name(rule) is not None
