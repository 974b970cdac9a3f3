"""Word vectors in GloVe's text format: a word and its numbers on each line, separated by single spaces.

Source: Pennington, Socher & Manning, *GloVe: Global vectors for word representation*, EMNLP 2014, and the
files at https://nlp.stanford.edu/projects/glove.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from pullback.data.text import Vocabulary
from pullback.errors import DataError
from pullback.io.atomic import atomic_write
from pullback.io.bounded import allowance, unpacked

__all__ = ["WordVectors", "read_glove", "write_glove"]

_LONGEST_LINE = 1 << 18  # bytes; with 300 numbers a line has about 3,000


@dataclass(frozen=True, eq=False)
class WordVectors:
    """The vectors of a vocabulary's words: ``vectors`` of shape (words, dimensions), float32.

    ``found`` (booleans) says which words the file had; the others have the vector zero, as padding does.
    """

    vectors: NDArray[np.float32]
    found: NDArray[np.bool_]


def read_glove(path: str | os.PathLike[str], vocabulary: Vocabulary) -> WordVectors:
    """The vectors of the words of ``vocabulary`` from a GloVe file, plain or gzip.

    Only the lines of words in use are turned into numbers; of the others the numbers are counted. The first
    line says how many there are. A word may have spaces in it, as a few in
    the published files have; of a word that is there twice the first line counts.

    Raises ``DataError`` with the number of the line when a line has the wrong number of values, a value that
    is no finite number, or bytes that are no UTF-8, and when the file is missing, damaged, has none of the words,
    or says that vectors are so long that those of the vocabulary would take far more memory than the file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_glove(f"{folder}/vectors.txt", ["film", "good"], np.array([[1, 0.5], [-2, 0]]))
    ...     read = read_glove(f"{folder}/vectors.txt", Vocabulary(["good", "bad"]))
    >>> read.vectors.tolist(), read.found.tolist()
    ([[0.0, 0.0], [0.0, 0.0], [-2.0, 0.0], [0.0, 0.0]], [False, False, True, False])
    """
    with unpacked(path, "read_glove") as (file, size, exact):
        return _read_vectors(path, file, vocabulary, allowance(size) if exact else size)


def _read_vectors(
    path: str | os.PathLike[str], file: BinaryIO, vocabulary: Vocabulary, most: int
) -> WordVectors:
    """The vectors from a file's lines; an error if they take more than ``most`` bytes."""
    wanted = {word.encode(): number for number, word in enumerate(vocabulary.words)}
    found = np.zeros(len(vocabulary), bool)
    vectors = np.zeros((len(vocabulary), 0), np.float32)
    size = line = 0
    for line, content in enumerate(_lines(path, file), 1):
        spaces = content.count(b" ")
        if line == 1:
            size = spaces
            if vectors.itemsize * len(vectors) * size > most:
                raise DataError(
                    f"[read_glove] {path}: {len(vectors):,} words with the {size:,} values that line 1 has would take "
                    f"far more memory than the file. Check that it is a GloVe file, or give a smaller vocabulary."
                )
            vectors = np.zeros((len(vocabulary), size), np.float32)
        if spaces == size > 0:
            word, _, values = content.partition(b" ")
        else:
            word, values = _long_word(path, line, content, spaces, size)
        number = wanted.get(word)
        if number is None:
            if not word.isascii():
                _check_encoding(path, line, word)
        elif not found[number]:
            vectors[number] = _numbers(path, line, values)
            found[number] = True
    if not found.any():
        raise DataError(
            f"[read_glove] {path}: {line:,} lines, none with a word of the vocabulary. "
            "Check that it is the right file."
        )
    return WordVectors(vectors, found)


def write_glove(path: str | os.PathLike[str], words: Sequence[str], vectors: NDArray[Any]) -> None:
    """Write a line for each word, with its row of ``vectors``; the file is replaced as a whole.

    Numbers have as many digits as bring the same ``float32`` back.

    Raises ``DataError`` for words and rows of different number, for a word that is empty or has white space
    in it, and for numbers that are not finite; ``OutputError`` when the file cannot be written.
    """
    array = np.asarray(vectors, np.float32)
    if array.ndim != 2 or len(array) != len(words) or not array.shape[1]:
        raise DataError(
            f"[write_glove] {len(words)} words, vectors of shape {array.shape}. Give a row for each word."
        )
    if not np.isfinite(array).all():
        raise DataError(
            f"[write_glove] the vector of {words[int(np.argwhere(~np.isfinite(array))[0, 0])]!r} is not "
            "finite. Train it with a lower learning rate."
        )
    for word in words:
        if len(word.split()) != 1 or word.strip() != word:
            raise DataError(f"[write_glove] {word!r} is no word. Give words without white space.")
    form = " ".join(["%s", *["%.9g"] * array.shape[1]])
    with atomic_write(path) as file:
        for word, row in zip(words, array.tolist()):
            file.write((form % (word, *row) + "\n").encode())


def _lines(path: str | os.PathLike[str], file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file without their ends."""
    while line := file.readline(_LONGEST_LINE):
        if len(line) == _LONGEST_LINE:
            raise DataError(
                f"[read_glove] {path}: a line of more than {_LONGEST_LINE:,} bytes. "
                "It is no GloVe file; give one."
            )
        yield line.rstrip(b"\r\n ")


def _long_word(
    path: str | os.PathLike[str], line: int, content: bytes, spaces: int, size: int
) -> tuple[bytes, bytes]:
    """Word and values of a line with more spaces than values, if they are the word's own."""
    parts = content.rsplit(b" ", size) if size else [content]
    if spaces < size or not size or _is_number(parts[0].rpartition(b" ")[2]):
        raise DataError(
            f"[read_glove] {path}, line {line}: expected a word and {size or 'its'} values, found {spaces} values. "
            "Get the file again."
        )
    return parts[0], b" ".join(parts[1:])


def _numbers(path: str | os.PathLike[str], line: int, values: bytes) -> list[float]:
    try:
        numbers = list(map(float, values.split(b" ")))
    except ValueError as error:
        raise DataError(f"[read_glove] {path}, line {line}: {error}. Get the file again.") from error
    if not all(map(math.isfinite, numbers)):
        raise DataError(
            f"[read_glove] {path}, line {line}: found {next(n for n in numbers if not math.isfinite(n))} "
            "where a finite number is needed. Get the file again."
        )
    return numbers


def _is_number(text: bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _check_encoding(path: str | os.PathLike[str], line: int, word: bytes) -> None:
    try:
        word.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"[read_glove] {path}, line {line}: the word is no UTF-8 ({error}). Save the file as UTF-8."
        ) from error
