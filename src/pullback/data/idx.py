"""IDX files: the format of MNIST (http://yann.lecun.com/exdb/mnist), one array in a file, plain or gzip.

Two zero bytes, a byte for the dtype, a byte for the number of axes, the length of each axis as a
big-endian uint32, and the elements, big-endian, the last axis fastest.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from pullback.errors import DataError, DTypeError
from pullback.io.atomic import atomic_write
from pullback.io.bounded import fill, unpacked

__all__ = ["read_idx", "write_idx"]

Array = NDArray[Any]

_DTYPES = {0x08: "uint8", 0x09: "int8", 0x0B: "int16", 0x0C: "int32", 0x0D: "float32", 0x0E: "float64"}
_MOST_AXES = 32  # NumPy's own limit before version 2
_AGAIN = "Get the file again."


def read_idx(path: str | os.PathLike[str], *, factor: int = 1) -> Array:
    """Read the array of an IDX file, gzip or plain whatever its name, in the machine's byte order.

    uint8, int8, int16, int32, float32 and float64 of up to 32 axes. The file is read in pieces straight
    into the array: the memory used is that of the array. A gzip file may hold 48 MiB and 19 times its own size, or
    a ``factor``-th of that, where each byte is to take so many bytes of memory; a larger one is to be unpacked first.

    Raises ``DataError`` when the file is missing, is no IDX file, is truncated or corrupt, or goes on
    after its last element. Sizes that the file cannot hold are refused before memory is taken for them.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_idx(f"{folder}/a.gz", np.arange(6, dtype=np.int16).reshape(2, 3))
    ...     read_idx(f"{folder}/a.gz")
    array([[0, 1, 2],
           [3, 4, 5]], dtype=int16)
    """
    with unpacked(path, "read_idx", factor) as (file, size, exact):
        return _read_array(file, path, size, exact)


def write_idx(path: str | os.PathLike[str], array: Array) -> None:
    """Write ``array`` as an IDX file, gzip if the name ends in ``.gz``; the file is replaced as a whole.

    Raises ``DTypeError`` for a dtype that IDX does not have, ``DataError`` for an axis of 2³² elements
    or more, ``OutputError`` when the file cannot be written.
    """
    import gzip

    array = np.asarray(array)
    codes = {name: code for code, name in _DTYPES.items()}
    if array.dtype.name not in codes:
        raise DTypeError(
            f"[write_idx] IDX has no {array.dtype}. Convert the array to one of {', '.join(codes)}."
        )
    if max(array.shape, default=0) >= 1 << 32:
        raise DataError(f"[write_idx] shape {array.shape}: an IDX axis ends at 2**32 - 1. Split the array.")
    header = bytes([0, 0, codes[array.dtype.name], array.ndim]) + np.asarray(array.shape, ">u4").tobytes()
    content = header + array.astype(array.dtype.newbyteorder(">")).tobytes()
    if Path(path).suffix == ".gz":
        content = gzip.compress(content, mtime=0)  # no time stamp: equal arrays make equal files
    with atomic_write(path) as file:
        file.write(content)


def _read_array(file: BinaryIO, path: str | os.PathLike[str], size: int, exact: bool) -> Array:
    """The array of an unpacked stream of ``size`` bytes (or of at most so many, unless ``exact``)."""
    dtype, shape = _read_header(file, path)
    start, payload = 4 + 4 * len(shape), math.prod(shape) * dtype.itemsize
    what = f"{dtype.name}{list(shape)}, {start + payload} bytes"
    if size < start + payload:
        found = f"{size} bytes" if exact else f"a gzip file that may hold {size}"
        repair = _AGAIN if exact else "If it is the right file, unpack it first (gunzip)."
        raise DataError(f"[read_idx] {path} is truncated: expected {what}, found {found}. {repair}")
    if exact and size > start + payload:
        raise DataError(f"[read_idx] {path} goes on after its end: expected {what}, found {size}. {_AGAIN}")
    try:
        array = np.empty(shape, dtype)
    except (MemoryError, ValueError) as error:
        raise DataError(
            f"[read_idx] {path}: no memory for {what}. Check that it is the right file."
        ) from error
    received = fill(file, array)
    if received < payload:
        raise DataError(
            f"[read_idx] {path} is truncated: expected {what}, found {start + received} bytes. {_AGAIN}"
        )
    # Reading on to the end also makes gzip check its own checksum.
    if file.read(1):
        raise DataError(f"[read_idx] {path} goes on after its end: expected {what}, found more. {_AGAIN}")
    if not dtype.isnative:
        array = array.byteswap(inplace=True).view(dtype.newbyteorder("="))
    return array


def _read_header(file: BinaryIO, path: str | os.PathLike[str]) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """The dtype, big-endian, and the shape that a stream begins with."""
    magic = file.read(4)
    if len(magic) < 4:
        raise DataError(
            f"[read_idx] {path} is truncated: expected an IDX header, found {len(magic)} bytes. {_AGAIN}"
        )
    if magic[:2] != b"\0\0" or magic[2] not in _DTYPES or magic[3] > _MOST_AXES:
        codes = " ".join(f"{code:02x}" for code in _DTYPES)
        raise DataError(
            f"[read_idx] {path} is no IDX file: expected the bytes 00 00, one of {codes}, and at most "
            f"{_MOST_AXES} axes, found {magic.hex(' ')}. Check that it is the right file."
        )
    lengths = file.read(4 * magic[3])
    if len(lengths) < 4 * magic[3]:
        raise DataError(
            f"[read_idx] {path} is truncated: expected the lengths of {magic[3]} axes, "
            f"found {len(lengths)} bytes. {_AGAIN}"
        )
    return np.dtype(_DTYPES[magic[2]]).newbyteorder(">"), tuple(np.frombuffer(lengths, ">u4").tolist())
