"""``pullback train vectors``: word vectors from texts, in GloVe's text format."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pullback.cli.options import (
    INTERRUPTED,
    add_overwrite,
    check_free,
    positive,
    rate,
    seed,
    threads,
    writable,
)
from pullback.cli.output import Output, tell
from pullback.cli.workloads.workload import Report
from pullback.data import Corpus, load_imdb_or_generated, write_glove
from pullback.data.text import VOCABULARY_SIZE
from pullback.errors import DataError
from pullback.train.vectors import WINDOW, corpus_vectors

__all__ = ["add_command"]

_ARCHIVES = (".tar", ".gz", ".tgz")


def add_command(workloads: Any) -> None:
    """Enter ``vectors`` beside the networks."""
    parser = workloads.add_parser("vectors", help="word vectors from what stands near what in texts")
    parser.description = (
        "Train word vectors by GloVe's objective on the co-occurrences of words; write GloVe's text format."
    )
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="text files, a text on each line; or the reviews' archive or folder (default: look for it)",
    )
    defaults = {
        "words": (VOCABULARY_SIZE, "the most frequent words"),
        "dimensions": (50, "numbers of a vector"),
        "window": (WINDOW, "words are near each other up to this distance"),
        "epochs": (20, "passes over the pairs"),
        "batch": (8192, "pairs of a batch"),
    }
    for name, (value, text) in defaults.items():
        parser.add_argument(f"--{name}", type=positive, default=value, metavar="N", help=f"{text} ({value})")
    parser.add_argument(
        "--learning-rate", "--lr", type=rate, default=0.3, metavar="R", help="size of a step (0.3)"
    )
    parser.add_argument("--seed", type=seed, default=0, metavar="S", help="of parameters and order (0)")
    parser.add_argument("--threads", type=threads, metavar="N", help="threads to compute on (all cores)")
    parser.add_argument(
        "--output",
        default="vectors.txt",
        metavar="FILE",
        help="to write (vectors.txt); a file that is there is not replaced",
    )
    add_overwrite(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    output = Output()
    report = output.line
    file = Path(options.output)
    writable(file.absolute().parent)
    if not options.overwrite:
        check_free([file])
    if options.threads:
        from pullback.compiler.runtime.threads import set_num_threads

        set_num_threads(options.threads)
    words, vectors, history = corpus_vectors(
        _corpus([Path(name) for name in options.files], report),
        options.words,
        window=options.window,
        report=report,
        dimensions=options.dimensions,
        epochs=options.epochs,
        batch_size=options.batch,
        learning_rate=options.learning_rate,
        seed=options.seed,
        progress=True,
    )
    write_glove(options.output, words, vectors)
    written = f"{len(words):,} words of {options.dimensions} numbers in {options.output}"
    report(written)
    if output.lost:
        tell(f"standard output was closed; {written}")
    return INTERRUPTED if history.interrupted else 0


def _corpus(files: list[Path], report: Report) -> Corpus:
    """The texts of the files named, or the reviews."""
    if files and not any(file.is_dir() or file.suffix in _ARCHIVES for file in files):
        return Corpus.of_files(files)
    if len(files) > 1:
        raise DataError(
            f"[vectors] {len(files)} files, not all of them texts. Give text files, or one archive."
        )
    reviews = load_imdb_or_generated(files[0] if files else None, report=report)
    report(reviews.note)
    return reviews.corpus
