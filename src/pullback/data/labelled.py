"""Texts of one's own with their classes: a line for each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pullback.data.characters import read_text
from pullback.data.corpus import Corpus
from pullback.errors import DataError

__all__ = ["is_labelled", "read_labelled"]

_SUFFIXES = (".tsv", ".txt")


def is_labelled(path: str | os.PathLike[str] | None) -> bool:
    """Whether a path is by its name one of a file for ``read_labelled``, ``.tsv`` or ``.txt``."""
    return path is not None and Path(path).suffix in _SUFFIXES


def read_labelled(path: str | os.PathLike[str], classes: Sequence[str]) -> Corpus:
    """The texts of a file in UTF-8 that has a class, a tab and a text on each line; empty lines do not count.

    A class is a name among ``classes``, of which there are two, or its number. Raises ``DataError`` for a file that
    cannot be read, for one without texts, and for the first line that is of another form.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "texts.tsv")
    ...     _ = file.write_text("good\\tA fine film.\\n0\\tDull.\\n")
    ...     texts = read_labelled(file, ["bad", "good"])
    >>> texts, texts.labels.tolist()
    (Corpus(2 texts, 4 words, 4 different), [1, 0])
    """
    labels, texts = [], []
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        name, tab, text = line.partition("\t")
        name = name.strip()
        if not tab or name not in (*classes, "0", "1"):
            raise DataError(
                f"[read_labelled] {path}, line {number}: {line[:40]!r} does not begin with a class and a tab. Give "
                f"{classes[0]!r} or 0, or {classes[1]!r} or 1, a tab, and the text."
            )
        labels.append(classes.index(name) if name in classes else int(name))
        texts.append(text)
    if not texts:
        raise DataError(f"[read_labelled] {path} has no text. Give a class, a tab and a text on each line.")
    return Corpus.of(texts, labels)
