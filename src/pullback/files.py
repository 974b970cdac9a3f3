"""Temporary files that a killed process leaves behind, and are then known to be nobody's.

Whoever writes one holds a lock on it (``flock``), which ends with the process, however that ends. So the next
who writes there can tell a file that is being written from one that never will be, whatever its age and
whichever machine or container its writer ran on. Windows lets nobody remove a file that is open, which serves
as well; on a file system without locks, files that were left behind stay.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from functools import partial
from typing import BinaryIO

__all__ = ["create_temporary", "remove_leftovers"]

_ENDING = re.compile(r"[0-9a-f]{16}\.tmp")
_LOOK = (
    os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
)


def create_temporary(prefix: str, mode: int = 0o666, dir_fd: int | None = None) -> tuple[BinaryIO, str]:
    """A new file whose path begins with ``prefix``, open for writing, and that path.

    It is to be closed only once it has its final name, or is to be removed. An interrupt that loses it closes it: what
    opens it is no Python code, in which the number of the open file could be lost.
    """
    opener = partial(os.open, mode=mode, dir_fd=dir_fd)
    while True:
        path = f"{prefix}{os.urandom(8).hex()}.tmp"
        file = open(path, "xb", opener=opener)  # noqa: SIM115  (the caller closes it)
        _lock(file.fileno(), wait=True)
        if os.fstat(file.fileno()).st_nlink:
            return file, path
        file.close()  # removed before it was locked


def remove_leftovers(prefix: str, dir_fd: int | None = None) -> None:
    """Remove the temporary files of this ``prefix`` whose writers are dead.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file, path = create_temporary(f"{folder}/.a.")
    ...     remove_leftovers(f"{folder}/.a.")
    ...     alive = os.path.exists(path)
    ...     file.close()
    ...     remove_leftovers(f"{folder}/.a.")
    ...     alive, os.path.exists(path)
    (True, False)
    """
    folder, begin = os.path.split(prefix)
    with suppress(OSError):
        for name in os.listdir(dir_fd if dir_fd is not None else folder or os.curdir):
            if name.startswith(begin) and _ENDING.fullmatch(name, len(begin)):
                with suppress(OSError):
                    _remove_if_dead(os.path.join(folder, name), dir_fd)


def _remove_if_dead(path: str, dir_fd: int | None) -> None:
    handle = os.open(path, _LOOK, dir_fd=dir_fd)
    try:
        dead = stat.S_ISREG(os.fstat(handle).st_mode) and _lock(handle, wait=False)
        if dead and os.name != "nt":
            os.unlink(path, dir_fd=dir_fd)  # while it is locked: nobody can take it for a file of his
    finally:
        os.close(handle)
    if dead and os.name == "nt":
        os.unlink(path)


def _lock(handle: int, wait: bool) -> bool:
    """Whether the file is this process's own now."""
    try:
        import fcntl
    except ImportError:  # Windows
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True
