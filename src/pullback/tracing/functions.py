"""What a transformation is given: a function, not what a function returned; and where that function is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, wraps
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar

import numpy as np

from pullback.errors import SettingError
from pullback.graph import Operation, Source
from pullback.graph.source import is_users

__all__ = ["check_function", "keeps_compiled", "lines_of", "transformed"]

P = ParamSpec("P")
R = TypeVar("R")


def transformed(
    transformation: Callable[..., Any],
    function: Any,
    settings: tuple[Any, ...],
    named: Mapping[str, Any] = MappingProxyType({}),
    same_arguments: bool = False,
) -> Callable[..., Any] | None:
    """What ``transformation(function, *settings, **named)`` is of a compiled function: compiled as that is.

    ``None`` of any other function, and where ``Compiled.__transformed__`` says so. ``same_arguments`` tells that what
    the transformation gives takes the arguments of the function.
    """
    made = getattr(type(function), "__transformed__", None)
    return None if made is None else made(function, transformation, settings, named, same_arguments)


def keeps_compiled(transformation: Callable[P, R]) -> Callable[P, R]:
    """A transformation whose parameters after the function are settings: of a compiled function it gives another.

    ``grad(jit(f))`` is ``jit(grad(f))``, one program, and not a program between two sweeps.
    """

    @wraps(transformation)
    def keeping(*arguments: P.args, **named: P.kwargs) -> R:
        found = transformed(transformation, arguments[0], arguments[1:], named, True) if arguments else None
        return transformation(*arguments, **named) if found is None else found  # type: ignore[return-value]

    return keeping


def check_function(name: str, function: Any) -> None:
    """Raise ``SettingError`` unless ``function`` can be called.

    >>> check_function("grad", np.sin(np.ones(3)))
    Traceback (most recent call last):
    pullback.errors.SettingError: grad: it is given float64[3] ... give the function itself, grad(f, …), not ...
    """
    if callable(function):
        return
    is_array = isinstance(function, (np.ndarray, np.generic))
    found = (
        f"{function.dtype}{list(function.shape)}"
        if is_array
        else f"{function!r:.60}, a {type(function).__name__},"
    )
    raise SettingError(
        f"{name}: it is given {found} where a function is needed; give the function itself, {name}(f, …), not what "
        f"it returned, {name}(f(x), …)"
    )


def lines_of(function: Any, result: Any = None) -> str:
    """The end of a message about what ``function`` returned: the line that makes its ``result``, and its first line.

    The latter is left out where the result is made in the function itself, and where it is not the user's own.

    >>> def loss(x):
    ...     return x * 2
    >>> print(lines_of(loss).strip())
    the function: <doctest pullback.tracing.functions.lines_of[0]>:1 in loss
    >>> lines_of(np.sin)
    ''
    """
    made = result.source if isinstance(result, Operation) else None
    begun = _written(function)
    if made is not None and begun is not None and (made.file, made.function) == (begun.file, begun.function):
        begun = None
    lines = {"its result": made, "the function": begun}
    return "".join(f"\n  {what}: {line}" for what, line in lines.items() if line is not None)


def _written(function: Any) -> Source | None:
    """The first line of a function, or of what it wraps, where that is the user's."""
    while isinstance(function, partial) or hasattr(function, "__wrapped__"):
        function = function.func if isinstance(function, partial) else function.__wrapped__
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    if code is None or not is_users(code.co_filename):
        return None
    return Source(code.co_filename, code.co_firstlineno, code.co_name)
