"""Grey pictures from files of several formats, as a model that was trained on such pictures takes them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pullback.data.idx import read_idx
from pullback.errors import DataError, MissingExtra

__all__ = ["read_pictures"]

Array = NDArray[Any]

_NPY = b"\x93NUMPY"
_IDX = b"\0\0"
_GZIP = b"\x1f\x8b"


def read_pictures(
    path: str | os.PathLike[str], shape: tuple[int, ...], scale: float = 1 / 255
) -> NDArray[np.float32]:
    """The pictures of a file, of height and width ``shape``, as float32 of shape (N, height, width).

    The file's content decides its format: NumPy's ``.npy`` or IDX (gzip or not), with one picture or several,
    or what Matplotlib reads, such as PNG, of which colours are averaged and transparency is ignored.
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
            head = file.read(6)
    except OSError as error:
        raise DataError(
            f"[read_pictures] cannot read {path}: {error.strerror}. Check the file's name and rights."
        ) from error
    if head == _NPY:
        pictures = _npy(path)
    elif head[:2] in (_IDX, _GZIP):
        pictures = read_idx(path)
    else:
        pictures = _picture(path)
    if pictures.ndim == len(shape):
        pictures = pictures[None]
    if pictures.shape[1:] != tuple(shape):
        raise DataError(
            f"[read_pictures] {path} has shape {pictures.shape}; the model takes pictures of "
            f"{' × '.join(map(str, shape))} pixels. Resize it."
        )
    if pictures.dtype.kind not in "fu":
        raise DataError(
            f"[read_pictures] {path} has dtype {pictures.dtype}. Give uint8, or floats from 0 to 1."
        )
    factor = 1.0 if pictures.dtype.kind == "f" else scale
    values = (pictures * factor).astype(np.float32)
    if not np.isfinite(values).all():
        raise DataError(f"[read_pictures] {path} has numbers that are not finite. Give floats from 0 to 1.")
    return values


def _npy(path: str | os.PathLike[str]) -> Array:
    try:
        # Mapped: a header that promises more than the file has is refused before memory is taken for it.
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (OSError, ValueError, EOFError, SyntaxError) as error:
        raise DataError(f"[read_pictures] {path} is damaged: {error}. Save it again.") from error


def _picture(path: str | os.PathLike[str]) -> Array:
    """A picture file as floats from 0 to 1."""
    try:
        from matplotlib.image import imread
    except ImportError as error:
        raise MissingExtra(
            f"[read_pictures] {path} needs Matplotlib to be read. Install pullback[plot], or give .npy."
        ) from error
    try:
        pixels = np.asarray(imread(Path(path)))
    except (OSError, ValueError, SyntaxError) as error:
        raise DataError(
            f"[read_pictures] {path} is no picture that can be read ({error}). Save it as PNG or .npy."
        ) from error
    if pixels.dtype == np.uint8:  # formats other than PNG
        pixels = pixels / 255
    return pixels[..., :3].mean(axis=-1) if pixels.ndim == 3 else pixels
