"""What Python makes of traced values that are known: truth values, numbers, text.

While a function is evaluated as it goes, its values are known, and Python may look at them. What it makes of them is a
constant to derivatives. ``float(x)`` says so; but where a float would be taken on the way (``math.sin(x)``, a plain
NumPy array written into), a derivative would be lost without a word, so this is refused.
"""

from __future__ import annotations

import builtins
import dis
import math
import operator
import sys
import threading
from collections import deque
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

import numpy as np

from pullback.errors import ArrayClassError, TracingError
from pullback.graph import Detached, Node, Operation, Variable, force, is_float, is_known
from pullback.graph.protocol import vocabulary
from pullback.graph.source import is_librarys
from pullback.numpy.dispatch import refuse

__all__ = ["concrete", "lost_derivative"]


def concrete(x: Node, attempt: str) -> Any:
    """The value of ``x``, where it is known; raises ``TracingError`` for this ``attempt`` otherwise."""
    if not is_known(x):
        refuse(x, attempt)
    with np.errstate(all="ignore"):
        return force(x)[()]


def _bool(x: Node) -> bool:
    return bool(concrete(x, "bool"))


def _index(x: Node) -> int:
    return operator.index(concrete(x, "index"))


def _number(x: Node, attempt: str, convert: Any) -> Any:
    """A float or complex number, if it was asked for by name or no derivative is lost."""
    value = concrete(x, attempt)
    if _has_derivative(x) and not _asks_for_number(sys._getframe(2)):
        refuse(x, attempt)
    number = convert(value)
    if _has_derivative(x):
        _taken.numbers.append(number)
    return number


class _Taken(threading.local):
    """The latest numbers that a thread has taken out of values with derivatives."""

    def __init__(self) -> None:
        self.numbers: deque[Any] = deque(maxlen=8)


_taken = _Taken()


def lost_derivative(number: Any) -> bool:
    """Whether this very object was taken out of a value with a derivative, by ``float(x)``."""
    return any(number is each for each in _taken.numbers)


def _float(x: Node) -> float:
    return _number(x, "float", float)  # type: ignore[no-any-return]


def _complex(x: Node) -> complex:
    return _number(x, "complex", complex)  # type: ignore[no-any-return]


def _array(x: Node, dtype: Any = None) -> np.ndarray:
    caller = _caller(sys._getframe(1))
    module = "" if caller is None else str(caller.f_globals.get("__name__", ""))
    if caller is not None and module.startswith("scipy.sparse"):
        if "matmul" in caller.f_code.co_name:
            return _opaque(x)  # SciPy leaves it to the other operand: its product with a sparse matrix
        raise ArrayClassError(
            f"an elementwise function of a sparse matrix and a traced value {x.type} is not supported; write "
            "A.toarray() if all of its zeros are meant, work on its elements A.data, or multiply, A @ x"
        )
    if module.startswith("pandas.") and (not is_known(x) or _has_derivative(x)):
        raise TracingError(
            f"pandas computes with numbers of its own, and a traced value {x.type} has none to give: take the table's, "
            "table.to_numpy() @ x, or give the table as an argument of the traced function, where it is an array"
        )
    if is_known(x) and _has_derivative(x) and not _asks_for_number(sys._getframe(1)):
        refuse(x, "array")
    return np.array(concrete(x, "array"), dtype)


def _round(x: Node, digits: int | None) -> Any:
    if digits is None:
        return round(concrete(x, "int"))
    return vocabulary["round"](x, digits)


def _format(x: Node, spec: str) -> str:
    if is_known(x):
        return format(force(x)[()], spec)
    try:
        return format(repr(x), spec)
    except ValueError:  # a format of numbers
        refuse(x, "format")


def _text(x: Node) -> str:
    return str(force(x)[()]) if is_known(x) else repr(x)


def _has_derivative(x: Node) -> bool:
    """Whether something differentiable depends on ``x`` smoothly: then its number says less than it does."""
    stack, seen = [x], set[int]()
    while stack:
        node = stack.pop()
        if id(node) in seen or (not is_float(node.dtype) and node.dtype.kind != "V"):
            continue
        seen.add(id(node))
        if isinstance(node, (Variable, Detached)):
            return True
        if isinstance(node, Operation) and node.operator.pullback is not None:
            stack += node.inputs
    return False


# -- Who asks: the line of the user that makes Python call ``__float__``


def _caller(frame: FrameType | None) -> FrameType | None:
    """The frame that is not the library's own."""
    while frame is not None and is_librarys(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def _opaque(x: Node) -> np.ndarray:
    """An array without axes that holds ``x`` as an object."""
    array = np.empty((), object)
    array[()] = x
    return array


def _asks_for_number(frame: FrameType | None) -> bool:
    """Whether the code that is called back from says ``float(x)``, or names another class of numbers."""
    frame = _caller(frame)
    if frame is None:
        return False
    called: Any = None
    for place, name in enumerate(_names_called(frame.f_code, frame.f_lasti)):
        if place:
            called = getattr(called, name, None)
        else:
            spaces = (frame.f_locals, frame.f_globals, vars(builtins))
            called = next((space[name] for space in spaces if name in space), None)
    return isinstance(called, type) and issubclass(called, (float, complex, np.inexact))


_CALLS = ("CALL", "PRECALL")
"""Python 3.11 calls a class in the second one, once the function has been called some times."""


@lru_cache(maxsize=4096)
def _names_called(code: CodeType, place: int) -> tuple[str, ...]:
    """The dotted name that the instruction at ``place`` calls: ``("math", "sin")``; empty where it calls none."""
    instructions = [each for each in dis.get_instructions(code) if each.offset <= place]
    if not instructions or not instructions[-1].opname.startswith(_CALLS):
        return ()
    names: list[str] = []
    for each in _loads(instructions):
        if each.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            names.append(str(each.argval))
        elif each.opname != "LOAD_CONST":
            names = [str(each.argval)]
    return tuple(names)


def _loads(instructions: list[dis.Instruction]) -> list[dis.Instruction]:
    """What loads the function that the last instruction calls: where the call begins, if Python tells."""
    *before, call = instructions
    start = _start(call)
    if start is not None:
        return [each for each in before if each.opname.startswith("LOAD_") and _start(each) == start]
    # Before Python 3.11 the stack tells: the function lies below the arguments, and the names of keywords.
    above = (call.arg or 0) + (call.opname == "CALL_FUNCTION_KW")
    found: list[dis.Instruction] = []
    for each in reversed(before):
        if not above and each.opname.startswith("LOAD_"):
            found.insert(0, each)
            if each.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
                return found
        elif above <= 0 or each.opcode in dis.hasjrel or each.opcode in dis.hasjabs:
            break
        else:
            above -= dis.stack_effect(each.opcode, each.arg)
    return []


def _start(instruction: Any) -> tuple[int, int] | None:
    """Where the expression that an instruction belongs to begins."""
    positions = getattr(instruction, "positions", None)
    return None if positions is None else (positions.lineno, positions.col_offset)


vocabulary.update(
    {
        "truth": _bool,
        "int": lambda x: int(concrete(x, "int")),
        "float": _float,
        "complex": _complex,
        "index": _index,
        "array_of_numbers": _array,
        "python_round": _round,
        "format": _format,
        "text": _text,
        "floor_number": lambda x: math.floor(concrete(x, "int")),
        "ceil_number": lambda x: math.ceil(concrete(x, "int")),
    }
)
