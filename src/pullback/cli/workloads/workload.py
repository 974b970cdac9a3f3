"""What a workload tells the command line: its name, its own options, and how to prepare it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pullback.data import Dataset
from pullback.optim import Optimiser

__all__ = ["Job", "Report", "Workload"]

Report = Callable[[str], None]


@dataclass(frozen=True)
class Job:
    """All that a training needs."""

    note: str
    """A line for the user: which data these are and where they came from."""
    model: Any
    loss: Callable[[Any, Any], Any]
    optimiser: Optimiser
    train: Dataset
    test: Dataset
    scale: float | None
    batch_size: int
    epochs: int


@dataclass(frozen=True)
class Workload:
    """A named training.

    ``add_options`` adds the options that only this workload has. ``prepare`` makes the job from all options;
    ``epochs``, ``batch`` and ``learning_rate`` are None where the user gave none: the workload has its own.
    """

    name: str
    summary: str
    add_options: Callable[[argparse.ArgumentParser], None]
    prepare: Callable[[argparse.Namespace, Report], Job]
