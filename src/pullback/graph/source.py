"""Where an operation was written: the user's own line, not one of this library's."""

from __future__ import annotations

import dis
import os
import sys
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

__all__ = [
    "Source",
    "current_source",
    "is_librarys",
    "is_users",
    "numpy_function",
    "user_frame",
    "user_stores",
    "written_at",
]

_LIBRARY = str(Path(__file__).resolve().parent.parent) + os.sep
_NUMPY = str(Path(np.__file__).resolve().parent) + os.sep


@dataclass(frozen=True, slots=True)
class Source:
    """A file, a line and the function around it."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


_override: ContextVar[tuple[Source | None, ...]] = ContextVar("source", default=())
"""What ``written_at`` has set in this thread, if anything."""


def current_source() -> Source | None:
    """The innermost frame outside this library, or the line that ``written_at`` has set."""
    override = _override.get()
    if override:
        return override[0]
    return user_frame(sys._getframe(1))


def is_librarys(file: str) -> bool:
    """Whether code of ``file`` is this library's."""
    return file.startswith(_LIBRARY)


def is_users(file: str) -> bool:
    """Whether code of ``file`` is neither this library's nor NumPy's."""
    return not file.startswith((_LIBRARY, _NUMPY))


def user_frame(frame: FrameType | None) -> Source | None:
    """Where the innermost frame outside this library is, from ``frame`` on outwards."""
    while frame is not None:
        code = frame.f_code
        if _is_code_of_user(code.co_filename, code.co_name):
            return Source(code.co_filename, frame.f_lineno, code.co_name)
        frame = frame.f_back
    return None


@lru_cache(maxsize=4096)
def _is_code_of_user(file: str, function: str) -> bool:
    generated = file == "<string>" and function == "__init__"  # a dataclass's
    return not generated and is_users(file)


def numpy_function() -> str | None:
    """The function of NumPy that the user has called, where it is written in Python: others have no frame."""
    frame: FrameType | None = sys._getframe(1)
    name = None
    while frame is not None and not is_users(frame.f_code.co_filename):
        if frame.f_code.co_filename.startswith(_NUMPY):
            name = frame.f_code.co_name
        frame = frame.f_back
    return name


def user_stores() -> bool:
    """Whether the user's line is just storing an element: ``array[index] = value``."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return frame is not None and dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith("STORE_S")


class written_at:
    """Give operations made inside ``source`` as their line: a derivative belongs to its primal's line."""

    __slots__ = ("_source", "_token")

    def __init__(self, source: Source | None) -> None:
        self._source = source

    def __enter__(self) -> None:
        self._token = _override.set((self._source,))

    def __exit__(self, *error: Any) -> None:
        _override.reset(self._token)
