"""What a person sees of a training: a bar with loss, metrics, speed and time left, and a line per epoch."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TextIO

from pullback.train.history import COSTS, VALIDATION

__all__ = ["Display", "duration", "epoch_line", "figure", "silence", "value_text"]

_REFRESH_SECONDS = 0.05  # no eye sees more, and a block of steps takes longer
_BAR = 10, 40  # characters, at least and at most
_WIDTH = 80  # of a terminal that does not tell


class Display:
    """Shows the progress on ``file``, standard error by default: on a terminal a bar, and on anything a line per epoch.

    The training loop itself draws, after every block of steps; a thread that draws would take a core from the
    compiled program. So drawing has to be cheap: one short line is written over the one before.
    """

    def __init__(self, epochs: int, steps_per_epoch: int, file: TextIO | None = None) -> None:
        self._epochs, self._steps = epochs, steps_per_epoch
        self._file = file or sys.stderr
        self._bar = self._file.isatty() and os.environ.get("TERM") != "dumb"
        self._full, self._empty = ("━", "─") if _encodes(self._file, "━─") else ("#", ".")
        self._drawn = -math.inf
        self._shown = 0  # characters of the bar that is there now
        self._lost = False

    def update(self, epoch: int, step: int, figures: Mapping[str, float], rate: float) -> None:
        """``step`` steps of ``epoch`` (from 0) are done, at ``rate`` steps a second."""
        now = time.monotonic()
        if not self._bar or now - self._drawn < _REFRESH_SECONDS:
            return
        self._drawn = now
        done, whole = epoch * self._steps + step, self._epochs * self._steps
        left = (whole - done) / rate if rate else math.inf
        begin = f"{epoch + 1}/{self._epochs}  "
        words = [figure(name, value) for name, value in figures.items()]
        words += [f"{rate:,.0f} steps/s", f"{duration(left)} left"]
        end = "  " + "  ".join(words)
        columns = self._columns() - 1
        size = min(max(columns - len(begin) - len(end), _BAR[0]), _BAR[1])
        full = size * done // whole
        bar = self._full * full + self._empty * (size - full)
        self._write((begin + bar + end)[:columns], "")

    def finish_epoch(self, epoch: int, figures: Mapping[str, float]) -> None:
        """Print the figures of an epoch."""
        self._write(epoch_line(epoch, self._epochs, figures), "\n")

    def close(self) -> None:
        """Remove the bar."""
        if self._shown:
            self._write("", "\r")

    def _write(self, text: str, end: str) -> None:
        """A line in the place of the bar; ``end`` tells whether it stays."""
        if self._lost:
            return
        over = "\r" if self._bar else ""
        try:
            self._file.write(over + text.ljust(self._shown) + end)
            self._file.flush()
        except OSError:  # a pipe without a reader, a terminal that was closed: the training goes on
            self._lost = True
            silence(self._file)
        self._shown = 0 if end else len(text)

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._file.fileno()).columns or _WIDTH
        except (OSError, ValueError):  # no terminal of the system, or closed
            return _WIDTH


def silence(file: TextIO | None) -> None:
    """Let what is written to ``file`` from now on go nowhere, so that the end of the process does not fail for it."""
    with suppress(OSError, ValueError, AttributeError):  # no file of the system
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, file.fileno())  # type: ignore[union-attr]
        os.close(nowhere)


def _encodes(file: TextIO, text: str) -> bool:
    try:
        text.encode(getattr(file, "encoding", None) or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def epoch_line(epoch: int, epochs: int, figures: Mapping[str, float]) -> str:
    """The line of one epoch (from 0).

    >>> epoch_line(0, 5, {"loss": 1.46, "accuracy": 0.62, "validation_loss": 0.8, "validation_accuracy": 1})
    '1/5  loss 1.4600  accuracy 62.00 %  validation loss 0.8000  accuracy 100.00 %'
    """
    names = [name for name in figures if name not in COSTS]
    shown = [figure(name, figures[name]) for name in names if not name.startswith(VALIDATION)]
    held_out = [name.removeprefix(VALIDATION) for name in names if name.startswith(VALIDATION)]
    parts = [figure(name, figures[VALIDATION + name]) for name in held_out]
    if parts:
        shown.append(f"validation {'  '.join(parts)}")
    return "  ".join([f"{epoch + 1}/{epochs}", *shown])


def figure(name: str, value: float) -> str:
    """A figure with its name: accuracies in percent.

    >>> figure("binary_accuracy", 0.915), figure("loss", 0.34)
    ('binary accuracy 91.50 %', 'loss 0.3400')
    """
    return f"{name.replace('_', ' ')} {value_text(name, value)}"


def value_text(name: str, value: float) -> str:
    """The value of a figure: accuracies in percent.

    >>> value_text("loss", 0.34), value_text("accuracy", 1)
    ('0.3400', '100.00 %')
    """
    return f"{100 * value:.2f} %" if name.endswith("accuracy") else f"{value:.4f}"


def duration(seconds: float) -> str:
    """Seconds as minutes and seconds, or with hours.

    >>> duration(75.2), duration(3700), duration(float("inf"))
    ('1:15', '1:01:40', '?')
    """
    if not math.isfinite(seconds):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
