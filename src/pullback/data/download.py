"""Fetching a file from its public homes: resumed where it stopped, verified, and only then given its name."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from pullback.errors import DownloadError, OutputError

if TYPE_CHECKING:
    from http.client import HTTPResponse

__all__ = ["cache_folder", "fetch", "folder_lock", "make_cache_folder"]

_PATIENCE = 10.0  # seconds that a server may stay silent
_ATTEMPTS = 3  # at one home
_PIECE = 1 << 16


def fetch(
    name: str,
    homes: Sequence[str],
    path: Path,
    *,
    sha256: str,
    limit: int,
    packed: bool = False,
    report: Callable[[str], None] | None = None,
) -> None:
    """Download the gzip file ``name`` from the first of ``homes`` that delivers it, and store it as ``path``.

    What arrives goes to ``.NAME.part`` beside ``path``. It stays there when the transfer is interrupted,
    and the next attempt, of this call or of a later one, asks the server for the rest only. The file is
    renamed to ``path`` when the SHA-256 of its *uncompressed* content is ``sha256``, or with ``packed`` that
    of the file as it comes, and discarded otherwise. What is downloaded and what is summed may not exceed
    ``limit`` bytes. ``report`` is given a line before each transfer.

    Raises ``DownloadError`` with the reason of each home when all have failed, ``OutputError`` when the part
    cannot be written.
    """
    from http.client import HTTPException

    part = path.with_name(f".{path.name}.part")
    failures = []
    for home in homes:
        for _ in range(_ATTEMPTS):
            start = _size(part)
            if report is not None:
                report(f"{'resuming' if start else 'downloading'} {home}{name}")
            try:
                _transfer(home + name, part, start, limit)
            except OutputError:
                raise
            except (OSError, HTTPException) as error:
                failures.append(f"{home}{name}: {error or type(error).__name__}")
                if _size(part) > start:
                    continue  # it was cut off, but brought us further
                break
            problem = _content_problem(part, sha256, limit, packed)
            if problem is None:
                os.replace(part, path)
                return
            part.unlink()
            failures.append(f"{home}{name}: {problem}")
            if start == 0:
                break  # not the fault of an old part: this home has another file
    raise DownloadError(
        f"[download] no home delivered {name} ({'; '.join(failures)}). "
        f"Check the network, or put the file into {path.parent} by hand."
    )


def cache_folder(name: str) -> Path:
    """Where a data set is kept: ``$XDG_CACHE_HOME/pullback/data/NAME``, by default in ``~/.cache``.

    A relative ``XDG_CACHE_HOME`` is to be ignored (XDG Base Directory Specification).
    Raises ``OutputError`` for a user who has no home.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():
        try:
            base = Path.home() / ".cache"
        except RuntimeError as error:  # a container's user that has neither HOME nor an entry in passwd
            raise OutputError(f"[data] no cache folder: {error} Let XDG_CACHE_HOME name one.") from error
    return base / "pullback" / "data" / name


def make_cache_folder(folder: Path) -> None:
    """Make ``folder`` and those above it; raises ``OutputError`` where that is not to be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"[data] cannot make the cache folder {folder}: {error.strerror}. "
            "Let XDG_CACHE_HOME name a folder that you may write to."
        ) from error


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Let one process at a time download into ``folder``; no lock on systems without ``flock``."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _transfer(url: str, part: Path, start: int, limit: int) -> None:
    """Bring ``part`` from ``start`` bytes to the whole of ``url``, or raise with what has come kept in it."""
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    headers = {"User-Agent": "pullback", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        response = urlopen(Request(url, headers=headers), timeout=_PATIENCE)
    except HTTPError as error:
        error.close()
        if error.code == 416 and start:  # nothing left to send: the part is whole, or of another file
            return
        raise
    with response:
        if response.status != 206:
            start = 0  # the server sends everything again
        elif not re.match(rf"bytes {start}-", response.headers.get("Content-Range", "")):
            found = response.headers.get("Content-Range")
            raise ConnectionError(f"asked for the bytes from {start} on, was sent {found}")
        with _writing(part):
            file = open(part, "ab" if start else "wb")  # noqa: SIM115  (closed below, whatever happens)
        try:
            _copy(response, file, part, start, limit)
        finally:
            with suppress(OSError):  # closing tries once more to write what could not be written
                file.close()


def _copy(response: HTTPResponse, file: BinaryIO, part: Path, start: int, limit: int) -> None:
    """Append the body of ``response`` to ``file``; an error if that is cut off or goes beyond ``limit``."""
    announced = response.length  # of the body; None when the server does not say
    received = 0
    while piece := response.read1(_PIECE):
        received += len(piece)
        if start + received > limit:
            file.truncate(0)
            raise ConnectionError(f"sends more than {limit} bytes")
        with _writing(part):
            file.write(piece)
            file.flush()
    if announced is not None and received < announced:
        raise ConnectionError(f"cut off after {received} of {announced} bytes")
    with _writing(part):
        os.fsync(file.fileno())


@contextmanager
def _writing(part: Path) -> Iterator[None]:
    """Keep errors of the disk apart from those of the network, which are of the same class."""
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"[download] cannot write {part}: {error.strerror}. "
            "Free some space or let XDG_CACHE_HOME name a folder that you may write to."
        ) from error


def _content_problem(part: Path, sha256: str, limit: int, packed: bool) -> str | None:
    """What is wrong with a downloaded gzip file; None when its content, or itself, is the expected one."""
    import gzip
    import hashlib

    digest, count = hashlib.sha256(), 0
    try:
        with open(part, "rb") if packed else gzip.open(part) as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
                count += len(piece)
                if count > limit:
                    return f"its content exceeds {limit} bytes"
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        return f"what came is no whole gzip file ({error})"
    if digest.hexdigest() != sha256:
        return f"wrong checksum: expected SHA-256 {sha256}, found {digest.hexdigest()}"
    return None
