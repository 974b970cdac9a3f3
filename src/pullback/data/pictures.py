"""Grey pictures from files of several formats, as a model that was trained on such pictures takes them."""

from __future__ import annotations

import math
import os
import re
import struct
import zlib
from io import BytesIO
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from pullback.data.idx import read_idx
from pullback.errors import DataError, MissingExtra
from pullback.io.bounded import GZIP, allowance, fill

__all__ = ["read_pictures"]

Array = NDArray[Any]

_NPY, _IDX, _PNG = b"\x93NUMPY", b"\0\0", b"\x89PNG\r\n\x1a\n"
_NPY_BEGIN = 10  # bytes, with a header's length of two
_NPY_HEADER = re.compile(
    r"\{'descr': '([<>|=]?[biufc][1248]|[<>|=]?O)', 'fortran_order': (True|False), "
    r"'shape': \(((?:[0-9]{1,18}(?:, ?|(?=\))))*)\),? *\} *\n?"
)
_LONGEST_HEADER = 10_000  # NumPy's own limit
_CHUNKS = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")
"""What makes the pixels of a PNG; text and colour profiles may be any size once they are unpacked."""
_PIXEL_BYTES = 64  # of memory, for a pixel of a PNG: four floats, and copies
_FACTOR = 5  # bytes of memory for one of an IDX file: itself and a float


def read_pictures(
    path: str | os.PathLike[str], shape: tuple[int, ...], scale: float = 1 / 255
) -> NDArray[np.float32]:
    """The pictures of a file, of height and width ``shape``, as float32 of shape (N, height, width).

    The file's content decides its format: NumPy's ``.npy`` or IDX (gzip or not), with one picture or several, or
    PNG, of which colours are averaged and transparency is ignored. Nothing else is read.
    uint8 values of an array are multiplied by ``scale``; floats are taken as they are, and those of a PNG
    are from 0, black, to 1, white. MNIST's digits are white on black.

    Raises ``DataError`` for a file that is missing, damaged, or has pictures of another size or numbers that
    are not finite, ``MissingExtra`` for a PNG without Matplotlib.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/digit.npy", np.full((28, 28), 255, np.uint8))
    ...     pictures = read_pictures(f"{folder}/digit.npy", (28, 28))
    >>> pictures.shape, pictures.max()
    ((1, 28, 28), np.float32(1.0))
    """
    try:
        with open(path, "rb") as file:
            head = file.read(len(_PNG))
            file.seek(0)
            if head.startswith(_NPY):
                pictures = _npy(file, path)
            elif head == _PNG:
                pictures = _png(file, path, shape)
            elif head[:2] in (_IDX, GZIP):
                pictures = read_idx(path, factor=_FACTOR)
            else:
                raise DataError(
                    f"[read_pictures] {path} is no picture that can be read (it begins with {head!r}). "
                    "Save it as PNG or .npy."
                )
    except OSError as error:
        raise DataError(
            f"[read_pictures] cannot read {path}: {error.strerror or error}. Check the file's name and rights."
        ) from error
    if pictures.ndim == len(shape):
        pictures = pictures[None]
    if pictures.shape[1:] != tuple(shape):
        raise _other_size(path, pictures.shape, shape)
    if pictures.dtype != np.uint8 and pictures.dtype.kind != "f":
        raise DataError(
            f"[read_pictures] {path} has dtype {pictures.dtype}. Give uint8, or floats from 0 to 1."
        )
    factor = 1.0 if pictures.dtype.kind == "f" else scale
    values = np.empty(pictures.shape, np.float32)
    with np.errstate(over="ignore"):  # what is too large for float32 is not finite
        np.multiply(pictures, factor, out=values, dtype=np.float64, casting="same_kind")
    if not np.isfinite([values.min(initial=0), values.max(initial=0)]).all():
        raise DataError(f"[read_pictures] {path} has numbers that are not finite. Give floats from 0 to 1.")
    return values


