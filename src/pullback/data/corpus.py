"""A corpus: labelled texts as one array of word numbers, from which any vocabulary is soon made."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from pullback.data.dataset import Dataset, epoch_order
from pullback.data.text import LENGTH, VOCABULARY_SIZE, Vocabulary, padded, tokenise
from pullback.errors import DataError

__all__ = ["Corpus", "CorpusBuilder", "LabelledTexts", "Reviews"]

_TEST_SHARE = 5  # one text in five: 10,000 of the 50,000 reviews
_PIECE = 1 << 16  # bytes of a long line that are looked at together
_WORD_BYTES = 200  # of memory for a word that is new: itself, its number, its place in a table
_MARGIN, _RATIO = 24 << 20, 16  # bytes of memory for the words of a file, beside so many times its size


@dataclass(frozen=True, eq=False, repr=False)
class Corpus:
    """Texts whose words are numbered as they came, without a vocabulary's limits.

    ``words`` are all words; text ``k`` is ``tokens[starts[k] : starts[k + 1]]`` (int32, positions in
    ``words``), and ``labels[k]`` (uint8) its class.

    >>> corpus = Corpus.of(["a good film", "a bad film", "good, good"], labels=[1, 0, 1])
    >>> corpus
    Corpus(3 texts, 8 words, 4 different)
    >>> vocabulary = corpus.vocabulary(size=4)
    >>> vocabulary.words[2:], corpus.encode(vocabulary, length=4).tolist()
    (('good', 'a'), [[0, 3, 2, 1], [0, 3, 1, 1], [0, 0, 2, 2]])
    """

    words: tuple[str, ...]
    tokens: NDArray[np.int32]
    starts: NDArray[np.int64]
    labels: NDArray[np.uint8]

    @classmethod
    def of(cls, texts: Iterable[str], labels: Iterable[int] | None = None) -> Corpus:
        """The corpus of ``texts``, all with label 0 unless ``labels`` gives one each."""
        builder = CorpusBuilder()
        for text in texts:
            builder.add(text)
        numbers = np.zeros(len(builder), np.uint8) if labels is None else np.array([*labels], np.uint8)
        return builder.corpus(numbers)

    @classmethod
    def of_files(cls, paths: Iterable[str | os.PathLike[str]]) -> Corpus:
        """The corpus of text files in UTF-8, each line of them that is not empty a text, all with label 0.

        Raises ``DataError`` for a file that cannot be read, naming the line that is no UTF-8, and for one with
        more different words than a text has.
        """
        builder, size = CorpusBuilder(), 0
        for path in paths:
            try:
                with open(path, "rb") as file:
                    for line, begins, content in _pieces(path, file):
                        size += len(content)
                        builder.add(_decoded(path, line, content), goes_on=not begins)
                        builder.check(f"[Corpus] {path}, line {line}", size)
            except OSError as error:
                raise DataError(
                    f"[Corpus] cannot read {path}: {error.strerror}. Check the file's name and rights."
                ) from error
        return builder.corpus(np.zeros(len(builder), np.uint8))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __repr__(self) -> str:
        return f"Corpus({len(self):,} texts, {len(self.tokens):,} words, {len(self.words):,} different)"

    def vocabulary(self, size: int = VOCABULARY_SIZE, rows: NDArray[Any] | None = None) -> Vocabulary:
        """The most frequent words of the texts in ``rows`` (of all, by default); see ``Vocabulary``."""
        if rows is None:
            counts = np.bincount(self.tokens, minlength=len(self.words))
        else:
            chosen = np.zeros(len(self), bool)
            chosen[rows] = True
            inside = np.repeat(chosen, np.diff(self.starts))
            counts = np.bincount(self.tokens[inside], minlength=len(self.words))
        return Vocabulary.of_counts({w: n for w, n in zip(self.words, counts.tolist()) if n}, size)

    def numbers(self, vocabulary: Vocabulary) -> NDArray[np.int32]:
        """All ``tokens`` as numbers of ``vocabulary``."""
        table = np.array([vocabulary.number(word) for word in self.words], np.int32)
        return table[self.tokens] if len(table) else np.empty(0, np.int32)

    def encode(self, vocabulary: Vocabulary, length: int = LENGTH, behind: bool = False) -> NDArray[np.int32]:
        """What ``vocabulary.encode`` makes of the texts: int32 of shape (texts, length); see ``padded``."""
        return padded(self.numbers(vocabulary), self.starts, length, behind)


class CorpusBuilder:
    """Makes a corpus of texts that come one by one and need not be kept."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._tokens = array("i")
        self._ends = array("q")

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, text: str, goes_on: bool = False) -> None:
        """Add one text, or more of the one before if it ``goes_on``."""
        numbers = self._numbers
        self._tokens.extend([numbers.setdefault(word, len(numbers)) for word in tokenise(text)])
        if goes_on:
            self._ends[-1] = len(self._tokens)
        else:
            self._ends.append(len(self._tokens))

    def check(self, where: str, size: int) -> None:
        """Raise ``DataError`` if the words of files of ``size`` bytes take memory out of proportion to them."""
        needed = 2 * self._tokens.itemsize * len(self._tokens) + _WORD_BYTES * len(self._numbers)
        if needed > _MARGIN + _RATIO * size:
            raise DataError(
                f"{where}: {len(self._tokens):,} words, {len(self._numbers):,} of them different, take far more memory "
                "than the file. It is no text in a language, or packed too well: check that it is the right file."
            )

    def corpus(self, labels: NDArray[np.uint8], order: NDArray[Any] | None = None) -> Corpus:
        """The corpus of the texts added; with ``order``, its text ``k`` is the one added ``order[k]``-th.

        Raises ``DataError`` unless there is a label for each text.
        """
        if len(labels) != len(self):
            raise DataError(f"[Corpus] {len(self)} texts, {len(labels)} labels. Give one for each.")
        starts = np.zeros(len(self) + 1, np.int64)
        starts[1:] = self._ends
        tokens = np.array(self._tokens, np.int32)
        if order is not None and len(order):
            tokens = np.concatenate([tokens[starts[k] : starts[k + 1]] for k in order])
            starts[1:] = np.cumsum(np.diff(starts)[order])
        return Corpus(tuple(self._numbers), tokens, starts, labels if order is None else labels[order])


