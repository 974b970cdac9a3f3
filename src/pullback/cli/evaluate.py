"""``pullback evaluate``: how good a saved model is on a data set, or on files of one's own."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pullback import nn, optim
from pullback.cli.options import positive, seed, threads
from pullback.cli.output import BROKEN_PIPE, Output
from pullback.cli.predict import load_model
from pullback.cli.workloads.chars import bits_per_character
from pullback.data import (
    Alphabet,
    Dataset,
    Vocabulary,
    character_rows,
    epoch_order,
    load_digits_or_mnist,
    load_imdb_or_generated,
    read_pictures,
    read_text,
)
from pullback.data.labelled import is_labelled, read_labelled
from pullback.errors import DataError
from pullback.metrics import Metric, accuracy, confusion_matrix, precision_recall_f1
from pullback.train import Trainer
from pullback.train.progress import value_text

__all__ = ["add_command"]

_LONGEST, _MOST_CLASSES, _TEST_SHARE = 1000, 20, 5
_BATCH = 100


class _Task(NamedTuple):
    """What a model is evaluated on, and how."""

    note: str
    data: Dataset
    loss: Any
    metrics: Mapping[str, Metric] | None
    classes: list[str]
    """Names of the classes; none where there is nothing to be confused."""
    scale: float | None = None


def add_command(commands: Any) -> None:
    """Enter ``evaluate``."""
    parser = commands.add_parser("evaluate", help="tell how good a saved model is on a data set")
    parser.description = (
        "Tell the loss and the metrics of a model that pullback train saved, and which classes it confuses: on the "
        "test set that its training kept apart, or on data of your own."
    )
    parser.add_argument(
        "--model", required=True, metavar="FILE", help="a model.safetensors, or the folder that has one"
    )
    parser.add_argument(
        "--data",
        metavar="PATH",
        help="for digits a folder of MNIST, or one with a folder of pictures for each class, 0/, 1/, …; for reviews "
        "IMDB's archive or folder, or a file with a class, a tab and a text on each line; for a model of characters a "
        "text file (look for the data set that it was trained on)",
    )
    parser.add_argument(
        "--part", choices=("test", "training"), default="test", help="which part of the data set (test)"
    )
    parser.add_argument(
        "--seed", type=seed, default=0, metavar="S", help="that the reviews were split by in training (0)"
    )
    parser.add_argument(
        "--batch", type=positive, default=_BATCH, metavar="N", help=f"rows of a batch ({_BATCH})"
    )
    parser.add_argument("--threads", type=threads, metavar="N", help="threads to compute on (all cores)")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if options.threads:
        from pullback.compiler.runtime.threads import set_num_threads

        set_num_threads(options.threads)
    model, settings, vocabulary = load_model(options.model)
    output = Output()
    task = _task(options, settings, vocabulary, output)
    output.line(task.note)
    trainer = Trainer(
        model,
        task.loss,
        optim.SGD(0.0),
        metrics=task.metrics,
        batch_size=min(options.batch, len(task.data)),
        scale=task.scale,
    )
    output.print(_figures(len(task.data), trainer.evaluate(task.data)))
    if task.classes:
        logits = np.asarray(trainer.predict(task.data.inputs, task.data.lengths))
        output.print(_confusion(logits, task.data.labels, task.classes))
    return BROKEN_PIPE if output.lost else 0


def _task(
    options: argparse.Namespace,
    settings: Mapping[str, Any],
    vocabulary: Vocabulary | Alphabet | None,
    output: Output,
) -> _Task:
    if isinstance(vocabulary, Alphabet):
        return _characters(options, vocabulary)
    if vocabulary is not None:
        return _texts(options, settings, vocabulary, output)
    return _images(options, settings, output)


# -- digits


def _images(options: argparse.Namespace, settings: Mapping[str, Any], output: Output) -> _Task:
    shape, classes = tuple(settings["shape"]), settings["classes"]
    names = [str(k) for k in range(classes)]
    if options.data is not None and (Path(options.data) / names[0]).is_dir():
        data = _pictures(Path(options.data), names, shape, settings["scale"])
        note = f"{len(data):,} pictures from {options.data}"
        return _Task(note, data, nn.softmax_cross_entropy, None, names)
    images = load_digits_or_mnist(options.data, report=output.line)
    data = images.test if options.part == "test" else images.train
    if data.inputs.shape[1:] != shape:
        raise DataError(
            f"[evaluate] the model reads pictures of {_size(shape)}, and these are of {_size(data.inputs.shape[1:])}: "
            f"{images.note}. Give the data that it was trained on, --data DIR."
        )
    note = f"{images.note}; the {options.part} images"
    return _Task(note, data, nn.softmax_cross_entropy, None, names, images.scale)


def _pictures(folder: Path, names: list[str], shape: tuple[int, ...], scale: float) -> Dataset:
    """The pictures of folders that have the classes' names."""
    strangers = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and entry.name not in names)
    if strangers:
        raise DataError(
            f"[evaluate] {folder} has a folder {strangers[0]!r}, which is no class. Give folders 0 to {names[-1]}."
        )
    parts, labels = [], []
    for label, name in enumerate(names):
        files = sorted((folder / name).iterdir()) if (folder / name).is_dir() else []
        files = [file for file in files if not file.name.startswith(".")]  # what systems put there
        for file in files:
            found = read_pictures(file, shape, scale)
            parts.append(found)
            labels += [label] * len(found)
    if not parts:
        raise DataError(
            f"[evaluate] {folder} has no pictures. Put those of each class into a folder of its name."
        )
    return Dataset(np.concatenate(parts), np.array(labels, np.uint8))


