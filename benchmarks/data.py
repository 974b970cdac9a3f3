"""The data sets of the suite as plain arrays in a folder, made when first asked for.

Each is a folder of its own with ``inputs.npy``, ``labels.npy``, ``test_inputs.npy`` and ``test_labels.npy``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["folder_of", "word_vectors"]

Say = Callable[[str], None]
Parts = dict[str, tuple[NDArray[Any], NDArray[Any]]]

_STRETCHES = 20_000  # of characters


def folder_of(name: str, root: str, say: Say) -> str:
    """The folder of the data set ``name`` (a ``Network.data``) in ``root``."""
    folder = Path(root, name)
    if not folder.is_dir():
        parts = _SETS[name](say)
        folder.mkdir()
        for prefix, (inputs, labels) in parts.items():
            np.save(folder / f"{prefix}inputs.npy", inputs)
            np.save(folder / f"{prefix}labels.npy", labels)
    return str(folder)


def _mnist(say: Say) -> Parts:
    """MNIST; where it is not found, noise of the same form."""
    from pullback.data import load_mnist
    from pullback.errors import DataError

    try:
        found = load_mnist(download=False)
    except DataError:
        say("no MNIST in $PULLBACK_DATA/mnist or the cache: noise of the same form takes its place")
        return _noise(784, 60_000, 10_000)
    return {
        prefix: (d.inputs.reshape(len(d), -1), d.labels)
        for prefix, d in (("", found.train), ("test_", found.test))
    }


def _colour(say: Say) -> Parts:
    """Noise in place of colour images of 32 × 32 pixels: there are steps to be timed, and nothing to learn."""
    return _noise(3 * 32 * 32, 10_000, 1000)


def _imdb(say: Say, **sizes: int) -> Parts:
    """Film reviews as 130 word numbers; where IMDB is not found, the library's generated ones."""
    texts = _reviews(say).split(**sizes)
    say(texts.note)
    return {prefix: (d.inputs, d.labels) for prefix, d in (("", texts.train), ("test_", texts.test))}


def _imdb_long(say: Say) -> Parts:
    """The same as 500 numbers of 20,000 words."""
    return _imdb(say, size=20_000, length=500)


def _characters(say: Say) -> Parts:
    """Stretches of 64 characters of the reviews' words, and the characters that follow each: numbers below 96."""
    corpus = _reviews(say).corpus
    words = corpus.tokens[: 64 * _STRETCHES // 4]
    text = " ".join(corpus.words[k] for k in words)[: 64 * _STRETCHES + 1]
    numbers = np.frombuffer(text.encode("ascii", "replace"), np.uint8) - ord(" ")
    count = (len(numbers) - 1) // 64
    stretches, next_ones = (numbers[k : k + 64 * count].reshape(count, 64) for k in (0, 1))
    held_out = count // 10
    return {
        "": (stretches[held_out:].astype(np.int32), next_ones[held_out:]),
        "test_": (stretches[:held_out].astype(np.int32), next_ones[:held_out]),
    }


def _reviews(say: Say) -> Any:
    from pullback.data import load_imdb_or_generated

    return load_imdb_or_generated(download=False, report=say)


def word_vectors(rows: int, say: Say) -> NDArray[np.float32]:
    """A table for the reviews' vocabulary: the vectors that ``pullback train imdb-glove`` makes, and keeps."""
    from pullback.cli.workloads.imdb_glove import own_vectors
    from pullback.data import read_glove

    reviews = _reviews(say)
    vectors = read_glove(own_vectors(reviews, say), reviews.split().vocabulary).vectors
    table = np.zeros((rows, vectors.shape[1]), np.float32)
    table[: len(vectors)] = vectors
    return table


def _noise(pixels: int, *counts: int) -> Parts:
    random = np.random.default_rng(0)
    return {
        prefix: (random.integers(0, 256, (n, pixels), np.uint8), random.integers(0, 10, n, np.uint8))
        for prefix, n in zip(("", "test_"), counts)
    }


_SETS: dict[str, Callable[[Say], Parts]] = {
    "mnist": _mnist,
    "colour": _colour,
    "imdb": _imdb,
    "imdb-long": _imdb_long,
    "characters": _characters,
}
