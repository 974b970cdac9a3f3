"""What a workload tells the command line: its name, its own options, and how to prepare it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pullback.data import Alphabet, Dataset, LabelledImages, Vocabulary
from pullback.metrics import Metric
from pullback.optim import Optimiser
from pullback.train import Trainer

__all__ = ["Defaults", "Job", "Report", "Workload", "image_settings", "image_sizes", "size_of"]

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
    vocabulary: Vocabulary | Alphabet | None = None
    """What the numbers of a text's words or characters mean; it is saved with the model."""
    metrics: Mapping[str, Metric] | None = None
    """What is told beside the loss, unless it is the accuracy that fits the loss."""
    shuffle: bool = True
    clip_norm: float | None = None
    bucket: int | None = None
    """The multiple of steps to which batches of similar length are trimmed, where they are."""
    callbacks: Sequence[Callable[[Trainer], object]] = ()
    """Called after each epoch, before a checkpoint is written."""
    to_save: Callable[[Any], Any] = lambda model: model
    """Of the trained model what is worth keeping."""


class Defaults(NamedTuple):
    """What a job has unless the options say otherwise."""

    epochs: int
    batch_size: int
    learning_rate: float


@dataclass(frozen=True)
class Workload:
    """A named training.

    ``add_options`` adds the options that only this workload has. ``prepare`` makes the job from all options;
    ``epochs``, ``batch`` and ``learning_rate`` are None where the user gave none: the workload has its own.
    ``restore`` makes a model of the sizes in a job's ``settings``, for the arrays of a file to be put into;
    ``parameters`` tells how many numbers that model has, without making it, and raises ``ValueError`` for settings
    that are no sizes. ``defaults`` are those for each data set, by its name, and ``optimiser`` is the rule, by its
    name among the options. The data set of one that ``looks_for_data`` is looked for, or in the folder that ``--data``
    names; others have options of their own that name it.
    """

    name: str
    summary: str
    add_options: Callable[[argparse.ArgumentParser], None]
    prepare: Callable[[argparse.Namespace, Report], Job]
    restore: Callable[[Mapping[str, Any]], Any]
    parameters: Callable[[Mapping[str, Any]], int]
    defaults: Mapping[str, Defaults]
    optimiser: str
    looks_for_data: bool = True
    own_data: str = ""
    """What ``--data`` takes beside the data set, for the help."""


def size_of(settings: Mapping[str, Any], name: str) -> int:
    """One of the sizes among a job's settings; ``ValueError`` if it is none."""
    return _size(settings[name], name)


def image_sizes(settings: Mapping[str, Any]) -> tuple[int, int]:
    """Height and width of a job's images; ``ValueError`` if they are none."""
    height, width = settings["shape"]
    return _size(height, "shape"), _size(width, "shape")


def _size(value: Any, name: str) -> int:
    if type(value) is not int or not 1 <= value < 1 << 31:
        raise ValueError(f"{name} is {value!r:.60}, which is no size")
    return value


def image_settings(images: LabelledImages) -> dict[str, Any]:
    """What every job on images has among its settings: what an image must be to be read by the model."""
    shape = list(images.train.inputs.shape[1:])
    return {"input": "image", "shape": shape, "scale": images.scale, "classes": images.classes}
