"""A compile that takes long says so on a terminal, and nowhere else."""

from __future__ import annotations

import io
import itertools

import numpy as np
import pytest

from pullback import jit
from pullback.compiler.programs import executable
from pullback.compiler.programs.progress import PATIENCE, shown_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_is_shown_after_a_while_and_erased() -> None:
    times, stream = iter([0.0, PATIENCE / 2, PATIENCE, PATIENCE + 7]), Terminal()
    with shown_progress(stream, lambda: next(times)) as tell:
        tell("lower")
        assert stream.getvalue() == ""
        tell("fuse")
        tell("pack")
    lines = stream.getvalue().split("\r\x1b[K")
    assert lines == [
        "",
        "pullback: compiling for 2 s, after fuse",
        "pullback: compiling for 9 s, after pack",
        "",
    ]


def test_the_line_is_erased_after_an_error() -> None:
    stream = Terminal()
    with pytest.raises(ZeroDivisionError), shown_progress(stream, itertools.count(0, 10).__next__) as tell:
        tell("fuse")
        raise ZeroDivisionError
    assert stream.getvalue().endswith("\r\x1b[K")


def test_nothing_is_written_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    with shown_progress(stream, itertools.count(0, 10).__next__) as tell:
        tell("fuse")
    assert stream.getvalue() == ""


def test_compiling_tells_its_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(
        executable, "shown_progress", lambda: shown_progress(stream, itertools.count(0, 10).__next__)
    )
    jit(lambda x: np.tanh(x).sum() + 17.25)(np.ones(3))
    assert "after fuse" in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[K")
