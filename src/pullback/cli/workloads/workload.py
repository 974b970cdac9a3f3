"""What a workload tells the command line: its name, its own options, and how to prepare it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pullback.data import Dataset, LabelledImages, Vocabulary
from pullback.optim import Optimiser

__all__ = ["Job", "Report", "Workload", "image_settings"]

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
    settings: Mapping[str, Any]
    """What ``Workload.restore`` needs to make a model of this kind again; JSON holds it."""
    examples: str = "images"
    """What a row of the data is called."""
    vocabulary: Vocabulary | None = None
    """What the numbers of a text's words mean; it is saved with the model."""


@dataclass(frozen=True)
class Workload:
    """A named training.

    ``add_options`` adds the options that only this workload has. ``prepare`` makes the job from all options;
    ``epochs``, ``batch`` and ``learning_rate`` are None where the user gave none: the workload has its own.
    ``restore`` makes a model of the sizes in a job's ``settings``, for the arrays of a file to be put into.
    """

    name: str
    summary: str
    add_options: Callable[[argparse.ArgumentParser], None]
    prepare: Callable[[argparse.Namespace, Report], Job]
    restore: Callable[[Mapping[str, Any]], Any]


def image_settings(images: LabelledImages) -> dict[str, Any]:
    """What every job on images has among its settings: what an image must be to be read by the model."""
    shape = list(images.train.inputs.shape[1:])
    return {"input": "image", "shape": shape, "scale": images.scale, "classes": images.classes}
