"""Standard output of the commands, which may be a pipe that somebody stops reading."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

from pullback.train.progress import silence

__all__ = ["BROKEN_PIPE", "Output", "tell", "warn"]

BROKEN_PIPE = 141
"""What a shell reports for a program that ended because nobody reads its output any more."""

_UNBOUNDED = 100_000
"""Columns of what is no terminal."""


class Output:
    """Lines and tables for standard output; once that is lost (``| head``, a full disk), nothing happens.

    Whoever has more to do than to print goes on: a training that nobody watches is still wanted.
    """

    def __init__(self) -> None:
        from rich.console import Console

        # Nothing is cut to a width where there is no terminal that has one.
        self._console = Console(highlight=False, width=None if sys.stdout.isatty() else _UNBOUNDED)
        self.lost = False
        """Whether what was printed last has not arrived."""

    def print(self, what: Any, **options: Any) -> None:
        """Print a line or a table."""
        if self.lost:
            return
        try:
            self._console.print(what, markup=False, **options)
        except (OSError, SystemExit):  # SystemExit: what newer versions of rich make of a broken pipe
            self.lost = True
            silence(sys.stdout)

    def line(self, text: str) -> None:
        """Print a line as it is, however wide the terminal."""
        self.print(text, soft_wrap=True)


def warn(text: str) -> None:
    """A line on standard error."""
    tell(f"warning: {text}")


def tell(text: str) -> None:
    """A line on standard error, by the name of the program."""
    with suppress(OSError):
        print(f"pullback: {text}", file=sys.stderr, flush=True)
