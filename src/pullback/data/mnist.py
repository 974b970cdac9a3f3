"""MNIST: 60,000 training and 10,000 test images of handwritten digits (Y. LeCun, C. Cortes, C. Burges)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from pullback.data.dataset import Dataset, LabelledImages
from pullback.data.download import cache_folder, fetch, folder_lock, make_cache_folder
from pullback.data.idx import read_idx
from pullback.errors import DataError, DownloadError

__all__ = ["load_mnist"]

# Both homes carry the gzip files; the originals at yann.lecun.com are no longer served.
_HOMES = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)

# SHA-256 of the uncompressed files.
_FILES = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
_LARGEST = 64_000_000  # bytes; the largest of the files has 47,040,016
_CLASSES = 10


def load_mnist(
    folder: str | os.PathLike[str] | None = None,
    *,
    download: bool = True,
    report: Callable[[str], None] | None = None,
) -> LabelledImages:
    """MNIST as it is stored: images (N, 28, 28) uint8, labels (N,) uint8, ``scale`` 1/255.

    The four IDX files are looked for in ``folder`` (or its subfolder ``mnist``) and nowhere else when it
    is given; otherwise in ``$PULLBACK_DATA/mnist``, then in the cache folder
    ``$XDG_CACHE_HOME/pullback/data/mnist`` (``~/.cache`` if that is not set), into which they are
    downloaded if they are missing and ``download`` allows it: 11 MB, checked by SHA-256, resumed if they
    were interrupted. They may be gzip or plain, with or without ``.gz``, and named
    ``train-images-idx3-ubyte`` or ``train-images.idx3-ubyte``. ``report`` is given a line for each
    transfer.

    Raises ``DataError`` when files are missing or not of MNIST's form, ``DownloadError`` (a
    ``DataError``) when they are nowhere and no home delivered them, ``OutputError`` when the cache
    folder cannot be written.

    >>> import tempfile, numpy as np
    >>> from pullback.data import write_idx
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for part, rows in (("train", 8), ("t10k", 4)):
    ...         write_idx(f"{folder}/{part}-images-idx3-ubyte", np.zeros((rows, 28, 28), np.uint8))
    ...         write_idx(f"{folder}/{part}-labels-idx1-ubyte.gz", np.arange(rows, dtype=np.uint8))
    ...     load_mnist(folder).train
    Dataset(8 rows: inputs uint8[28, 28], labels uint8)
    """
    if folder is not None:
        given = Path(folder).expanduser()
        for candidate in (given, given / "mnist"):
            if files := _found(candidate):
                return _read(candidate, files)
        raise DataError(
            f"[load_mnist] {given} has no {next(iter(_FILES))} (nor with .gz). "
            "Give the folder of MNIST's four IDX files, or none to have them downloaded."
        )
    if named := os.environ.get("PULLBACK_DATA"):
        candidate = Path(named, "mnist")
        if files := _found(candidate):
            return _read(candidate, files)
    cache = cache_folder("mnist")
    if len(_found(cache)) < len(_FILES):
        if not download:
            raise DownloadError(
                f"[load_mnist] no MNIST in {cache}, and no download allowed. "
                "Allow it, or let PULLBACK_DATA name a folder that has mnist/."
            )
        _download(cache, report)
    return _read(cache, _found(cache))


def _found(folder: Path) -> dict[str, Path]:
    """Which of the four files ``folder`` has, under which of their names; plain before gzip, for speed."""
    found = {}
    for name in _FILES:
        dotted = name.replace("-idx", ".idx")
        for candidate in (name, dotted, f"{name}.gz", f"{dotted}.gz"):
            if (folder / candidate).is_file():
                found[name] = folder / candidate
                break
    return found


def _download(cache: Path, report: Callable[[str], None] | None) -> None:
    """Fetch what the cache folder lacks."""
    make_cache_folder(cache)
    with folder_lock(cache):
        missing = _FILES.keys() - _found(cache).keys()  # only now: another process may have been at it
        for name in (name for name in _FILES if name in missing):
            fetch(
                f"{name}.gz", _HOMES, cache / f"{name}.gz", sha256=_FILES[name], limit=_LARGEST, report=report
            )


def _read(folder: Path, files: dict[str, Path]) -> LabelledImages:
    """Read and check the four files of one folder."""
    if missing := [name for name in _FILES if name not in files]:
        raise DataError(
            f"[load_mnist] {folder} has no {', '.join(missing)} (nor with .gz). Put all four IDX files there."
        )
    train, test = (
        _pair(files[f"{part}-images-idx3-ubyte"], files[f"{part}-labels-idx1-ubyte"])
        for part in ("train", "t10k")
    )
    note = f"MNIST from {folder}: {len(train):,} training and {len(test):,} test images"
    return LabelledImages("MNIST", train, test, scale=1 / 255, classes=_CLASSES, note=note)


def _pair(image_file: Path, label_file: Path) -> Dataset:
    """The images and labels of one half, if they are what they should be."""
    images, labels = read_idx(image_file), read_idx(label_file)
    _check(image_file, images, "(N, 28, 28)", images.shape[1:] == (28, 28))
    _check(label_file, labels, "(N,)", labels.ndim == 1)
    if len(images) != len(labels) or len(images) == 0:
        raise DataError(
            f"[load_mnist] {image_file} has {len(images)} images, {label_file} has {len(labels)} labels. "
            "Get both files again."
        )
    if (largest := int(labels.max())) >= _CLASSES:
        raise DataError(
            f"[load_mnist] {label_file}: labels must be 0 to {_CLASSES - 1}, found {largest}. "
            "Get the file again."
        )
    return Dataset(images, labels)


def _check(path: Path, array: NDArray[Any], shape: str, fits: bool) -> None:
    """Raise unless the array of a file has MNIST's dtype and shape."""
    if not fits or array.dtype != "uint8":
        raise DataError(
            f"[load_mnist] {path}: expected uint8 of shape {shape}, found {array.dtype} of {array.shape}. "
            "Check that it is the right file."
        )
