"""The digits that scikit-learn carries: small enough to be on every machine, for when MNIST is not."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pullback.data.dataset import Dataset, LabelledImages
from pullback.data.mnist import load_mnist
from pullback.errors import DownloadError, MissingExtra, OutputError

__all__ = ["load_digits", "load_digits_or_mnist"]


def load_digits(test_fraction: float = 0.2, seed: int = 0) -> LabelledImages:
    """The 1,797 digits of scikit-learn: images (N, 8, 8) uint8, labels (N,) uint8, ``scale`` 1/16.

    A pixel counts the set dots, 0 to 16, in a 4 × 4 field of the scanned digit (E. Alpaydin, C. Kaynak,
    UCI Machine Learning Repository, 1998; its test set). They come without a split of their own:
    ``test_fraction`` of them, chosen at random by ``seed``, are the test set.

    Raises ``MissingExtra`` without scikit-learn, ``DataError`` when a part would be empty.

    >>> digits = load_digits()
    >>> digits.train, len(digits.test), digits.scale
    (Dataset(1,438 rows: inputs uint8[8, 8], labels uint8), 359, 0.0625)
    """
    try:
        from sklearn import datasets
    except ImportError as error:
        raise MissingExtra(
            "[load_digits] the digits come with scikit-learn, which is missing. Install pullback[digits]."
        ) from error
    loaded = datasets.load_digits()
    everything = Dataset(loaded.images.astype(np.uint8), loaded.target.astype(np.uint8))
    train, test = everything.split(1 - test_fraction, seed)
    note = f"the digits of scikit-learn, 8 × 8: {len(train):,} training and {len(test):,} test images"
    return LabelledImages("digits", train, test, scale=1 / 16, classes=10, note=note)


def load_digits_or_mnist(
    folder: str | os.PathLike[str] | None = None,
    *,
    download: bool = True,
    seed: int = 0,
    report: Callable[[str], None] | None = None,
) -> LabelledImages:
    """MNIST if it can be had (see ``load_mnist``), else the digits of scikit-learn; ``note`` says which.

    A folder that is given but has no MNIST, and files that are damaged, are errors all the same:
    training on other data than those that were asked for would hide them.

    Raises ``DataError`` as ``load_mnist`` does, ``MissingExtra`` when neither is to be had.
    """
    try:
        return load_mnist(folder, download=download, report=report)
    except (DownloadError, OutputError) as error:
        reason = str(error)
    try:
        digits = load_digits(seed=seed)
    except MissingExtra as error:
        raise MissingExtra(f"{error} They would have stood in for MNIST: {reason}") from error
    return replace(digits, note=f"MNIST is not to be had, using {digits.note}. The reason: {reason}")
