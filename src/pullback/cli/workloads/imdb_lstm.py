"""A long short-term memory reads a film review word by word and tells whether it is in favour.

The last 500 words of the review, each a vector of 32 numbers that is trained with the network, are read by an LSTM
with 32 units; a dense layer turns its last output into the logit. Trained by Adam.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pullback import nn
from pullback.cli.options import positive
from pullback.cli.workloads.imdb_cnn import OWN_DATA, text_job
from pullback.cli.workloads.workload import Defaults, Job, Report, Workload, size_of
from pullback.data import load_imdb_or_generated
from pullback.data.generated_reviews import CLASSES

__all__ = ["WORKLOAD", "make_model", "parameters", "prepare", "restore"]

_WORDS, _LENGTH, _DIMENSIONS = 20_000, 500, 32
_DEFAULTS = {"IMDB": Defaults(3, 64, 0.001), "generated": Defaults(5, 64, 0.01), "own": Defaults(5, 64, 0.01)}


def make_model(
    words: int = _WORDS, dimensions: int = _DIMENSIONS, hidden: int = 32, seed: nn.Seed = 0
) -> nn.Chain:
    """The network, for texts of any length and a vocabulary of ``words``.

    >>> make_model()
    Chain(
      Embedding(20000 × 32),  # 640,000 parameters, 2.6 MB
      LSTM(32 → 32),  # 8,320 parameters, 33.3 kB
      Dense(32 → 1),  # 33 parameters, 132 bytes
    )  # 648,353 parameters, 2.6 MB
    """
    random = np.random.default_rng(seed)
    return nn.Chain(
        # Near zero: the words' meaning is in what is learned, not in what they begin with.
        nn.Embedding(words, dimensions, initialiser=nn.initialisers.uniform(0.05), seed=random),
        nn.LSTM(dimensions, hidden, seed=random),
        nn.Dense(hidden, 1, seed=random),
    )


def prepare(options: argparse.Namespace, report: Report) -> Job:
    """The data, the network and the settings that suit them."""
    reviews = load_imdb_or_generated(options.data, report=report)
    texts = reviews.split(options.seed, _WORDS, options.length, lengths=options.bucket is not None)
    settings = {
        "input": "text",
        "words": len(texts.vocabulary),
        "length": options.length,
        "dimensions": _DIMENSIONS,
        "hidden": options.hidden,
        "lengths": options.bucket is not None,
        "classes": CLASSES,
    }
    model = restore(settings, seed=options.seed)
    return replace(text_job(texts, model, settings, options, _DEFAULTS[texts.name]), bucket=options.bucket)


def restore(settings: Mapping[str, Any], seed: nn.Seed = 0) -> nn.Chain:
    """A network of the sizes of a job's settings."""
    return make_model(settings["words"], settings["dimensions"], settings["hidden"], seed=seed)


def parameters(settings: Mapping[str, Any]) -> int:
    """How many numbers that network has."""
    names = ("words", "length", "dimensions", "hidden")
    words, _, dimensions, hidden = (size_of(settings, name) for name in names)
    return words * dimensions + 4 * hidden * (dimensions + hidden + 1) + hidden + 1


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--hidden", type=positive, default=32, metavar="N", help="units of the recurrent layer (32)"
    )
    parser.add_argument(
        "--length", type=positive, default=_LENGTH, metavar="N", help=f"words that are read ({_LENGTH})"
    )
    parser.add_argument(
        "--bucket",
        type=positive,
        metavar="N",
        help="read no padding: batches of reviews of similar length, trimmed to the longest, rounded up to a multiple "
        "of N words (short reviews are padded in front, and the padding is read)",
    )


WORKLOAD = Workload(
    "imdb-lstm",
    "a recurrent network with long short-term memory on film reviews",
    _add_options,
    prepare,
    restore,
    parameters,
    _DEFAULTS,
    "adam",
    own_data=OWN_DATA,
)
