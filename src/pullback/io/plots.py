"""Curves of a training: loss and accuracy over the epochs."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pullback.errors import DataError, MissingExtra
from pullback.io.atomic import atomic_write

__all__ = ["plot_history"]


def plot_history(history: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Draw the loss and the accuracy of every epoch to ``path`` (PNG, SVG or PDF, by its ending).

    ``history`` is what ``write_history`` takes; its entries ``loss`` and ``…_loss`` share one panel,
    ``accuracy`` and ``…_accuracy`` another, each a list with one number per epoch. Other entries are ignored,
    and numbers that are not finite leave a gap. Matplotlib's global state is left as it is.

    Raises ``MissingExtra`` without matplotlib, ``DataError`` when there is nothing to draw or the ending is
    unknown, ``OutputError`` when the file cannot be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     plot_history({"loss": [1.5, 0.7], "validation_loss": [0.9, 0.6]}, f"{folder}/curves.svg")
    ...     Path(folder, "curves.svg").stat().st_size > 1000
    True
    """
    panels = [(title, _curves(history, title)) for title in ("loss", "accuracy")]
    panels = [(title, curves) for title, curves in panels if curves]
    if not panels:
        raise DataError(
            f"[plot_history] nothing to draw: expected lists named loss or accuracy, "
            f"found {sorted(history)}. Give the history of a training of at least one epoch."
        )
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra(
            "[plot_history] the curves need matplotlib, which is not installed. Install pullback[plot]."
        ) from error
    # A Figure of its own, not one of pyplot's: no window, no backend chosen for the rest of the program.
    figure = Figure(figsize=(4.8 * len(panels), 3.6), layout="constrained")
    ending = Path(path).suffix[1:].lower()
    if ending not in figure.canvas.get_supported_filetypes():
        raise DataError(
            f"[plot_history] {path}: the ending {ending!r} names no picture. Use .png, .svg or .pdf."
        )
    for axes, (title, curves) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels):
        for name, values in curves.items():
            axes.plot(
                range(1, len(values) + 1), values, marker="o", markersize=3, label=name.replace("_", " ")
            )
        axes.set_xlabel("epoch")
        axes.set_ylabel(title)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
        axes.legend()
    with atomic_write(path) as file:
        figure.savefig(file, format=ending, dpi=150)


def _curves(history: Mapping[str, Any], title: str) -> dict[str, list[float]]:
    """The entries called ``title`` or ``…_title`` that have a number for some epoch; ``None`` is a gap."""
    curves = {}
    for name, values in history.items():
        if (name != title and not name.endswith(f"_{title}")) or isinstance(values, str | int | float):
            continue
        numbers = [math.nan if value is None else float(value) for value in values]
        if not all(math.isnan(number) for number in numbers):
            curves[name] = numbers
    return curves