def _size(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape))


# -- reviews


def _texts(
    options: argparse.Namespace, settings: Mapping[str, Any], vocabulary: Vocabulary, output: Output
) -> _Task:
    """Reviews in the words that the model knows."""
    classes = list(settings["classes"])
    if is_labelled(options.data):
        corpus = read_labelled(options.data, classes)
        rows, note = np.arange(len(corpus)), f"{len(corpus):,} texts from {options.data}"
    else:
        reviews = load_imdb_or_generated(options.data, report=output.line)
        corpus = reviews.corpus
        order, held_out = epoch_order(len(corpus), options.seed), len(corpus) // _TEST_SHARE
        rows = order[:held_out] if options.part == "test" else order[held_out:]
        note = f"{reviews.note}: {len(rows):,}, the {options.part} set of seed {options.seed}"
    behind, length = bool(settings.get("lengths")), settings["length"]
    lengths = np.minimum(np.diff(corpus.starts), length) if behind else None
    whole = Dataset(corpus.encode(vocabulary, length, behind=behind), corpus.labels[:, None], lengths)
    return _Task(note, whole[rows], nn.binary_cross_entropy, None, classes)


# -- characters


def _characters(options: argparse.Namespace, alphabet: Alphabet) -> _Task:
    if options.data is None:
        raise DataError("[evaluate] a model of characters is evaluated on a text. Name it: --data FILE.")
    numbers = alphabet.encode(read_text(options.data))
    data = character_rows(numbers, _LONGEST)
    metrics = {"bits_per_character": bits_per_character, "accuracy": accuracy}
    note = f"{len(numbers):,} characters from {options.data}"
    return _Task(note, data, nn.softmax_cross_entropy, metrics, [])


# -- what is shown


def _figures(count: int, figures: Mapping[str, float]) -> Any:
    from rich.table import Table

    table = Table(show_header=False, box=None)
    table.add_row("rows", f"{count:,}")
    for name, value in figures.items():
        table.add_row(name.replace("_", " "), value_text(name, value))
    if "bits_per_character" in figures:
        table.add_row("perplexity", f"{math.exp(min(figures['loss'], 700.0)):.3f}")
    return table


def _confusion(logits: Any, labels: Any, classes: list[str]) -> Any:
    """A row for each class: for what its examples were taken, and its precision, recall and F1."""
    from rich.table import Table

    if logits.shape[1] == 1:
        logits, labels = np.concatenate([-logits, logits], axis=1), labels[:, 0]
    confusion = confusion_matrix(logits, labels)
    several = len(classes) <= _MOST_CLASSES
    table = Table(title="examples of a class, and what they were taken for")
    table.add_column("class")
    for name in [*(classes if several else []), "precision", "recall", "F1"]:
        table.add_column(name, justify="right")
    for row, name, *shares in zip(confusion.tolist(), classes, *precision_recall_f1(confusion)):
        counts = [f"{count:,}" for count in row] if several else []
        table.add_row(name, *counts, *(f"{100 * share:.1f} %" for share in shares))
    return table
