"""Reading a tar archive as a stream, with nothing written to the disk and nothing taken on trust.

Python's ``tarfile`` reads the headers. It believes every size that they give, jumps to wherever they say,
and takes a damaged header in the middle for the end; the stream that it is given here lets it do none of
that.
"""

from __future__ import annotations

import os
import re
import tarfile
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import BinaryIO

from pullback.errors import DataError
from pullback.io.bounded import unpacked

__all__ = ["read_members"]

_BLOCK = 512
_PIECE = 1 << 16
_LARGEST_NAME = 1 << 16  # bytes of a header that gives a long name


def read_members(
    path: str | os.PathLike[str], *, largest: int, limit: int, wanted: re.Pattern[str]
) -> Iterator[tuple[str, bytes]]:
    """The name and the content of each file of the tar file ``path`` whose name ``wanted`` matches, in order.

    The archive may be gzip or plain. Its other files are passed over, but none may have a name that leads
    out of the archive's folder, and none may be a link, a device or sparse. A wanted file of more than
    ``largest`` bytes is refused, and so is an archive of more than ``limit`` bytes in all.

    Raises ``DataError`` when the archive is missing, truncated, damaged, or breaks one of these rules.
    """
    try:
        with unpacked(path, "archive") as (file, _, _):
            yield from _members(path, _Stream(path, file, limit, largest), wanted)
    except tarfile.TarError as error:
        raise DataError(f"[archive] {path} is damaged or no archive: {error}. Get the file again.") from error


class _Stream:
    """A file as ``tarfile`` needs it, forward only and with limits."""

    def __init__(self, path: str | os.PathLike[str], file: BinaryIO, limit: int, largest: int) -> None:
        self._path, self._file, self._limit = path, file, limit
        self.largest = largest
        self._position = 0
        self.last = b""
        """What the last ``read`` gave."""

    def tell(self) -> int:
        return self._position

    def read(self, size: int) -> bytes:
        if size > max(self.largest, _LARGEST_NAME):
            raise self.error(f"a header or file of {size:,} bytes")
        self._check(self._position + size)
        self.last = self._file.read(size)
        self._position += len(self.last)
        return self.last

    def seek(self, position: int) -> None:
        """Pass over what lies before ``position``; as in any file, it may lie behind the end."""
        if position < self._position:
            raise self.error("a header that leads backwards")
        self._check(position)
        while self._position < position:
            passed = len(self._file.read(min(position - self._position, _PIECE)))
            if not passed:
                break
            self._position += passed

    def finish(self) -> None:
        """Read to the end, which makes gzip check its own checksum."""
        while piece := self._file.read(_PIECE):
            self._position += len(piece)
            self._check(self._position)

    def error(self, found: str) -> DataError:
        return DataError(f"[archive] {self._path}: found {found}. It is not the published archive.")

    def _check(self, position: int) -> None:
        if position > self._limit:
            raise self.error(f"more than {self._limit:,} bytes of content")


def _members(
    path: str | os.PathLike[str], stream: _Stream, wanted: re.Pattern[str]
) -> Iterator[tuple[str, bytes]]:
    archive = tarfile.TarFile(fileobj=stream, mode="r", encoding="utf-8")  # type: ignore[arg-type]
    while (member := archive.next()) is not None:
        archive.members.clear()  # type: ignore[attr-defined]  # it would remember every header until the end
        name = _checked_name(stream, member)
        if not member.isreg() or wanted.fullmatch(str(name)) is None:
            continue
        if member.size > stream.largest:
            raise stream.error(f"{member.name!r} of {member.size:,} bytes, the most is {stream.largest:,}")
        stream.seek(member.offset_data)
        content = stream.read(member.size)
        if len(content) < member.size:
            raise DataError(f"[archive] {path} is truncated in {member.name!r}. Get the file again.")
        yield str(name), content
    if stream.last != bytes(_BLOCK):  # the mark of the end; anything else ended the headers by being damaged
        raise DataError(f"[archive] {path} is truncated or damaged: its end mark is missing. Get it again.")
    stream.finish()


def _checked_name(stream: _Stream, member: tarfile.TarInfo) -> PurePosixPath:
    """The name of a member that stays in its folder and is a file or a folder itself."""
    name = PurePosixPath(member.name)
    if name.is_absolute() or ".." in name.parts or "\\" in member.name or ":" in member.name:
        raise stream.error(f"the name {member.name!r}, which leads out of the archive")
    if not (member.isreg() or member.isdir()) or member.issparse():
        kind = "link" if member.issym() or member.islnk() else "special file"
        raise stream.error(f"the {kind} {member.name!r}")
    return name
