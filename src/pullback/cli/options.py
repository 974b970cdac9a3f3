"""What the options of several commands mean; an error is one for the user of the command line."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable
from pathlib import Path

from pullback.errors import OutputError

__all__ = ["INTERRUPTED", "add_overwrite", "check_free", "positive", "rate", "seed", "threads", "writable"]

INTERRUPTED = 130
"""What a shell reports for a program ended by Ctrl-C."""


def positive(text: str) -> int:
    """A number of 1 or more."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not positive")
    return value


def seed(text: str) -> int:
    """A number of 0 or more."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{value} is negative")
    return value


def rate(text: str) -> float:
    """A learning rate: finite and not negative."""
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no learning rate")
    return value


def threads(text: str) -> int:
    """As many threads as this process may use, or fewer."""
    from pullback.compiler.target import usable_cores

    value, cores = positive(text), usable_cores()
    if value > cores:
        raise argparse.ArgumentTypeError(f"{value} threads, but this process may use {cores} cores")
    return value


def writable(folder: Path, option: str = "--output") -> Path:
    """``folder``, made if it is missing; raises ``OutputError`` now rather than after the training."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()  # it has no name, where the system can do that
    except OSError as error:
        raise OutputError(
            f"[train] cannot write to the folder {folder}: {error.strerror}. Choose another with {option}."
        ) from error
    return folder


def add_overwrite(parser: argparse.ArgumentParser) -> None:
    """Enter ``--overwrite``."""
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="replace the results of an earlier training (default: refuse to)",
    )


def check_free(files: Iterable[Path]) -> None:
    """Raise ``OutputError`` if one of the files is there: it took a training to make."""
    taken = [str(file) for file in files if file.exists()]
    if taken:
        raise OutputError(
            f"[train] {', '.join(taken)} of an earlier training would be replaced. Choose another place with --output, "
            "or allow it with --overwrite."
        )
