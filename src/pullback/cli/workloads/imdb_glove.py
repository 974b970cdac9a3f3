"""The convolutional network on film reviews with word vectors that stay as they are.

The vectors come from a file in GloVe's format. Without one they are made from the reviews themselves, by what
stands near what and without a look at the labels, and kept for the next time.
"""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pullback import nn
from pullback.cli.workloads import imdb_cnn
from pullback.cli.workloads.workload import Defaults, Job, Report, Workload
from pullback.data import Reviews, load_imdb_or_generated, read_glove, write_glove
from pullback.data.download import cache_folder, make_cache_folder
from pullback.train.vectors import corpus_vectors

__all__ = ["WORKLOAD", "own_vectors", "prepare", "restore"]

_DEFAULTS = {
    "IMDB": Defaults(5, 64, 0.002),
    "generated": Defaults(5, 64, 0.002),
    "own": Defaults(5, 64, 0.002),
}


def prepare(options: argparse.Namespace, report: Report) -> Job:
    """The data, the network with its vectors, and the settings that suit them."""
    reviews = load_imdb_or_generated(options.data, report=report)
    texts = reviews.split(options.seed)
    file = Path(options.vectors) if options.vectors else own_vectors(reviews, report)
    read = read_glove(file, texts.vocabulary)
    report(f"vectors from {file} for {int(read.found.sum()):,} of {len(read.found):,} words")
    settings = imdb_cnn.text_settings(texts, options.filters, read.vectors.shape[1])
    model = _make_model(settings, nn.Embedding.from_vectors(read.vectors), options.seed)
    return imdb_cnn.text_job(texts, model, settings, options, _DEFAULTS[texts.name])


def restore(settings: Mapping[str, Any], seed: nn.Seed = 0) -> nn.Chain:
    """A network of the sizes of a job's settings, its vectors zero."""
    table = np.zeros((settings["words"], settings["dimensions"]), np.float32)
    return _make_model(settings, nn.Embedding.from_vectors(table), seed)


def _make_model(settings: Mapping[str, Any], embedding: nn.Embedding, seed: nn.Seed) -> nn.Chain:
    return imdb_cnn.make_model(
        settings["words"],
        settings["length"],
        settings["dimensions"],
        settings["filters"],
        embedding=embedding,
        seed=seed,
    )


def own_vectors(reviews: Reviews, report: Report) -> Path:
    """The file of vectors made from these reviews, now or before."""
    folder = cache_folder("vectors")
    # Other reviews must not get these vectors: their words are part of the name.
    checksum = zlib.crc32(reviews.corpus.tokens.tobytes())
    file = folder / f"{reviews.name.lower()}-{checksum:08x}.50d.txt"
    if not file.is_file():
        make_cache_folder(folder)
        report(f"no vectors given (--vectors FILE): making some from {len(reviews.corpus):,} reviews")
        words, vectors, history = corpus_vectors(reviews.corpus, report=report, progress=True)
        if history.interrupted:
            raise KeyboardInterrupt
        write_glove(file, words, vectors)
    return file


def _add_options(parser: argparse.ArgumentParser) -> None:
    imdb_cnn.add_options(parser)
    parser.add_argument(
        "--vectors", metavar="FILE", help="word vectors in GloVe's text format (default: make some)"
    )


WORKLOAD = Workload(
    "imdb-glove",
    "a convolutional network on film reviews, its word vectors fixed",
    _add_options,
    prepare,
    restore,
    imdb_cnn.parameters,
    _DEFAULTS,
    "adam",
    own_data=imdb_cnn.OWN_DATA,
)
