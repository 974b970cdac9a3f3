"""``pullback predict``: what a saved model says of pictures or of lines of text."""

from __future__ import annotations

import argparse
import itertools
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from pullback import nn
from pullback.cli.output import BROKEN_PIPE, Output, warn
from pullback.cli.workloads import WORKLOADS
from pullback.data import Alphabet, Vocabulary, read_pictures
from pullback.data.text import UNKNOWN
from pullback.errors import DataError
from pullback.io import load, load_metadata
from pullback.io.bounded import parse_json

__all__ = ["add_command", "load_model"]

_STANDARD_INPUT, _FILE = "-", "@"
_SHOWN = 60  # characters of a text
_BATCH = 64  # inputs that are read, answered and shown together
_LONGEST_LINE = 1 << 20  # characters


def add_command(commands: Any) -> None:
    """Enter ``predict``."""
    parser = commands.add_parser("predict", help="let a saved model read pictures or lines of text")
    parser.description = "Let a model that pullback train saved read pictures or lines of text."
    parser.add_argument(
        "--model", required=True, metavar="FILE", help="a model.safetensors, or the folder that has one"
    )
    parser.add_argument(
        "inputs",
        nargs="+",
        metavar="INPUT",
        help="for digits a picture (PNG, .npy or IDX); for reviews a text, @FILE for the lines of a file, or - for "
        "those of standard input",
    )
    parser.set_defaults(run=_run)


def load_model(path: str | os.PathLike[str]) -> tuple[Any, dict[str, Any], Vocabulary | Alphabet | None]:
    """A saved model with the settings of its job and, if it reads texts, its vocabulary or alphabet.

    ``path`` is the file, or the folder that ``pullback train`` wrote it to. The sizes that the settings ask for are
    compared with the file's before memory is taken for them.

    Raises ``DataError`` for a file that ``pullback train`` did not write, and for one whose parts do not fit
    each other.
    """
    file = Path(path)
    if file.is_dir():
        file = file / "model.safetensors"
    metadata = load_metadata(file)
    workload = WORKLOADS.get(metadata.get("workload", ""))
    if workload is None or "settings" not in metadata:
        raise DataError(
            f"[predict] {file} does not say what network it holds. Give a model that pullback train wrote."
        )
    try:
        settings = parse_json(metadata["settings"])
        numbers = workload.parameters(settings)
        if np.dtype(np.float32).itemsize * numbers > file.stat().st_size:
            raise ValueError(f"a network of {numbers:,} parameters")
        _check_input(settings)
        skeleton = workload.restore(settings)
    except (ValueError, TypeError, LookupError, MemoryError) as error:
        raise DataError(f"[predict] {file}: unusable settings ({error!r}). Train the model again.") from error
    if settings["input"] == "image":
        return load(file, like=skeleton), settings, None
    if "vocabulary" not in metadata:
        raise DataError(f"[predict] {file} has no vocabulary. Train the model again.")
    try:
        vocabulary = _vocabulary(settings, metadata["vocabulary"])
    except (DataError, KeyError) as error:
        raise DataError(f"[predict] {file}: {error}") from error
    return load(file, like=skeleton), settings, vocabulary


def _vocabulary(settings: Mapping[str, Any], text: str) -> Vocabulary | Alphabet:
    """What the numbers mean that a model reads; raises ``DataError`` for what does not fit it."""
    if settings["input"] == "text":
        vocabulary = Vocabulary.from_json(text)
        vocabulary.check_rows(settings["words"])
        return vocabulary
    alphabet = Alphabet.from_json(text)
    if len(alphabet) != settings["characters"]:
        raise DataError(
            f"{len(alphabet):,} characters, but the network has {settings['characters']:,}. Train the model again."
        )
    return alphabet


