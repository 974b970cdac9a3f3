"""A corpus: labelled texts as one array of word numbers, from which any vocabulary is soon made."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pullback.data.dataset import Dataset, epoch_order
from pullback.data.text import LENGTH, VOCABULARY_SIZE, Vocabulary, padded, tokenise
from pullback.errors import DataError

__all__ = ["Corpus", "CorpusBuilder", "LabelledTexts", "Reviews"]

_TEST_SHARE = 5  # one text in five: 10,000 of the 50,000 reviews


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
        """The corpus of text files in UTF-8, each line of them a text, all with label 0.

        Raises ``DataError`` for a file that cannot be read, naming the line that is no UTF-8.
        """
        builder = CorpusBuilder()
        for path in paths:
            try:
                with open(path, "rb") as file:
                    for line, content in enumerate(file, 1):
                        builder.add(_decoded(path, line, content))
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

    def encode(self, vocabulary: Vocabulary, length: int = LENGTH) -> NDArray[np.int32]:
        """What ``vocabulary.encode`` makes of the texts: int32 of shape (texts, length)."""
        return padded(self.numbers(vocabulary), self.starts, length)


class CorpusBuilder:
    """Makes a corpus of texts that come one by one and need not be kept."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._texts: list[NDArray[np.int32]] = []

    def __len__(self) -> int:
        return len(self._texts)

    def add(self, text: str) -> None:
        """Add one text."""
        numbers = self._numbers
        self._texts.append(
            np.array([numbers.setdefault(word, len(numbers)) for word in tokenise(text)], np.int32)
        )

    def corpus(self, labels: NDArray[np.uint8], order: NDArray[Any] | None = None) -> Corpus:
        """The corpus of the texts added; with ``order``, its text ``k`` is the one added ``order[k]``-th.

        Raises ``DataError`` unless there is a label for each text.
        """
        if len(labels) != len(self._texts):
            raise DataError(f"[Corpus] {len(self._texts)} texts, {len(labels)} labels. Give one for each.")
        if order is not None:
            self._texts = [self._texts[k] for k in order]
        starts = np.zeros(len(self._texts) + 1, np.int64)
        np.cumsum([len(text) for text in self._texts], out=starts[1:])
        tokens = np.concatenate(self._texts) if self._texts else np.empty(0, np.int32)
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

    def split(self, seed: int = 0, size: int = VOCABULARY_SIZE, length: int = LENGTH) -> LabelledTexts:
        """Four fifths to train on and one to test on, chosen at random by ``seed``: of IMDB's 50,000 reviews
        40,000 and 10,000.

        The vocabulary, of at most ``size`` words, is that of the training texts alone.
        Raises ``DataError`` for fewer than five reviews.
        """
        count = len(self.corpus)
        if count < _TEST_SHARE:
            raise DataError(f"[Reviews.split] {count} reviews cannot be split. Give {_TEST_SHARE} or more.")
        order = epoch_order(count, seed)
        held_out = count // _TEST_SHARE
        rows = order[held_out:], order[:held_out]
        vocabulary = self.corpus.vocabulary(size, rows[0])
        inputs, labels = self.corpus.encode(vocabulary, length), self.corpus.labels[:, None]
        train, test = (Dataset(inputs[part], labels[part]) for part in rows)
        note = f"{self.note}: {len(train):,} to train on, {len(test):,} to test on"
        return LabelledTexts(self.name, train, test, vocabulary, note)


def _decoded(path: str | os.PathLike[str], line: int, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"[Corpus] {path}, line {line}: no UTF-8 ({error}). Give text files, saved as UTF-8."
        ) from error
