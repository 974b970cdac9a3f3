"""A line on a terminal while compiling takes long: how long, and which stage was the last to end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

__all__ = ["shown_progress"]

PATIENCE = 2.0
"""Seconds before anything is shown."""


@contextmanager
def shown_progress(
    stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[str], None]]:
    """A function that is told each stage; from the third second on it rewrites one line, which goes at the end.

    The line is on standard error, or on another ``stream``, if that is a terminal.

    >>> with shown_progress() as tell:
    ...     tell("fuse")
    """
    stream = stream or sys.stderr
    start, shown = clock(), False

    def tell(stage: str) -> None:
        nonlocal shown
        seconds = clock() - start
        if seconds >= PATIENCE and stream.isatty():
            stream.write(f"\r\x1b[Kpullback: compiling for {seconds:.0f} s, after {stage}")
            stream.flush()
            shown = True

    try:
        yield tell
    finally:
        if shown:
            stream.write("\r\x1b[K")
            stream.flush()