def _check_input(settings: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` unless the settings say how an input is to be read and an answer to be called."""
    if settings["input"] == "characters":
        return
    classes = settings["classes"]
    if settings["input"] == "image":
        scale = settings["scale"]
        if type(scale) not in (int, float) or not math.isfinite(scale):
            raise ValueError(f"scale is {scale!r:.60}")
    elif settings["input"] != "text":
        raise ValueError(f"input is {settings['input']!r:.60}")
    elif not (isinstance(classes, list) and len(classes) == 2 and all(isinstance(c, str) for c in classes)):
        raise ValueError(f"classes are {classes!r:.60}")
    elif type(settings.get("lengths", False)) is not bool:
        raise ValueError(f"lengths is {settings['lengths']!r:.60}")


def _run(options: argparse.Namespace) -> int:
    model, settings, vocabulary = load_model(options.model)
    if isinstance(vocabulary, Alphabet):
        raise DataError(
            f"[predict] {options.model} writes texts and tells nothing of them. Use pullback sample."
        )
    if vocabulary is None:
        rows = _read_pictures(model, settings, options.inputs)
    else:
        rows = _read_texts(model, settings, vocabulary, options.inputs)
    output = Output()
    while not output.lost and (table := list(itertools.islice(rows, _BATCH))):
        output.print(_table(table))
    return BROKEN_PIPE if output.lost else 0


def _table(rows: Iterable[tuple[str, str, float]]) -> Any:
    from rich.table import Table

    table = Table(show_header=False, box=None)
    for name, answer, share in rows:
        table.add_row(name, answer, f"{100 * share:.1f} %")
    return table


def _read_pictures(
    model: Any, settings: Mapping[str, Any], files: Iterable[str]
) -> Iterator[tuple[str, str, float]]:
    """Name, most likely class and its probability, for every picture of every file."""
    for file in files:
        pictures = read_pictures(file, tuple(settings["shape"]), settings["scale"])
        inverted = 0
        for start in range(0, len(pictures), _BATCH):
            batch = pictures[start : start + _BATCH]
            inverted += sum(map(_is_dark_on_light, batch))
            for number, row in enumerate(np.asarray(nn.softmax(model(batch))), start):
                name = file if len(pictures) == 1 else f"{file}[{number}]"
                yield name, str(int(row.argmax())), float(row.max())
        if inverted:
            which = "looks" if len(pictures) == 1 else f"has {inverted} of {len(pictures)} pictures that look"
            warn(f"{file} {which} dark on light; the model was trained on light on dark. Invert it.")


def _is_dark_on_light(picture: Any) -> bool:
    """Whether most of a picture's edge is nearer to white than to black."""
    edge = np.concatenate([picture[0], picture[-1], picture[:, 0], picture[:, -1]])
    return bool(np.mean(edge > 0.5) > 0.5)


def _read_texts(
    model: Any, settings: Mapping[str, Any], vocabulary: Vocabulary, inputs: Iterable[str]
) -> Iterator[tuple[str, str, float]]:
    """Beginning, more likely class and its probability, for every text."""
    texts = (text for entry in inputs for text in _lines(entry))
    while batch := _batch(texts):
        own: dict[str, Any] = {}
        if settings.get("lengths"):
            numbers, own["lengths"] = vocabulary.encode_with_lengths(batch, settings["length"])
        else:
            numbers = vocabulary.encode(batch, settings["length"])
        for row, text in enumerate(batch):
            if not (numbers[row] > UNKNOWN).any():
                warn(f"{_short(text)!r} has no word that the model knows; its answer is about nothing.")
        shares = np.asarray(nn.sigmoid(model(numbers, **own)))[:, 0]
        for text, share in zip(batch, shares.tolist()):
            side = int(share > 0.5)
            yield _short(text), settings["classes"][side], share if side else 1 - share


def _batch(texts: Iterator[str]) -> list[str]:
    """The next texts: some, or of long ones fewer."""
    batch, size = [], 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if len(batch) == _BATCH or size > _LONGEST_LINE:
            break
    return batch


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _lines(entry: str) -> Iterator[str]:
    """The texts that an argument stands for."""
    if entry != _STANDARD_INPUT and not entry.startswith(_FILE):
        yield entry
        return
    name = "standard input" if entry == _STANDARD_INPUT else entry.removeprefix(_FILE)
    found = False
    try:
        with nullcontext(sys.stdin) if entry == _STANDARD_INPUT else open(name, encoding="utf-8") as file:
            while line := file.readline(_LONGEST_LINE):
                if len(line) == _LONGEST_LINE:
                    raise DataError(
                        f"[predict] {name} has a line of more than {_LONGEST_LINE:,} characters. "
                        "Give a text on each line."
                    )
                if text := line.strip():
                    found = True
                    yield text
    except OSError as error:
        raise DataError(f"[predict] cannot read {name}: {error.strerror}. Check the file's name.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"[predict] {name} is no {error.encoding} text. Give a text on each line.") from error
    if not found:
        raise DataError(f"[predict] {name} has no text. Give a text on each line.")
