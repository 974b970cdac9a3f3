"""``pullback predict``: what a saved model says of pictures or of lines of text."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from pullback import nn
from pullback.cli.workloads import WORKLOADS
from pullback.data import Vocabulary, read_pictures
from pullback.errors import DataError
from pullback.io import load, load_metadata

__all__ = ["add_command", "load_model"]

_STANDARD_INPUT, _FILE = "-", "@"
_SHOWN = 60  # characters of a text


def add_command(commands: Any) -> None:
    """Enter ``predict``."""
    parser = commands.add_parser("predict", help="let a saved model read pictures or lines of text")
    parser.description = "Let a model that pullback train saved read pictures or lines of text."
    parser.add_argument("--model", required=True, metavar="FILE", help="a model.safetensors")
    parser.add_argument(
        "inputs",
        nargs="+",
        metavar="INPUT",
        help="for digits a picture (PNG, .npy or IDX); for reviews a text, @FILE for the lines of a file, or - for "
        "those of standard input",
    )
    parser.set_defaults(run=_run)


def load_model(path: str) -> tuple[Any, dict[str, Any], Vocabulary | None]:
    """A saved model with the settings of its job and, if it reads texts, its vocabulary.

    Raises ``DataError`` for a file that ``pullback train`` did not write, and for one whose parts do not fit
    each other.
    """
    metadata = load_metadata(path)
    workload = WORKLOADS.get(metadata.get("workload", ""))
    if workload is None or "settings" not in metadata:
        raise DataError(
            f"[predict] {path} does not say what network it holds. Give a model that pullback train wrote."
        )
    try:
        settings = json.loads(metadata["settings"])
        skeleton = workload.restore(settings)
        kind, classes = settings["input"], settings["classes"]
    except (ValueError, TypeError, KeyError, IndexError, MemoryError) as error:
        raise DataError(f"[predict] {path}: unusable settings ({error!r}). Train the model again.") from error
    if kind == "image":
        return load(path, like=skeleton), settings, None
    if kind != "text" or "vocabulary" not in metadata or len(classes) != 2:
        raise DataError(f"[predict] {path} has no vocabulary. Train the model again.")
    vocabulary = Vocabulary.from_json(metadata["vocabulary"])
    vocabulary.check_rows(settings["words"])
    return load(path, like=skeleton), settings, vocabulary


def _run(options: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.table import Table

    model, settings, vocabulary = load_model(options.model)
    if vocabulary is None:
        rows = _read_pictures(model, settings, options.inputs)
    else:
        rows = _read_texts(model, settings, vocabulary, options.inputs)
    table = Table(show_header=False, box=None)
    for name, answer, share in rows:
        table.add_row(name, answer, f"{100 * share:.1f} %")
    Console(highlight=False).print(table, markup=False)
    return 0


def _read_pictures(
    model: Any, settings: Mapping[str, Any], files: Iterable[str]
) -> Iterator[tuple[str, str, float]]:
    """Name, most likely class and its probability, for every picture of every file."""
    for file in files:
        pictures = read_pictures(file, tuple(settings["shape"]), settings["scale"])
        shares = np.asarray(nn.softmax(model(pictures)))
        for number, row in enumerate(shares):
            name = file if len(shares) == 1 else f"{file}[{number}]"
            yield name, str(int(row.argmax())), float(row.max())


def _read_texts(
    model: Any, settings: Mapping[str, Any], vocabulary: Vocabulary, inputs: Iterable[str]
) -> Iterator[tuple[str, str, float]]:
    """Beginning, more likely class and its probability, for every text."""
    texts = [text for entry in inputs for text in _lines(entry)]
    shares = np.asarray(nn.sigmoid(model(vocabulary.encode(texts, settings["length"]))))[:, 0]
    for text, share in zip(texts, shares.tolist()):
        name = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
        side = int(share > 0.5)
        yield name, settings["classes"][side], share if side else 1 - share


def _lines(entry: str) -> list[str]:
    """The texts that an argument stands for."""
    name = "standard input" if entry == _STANDARD_INPUT else entry.removeprefix(_FILE)
    try:
        if entry == _STANDARD_INPUT:
            lines = list(sys.stdin)
        elif entry.startswith(_FILE):
            with open(name, encoding="utf-8") as file:
                lines = list(file)
        else:
            return [entry]
    except OSError as error:
        raise DataError(f"[predict] cannot read {name}: {error.strerror}. Check the file's name.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"[predict] {name} is no {error.encoding} text. Give a text on each line.") from error
    texts = [line.strip() for line in lines if line.strip()]
    if not texts:
        raise DataError(f"[predict] {name} has no text. Give a text on each line.")
    return texts
