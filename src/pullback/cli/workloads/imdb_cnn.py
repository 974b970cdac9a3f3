"""A convolutional network reads a film review and tells whether it is in favour.

The last 130 words of the review, each a vector of 50 numbers that is trained with the network, pass under
eight windows of three words; a relu and the maximum over every eight places leave 128 numbers for a dense
layer with one output, the logit. Trained by Adam.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import numpy as np

from pullback import nn, optim
from pullback.cli.options import positive
from pullback.cli.workloads.workload import Defaults, Job, Report, Workload, size_of
from pullback.data import LabelledTexts, load_imdb_or_generated
from pullback.data.generated_reviews import CLASSES
from pullback.data.text import LENGTH, VOCABULARY_SIZE

__all__ = ["OWN_DATA", "WORKLOAD", "make_model", "parameters", "prepare", "restore", "text_job"]

OWN_DATA = ", or a .tsv or .txt file with negative or positive, a tab and a text on each line"

_WINDOW, _POOL = 3, 8
_DEFAULTS = {
    "IMDB": Defaults(5, 64, 0.0003),
    "generated": Defaults(5, 64, 0.003),
    "own": Defaults(5, 64, 0.003),
}
"""Larger learning rates learn IMDB's reviews by heart within the five epochs; of the made-up ones there are a tenth."""


def make_model(
    words: int = VOCABULARY_SIZE,
    length: int = LENGTH,
    dimensions: int = 50,
    filters: int = 8,
    *,
    embedding: Any = None,
    seed: nn.Seed = 0,
) -> nn.Chain:
    """The network, for texts of ``length`` words and a vocabulary of ``words``.

    ``embedding`` is the first layer, if it is not to begin at random.

    >>> make_model()
    Chain(
      Embedding(12000 × 50),  # 600,000 parameters, 2.4 MB
      Conv1d(50 → 8, 3, channels last),  # 1,208 parameters, 4.8 kB
      relu,
      MaxPool1d(8, channels last),
      flatten,
      Dense(128 → 1),  # 129 parameters, 516 bytes
    )  # 601,337 parameters, 2.4 MB
    """
    random = np.random.default_rng(seed)
    if embedding is None:
        # Near zero: the words' meaning is in what is learned, not in what they begin with.
        embedding = nn.Embedding(words, dimensions, initialiser=nn.initialisers.uniform(0.05), seed=random)
    places = (length - _WINDOW + 1) // _POOL
    return nn.Chain(
        embedding,
        nn.Conv1d(dimensions, filters, _WINDOW, channels="last", seed=random),
        nn.relu,
        nn.MaxPool1d(_POOL, channels="last"),
        nn.flatten,
        nn.Dense(places * filters, 1, seed=random),
    )


def prepare(options: argparse.Namespace, report: Report) -> Job:
    """The data, the network and the settings that suit them."""
    texts = load_imdb_or_generated(options.data, report=report).split(options.seed)
    settings = text_settings(texts, options.filters)
    model = restore(settings, seed=options.seed)
    return text_job(texts, model, settings, options, _DEFAULTS[texts.name])


def restore(settings: Mapping[str, Any], seed: nn.Seed = 0) -> nn.Chain:
    """A network of the sizes of a job's settings."""
    return make_model(
        settings["words"], settings["length"], settings["dimensions"], settings["filters"], seed=seed
    )


def parameters(settings: Mapping[str, Any]) -> int:
    """How many numbers that network has."""
    names = ("words", "length", "dimensions", "filters")
    words, length, dimensions, filters = (size_of(settings, name) for name in names)
    places = max((length - _WINDOW + 1) // _POOL, 0)
    return words * dimensions + filters * (_WINDOW * dimensions + 1) + places * filters + 1


def text_settings(texts: LabelledTexts, filters: int, dimensions: int = 50) -> dict[str, Any]:
    """The sizes of a network for these texts, and what a text must become to be read by it."""
    words, length = len(texts.vocabulary), texts.train.inputs.shape[1]
    return {
        "input": "text",
        "words": words,
        "length": length,
        "dimensions": dimensions,
        "filters": filters,
        "classes": CLASSES,
    }


def text_job(
    texts: LabelledTexts,
    model: Any,
    settings: Mapping[str, Any],
    options: argparse.Namespace,
    defaults: Defaults,
) -> Job:
    """The job of training ``model`` on ``texts``, with these defaults where the options have nothing."""
    return Job(
        note=texts.note,
        model=model,
        loss=nn.binary_cross_entropy,
        optimiser=optim.Adam(
            defaults.learning_rate if options.learning_rate is None else options.learning_rate
        ),
        train=texts.train,
        test=texts.test,
        scale=None,
        batch_size=options.batch or defaults.batch_size,
        epochs=options.epochs or defaults.epochs,
        settings=settings,
        examples="reviews",
        vocabulary=texts.vocabulary,
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of networks on texts."""
    parser.add_argument(
        "--filters", type=positive, default=8, metavar="N", help="output channels of the convolution (8)"
    )


WORKLOAD = Workload(
    "imdb-cnn",
    "a convolutional network on film reviews",
    add_options,
    prepare,
    restore,
    parameters,
    _DEFAULTS,
    "adam",
    own_data=OWN_DATA,
)
