"""Tables for the terminal, for Markdown and for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Table", "relative_difference"]


@dataclass
class Table:
    """A title, columns, rows of text, and lines that say what the figures are; ``data`` goes into JSON."""

    title: str
    columns: Sequence[str]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)
    data: Any = None

    def text(self) -> str:
        """Aligned columns: names to the left, figures to the right."""
        lines = [list(self.columns), *self.rows]
        widths = [max(len(line[k]) for line in lines) for k in range(len(self.columns))]

        def aligned(line: Sequence[str]) -> str:
            cells = [c.ljust(w) if k == 0 else c.rjust(w) for k, (c, w) in enumerate(zip(line, widths))]
            return "  ".join(cells).rstrip()

        rule = "  ".join("-" * width for width in widths)
        body = [aligned(lines[0]), rule, *map(aligned, lines[1:])]
        return "\n".join([self.title, "", *body, "", *self.notes])

    def markdown(self) -> str:
        """The same as a Markdown section."""
        head = f"| {' | '.join(self.columns)} |"
        rule = f"| --- |{' ---: |' * (len(self.columns) - 1)}"
        body = [f"| {' | '.join(row)} |" for row in self.rows]
        notes = [line for note in self.notes for line in ("", note)]
        return "\n".join([f"### {self.title}", "", head, rule, *body, *notes])


def relative_difference(found: Sequence[float], expected: Sequence[float]) -> float:
    """The largest |found - expected| / |expected|.

    Where what is expected is less than a hundredth of the mean, as the losses of single examples may be, it is
    relative to that hundredth.
    """
    least = sum(map(abs, expected)) / len(expected) / 100
    pairs = zip(found, expected, strict=True)
    return max(abs(a - b) / max(abs(b), least) if a != b else 0.0 for a, b in pairs)
