"""The code cache on disk: object code and what must be known about it, private to its user.

An entry is one file, ``<SHA-256 of the key>.code``: a mark, a SHA-256 over everything after it, the
key's own hash, the length of the metadata, the metadata as JSON, the object code. It is written
beside its place and renamed, so other processes see all of it or nothing. An entry that is damaged,
truncated or unreadable is as good as none, and a folder that cannot be written is a cache that
keeps nothing. A folder that others may write to is refused.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import stat
import struct
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pullback.compiler.runtime.engine import llvm_version
from pullback.compiler.runtime.processor import Processor, machine_identity, tell, told, told_by_llvm
from pullback.errors import CacheError
from pullback.sources import package_digest, unchanged

__all__ = ["Cache", "Entry", "default_cache"]

_MARK = b"PULLBACK CODE 1\n"
_HASH_BYTES = 32
_SUFFIX = ".code"
_TEMPORARY = ".new-"
_LIMIT_BYTES = 512 << 20
_TEMPORARY_SECONDS = 3600.0  # a temporary file this old was left behind by a process that died


@dataclass(frozen=True)
class Entry:
    """Object code and its metadata (whatever the compiler stored as JSON)."""

    object_bytes: bytes
    metadata: dict[str, Any]


class Cache:
    """Entries in ``folder``, at most ``limit_bytes`` of them; those unused for longest go first.

    The folder is made on first use, for its user alone. ``load`` and ``store`` raise ``CacheError``
    if it belongs to another user or if others may write to it, because what it holds is run as
    machine code.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cache = Cache(Path(folder) / "code")
    ...     cache.store("program 1", Processor.host(), b"object code", {"phases": 2})
    ...     entry = cache.load("program 1", Processor.host())
    >>> entry.object_bytes, entry.metadata
    (b'object code', {'phases': 2})
    """

    def __init__(self, folder: Path, limit_bytes: int = _LIMIT_BYTES) -> None:
        self.folder = Path(folder)
        self.limit_bytes = limit_bytes
        self._stores = 0

    def load(self, key: str, processor: Processor) -> Entry | None:
        """The entry stored under ``key`` for this processor and these library versions, if it is whole."""
        if package_digest() is None or not self._usable():
            return None
        return self._read(_digest(key, processor))

    def _read(self, digest: bytes) -> Entry | None:
        path = self._path(digest)
        try:
            entry = _unpack(path.read_bytes(), digest)
        except OSError:
            return None
        if entry is not None:
            with contextlib.suppress(OSError):
                os.utime(path)  # used now: the last to be removed
        return entry

    def store(self, key: str, processor: Processor, object_bytes: bytes, metadata: dict[str, Any]) -> None:
        """Keep an entry; without permission or space, or of a compiler edited meanwhile, nothing happens."""
        if not unchanged() or not self._usable():
            return
        self._write(_digest(key, processor), object_bytes, metadata)

    def learn_processor(self) -> None:
        """Have the processor described by what an earlier process has kept, or keep it for later ones.

        LLVM describes it, and takes longer to load than a program from the cache.
        """
        machine = None if told() else machine_identity()
        package = package_digest()
        if machine is None or package is None or not self._usable():
            return
        digest = hashlib.sha256("\0".join((package, _llvm_files(), machine)).encode()).digest()
        entry = self._read(digest)
        if entry is not None:
            tell(entry.metadata)
        else:
            self._write(digest, b"", told_by_llvm())

    def _write(self, digest: bytes, object_bytes: bytes, metadata: Mapping[str, Any]) -> None:
        temporary = None
        try:
            handle, temporary = tempfile.mkstemp(prefix=_TEMPORARY, dir=self.folder)
            with os.fdopen(handle, "wb") as file:
                file.write(_pack(digest, object_bytes, metadata))
            os.replace(temporary, self._path(digest))
        except OSError:
            if temporary is not None:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
            return
        if self._stores % 16 == 0:  # reading the folder each time would cost more than it keeps in bounds
            self._trim()
        self._stores += 1

    def _path(self, digest: bytes) -> Path:
        return self.folder / f"{digest.hex()}{_SUFFIX}"

    def _usable(self) -> bool:
        """Whether the folder is there; ``CacheError`` if it must not be trusted."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            state = self.folder.stat()
        except OSError:
            return False
        if hasattr(os, "geteuid"):
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
        return True

    def _trim(self) -> None:
        """Remove what a dead process left behind, then the oldest entries until the rest fits."""
        entries = []
        now = time.time()
        with contextlib.suppress(OSError), os.scandir(self.folder) as listing:
            for item in listing:
                with contextlib.suppress(OSError):  # another process may remove it meanwhile
                    state = item.stat()
                    if item.name.endswith(_SUFFIX):
                        entries.append((state.st_mtime, state.st_size, item.path))
                    elif item.name.startswith(_TEMPORARY) and now - state.st_mtime > _TEMPORARY_SECONDS:
                        os.unlink(item.path)
        size = sum(entry_size for _, entry_size, _ in entries)
        for _, entry_size, path in sorted(entries):
            if size <= self.limit_bytes:
                break
            with contextlib.suppress(OSError):
                os.unlink(path)
            size -= entry_size


