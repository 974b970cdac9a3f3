"""The collector of cycles while a program is made."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

from pullback.compiler.programs.collector import NEVER, young_collections_only
from pullback.compiler.programs.executable import make_executable
from pullback.graph import Graph, Type, Variable


def test_older_objects_are_left_alone_while_a_program_is_made_and_no_longer() -> None:
    """The thresholds are what they were afterwards."""
    before, seen = gc.get_threshold(), []
    x = Variable(Type(np.dtype(np.float32), (3,)), "x")
    graph = Graph((x,), (np.exp(x) + 1.5,))
    make_executable(graph, {}, watch=lambda _: seen.append(gc.get_threshold()))
    assert set(seen) == {(before[0], NEVER, NEVER)}
    assert gc.get_threshold() == before


def test_an_error_sets_the_thresholds_again() -> None:
    """So does Ctrl-C."""
    before = gc.get_threshold()
    with pytest.raises(KeyboardInterrupt), young_collections_only():
        raise KeyboardInterrupt
    assert gc.get_threshold() == before


def test_threads_that_overlap_leave_the_thresholds_as_they_were() -> None:
    """The second one to enter leaves last."""
    before = gc.get_threshold()
    entered, left = threading.Event(), threading.Event()

    def second() -> None:
        with young_collections_only():
            entered.set()
            left.wait()

    with young_collections_only():
        thread = threading.Thread(target=second)
        thread.start()
        entered.wait()
    left.set()
    thread.join()
    assert gc.get_threshold() == before
