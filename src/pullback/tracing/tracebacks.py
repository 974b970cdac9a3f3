"""Tracebacks that show the user's frames: the library's own, between and below them, are taken out.

At the outermost call of a transformation or a compiled function the traceback of an error is cut to the user's frames
and one of that call. The whole one stays reachable as the error's ``full_traceback``. Frames below the last one of the
user are taken out of the library's own errors only, which name the line and the repair; in any other error they may
be what is wrong. Messages of layers, losses and others that do not know the user's line are given it there.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from functools import wraps
from types import CodeType, TracebackType
from typing import Any, ParamSpec, TypeVar

from pullback.errors import PullbackError, TracingError
from pullback.graph.source import Source, is_librarys, is_made, is_users, names_line
from pullback.tracing.trace import traces_under_way

__all__ = ["cut_to_users", "shows_users_frames", "without_numpys"]

P = ParamSpec("P")
R = TypeVar("R")
_TRACED_SHAPE = re.compile(r"expected a sequence of integers or a single integer, got '\w+\(\w+: (.*)\)'")


def shows_users_frames(function: Callable[P, R], like: Callable[..., Any] | None = None) -> Callable[P, R]:
    """Let errors that leave ``function``, where it is called outside any trace, show the user's frames only.

    It is named and documented as it was, or as ``like``.

    >>> import pullback as pb
    >>> def loss(x):
    ...     return x.reshape(2)
    >>> try:
    ...     pb.grad(loss)(1.0)
    ... except pb.errors.ShapeError as error:
    ...     frames = lambda trace: [] if trace is None else [trace.tb_frame.f_code.co_name, *frames(trace.tb_next)]
    ...     print(frames(error.__traceback__), len(frames(error.full_traceback)) > 5)
    ['<module>', 'called', 'loss'] True
    """

    @wraps(like or function)
    def called(*arguments: P.args, **keywords: P.kwargs) -> R:
        try:
            return function(*arguments, **keywords)
        except Exception as caught:
            error = without_numpys(caught)
            cut_to_users(error)
            raise error  # noqa: B904  (it is the error caught, or what that one hides)

    return called


def without_numpys(error: Exception) -> Exception:
    """The error of this library that NumPy has put one of its own around, or in the place of, where it has.

    It does so when elements are stored, and when it makes an array of a traced shape.
    """
    cause = error.__cause__
    if isinstance(cause, PullbackError) and isinstance(error, ValueError) and "array element" in str(error):
        cause.__traceback__ = error.__traceback__
        return cause
    shape = _TRACED_SHAPE.match(str(error)) if type(error) is TypeError else None
    if shape is not None:
        frames = traceback.extract_tb(error.__traceback__)
        last = next((each for each in reversed(frames) if is_users(each.filename)), frames[-1])
        made = TracingError(
            f"a traced value {shape[1]} stands for every value it may take: NumPy's own np.zeros, np.ones, np.empty "
            "and np.full need integers, and an array's shape is part of the program; take it from another array's "
            "shape, or pass the number as a concrete Python int, to jit by static_argnums "
            f"(at {last.filename}:{last.lineno} in {last.name})"
        )
        made.__traceback__ = error.__traceback__
        return made
    return error


def cut_to_users(error: Exception) -> None:
    """Take the frames of the library out of the error's traceback, unless a trace is under way.

    An error of the library's own that names no line is given that of the user's last frame.
    """
    whole = error.__traceback__
    if traces_under_way() or whole is None:
        return
    if not hasattr(error, "full_traceback"):
        error.full_traceback = whole  # type: ignore[attr-defined]
    entries: list[TracebackType] = []
    entry: TracebackType | None = whole
    while entry is not None:
        entries.append(entry)
        entry = entry.tb_next
    codes = [each.tb_frame.f_code for each in entries]
    users = [place for place, code in enumerate(codes) if is_users(code.co_filename) and not is_made(code)]
    last = users[-1] if users else -1
    if users and _lacks_line(error, codes[-1]):
        source = Source(codes[last].co_filename, entries[last].tb_lineno, codes[last].co_name)
        error.args = (f"{error} (at {source})",)
    kept = [entries[place] for place in users]
    if not isinstance(error, PullbackError):
        kept += entries[last + 1 :]
    trace: TracebackType | None = None
    for each in reversed(kept):
        trace = TracebackType(trace, each.tb_frame, each.tb_lasti, each.tb_lineno)
    error.__traceback__ = trace


def _lacks_line(error: Exception, raised_in: CodeType) -> bool:
    """Whether an error is this library's, also one of Python's classes with its ``[name]`` in front, without a line."""
    if not is_librarys(raised_in.co_filename) or len(error.args) != 1:
        return False
    message = str(error)
    return (isinstance(error, PullbackError) or message.startswith("[")) and not names_line(message)
