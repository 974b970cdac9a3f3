"""The benchmarks: races of steps (``jobs.RACES``), of calls, networks and numerical programs; others, a file each."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from suite.calls import CALLS, NETS
from suite.evaluations import EVALUATIONS
from suite.jobs import RACES

__all__ = ["BENCHMARKS", "benchmark"]

_FILES = {
    "import": "imports",
    "first-step": "first_step",
    "first-call": "first_call",
    "compile-time": "compile_time",
    "small-calls": "small_calls",
    "uncompiled": "uncompiled",
    "memory": "memory",
    "scan-memory": "scan_memory",
    "ablation": "ablation",
    "passes": "passes",
    "threads": "threads",
    "trainer-overhead": "trainer_overhead",
    "loss-curve": "loss_curve",
    "vocabulary": "vocabulary",
}

_CALLED: dict[str, Any] = {**CALLS, **NETS, **EVALUATIONS}

BENCHMARKS = (*RACES, *_CALLED, *_FILES)
"""The names on the command line."""


def benchmark(name: str) -> Callable[[Any], list[Any]]:
    """The function that runs a benchmark: from the settings to tables."""
    if name in RACES:
        from suite.training import tables

        return lambda settings: tables(settings, RACES[name])
    if name in _CALLED:
        from suite import calls

        return lambda settings: calls.tables(settings, _CALLED[name])
    found: Callable[[Any], list[Any]] = importlib.import_module(f"suite.{_FILES[name]}").run
    return found
