"""Named arrays in one file, in the safetensors format.

The format (https://github.com/huggingface/safetensors) is a JSON header and the raw bytes: reading it runs
no code, and every framework can. It notices a truncated file but not a flipped bit, so a CRC-32 of the arrays
travels in the metadata and is checked when it is there; files of other programs load without.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pullback.errors import DataError, DTypeError
from pullback.io.atomic import atomic_write

__all__ = ["load_metadata", "load_tensors", "save_tensors"]

Array = NDArray[Any]

_CHECKSUM = "pullback.crc32"
_KINDS = "?bhilqBHILQefd"  # bool, integers, float16, float32, float64: what the format and NumPy share


def save_tensors(
    path: str | os.PathLike[str], tensors: Mapping[str, Array], metadata: Mapping[str, str] | None = None
) -> None:
    """Write the named arrays and the ``metadata`` (strings) to ``path``; the file is replaced as a whole.

    Arrays of bool, integers, float16, float32 and float64 of any shape, memory order and byte order.

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
                f"[save_tensors] {name!r} has dtype {array.dtype}, which the file format cannot hold. "
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
    tensors, metadata = _read(path)
    expected = metadata.get(_CHECKSUM)
    if expected is not None and expected != (found := _checksum(tensors)):
        raise DataError(
            f"[load_tensors] {path} is damaged: expected CRC-32 {expected}, found {found}. "
            "Restore the file from a copy or save it again."
        )
    if like is not None:
        _check_fit(path, tensors, like)
    return tensors


def load_metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read the metadata that ``save_tensors`` was given; empty for a file without.

    Raises ``DataError`` when the file is missing, truncated or damaged.
    """
    return {name: text for name, text in _read(path, names_only=True)[1].items() if name != _CHECKSUM}


def _read(path: str | os.PathLike[str], names_only: bool = False) -> tuple[dict[str, Array], dict[str, str]]:
    """Arrays and metadata of a file; ``names_only`` leaves the arrays on the disk."""
    from safetensors import SafetensorError, safe_open

    # A dtype that NumPy lacks (bfloat16) comes as one of the three built-in errors.
    unreadable = (SafetensorError, TypeError, AttributeError, KeyError)
    try:
        with safe_open(os.fspath(path), framework="np") as file:
            names = [] if names_only else list(file.keys())
            return {name: file.get_tensor(name) for name in names}, dict(file.metadata() or {})
    except OSError as error:
        raise DataError(f"[load_tensors] cannot read {path}: {error}. Check the file's name.") from error
    except unreadable as error:
        raise DataError(
            f"[load_tensors] {path} is no readable safetensors file ({error}); it is truncated, damaged, or "
            "of another format or dtype. Restore it from a copy or save it again."
        ) from error


def _checksum(tensors: Mapping[str, Array]) -> str:
    """CRC-32, in hexadecimal, of names, dtypes, shapes and bytes in the order of the names."""
    value = 0
    for name in sorted(tensors):
        array = np.asarray(tensors[name], order="C")
        value = zlib.crc32(f"{name}:{array.dtype.name}:{array.shape};".encode(), value)
        value = zlib.crc32(array.reshape(-1).view(np.uint8).data, value)
    return f"{value:08x}"


def _check_fit(
    path: str | os.PathLike[str], found: Mapping[str, Array], expected: Mapping[str, Array]
) -> None:
    """Raise a ``DataError`` that lists every difference in names, shapes and dtypes."""
    differences = [f"{name!r} is missing" for name in expected if name not in found]
    differences += [f"{name!r} is unexpected" for name in found if name not in expected]
    for name, wanted in expected.items():
        if name in found and (found[name].shape, found[name].dtype) != (
            np.shape(wanted),
            np.asarray(wanted).dtype,
        ):
            differences.append(
                f"{name!r} is {found[name].dtype}{list(found[name].shape)}, "
                f"expected {np.asarray(wanted).dtype}{list(np.shape(wanted))}"
            )
    if differences:
        raise DataError(
            f"[load_tensors] {path} does not fit: "
            + "; ".join(differences)
            + ". Load it into the model that it was "
            "saved from."
        )