@dataclass(frozen=True)
class LabelledTexts:
    """Texts as rows of word numbers, to train on and to test on, and what a program has to know about them.

    ``train`` and ``test`` hold inputs of shape (N, length), int32, and labels of shape (N, 1), uint8, 0 or 1.
    ``vocabulary`` says what the numbers mean; ``note`` is a line for the user that says which texts these
    are and where they came from.
    """

    name: str
    train: Dataset
    test: Dataset
    vocabulary: Vocabulary
    note: str


@dataclass(frozen=True)
class Reviews:
    """Film reviews, labelled 1 if they are positive and 0 if not; ``note`` says where they came from."""

    name: str
    corpus: Corpus
    note: str

    def split(
        self, seed: int = 0, size: int = VOCABULARY_SIZE, length: int = LENGTH, lengths: bool = False
    ) -> LabelledTexts:
        """Four fifths to train on and one to test on, chosen at random by ``seed``: of IMDB's 50,000 reviews
        40,000 and 10,000.

        The vocabulary, of at most ``size`` words, is that of the training texts alone. With ``lengths`` texts stand at
        the beginnings of rows, and the data sets say how long each is.
        Raises ``DataError`` for fewer than five reviews.
        """
        count = len(self.corpus)
        if count < _TEST_SHARE:
            raise DataError(f"[Reviews.split] {count} reviews cannot be split. Give {_TEST_SHARE} or more.")
        order = epoch_order(count, seed)
        held_out = count // _TEST_SHARE
        rows = order[held_out:], order[:held_out]
        vocabulary = self.corpus.vocabulary(size, rows[0])
        inputs = self.corpus.encode(vocabulary, length, behind=lengths)
        own = np.minimum(np.diff(self.corpus.starts), length) if lengths else None
        whole = Dataset(inputs, self.corpus.labels[:, None], own)
        train, test = (whole[part] for part in rows)
        note = f"{self.note}: {len(train):,} to train on, {len(test):,} to test on"
        return LabelledTexts(self.name, train, test, vocabulary, note)


def _pieces(path: str | os.PathLike[str], file: BinaryIO) -> Iterator[tuple[int, bool, bytes]]:
    """Number of a line, whether it begins here, and some words of it, for all lines that are not empty."""
    line, begins, rest = 1, True, b""
    while read := file.readline(_PIECE):
        content, rest = rest + read, b""
        ended = read.endswith(b"\n")
        if not ended and len(read) == _PIECE:
            cut = _between_words(content)
            if not cut:
                raise DataError(
                    f"[Corpus] {path}, line {line}: {len(content):,} bytes without a space. Give text files."
                )
            content, rest = content[:cut], content[cut:]
        if not begins or content.strip():
            yield line, begins, content
            begins = False
        if ended:
            line, begins = line + 1, True
    if rest:
        yield line, False, rest


def _between_words(content: bytes) -> int:
    """Where the last space is, but none within a line break, ``<br />``; 0 if there is none."""
    cut = content.rfind(b" ")
    while cut > 0 and (content[cut - 1 : cut].isspace() or content[cut - 3 : cut].lower() == b"<br"):
        cut = content.rfind(b" ", 0, cut)
    return max(cut, 0)


def _decoded(path: str | os.PathLike[str], line: int, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"[Corpus] {path}, line {line}: no UTF-8 ({error}). Give text files, saved as UTF-8."
        ) from error
