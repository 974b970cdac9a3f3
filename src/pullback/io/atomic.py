"""Writing a file so that a reader sees the old content or the new one, never a part of either."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from pullback.errors import OutputError
from pullback.files import create_temporary, remove_leftovers

__all__ = ["atomic_write"]

# What a write to a good file object can still fail with. Other errors of the caller's own block are left
# alone: they may come from a file that it reads.
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open ``path`` for writing bytes; the file appears, complete, when the block ends without an error.

    The bytes go to a hidden temporary file in the same folder, which is flushed to the disk and then
    renamed. When the block raises (Ctrl-C included) the temporary file is removed and a file of that name
    stays as it was; what a killed process left behind is removed by the next one that writes the same file.
    A file that is replaced hands on its rights, its owner and its group, as far as this user may set them.
    A symbolic link is followed: the file that it names is replaced, not the link.

    Raises ``OutputError`` when the folder is missing or read-only, when ``path`` is a folder, a device or a
    read-only file, and when the disk is full.

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
    prefix = os.path.join(target.parent, f".{target.name}.")
    remove_leftovers(prefix)
    with _explained(target):
        old = _replaceable(target)
        # As long as it has not the rights of the file that it replaces, it is its user's alone.
        file, temporary = create_temporary(prefix, 0o666 if old is None else 0o600)
    try:
        try:
            with _explained(target, _FULL):
                yield file
            with _explained(target):
                file.flush()
                if old is not None:
                    _hand_on_rights(file.fileno(), old)
                os.fsync(file.fileno())
                if os.name == "nt":  # where no open file can be renamed
                    file.close()
                os.replace(temporary, target)
        finally:
            with suppress(OSError):  # closing tries once more to write what could not be written
                file.close()
    except BaseException:
        with suppress(OSError):  # it may have its final name; the first error is the one to report
            os.unlink(temporary)
        raise
    _sync_folder(target.parent)


def _replaceable(target: Path) -> os.stat_result | None:
    """What the file that is there is like; None if there is none. Raises for what must not be replaced."""
    try:
        old = target.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(old.st_mode):
        raise OutputError(
            f"[atomic_write] {target} is a folder or a device, not a file. Choose another name."
        )
    if not os.access(target, os.W_OK):
        raise OutputError(
            f"[atomic_write] {target} is read-only. Choose another name, or let it be written (chmod u+w)."
        )
    return old


def _hand_on_rights(handle: int, old: os.stat_result) -> None:
    """Give the new file owner, group and mode of the old one."""
    if not hasattr(os, "fchown"):  # Windows
        return
    mode = stat.S_IMODE(old.st_mode) & 0o777
    new = os.fstat(handle)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        try:
            os.fchown(handle, old.st_uid, old.st_gid)
        except OSError:
            try:
                os.fchown(handle, -1, old.st_gid)
            except OSError:  # another group must not get what was the old one's alone
                mode &= ~0o070 | (mode & 0o007) << 3
    os.fchmod(handle, mode)


@contextmanager
def _explained(target: Path, kinds: Container[int | None] | None = None) -> Iterator[None]:
    """Turn errors of the system (of ``kinds``, if given) into one that says what to do."""
    try:
        yield
    except OSError as error:
        if isinstance(error, OutputError) or (kinds is not None and error.errno not in kinds):
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
