"""Where an operation was written: the user's own line, not one of this library's."""

from __future__ import annotations

import dis
import os
import re
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from threading import local
from types import CodeType, FrameType, FunctionType
from typing import Any

import numpy as np

__all__ = [
    "Source",
    "called_function",
    "current_source",
    "is_librarys",
    "is_made",
    "is_users",
    "known_line",
    "names_line",
    "source_of_operation",
    "user_frame",
    "user_stores",
    "with_users_line",
    "written_at",
]

_LIBRARY = str(Path(__file__).resolve().parent.parent) + os.sep
_NUMPY = str(Path(np.__file__).resolve().parent) + os.sep


def _of_scipy() -> str:
    """The folder of SciPy, which need not be there, nor be imported."""
    found = find_spec("scipy")
    beside = Path(_NUMPY).parent / "scipy"
    return str(Path(found.origin).resolve().parent if found and found.origin else beside) + os.sep


_SCIPY = _of_scipy()
_LINE = re.compile(r"\bat .+:\d+ in \S")


@dataclass(frozen=True, slots=True)
class Source:
    """A file, a line and the function around it."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


class _Override(local):
    is_set = False
    source: Source | None = None


_override = _Override()
"""What ``written_at`` has set in this thread, if anything."""


def current_source() -> Source | None:
    """The innermost frame outside this library, or the line that ``written_at`` has set."""
    return _override.source if _override.is_set else user_frame(sys._getframe(1))


def source_of_operation() -> Source | None:
    """The same for the initialiser of an operation, which two functions of this library at least have called."""
    return _override.source if _override.is_set else user_frame(sys._getframe(3))


def names_line(message: str) -> bool:
    """Whether a message names a line of the user's."""
    return _LINE.search(message) is not None


def with_users_line(message: str) -> str:
    """``message`` with the user's line at its end, unless it names one."""
    source = None if names_line(message) else current_source()
    return message if source is None else f"{message} (at {source})"


def is_librarys(file: str) -> bool:
    """Whether code of ``file`` is this library's."""
    return file.startswith(_LIBRARY)


def is_users(file: str) -> bool:
    """Whether code of ``file`` is neither this library's nor NumPy's or SciPy's."""
    return not file.startswith((_LIBRARY, _NUMPY, _SCIPY))


def is_made(code: CodeType) -> bool:
    """Whether Python has made ``code``, which nobody wrote: a dataclass's ``__init__``."""
    return code.co_filename == "<string>" and code.co_name == "__init__"


def user_frame(frame: FrameType | None) -> Source | None:
    """Where the innermost frame outside this library is, from ``frame`` on outwards."""
    while frame is not None:
        code = frame.f_code
        if _files[code.co_filename]:
            known = _known.get((id(code), frame.f_lasti))
            if known is not None:
                return known[0]
            if not is_made(code):
                return _remembered(code, frame)
        frame = frame.f_back
    return None


class _Files(dict[str, bool]):
    """Whether each file is the user's."""

    def __missing__(self, file: str) -> bool:
        if len(self) >= _MOST_KNOWN:
            self.clear()
        self[file] = found = is_users(file)
        return found


_files = _Files()
_known: dict[tuple[int, int], tuple[Source, CodeType]] = {}
"""Lines by the code and the place in it; the code stays alive, so its ``id`` is its own."""
_MOST_KNOWN = 4096

known_line = _known.get
"""By a code's ``id`` and a place in it a pair, of the line and the code, where the code is a user's and has been asked
for."""


def _remembered(code: CodeType, frame: FrameType) -> Source:
    if len(_known) >= _MOST_KNOWN:
        _known.clear()
    source = Source(code.co_filename, frame.f_lineno, code.co_name)
    _known[id(code), frame.f_lasti] = source, code
    return source


def called_function() -> str | None:
    """The function of NumPy or SciPy that the user has called, ``np.sort_complex`` or ``scipy.special.softmax``.

    It is known where it is written in Python: others have no frame. Of an object that is called it is the class, of a
    method of SciPy's objects, and of what has no public name, only the module is known: ``scipy.stats``.
    """
    frame: FrameType | None = sys._getframe(1)
    name = None
    while frame is not None and not is_users(frame.f_code.co_filename):
        if frame.f_code.co_filename.startswith(_NUMPY):
            called = frame.f_code.co_name
            name = f"np.{type(frame.f_locals['self']).__name__ if called == '__call__' else called}"
        elif frame.f_code.co_filename.startswith(_SCIPY):
            # What wraps functions of single matrices converts its arguments before it calls ``f``.
            wrapped = frame.f_locals.get("f")
            found = _public(frame.f_globals["__name__"], frame.f_code.co_name)
            if found.count(".") < 2 and isinstance(wrapped, FunctionType):
                found = _public(wrapped.__module__, wrapped.__name__)
            if found.count(".") > 1 or name is None or name.count(".") < 2:
                name = found
        frame = frame.f_back
    return name


def _public(inside: str, name: str) -> str:
    """``name`` in the public module around ``inside``, where it is a function of that; else the module."""
    module = ".".join(inside.split(".")[:2])
    known = not name.startswith("_") and callable(getattr(sys.modules.get(module), name, None))
    return f"{module}.{name}" if known else module


def user_stores() -> bool:
    """Whether the user's line is just storing an element: ``array[index] = value``."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return frame is not None and dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith("STORE_S")


class written_at:
    """Give operations made inside ``source`` as their line: a derivative belongs to its primal's line."""

    __slots__ = ("_before", "_source")

    def __init__(self, source: Source | None) -> None:
        self._source = source

    def __enter__(self) -> written_at:
        self._before = _override.is_set, _override.source
        _override.is_set, _override.source = True, self._source
        return self

    def move(self, source: Source | None) -> None:
        """Go on with another line."""
        _override.source = source

    def __exit__(self, *error: Any) -> None:
        _override.is_set, _override.source = self._before