def _other_size(path: str | os.PathLike[str], found: tuple[int, ...], shape: tuple[int, ...]) -> DataError:
    return DataError(
        f"[read_pictures] {path} has shape {found}; the model takes pictures of "
        f"{' × '.join(map(str, shape))} pixels. Resize it."
    )


def _npy(file: BinaryIO, path: str | os.PathLike[str]) -> Array:
    """The array of a file in NumPy's format, read once it is known to be as long as its header says.

    Source: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
    """
    size = os.fstat(file.fileno()).st_size
    begin = file.read(_NPY_BEGIN)
    wide = begin[6:7] != b"\1"  # from version 2 on the length of the header has four bytes
    if wide:
        begin += file.read(2)
    length = int.from_bytes(begin[8:], "little")
    header = file.read(min(length, _LONGEST_HEADER)).decode("latin-1")
    match = _NPY_HEADER.fullmatch(header)
    if match is None:
        raise _damaged(path, f"its header is {header[:60]!r}")
    descr, order, axes = match.groups()
    try:
        dtype = np.dtype(descr)
    except TypeError as error:  # such as integers of 16 bytes
        raise _damaged(path, str(error)) from error
    shape = tuple(int(axis) for axis in axes.split(",") if axis.strip())
    expected = len(begin) + length + math.prod(shape) * dtype.itemsize
    if dtype.hasobject or size != expected:
        raise _damaged(path, f"{dtype}{list(shape)} takes {expected:,} bytes, and it has {size:,}")
    try:
        array = np.empty(shape[::-1] if order == "True" else shape, dtype)
    except ValueError as error:  # no bytes, but a shape that no array has
        raise _damaged(path, str(error)) from error
    if fill(file, array) < array.nbytes:
        raise _damaged(path, "it ends before its array")
    return array.T if order == "True" else array


def _png(file: BinaryIO, path: str | os.PathLike[str], shape: tuple[int, ...]) -> Array:
    """A picture as floats from 0 to 1; only what makes its pixels is given to the decoder.

    Source: https://www.w3.org/TR/png
    """
    try:
        from matplotlib.image import imread
    except ImportError as error:
        raise MissingExtra(
            f"[read_pictures] {path} needs Matplotlib to be read. Install pullback[plot], or give .npy."
        ) from error
    content = file.read()
    if content[12:16] != b"IHDR":
        raise _damaged(path, "it has no header")
    width, height = struct.unpack(">II", content[16:24].ljust(8, b"\0"))
    if (height, width) != tuple(shape):  # before memory is taken for pixels
        raise _other_size(path, (height, width), shape)
    if _PIXEL_BYTES * height * width > allowance(len(content)):
        raise DataError(
            f"[read_pictures] {path} has {len(content):,} bytes for {height} × {width} pixels. Give .npy."
        )
    try:
        pixels = np.asarray(imread(_only_pixels(content, path)))
    except DataError:
        raise
    except (
        OSError,
        ValueError,
        SyntaxError,
        ArithmeticError,
        LookupError,
        struct.error,
        zlib.error,
    ) as error:
        raise _damaged(path, str(error)) from error
    return pixels[..., :3].mean(axis=-1) if pixels.ndim == 3 else pixels


def _only_pixels(content: bytes, path: str | os.PathLike[str]) -> BytesIO:
    """A PNG file without the chunks that its pixels do not need; an error if one is damaged or missing."""
    kept = BytesIO()
    kept.write(_PNG)
    start, name = len(_PNG), b""
    while name != b"IEND":
        stop = start + 12 + int.from_bytes(content[start : start + 4], "big")
        if stop > len(content):
            raise _damaged(path, "it is cut off")
        name = content[start + 4 : start + 8]
        if zlib.crc32(content[start + 4 : stop - 4]) != int.from_bytes(content[stop - 4 : stop], "big"):
            raise _damaged(path, f"the checksum of {name!r} is wrong")
        if name in _CHUNKS:
            kept.write(content[start:stop])
        start = stop
    kept.seek(0)
    return kept


def _damaged(path: str | os.PathLike[str], reason: str) -> DataError:
    return DataError(f"[read_pictures] {path} is damaged: {reason}. Save it again as PNG or .npy.")
