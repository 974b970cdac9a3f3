"""Text as numbers: words by a fixed rule, a vocabulary of the most frequent, rows of equal length."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pullback.errors import DataError
from pullback.io.bounded import parse_json

__all__ = ["LENGTH", "PADDING", "UNKNOWN", "VOCABULARY_SIZE", "Vocabulary", "padded", "tokenise"]

Tokens = NDArray[np.int32]

PADDING, UNKNOWN = 0, 1
"""The numbers of what fills a short text, and of every word that a vocabulary does not have."""
VOCABULARY_SIZE, LENGTH = 12_000, 130
"""The sizes of the text networks: words of the vocabulary, both special ones included, and of a text."""

_SPECIAL = ("<padding>", "<unknown>")  # no text can have them: a word has no angle brackets
_LINE_BREAK = re.compile(r"<br\s*/?>")
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_ROWS_AT_A_TIME = 4096


def tokenise(text: str) -> list[str]:
    """The words of ``text``: runs of letters and digits of any script, with the apostrophes inside them.

    The text is lower-cased first, HTML's line breaks (``<br />``) are spaces, a typographic apostrophe is a
    plain one, and everything else, such as punctuation, only separates.

    >>> tokenise("It wasn’t <i>that</i> bad.<br /><br />8/10, 'Café' included!")
    ['it', "wasn't", 'i', 'that', 'i', 'bad', '8', '10', 'café', 'included']
    """
    return _WORD.findall(_LINE_BREAK.sub(" ", text.lower().replace("’", "'")))


class Vocabulary:
    """Words by number: 0 is padding, 1 every unknown word, the others follow by falling frequency.

    ``vocabulary[number]`` is a word, ``vocabulary.number(word)`` its number, ``len(vocabulary)`` counts both
    special ones: it is how many rows an embedding must have.

    Raises ``DataError`` for words that are repeated or empty.

    >>> vocabulary = Vocabulary.of_texts(["a good film", "A bad film"], size=4)
    >>> vocabulary
    Vocabulary(4 words: <padding>, <unknown>, a, film)
    >>> vocabulary.encode(["a very good film"], length=6)
    array([[0, 0, 2, 1, 1, 3]], dtype=int32)
    """

    def __init__(self, words: Sequence[str]) -> None:
        """``words`` are those from number 2 on."""
        self.words = (*_SPECIAL, *words)
        if len(set(self.words)) != len(self.words) or not all(isinstance(w, str) and w for w in words):
            twice = next((word for word, count in Counter(self.words).items() if count > 1), "")
            raise DataError(
                f"[Vocabulary] the word {twice!r} is {'there twice' if twice else 'empty or no string'}. "
                "Give each word once."
            )

    @classmethod
    def of_texts(cls, texts: Iterable[str], size: int = VOCABULARY_SIZE) -> Vocabulary:
        """The vocabulary of the most frequent words of ``texts``; see ``of_counts``."""
        if isinstance(texts, str):
            raise DataError("[Vocabulary.of_texts] found one string. Give a list of texts.")
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(tokenise(text))
        return cls.of_counts(counts, size)

    @classmethod
    def of_counts(cls, counts: Mapping[str, int], size: int = VOCABULARY_SIZE) -> Vocabulary:
        """The vocabulary of the most frequent words, at most ``size`` with padding and unknown.

        Of equally frequent words those that come first in the order of their letters are taken, so that the
        same counts give the same numbers wherever they come from.
        """
        if size <= len(_SPECIAL):
            raise DataError(f"[Vocabulary] a size of {size} leaves no word. Give 3 or more.")
        ranked = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
        return cls([word for word, _ in ranked[: size - len(_SPECIAL)]])

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, number: int) -> str:
        return self.words[number]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.words == other.words

    def __hash__(self) -> int:
        return hash(self.words)

    def __repr__(self) -> str:
        shown = ", ".join(self.words[:4])
        return f"Vocabulary({len(self):,} words: {shown}{', …' if len(self) > 4 else ''})"

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}

    def number(self, word: str) -> int:
        """The number of ``word``; ``UNKNOWN`` if the vocabulary does not have it."""
        return self._numbers.get(word, UNKNOWN)

    def encode(self, texts: Iterable[str], length: int = LENGTH) -> Tokens:
        """Texts as rows of word numbers: int32 of shape (texts, length), padded as ``padded`` says."""
        return padded(*self._encoded(texts), length)

    def encode_with_lengths(
        self, texts: Iterable[str], length: int = LENGTH
    ) -> tuple[Tokens, NDArray[np.int64]]:
        """The same words at the beginnings of rows, padded behind, and how many there are in each row.

        >>> rows, lengths = Vocabulary(["a", "film"]).encode_with_lengths(["A good film", "Film!"], length=4)
        >>> rows, lengths
        (array([[2, 1, 3, 0],
               [3, 0, 0, 0]], dtype=int32), array([3, 1]))
        """
        tokens, starts = self._encoded(texts)
        return padded(tokens, starts, length, behind=True), np.minimum(np.diff(starts), length)

    def _encoded(self, texts: Iterable[str]) -> tuple[Tokens, NDArray[np.int64]]:
        """The numbers of all texts one after the other, and where each begins."""
        if isinstance(texts, str):
            raise DataError("[Vocabulary.encode] found one string. Give a list of texts.")
        known = self._numbers
        rows = [[known.get(word, UNKNOWN) for word in tokenise(text)] for text in texts]
        starts = np.cumsum([0, *map(len, rows)])
        return np.array([n for row in rows for n in row], np.int32), starts

    def to_json(self) -> str:
        """The words as JSON text, such as for the metadata of a model's file."""
        return json.dumps(self.words[len(_SPECIAL) :], ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Vocabulary:
        """The vocabulary that ``to_json`` wrote; raises ``DataError`` for other text."""
        try:
            words = parse_json(text)
        except ValueError as error:
            raise DataError(
                f"[Vocabulary] no JSON that can be read: {error}. Save the model again."
            ) from error
        if not isinstance(words, list):
            raise DataError(
                f"[Vocabulary] expected a list of words, found {type(words).__name__}. Save the model again."
            )
        return cls(words)

    def check_rows(self, rows: int) -> None:
        """Raise ``DataError`` unless an embedding of so many rows belongs to a vocabulary of this size."""
        if rows != len(self):
            raise DataError(
                f"[Vocabulary] {len(self):,} words, but the embedding has {rows:,} rows. "
                "Use the vocabulary that the model was trained with."
            )


def padded(
    tokens: NDArray[Any], starts: NDArray[np.integer[Any]], length: int, behind: bool = False
) -> Tokens:
    """Texts of any length as rows of ``length``: the last words of a long text, zeros before a short one.

    ``tokens`` holds all texts one after the other, text ``k`` from ``starts[k]`` to ``starts[k + 1]``. The
    end is what is kept, and stands at the end of the row: a review's verdict is in its last sentences. With
    ``behind`` the same words stand at the beginning, and the zeros behind them.

    >>> padded(np.array([5, 6, 7, 8, 9]), np.array([0, 3, 5]), length=4)
    array([[0, 5, 6, 7],
           [0, 0, 8, 9]], dtype=int32)
    >>> padded(np.array([5, 6, 7, 8, 9]), np.array([0, 3, 5]), length=4, behind=True)
    array([[5, 6, 7, 0],
           [8, 9, 0, 0]], dtype=int32)
    """
    if length < 1:
        raise DataError(f"[padded] rows of {length} words. Give a length of 1 or more.")
    rows = np.zeros((len(starts) - 1, length), np.int32)
    columns = np.arange(length) if behind else np.arange(-length, 0)
    for first in range(0, len(rows), _ROWS_AT_A_TIME):  # so that the positions stay small beside the rows
        part = rows[first : first + _ROWS_AT_A_TIME]
        begin, end = (starts[first + k : first + k + len(part)][:, None] for k in (0, 1))
        places = np.maximum(begin, end - length) + columns if behind else end + columns
        inside = places < end if behind else places >= begin
        part[inside] = tokens[places[inside]]
    return rows