def default_cache() -> Cache | None:
    """The user's cache: ``$PULLBACK_CACHE``, ``$XDG_CACHE_HOME/pullback/code`` or ``~/.cache/pullback/code``.

    None if ``PULLBACK_CACHE`` is ``off`` or ``0``, or if there is no home folder.
    """
    chosen = os.environ.get("PULLBACK_CACHE", "")
    if chosen.lower() in ("off", "0"):
        return None
    if chosen:
        return Cache(Path(chosen))
    shared = os.environ.get("XDG_CACHE_HOME", "")
    if shared:
        return Cache(Path(shared) / "pullback" / "code")
    try:
        return Cache(Path.home() / ".cache" / "pullback" / "code")
    except RuntimeError:
        return None


@functools.lru_cache(maxsize=1)
def _llvm_files() -> str:
    """Which llvmlite this is, told without loading the library."""
    import llvmlite

    return (
        f"llvmlite {llvmlite.__version__} {_files(Path(llvmlite.__file__).parent, ('.so', '.dylib', '.dll'))}"
    )


def _files(root: Path, suffixes: tuple[str, ...]) -> str:
    """A digest of the names, sizes and times of the files below ``root`` that end so."""
    found, folders = [], [str(root)]
    for folder in folders:
        with contextlib.suppress(OSError), os.scandir(folder) as listing:
            for item in listing:
                if item.is_dir(follow_symlinks=False):
                    folders.append(item.path)
                elif item.name.endswith(suffixes):
                    state = item.stat()
                    found.append(f"{item.path[len(folders[0]) :]} {state.st_size} {state.st_mtime_ns}")
    return hashlib.sha256("\n".join(sorted(found)).encode()).hexdigest()


def _digest(key: str, processor: Processor) -> bytes:
    versions = (package_digest() or "", llvm_version(), f"NumPy {np.__version__}", sys.platform)
    text = "\0".join((*versions, processor.key, key))
    return hashlib.sha256(text.encode()).digest()


def _pack(digest: bytes, object_bytes: bytes, metadata: Mapping[str, Any]) -> bytes:
    description = json.dumps(metadata).encode()
    body = digest + struct.pack("<Q", len(description)) + description + object_bytes
    return _MARK + hashlib.sha256(body).digest() + body


def _unpack(data: bytes, digest: bytes) -> Entry | None:
    start = len(_MARK) + _HASH_BYTES
    body = data[start:]
    if data[: len(_MARK)] != _MARK or hashlib.sha256(body).digest() != data[len(_MARK) : start]:
        return None
    if body[:_HASH_BYTES] != digest:  # a whole entry, but another one's file under this name
        return None
    (length,) = struct.unpack_from("<Q", body, _HASH_BYTES)
    after = _HASH_BYTES + 8
    return Entry(body[after + length :], json.loads(body[after : after + length]))
