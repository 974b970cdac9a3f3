"""Film reviews put together by a rule, for when the real ones are not to be had."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import numpy as np

from pullback.data.corpus import Corpus, Reviews
from pullback.data.imdb import load_imdb
from pullback.data.labelled import is_labelled, read_labelled
from pullback.errors import DataError, DownloadError, OutputError

__all__ = ["CLASSES", "generate_reviews", "load_imdb_or_generated"]

CLASSES = ["negative", "positive"]

_THINGS = (
    "film",
    "story",
    "plot",
    "cast",
    "acting",
    "script",
    "music",
    "camera",
    "ending",
    "dialogue",
    "director",
)
_GOOD = (
    "wonderful",
    "moving",
    "brilliant",
    "gripping",
    "funny",
    "superb",
    "honest",
    "clever",
    "warm",
    "fresh",
)
_BAD = ("dull", "awful", "clumsy", "boring", "shallow", "silly", "tired", "hollow", "painful", "lazy")
_FRAMES = (
    "the {thing} is {word}",
    "what a {word} {thing}",
    "i found the {thing} rather {word}",
    "a {word} {thing} from the first minute",
    "my sister called the {thing} {word}",
    "the {thing} was not {opposite} at all",
)
_FILLERS = (
    "i saw it on a rainy evening",
    "the room was full",
    "it runs for about two hours",
    "the book came out years before",
    "we talked about it on the way home",
    "there is a sequel in the making",
)
_DISSENT = 0.15  # of the sentences with a judgement: those that speak against the review's verdict
_SENTENCES = 6, 20


def generate_reviews(count: int = 4000, seed: int = 0) -> Reviews:
    """``count`` made-up reviews, half of them positive: sentences with a judgement and some without.

    One judgement in seven goes against the verdict and some are negated, so that single words mislead. They
    show that a network learns; how well it reads real reviews they cannot show.

    >>> reviews = generate_reviews(100)
    >>> reviews.corpus.labels.mean(), reviews.note
    (np.float64(0.5), '100 made-up reviews (no real ones)')
    """
    if count < 2:
        raise DataError(f"[generate_reviews] {count} reviews. Give 2 or more.")
    random = np.random.default_rng(seed)
    labels = random.permutation(count) % 2
    texts = [_review(bool(label), random) for label in labels]
    return Reviews(
        "generated", Corpus.of(texts, labels.tolist()), f"{count:,} made-up reviews (no real ones)"
    )


def load_imdb_or_generated(
    path: str | os.PathLike[str] | None = None,
    *,
    download: bool = True,
    seed: int = 0,
    report: Callable[[str], None] | None = None,
) -> Reviews:
    """The reviews from IMDB if they can be had (see ``load_imdb``), else made-up ones; ``note`` says which.

    A path that ends in ``.tsv`` or ``.txt`` is a file of texts of one's own, see ``read_labelled``, ``negative`` or
    ``positive``, with some of each.

    A path that is given but has no reviews, and files that are damaged, are errors all the same:
    training on other data than those that were asked for would hide them.
    """
    if path is not None and is_labelled(path):
        corpus = read_labelled(path, CLASSES)
        counts = np.bincount(corpus.labels, minlength=2)
        if not counts.all():
            alone = CLASSES[int(counts.argmax())]
            raise DataError(
                f"[load_imdb] {path}: all {len(corpus):,} texts are {alone}. Give texts of both classes."
            )
        return Reviews("own", corpus, f"{len(corpus):,} texts from {path}")
    try:
        return load_imdb(path, download=download, report=report)
    except (DownloadError, OutputError) as error:
        reason = str(error)
    made_up = generate_reviews(seed=seed)
    note = f"the reviews from IMDB are not to be had ({reason}); using {made_up.note}"
    return Reviews(made_up.name, made_up.corpus, note)


def _review(positive: bool, random: np.random.Generator) -> str:
    sentences = []
    for _ in range(int(random.integers(*_SENTENCES))):
        if random.random() < 0.4:
            sentences.append(_chosen(_FILLERS, random))
            continue
        words, opposites = (_GOOD, _BAD) if positive != (random.random() < _DISSENT) else (_BAD, _GOOD)
        sentence = _chosen(_FRAMES, random).format(
            thing=_chosen(_THINGS, random), word=_chosen(words, random), opposite=_chosen(opposites, random)
        )
        sentences.append(sentence)
    return ". ".join(sentences) + "."


def _chosen(entries: Sequence[str], random: np.random.Generator) -> str:
    return entries[int(random.integers(len(entries)))]
