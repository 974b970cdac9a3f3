"""Files from elsewhere: what reading one may take is bounded by its size, whatever it says of itself.

A few bytes can say that they stand for billions: a gzip file of zeros, JSON of empty lists, a header with large
numbers. All that is read here stays below 64 MB + 20 × the size of the file.
"""

from __future__ import annotations

import io
import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from pullback.errors import DataError

__all__ = ["GZIP", "allowance", "fill", "parse_json", "unpacked"]

GZIP = b"\x1f\x8b"
"""What gzip files begin with."""

_MARGIN, _RATIO = 48 << 20, 19  # less than what is promised: the rest is for what reading takes beside it
_PIECE = 1 << 20
_COSTS = {"{": 200, "[": 96, ":": 130, ",": 72}
"""Bytes of memory that stand behind a character of JSON, at most."""
_CHARACTER = 8  # bytes of a character of JSON, as text and again in a string, if one of them is beyond U+FFFF


def allowance(size: int) -> int:
    """How many bytes of memory the content of a file of ``size`` bytes may take.

    >>> allowance(0), allowance(1_000_000) - allowance(0)
    (50331648, 19000000)
    """
    return _MARGIN + _RATIO * size


def parse_json(text: str | bytes) -> Any:
    """``json.loads``, but ``ValueError`` for text that is nested too deeply or would take too much memory.

    >>> parse_json('{"loss": [0.5]}')
    {'loss': [0.5]}
    >>> parse_json("[" + 2_000_000 * "{}," + "{}]")
    Traceback (most recent call last):
    ValueError: 6.0 MB that would take 592 MB of memory
    """
    size = len(text)
    counts = (text.count(c) if isinstance(text, str) else text.count(c.encode()) for c in _COSTS)
    needed = _CHARACTER * size + sum(count * cost for count, cost in zip(counts, _COSTS.values()))
    if needed > allowance(size):
        raise ValueError(f"{size / 1e6:.1f} MB that would take {needed / 1e6:,.0f} MB of memory")
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


@contextmanager
def unpacked(
    path: str | os.PathLike[str], caller: str, factor: int = 1
) -> Iterator[tuple[BinaryIO, int, bool]]:
    """The bytes of a file, unpacked if it is a gzip file, their number, and whether that is exact or the most.

    A gzip file that goes on after ``1 / factor`` of its ``allowance`` is refused; ``factor`` is how much memory
    each of its bytes takes. Raises ``DataError``, in the name of ``caller``, for a file that cannot be read or is
    damaged.
    """
    import gzip

    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            packed = file.read(len(GZIP)) == GZIP
            file.seek(0)
            if not packed:
                yield file, size, True
                return
            most = allowance(size) // factor
            with gzip.GzipFile(fileobj=file) as stream:
                bounded = _Bounded(stream, most, f"[{caller}] {path}")  # type: ignore[arg-type]
                yield io.BufferedReader(bounded), most, False
    except EOFError as error:
        raise DataError(
            f"[{caller}] {path} is truncated: its gzip stream has no end. Get the file again."
        ) from error
    except (zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"[{caller}] {path} is damaged: {error}. Get the file again.") from error
    except OSError as error:
        raise DataError(
            f"[{caller}] cannot read {path}: {error.strerror or error}. Check the file's name and rights."
        ) from error


class _Bounded(io.RawIOBase):
    """A stream that is refused when it goes on after ``most`` bytes."""

    def __init__(self, stream: BinaryIO, most: int, name: str) -> None:
        self._stream, self._left, self._most, self._name = stream, most, most, name

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count: int = self._stream.readinto(buffer)  # type: ignore[attr-defined]
        self._left -= count
        if self._left < 0:
            raise DataError(
                f"{self._name} holds more than {self._most:,} bytes, far more than it has itself. "
                "If it is the right file, unpack it first (gunzip)."
            )
        return count


def fill(file: BinaryIO, array: NDArray[Any]) -> int:
    """Read into the memory of ``array``, contiguous, piece by piece; the number of bytes that came."""
    memory = array.reshape(-1).view(np.uint8).data
    received = 0
    while received < len(memory):
        count = file.readinto(memory[received : received + _PIECE])  # type: ignore[attr-defined]
        if not count:
            break
        received += count
    return received
