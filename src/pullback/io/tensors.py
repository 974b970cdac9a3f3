"""Named arrays in one file, in the safetensors format.

The format (https://github.com/huggingface/safetensors) is a JSON header and the raw bytes: reading it runs
no code, and every framework can. It notices a truncated file but not a flipped bit, so a CRC-32 of the arrays
travels in the metadata and is checked when it is there; files of other programs load without.

What the header says is checked before memory is taken for it: arrays lie one after the other without gaps and end
where the file does, so they are never larger than it.
"""

from __future__ import annotations

import math
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, BinaryIO, NoReturn

import numpy as np
from numpy.typing import NDArray

from pullback.errors import DataError, DTypeError, MissingExtra
from pullback.io.atomic import atomic_write
from pullback.io.bounded import fill, parse_json
from pullback.tracing import new_aligned

__all__ = ["load_metadata", "load_tensors", "save_tensors"]

Array = NDArray[Any]

_CHECKSUM = "pullback.crc32"
_METADATA = "__metadata__"
_LENGTH = struct.Struct("<Q")  # of the header, before it
_DTYPES = {
    "BOOL": "?",
    **{f"{kind}{8 * size}": f"{kind.lower()}{size}" for kind in "IU" for size in (1, 2, 4, 8)},
    **{f"F{8 * size}": f"f{size}" for size in (2, 4, 8)},
    "BF16": "bfloat16",
}
_SHOWN = 20  # differences between a file and what it is to be loaded into
_MOST_AXES = 32  # NumPy's own limit before version 2
_KINDS = "?bhilqBHILQefdE"  # bool, integers, float16, float32, float64 and bfloat16: what the format and NumPy share


def save_tensors(
    path: str | os.PathLike[str], tensors: Mapping[str, Array], metadata: Mapping[str, str] | None = None
) -> None:
    """Write the named arrays and the ``metadata`` (strings) to ``path``; the file is replaced as a whole.

    Arrays of bool, integers, float16, bfloat16, float32 and float64 of any shape, memory order and byte order.

    Raises ``DTypeError`` for an array of another dtype, ``OutputError`` when the file cannot be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_tensors(f"{folder}/a.safetensors", {"weight": np.eye(2)}, {"network": "example"})
    ...     load_tensors(f"{folder}/a.safetensors"), load_metadata(f"{folder}/a.safetensors")
    ({'weight': array([[1., 0.],
           [0., 1.]])}, {'network': 'example'})
    """
    from safetensors.numpy import save

    stored = {}
    for name, value in tensors.items():
        array = np.asarray(value)
        if array.dtype.char not in _KINDS:
            raise DTypeError(
                f"[save_tensors] {name!r:.60} has dtype {array.dtype}, which the file format cannot hold. "
                "Convert it to a bool, integer or float dtype."
            )
        stored[name] = np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")
    content = save(stored, {**(metadata or {}), _CHECKSUM: _checksum(stored)})
    with atomic_write(path) as file:
        file.write(content)


def load_tensors(path: str | os.PathLike[str], like: Mapping[str, Array] | None = None) -> dict[str, Array]:
    """Read the named arrays of ``path``; with ``like``, only if they have its names, shapes and dtypes.

    Raises ``DataError`` when the file is missing, truncated or damaged, and when it does not fit ``like``;
    the message then names every tensor that is missing, unexpected or of another shape or dtype.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_tensors(f"{folder}/a.safetensors", {"weight": np.eye(2)})
    ...     load_tensors(f"{folder}/a.safetensors", like={"weight": np.zeros((2, 2))})["weight"].sum()
    np.float64(2.0)
    """
    with _opened(path) as file:
        header = _read_header(file, path)
        if like is not None:
            _check_fit(path, header.tensors, like)
        tensors, metadata = _read_arrays(file, path, header), header.metadata
    expected = metadata.get(_CHECKSUM)
    if expected is not None and expected != (found := _checksum(tensors)):
        raise DataError(
            f"[load_tensors] {path} is damaged: expected CRC-32 {expected}, found {found}. "
            "Restore the file from a copy or save it again."
        )
    return tensors


def load_metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read the metadata that ``save_tensors`` was given; empty for a file without.

    Raises ``DataError`` when the file is missing, truncated or damaged.
    """
    with _opened(path) as file:
        metadata = _read_header(file, path).metadata
    return {name: text for name, text in metadata.items() if name != _CHECKSUM}


@dataclass(frozen=True)
class _Header:
    """What a file says that it holds: by name, in the order of the bytes, an array's dtype and shape."""

    tensors: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]
    metadata: Mapping[str, str]


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    try:
        with open(path, "rb") as file:
            yield file
    except OSError as error:
        raise DataError(
            f"[load_tensors] cannot read {path}: {error.strerror or error}. Check the file's name and rights."
        ) from error


