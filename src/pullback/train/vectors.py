"""Word vectors from the company that words keep: co-occurrence counts, and GloVe's model of them.

Source: Pennington, Socher & Manning, *GloVe: Global vectors for word representation*, EMNLP 2014.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pullback.data.corpus import Corpus
from pullback.data.dataset import Dataset
from pullback.data.text import VOCABULARY_SIZE, Vocabulary
from pullback.errors import DataError
from pullback.nn import Module, Seed
from pullback.numpy import log, minimum, square
from pullback.numpy import sum as sum_
from pullback.optim import Adagrad
from pullback.train.history import History
from pullback.train.trainer import Trainer

__all__ = ["CoOccurrences", "GloVe", "corpus_vectors", "count_cooccurrences", "glove_loss", "train_vectors"]

Array = NDArray[Any]

WINDOW, LEAST = 10, 0.5
_MOST_WORDS = 30_000  # the time grows with their square: 30 walks through the texts for so many
_LONGEST_PIECE = 1 << 20  # words that are counted at a time
_LARGEST_TABLE = 1 << 24  # counts that are kept at a time, 64 MB
_COMMON, _POWER = 100.0, 0.75  # of the weight of a pair, from the paper


@dataclass(frozen=True, eq=False)
class CoOccurrences:
    """How often words stand near each other: ``pairs`` (N, 2), int32, the larger number first, each pair
    once; ``counts`` (N,), float32, above zero.
    """

    pairs: NDArray[np.int32]
    counts: NDArray[np.float32]


def count_cooccurrences(
    tokens: NDArray[np.integer[Any]],
    starts: NDArray[np.integer[Any]],
    words: int,
    window: int = WINDOW,
    least: float = LEAST,
) -> CoOccurrences:
    """Count, for each pair of words, how often they are within ``window`` words, each time as 1/distance.

    ``tokens`` are all texts one after the other, text ``k`` from ``starts[k]`` to ``starts[k + 1]``; numbers
    from 0 to ``words`` - 1 are words, and those outside are left out before distances are taken. A pair is
    one whatever its order; near itself a word counts like any other. Pairs with a count below ``least`` are
    left out: of the reviews two thirds, with a fiftieth of all counts.

    Raises ``DataError`` for more words than can be counted in good time, and for texts without a pair.

    >>> texts = np.array([0, 1, 2, 0, 1])  # "a b c" and "a b"
    >>> counted = count_cooccurrences(texts, np.array([0, 3, 5]), words=3, window=2)
    >>> dict(zip(map(tuple, counted.pairs.tolist()), counted.counts.tolist()))
    {(1, 0): 2.0, (2, 0): 0.5, (2, 1): 1.0}
    """
    if not 1 <= words <= _MOST_WORDS:
        raise DataError(
            f"[count_cooccurrences] {words:,} words. Give 1 to {_MOST_WORDS:,}: the most frequent ones."
        )
    known = (tokens >= 0) & (tokens < words)
    texts = np.repeat(np.arange(len(starts) - 1, dtype=np.int32), np.diff(starts))[known]
    numbers = tokens[known].astype(np.int32)
    del known
    places, counts = [], []
    size = words * (words + 1) // 2
    for first in range(0, size, _LARGEST_TABLE):
        table = np.zeros(min(_LARGEST_TABLE, size - first), np.float32)
        _add_counts(table, first, numbers, texts, window)
        enough = np.flatnonzero(table >= max(least, np.finfo(np.float32).tiny))
        places.append((enough + first).astype(np.int32))
        counts.append(table[enough])
    pairs = _pairs_at(np.concatenate(places))
    if not len(pairs):
        raise DataError(
            f"[count_cooccurrences] no two words are near each other with a count of {least} or more. "
            "Give longer texts."
        )
    return CoOccurrences(pairs, np.concatenate(counts))


def _add_counts(table: Array, start: int, numbers: Array, texts: Array, window: int) -> None:
    """Add to ``table`` the counts of the pairs whose triangular numbers are ``start`` and following.

    A pair's number is ``high * (high + 1) / 2 + low``.
    """
    for first in range(0, len(numbers), _LONGEST_PIECE):
        last = first + _LONGEST_PIECE
        for distance in range(1, window + 1):
            b = numbers[first + distance : last + distance]
            a = numbers[first:last][: len(b)]
            together = texts[first:last][: len(b)] == texts[first + distance : last + distance]
            high, low = np.maximum(a, b), np.minimum(a, b)
            number = high * (high + 1) // 2 + low - start
            # Sorted, equal pairs are neighbours, and the table is walked through once, in order.
            inside = number[together & (number >= 0) & (number < len(table))]
            places, times = _run_lengths(np.sort(inside))
            table[places] += times.astype(np.float32) / np.float32(distance)


def _pairs_at(places: NDArray[np.int32]) -> NDArray[np.int32]:
    """The pairs (high, low) with these triangular numbers."""
    pairs = np.empty((len(places), 2), np.int32)
    high, low = pairs.T
    # The row, exact after one correction of what the root rounds.
    high[:] = (np.sqrt(8.0 * places + 1) - 1) / 2
    high += (high + 1) * (high + 2) // 2 <= places
    low[:] = places - high * (high + 1) // 2
    return pairs


class GloVe(Module):
    r"""GloVe's model of a pair's logarithmic count, :math:`w_i \cdot c_j + b_i + d_j`, for either order.

    Pairs (batch, 2), integers → (batch, 2): the model with the words as they come and the other way round. ``word``
    and ``context`` have shape (words, dimensions), both biases (words,); they begin uniform in ±1/(2 ·
    dimensions).

    >>> model = GloVe(100, 50, seed=0)
    >>> model(np.array([[1, 2], [3, 3]])).shape, model.vectors().shape
    ((2, 2), (100, 50))
    """

    word: Any
    context: Any
    word_bias: Any
    context_bias: Any

    def __init__(self, words: int, dimensions: int, seed: Seed = None) -> None:
        random = np.random.default_rng(seed)
        limit = 0.5 / dimensions
        self.word, self.context = (
            random.uniform(-limit, limit, (words, dimensions)).astype(np.float32) for _ in range(2)
        )
        self.word_bias, self.context_bias = (
            random.uniform(-limit, limit, words).astype(np.float32) for _ in range(2)
        )

    def __call__(self, pairs: Any) -> Any:
        words = self.word[pairs]
        contexts = self.context[pairs][:, ::-1]
        biases = self.word_bias[pairs] + self.context_bias[pairs][:, ::-1]
        return sum_(words * contexts, axis=-1) + biases

    def vectors(self) -> Any:
        """The words' vectors: both roles added, as the paper does."""
        return self.word + self.context


