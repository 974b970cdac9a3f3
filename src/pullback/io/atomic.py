"""Writing a file so that a reader sees the old content or the new one, never a part of either."""

from __future__ import annotations

import errno
import os
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from pullback.errors import OutputError

__all__ = ["atomic_write"]

# What a write to a good file object can still fail with. Other errors of the caller's own block are left
# alone: they may come from a file that it reads.
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open ``path`` for writing bytes; the file appears, complete, when the block ends without an error.

    The bytes go to a hidden temporary file in the same folder, which is flushed to the disk and then
    renamed. When the block raises (Ctrl-C included) the temporary file is removed and a file of that name
    stays as it was. A symbolic link is followed: the file that it names is replaced, not the link.

    Raises ``OutputError`` when the folder is missing or read-only, when ``path`` is a folder or a device, and
    when the disk is full.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "note.txt")
    ...     with atomic_write(path) as file:
    ...         written = file.write(b"whole")
    ...         before = path.exists()
    ...     before, path.read_bytes()
    (False, b'whole')
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise OutputError(
            f"[atomic_write] {target} is a folder or a device, not a file. Choose another name."
        )
    temporary = target.with_name(f".{target.name}.{os.urandom(8).hex()}.tmp")
    try:
        with _explained(target):
            file: BinaryIO = open(temporary, "xb")  # noqa: SIM115  (closed below, whatever happens)
        try:
            with _explained(target, _FULL):
                yield file
            with _explained(target):
                file.flush()
                os.fsync(file.fileno())
        finally:
            with suppress(OSError):  # closing tries once more to write what could not be written
                file.close()
        with _explained(target):
            os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):  # it may never have come to be; the first error is the one to report
            temporary.unlink()
        raise
    _sync_folder(target.parent)


@contextmanager
def _explained(target: Path, kinds: Container[int | None] | None = None) -> Iterator[None]:
    """Turn errors of the system (of ``kinds``, if given) into one that says what to do."""
    try:
        yield
    except OSError as error:
        if kinds is not None and error.errno not in kinds:
            raise
        if isinstance(error, FileNotFoundError):
            repair = f"Create the folder {target.parent} first."
        elif isinstance(error, PermissionError) or error.errno == errno.EROFS:
            repair = "Choose a folder that you may write to."
        elif error.errno in _FULL:
            repair = "Free some space there or choose another folder; a file of that name is as it was."
        else:
            repair = "Choose another file name or folder."
        reason = error.strerror or error
        raise OutputError(f"[atomic_write] cannot write {target}: {reason}. {repair}") from error


def _sync_folder(folder: Path) -> None:
    """Make the new name itself survive a power cut, on the file systems that can promise it."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        return
    finally:
        os.close(handle)