def _read_header(file: BinaryIO, path: str | os.PathLike[str]) -> _Header:
    """The header of a file, if it is true of the file."""
    size = os.fstat(file.fileno()).st_size
    begin = file.read(_LENGTH.size)
    length = _LENGTH.unpack(begin)[0] if len(begin) == _LENGTH.size else 0
    if not 2 <= length <= size - _LENGTH.size:
        _refuse(path, f"its header has {length:,} bytes, the file {size:,}")
    try:
        header = parse_json(file.read(length))
    except ValueError as error:
        _refuse(path, f"its header is no JSON that can be read: {error}")
    if not isinstance(header, dict):
        _refuse(path, f"its header is a {type(header).__name__}")
    metadata = header.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        _refuse(path, f"its {_METADATA} is no object of strings")
    places = {name: _place(path, name, entry) for name, entry in header.items()}
    end = 0
    for name, (start, stop, _, _) in sorted(places.items(), key=lambda item: item[1][:2]):
        if start != end:
            _refuse(path, f"{name!r:.60} begins at byte {start:,} of the arrays, expected {end:,}")
        end = stop
    if _LENGTH.size + length + end != size:
        _refuse(path, f"it should have {_LENGTH.size + length + end:,} bytes and has {size:,}")
    ordered = sorted(places, key=lambda name: places[name][:2])
    return _Header({name: places[name][2:] for name in ordered}, metadata)


def _place(
    path: str | os.PathLike[str], name: str, entry: Any
) -> tuple[int, int, np.dtype[Any], tuple[int, ...]]:
    """Where an array begins and ends, its dtype and its shape."""
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        _refuse(path, f"{name!r:.60} has no dtype, shape and data_offsets")
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not isinstance(entry["dtype"], str) or entry["dtype"] not in _DTYPES:
        _refuse(path, f"{name!r:.60} has the dtype {entry['dtype']!r:.60}, not one of {', '.join(_DTYPES)}")
    if not _are_sizes(shape) or len(shape) > _MOST_AXES:
        _refuse(path, f"{name!r:.60} has the shape {shape!r:.60}")
    if not _are_sizes(offsets) or len(offsets) != 2:
        _refuse(path, f"{name!r:.60} has the data_offsets {offsets!r:.60}")
    dtype = _dtype_of(path, name, entry["dtype"])
    if offsets[1] - offsets[0] != math.prod(shape) * dtype.itemsize:
        _refuse(path, f"{name!r:.60} is {dtype}{shape!r:.60}, and has {offsets[1] - offsets[0]} bytes")
    return *offsets, dtype, tuple(shape)


def _dtype_of(path: str | os.PathLike[str], name: str, written: str) -> np.dtype[Any]:
    """The dtype of a name of the format's; raises ``MissingExtra`` where it is that of a package."""
    if written == "BF16":
        try:
            import_module("ml_dtypes")  # it tells NumPy of the name
        except ImportError:
            raise MissingExtra(
                f"[load_tensors] {path}: {name!r:.60} is bfloat16, which NumPy knows from ml_dtypes, and that is not "
                "installed: pip install 'pullback[bfloat16]'"
            ) from None
    return np.dtype(_DTYPES[written])


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 1 << 62 for value in values)


def _read_arrays(file: BinaryIO, path: str | os.PathLike[str], header: _Header) -> dict[str, Array]:
    """The arrays that follow the header."""
    arrays = {}
    for name, (dtype, shape) in header.tensors.items():
        try:
            arrays[name] = new_aligned(shape, dtype.newbyteorder("<"))
        except ValueError as error:  # no bytes, but a shape that no array has
            _refuse(path, f"{name!r:.60} has the shape {list(shape)!r:.60} ({error})")
        if fill(file, arrays[name]) < arrays[name].nbytes:
            _refuse(path, f"it ends within {name!r:.60}")
        if dtype.kind == "b" and arrays[name].view(np.uint8).max(initial=0) > 1:
            _refuse(path, f"{name!r:.60} has booleans that are neither 0 nor 1")
    return {name: array.astype(array.dtype.newbyteorder("="), copy=False) for name, array in arrays.items()}


def _refuse(path: str | os.PathLike[str], reason: str) -> NoReturn:
    raise DataError(
        f"[load_tensors] {path} is no readable safetensors file ({reason}); it is truncated, damaged, or of another "
        "format or dtype. Restore it from a copy or save it again."
    )


def _checksum(tensors: Mapping[str, Array]) -> str:
    """CRC-32, in hexadecimal, of names, dtypes, shapes and bytes in the order of the names."""
    value = 0
    for name in sorted(tensors):
        array = np.asarray(tensors[name], order="C")
        value = zlib.crc32(f"{name}:{array.dtype.name}:{array.shape};".encode(), value)
        value = zlib.crc32(array.reshape(-1).view(np.uint8).data, value)
    return f"{value:08x}"


def _check_fit(
    path: str | os.PathLike[str],
    found: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]],
    expected: Mapping[str, Array],
) -> None:
    """Raise a ``DataError`` that lists every difference in names, shapes and dtypes."""
    differences = [f"{name!r:.60} is missing" for name in expected if name not in found]
    differences += [f"{name!r:.60} is unexpected" for name in found if name not in expected]
    for name, wanted in expected.items():
        kind = np.asarray(wanted).dtype, np.shape(wanted)
        if name in found and found[name] != kind:
            (dtype, shape), (right_dtype, right_shape) = found[name], kind
            differences.append(
                f"{name!r:.60} is {dtype}{list(shape)}, expected {right_dtype}{list(right_shape)}"
            )
    if differences:
        more = f"; and {len(differences) - _SHOWN:,} more" if len(differences) > _SHOWN else ""
        raise DataError(
            f"[load_tensors] {path} does not fit: {'; '.join(differences[:_SHOWN])}{more}. "
            "Load it into the model that it was saved from."
        )
