"""What a person sees of a training: a bar with loss, metrics, speed and time left, and a line per epoch."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

__all__ = ["Display", "duration", "epoch_line", "figure"]

_VALIDATION = "validation_"
_REFRESH_SECONDS = 0.5  # drawing the bar takes a few milliseconds: more often would show in the step rate


class Display:
    """Shows the progress on ``console``: a bar on a terminal, and a line per epoch on anything.

    The training loop itself draws, twice a second, and prints the lines of short epochs together; a thread that
    draws would take a core from the compiled program.
    """

    def __init__(self, epochs: int, steps_per_epoch: int, console: Console | None = None) -> None:
        from rich.console import Console as RichConsole
        from rich.progress import BarColumn, Progress, TextColumn

        self._epochs, self._steps = epochs, steps_per_epoch
        self.console = console or RichConsole(file=sys.stderr)
        self._progress: Progress = Progress(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(),
            TextColumn("{task.fields[figures]}"),
            console=self.console,
            auto_refresh=False,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self._task: TaskID = self._progress.add_task(
            "", total=epochs * steps_per_epoch, epoch=f"1/{epochs}", figures=""
        )
        self._drawn = 0.0
        self._printed = 0.0
        self._lines: list[str] = []
        self._progress.start()

    def update(self, epoch: int, step: int, figures: Mapping[str, float], rate: float) -> None:
        """``step`` steps of ``epoch`` (from 0) are done, at ``rate`` steps a second."""
        now = time.monotonic()
        if now - self._drawn < _REFRESH_SECONDS or self._progress.disable:
            return
        self._drawn = now
        self._print_lines()
        done = epoch * self._steps + step
        left = (self._epochs * self._steps - done) / rate if rate else math.inf
        shown = [figure(name, value) for name, value in figures.items()]
        text = "  ".join([*shown, f"{rate:,.0f} steps/s", f"{duration(left)} left"])
        label = f"{epoch + 1}/{self._epochs}"
        self._progress.update(self._task, completed=done, epoch=label, figures=text, refresh=True)

    def finish_epoch(self, epoch: int, figures: Mapping[str, float]) -> None:
        """Print the figures of an epoch."""
        self._lines.append(epoch_line(epoch, self._epochs, figures))
        now = time.monotonic()
        if now - self._printed >= _REFRESH_SECONDS:
            self._print_lines()
            self._printed = now

    def _print_lines(self) -> None:
        if self._lines:
            self.console.print("\n".join(self._lines), soft_wrap=True, markup=False, highlight=False)
            self._lines.clear()

    def close(self) -> None:
        """Print what is left and remove the bar."""
        self._print_lines()
        self._progress.stop()


def epoch_line(epoch: int, epochs: int, figures: Mapping[str, float]) -> str:
    """The line of one epoch (from 0).

    >>> epoch_line(0, 5, {"loss": 1.46, "accuracy": 0.62, "validation_loss": 0.8, "validation_accuracy": 1})
    '1/5  loss 1.4600  accuracy 62.00 %  validation loss 0.8000  accuracy 100.00 %'
    """
    hidden = {"seconds", "steps", "steps_per_second", "peak_memory", "learning_rate"}
    names = [name for name in figures if name not in hidden]
    shown = [figure(name, figures[name]) for name in names if not name.startswith(_VALIDATION)]
    held_out = [name.removeprefix(_VALIDATION) for name in names if name.startswith(_VALIDATION)]
    parts = [figure(name, figures[_VALIDATION + name]) for name in held_out]
    if parts:
        shown.append(f"validation {'  '.join(parts)}")
    return "  ".join([f"{epoch + 1}/{epochs}", *shown])


def figure(name: str, value: float) -> str:
    """A figure with its name: accuracies in percent.

    >>> figure("binary_accuracy", 0.915), figure("loss", 0.34)
    ('binary accuracy 91.50 %', 'loss 0.3400')
    """
    words = name.replace("_", " ")
    return f"{words} {100 * value:.2f} %" if name.endswith("accuracy") else f"{words} {value:.4f}"


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
