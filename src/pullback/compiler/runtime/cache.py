"""The code cache on disk: programs, and other things that take long to find out, private to its user.

An entry is one file, ``<SHA-256 of the key>.code``: a mark, a SHA-256 over everything after it, the
key's own hash, and what is kept, pickled. It is written
beside its place and renamed, so other processes see all of it or nothing. An entry that is damaged,
truncated or unreadable is as good as none, and a folder that cannot be written is a cache that
keeps nothing. A folder that others may write to is refused: what lies there is run.

The folder is opened once for each use, and what was opened is what is checked and used: where others may
write to the folder that it stands in, they may put another one into its place at any moment. Files in it
are opened without following links or waiting for a pipe, and are no entries unless they are the user's own.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pickle
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pullback.compiler.runtime.engine import llvm_version
from pullback.compiler.target import TOLD, Processor, machine_identity, told_by_llvm
from pullback.errors import CacheError
from pullback.files import create_temporary, remove_leftovers
from pullback.sources import package_digest, unchanged

__all__ = ["Cache", "default_cache"]

_MARK = b"PULLBACK CODE 1\n"
_HASH_BYTES = 32
_SUFFIX = ".code"
_TEMPORARY = ".new-"
_LIMIT_BYTES = 512 << 20
_BY_HANDLE = os.open in os.supports_dir_fd and os.listdir in os.supports_fd  # everywhere but on Windows
_READ = (
    os.O_RDONLY
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_BINARY", 0)
)


class Cache:
    """Entries in ``folder``, at most ``limit_bytes`` of them; those unused for longest go first.

    The folder is made on first use, for its user alone. ``load`` and ``store`` raise ``CacheError``
    if it belongs to another user or if others may write to it, because what it holds is run as
    machine code. Without a folder nothing is kept, and nothing is under the key None.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cache = Cache(Path(folder) / "code")
    ...     cache.store("program 1", Processor.host(), (b"object code", {"regions": 2}))
    ...     value = cache.load("program 1", Processor.host())
    >>> value
    (b'object code', {'regions': 2})
    """

    def __init__(self, folder: Path | None, limit_bytes: int = _LIMIT_BYTES) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        self._stores = 0

    def load(self, key: str | None, processor: Processor | None) -> Any:
        """What is stored under ``key`` for this processor and these library versions, if it is whole; else None.

        Without a processor it is for any, and any version of LLVM.
        """
        with contextlib.suppress(OSError), self._opened() as folder:
            if key is not None and package_digest() is not None:
                return folder.read(_digest(key, processor), self.limit_bytes)
        return None

    def store(self, key: str | None, processor: Processor | None, value: Any) -> None:
        """Keep a value; without permission or space, or of a compiler edited meanwhile, nothing happens."""
        with contextlib.suppress(OSError), self._opened() as folder:
            if key is not None and unchanged():
                with contextlib.suppress(OSError):
                    folder.write(_digest(key, processor), value)
                # Reading the folder each time would cost more than it keeps in bounds.
                if self._stores % 16 == 0:
                    remove_leftovers(folder.path(_TEMPORARY), folder.handle)
                    folder.trim(self.limit_bytes)
                self._stores += 1

    def learn_processor(self) -> None:
        """Have the processor described by what an earlier process has kept, or keep it for later ones.

        LLVM describes it, and takes longer to load than a program from the cache.
        """
        machine = None if TOLD else machine_identity()
        if machine is None:
            return
        key = f"what {_llvm_files()} says of {machine}"
        TOLD.update(self.load(key, None) or {})
        if not TOLD:
            self.store(key, None, told_by_llvm())

    @contextlib.contextmanager
    def _opened(self) -> Iterator[_Folder]:
        """The folder; ``OSError`` if it cannot be used, ``CacheError`` if it must not be trusted."""
        if self.folder is None:
            raise FileNotFoundError
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) if _BY_HANDLE else None
        try:
            self._check(os.stat(self.folder if handle is None else handle))
            yield _Folder(self.folder, handle)
        finally:
            if handle is not None:
                os.close(handle)

    def _check(self, state: os.stat_result) -> None:
        if not hasattr(os, "geteuid"):
            return
        if state.st_uid != os.geteuid():
            raise CacheError(
                f"code cache {self.folder} belongs to user {state.st_uid}, not to you: "
                "set PULLBACK_CACHE to a folder of your own, or to 'off'"
            )
        mode = stat.S_IMODE(state.st_mode)
        if mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise CacheError(
                f"code cache {self.folder} may be written by others (mode {mode:o}), and it "
                f"holds machine code: chmod 700 it, or set PULLBACK_CACHE to another folder or to 'off'"
            )


@dataclass(frozen=True)
class _Folder:
    """The folder that was opened and checked; without a handle, on Windows, the one of that name."""

    name: Path
    handle: int | None

    def path(self, name: str) -> str:
        """The path of a file in it, to be used with the handle."""
        return name if self.handle is not None else str(self.name / name)

    def read(self, digest: bytes, most: int) -> Any:
        """What the entry of this digest holds, if there is a whole one of at most so many bytes."""
        path = self.path(_file_name(digest))

        def opened(name: str, _: int) -> int:
            return os.open(name, _READ, dir_fd=self.handle)

        with contextlib.suppress(OSError), open(path, "rb", opener=opened) as file:
            state = os.fstat(file.fileno())
            if not _private(state) or state.st_size > most:
                return None
            value = _unpack(file.read(state.st_size), digest)
            if value is not None:
                with contextlib.suppress(OSError):  # used now: the last to be removed
                    os.utime(file.fileno() if os.utime in os.supports_fd else path)
            return value
        return None

    def write(self, digest: bytes, value: Any) -> None:
        """Keep an entry, or raise ``OSError`` with nothing changed."""
        file, temporary = create_temporary(self.path(_TEMPORARY), 0o600, self.handle)
        try:
            with file as opened:
                opened.write(_pack(digest, value))
                opened.flush()
                if os.name == "nt":  # where no open file can be renamed
                    opened.close()
                place = self.path(_file_name(digest))
                os.replace(temporary, place, src_dir_fd=self.handle, dst_dir_fd=self.handle)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=self.handle)
            raise

    def trim(self, most: int) -> None:
        """Remove the oldest entries until the rest has at most so many bytes."""
        entries = []
        with (
            contextlib.suppress(OSError),
            os.scandir(self.name if self.handle is None else self.handle) as listing,
        ):
            for item in listing:
                with contextlib.suppress(OSError):  # another process may remove it meanwhile
                    if item.name.endswith(_SUFFIX):
                        state = item.stat(follow_symlinks=False)
                        entries.append((state.st_mtime, state.st_size, item.name))
        size = sum(entry_size for _, entry_size, _ in entries)
        for _, entry_size, name in sorted(entries):
            if size <= most:
                break
            with contextlib.suppress(OSError):
                os.unlink(self.path(name), dir_fd=self.handle)
            size -= entry_size


def _private(state: os.stat_result) -> bool:
    """Whether an opened file is a regular one that its user alone may have written."""
    if not stat.S_ISREG(state.st_mode):
        return False
    if not hasattr(os, "geteuid"):
        return True
    return state.st_uid == os.geteuid() and not state.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _file_name(digest: bytes) -> str:
    return f"{digest.hex()}{_SUFFIX}"


def default_cache() -> Cache:
    """The user's cache: ``$PULLBACK_CACHE``, ``$XDG_CACHE_HOME/pullback/code`` or ``~/.cache/pullback/code``.

    It has no folder if ``PULLBACK_CACHE`` is ``off`` or ``0``, or if there is no home folder.
    """
    return _cache_in(_default_folder())


def _default_folder() -> Path | None:
    chosen = os.environ.get("PULLBACK_CACHE", "")
    if chosen:
        return None if chosen.lower() in ("off", "0") else Path(chosen)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME", "") or Path.home() / ".cache") / "pullback" / "code"
    except RuntimeError:
        return None


@functools.cache
def _cache_in(folder: Path | None) -> Cache:
    """The one cache of a folder, which counts what is stored there."""
    return Cache(folder)


@functools.lru_cache(maxsize=1)
def _llvm_files() -> str:
    """Which llvmlite this is, told by its files without loading the library."""
    import llvmlite

    with os.scandir(Path(llvmlite.__file__).parent / "binding") as listing:
        states = {item.name: item.stat() for item in listing if item.is_file()}
    files = sorted((name, state.st_size, state.st_mtime_ns) for name, state in states.items())
    return f"llvmlite {llvmlite.__version__} {files}"


def _digest(key: str, processor: Processor | None) -> bytes:
    made_for = () if processor is None else (llvm_version(), processor.key)
    text = "\0".join((package_digest() or "", f"NumPy {np.__version__}", sys.platform, *made_for, key))
    return hashlib.sha256(text.encode()).digest()


def _pack(digest: bytes, value: Any) -> bytes:
    body = digest + pickle.dumps(value)
    return _MARK + hashlib.sha256(body).digest() + body


def _unpack(data: bytes, digest: bytes) -> Any:
    start = len(_MARK) + _HASH_BYTES
    head = _MARK + hashlib.sha256(memoryview(data)[start:]).digest() + digest
    # A whole entry may be another one's file under this name.
    return pickle.loads(memoryview(data)[len(head) :]) if data.startswith(head) else None