def glove_loss(outputs: Any, counts: Any) -> Any:
    r"""The weighted squares :math:`f(x) (y - \log x)^2`, :math:`f(x) = \min(1, (x / 100)^{0.75})`, per pair.

    ``outputs`` (batch, 2) are the model's two values for a pair, ``counts`` (batch,) the pairs' counts.

    >>> round(float(glove_loss(np.array([[0.0, 0.0]]), np.array([100.0]))), 3)  # 2 · log² 100
    42.415
    """
    weight = minimum(1.0, (counts / _COMMON) ** _POWER)
    error = outputs - log(counts)[:, None]
    return sum_(weight[:, None] * square(error)) / counts.shape[0]


def train_vectors(
    counted: CoOccurrences,
    words: int,
    *,
    dimensions: int = 50,
    epochs: int = 20,
    batch_size: int = 8192,
    learning_rate: float = 0.3,
    seed: int = 0,
    progress: bool | None = None,
) -> tuple[NDArray[np.float32], History]:
    """Train ``GloVe`` on counts by AdaGrad: the vectors (words, dimensions), and the history of the training.

    Ctrl-C ends the training early; the vectors are those of the last step.

    >>> counted = count_cooccurrences(np.array([0, 1, 2, 0, 1]), np.array([0, 3, 5]), words=3)
    >>> vectors, history = train_vectors(counted, 3, dimensions=2, epochs=2, progress=False)
    >>> vectors.shape, history.epochs
    ((3, 2), 2)
    """
    model = GloVe(words, dimensions, seed=seed)
    trainer = Trainer(model, glove_loss, Adagrad(learning_rate), metrics=(), batch_size=batch_size, seed=seed)
    history = trainer.fit(Dataset(counted.pairs, counted.counts), epochs, progress=progress)
    return model.vectors(), history


def corpus_vectors(
    corpus: Corpus,
    words: int = VOCABULARY_SIZE,
    *,
    window: int = WINDOW,
    report: Callable[[str], None] | None = None,
    **training: Any,
) -> tuple[tuple[str, ...], NDArray[np.float32], History]:
    """The most frequent ``words`` of a corpus, a vector for each, and the history of their training.

    ``training`` are arguments of ``train_vectors``; ``report`` is given a line about what is counted.

    >>> corpus = Corpus.of(["a good film", "a bad film"])
    >>> words, vectors, _ = corpus_vectors(corpus, dimensions=2, epochs=1, progress=False)
    >>> words, vectors.shape
    (('a', 'film', 'bad', 'good'), (4, 2))
    """
    special = len(Vocabulary(()))
    vocabulary = corpus.vocabulary(words + special)
    known = vocabulary.words[special:]
    counted = count_cooccurrences(corpus.numbers(vocabulary) - special, corpus.starts, len(known), window)
    if report is not None:
        report(f"{corpus}: {len(counted.counts):,} pairs of {len(known):,} words")
    return known, *train_vectors(counted, len(known), **training)


def _run_lengths(places: Array) -> tuple[Array, Array]:
    """The different elements of a sorted array, and how often each is there."""
    first = np.flatnonzero(np.concatenate([[True], places[1:] != places[:-1]])[: len(places)])
    return places[first], np.diff(first, append=len(places))
