"""A gated recurrent unit reads a handwritten digit row by row, from top to bottom.

Each row of the image is a step (of MNIST: 28 steps of 28 pixels); a GRU with 128 units reads them, and a dense layer
turns its last state into ten logits. Trained by Adam.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import numpy as np

from pullback import nn, optim
from pullback.cli.options import positive
from pullback.cli.workloads.workload import (
    Defaults,
    Job,
    Report,
    Workload,
    image_settings,
    image_sizes,
    size_of,
)
from pullback.data import load_digits_or_mnist

__all__ = ["WORKLOAD", "make_model", "parameters", "prepare", "restore"]

_DEFAULTS = {"MNIST": Defaults(3, 100, 0.002), "digits": Defaults(20, 20, 0.005)}
"""The digits are a fortieth of MNIST and take more steps."""


def make_model(
    height: int = 28, width: int = 28, hidden: int = 128, classes: int = 10, seed: nn.Seed = 0
) -> nn.Chain:
    """The network, for images of this size.

    >>> make_model()
    Chain(
      Reshape(28, 28),
      GRU(28 → 128),  # 60,672 parameters, 242.7 kB
      Dense(128 → 10),  # 1,290 parameters, 5.2 kB
    )  # 61,962 parameters, 247.8 kB
    """
    random = np.random.default_rng(seed)
    return nn.Chain(
        nn.Reshape(height, width), nn.GRU(width, hidden, seed=random), nn.Dense(hidden, classes, seed=random)
    )


def prepare(options: argparse.Namespace, report: Report) -> Job:
    """The data, the network and the settings that suit them."""
    images = load_digits_or_mnist(options.data, report=report)
    epochs, batch_size, learning_rate = _DEFAULTS[images.name]
    settings = {"hidden": options.hidden, **image_settings(images)}
    return Job(
        note=images.note,
        model=restore(settings, seed=options.seed),
        loss=nn.softmax_cross_entropy,
        optimiser=optim.Adam(learning_rate if options.learning_rate is None else options.learning_rate),
        train=images.train,
        test=images.test,
        scale=images.scale,
        batch_size=options.batch or batch_size,
        epochs=options.epochs or epochs,
        settings=settings,
    )


def restore(settings: Mapping[str, Any], seed: nn.Seed = 0) -> nn.Chain:
    """A network of the sizes of a job's settings."""
    height, width = settings["shape"]
    return make_model(height, width, settings["hidden"], settings["classes"], seed=seed)


def parameters(settings: Mapping[str, Any]) -> int:
    """How many numbers that network has."""
    _, width = image_sizes(settings)
    hidden, classes = size_of(settings, "hidden"), size_of(settings, "classes")
    return 3 * hidden * (width + hidden + 2) + classes * (hidden + 1)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--hidden", type=positive, default=128, metavar="N", help="units of the recurrent layer (128)"
    )


WORKLOAD = Workload(
    "mnist-gru",
    "a gated recurrent network on handwritten digits",
    _add_options,
    prepare,
    restore,
    parameters,
    _DEFAULTS,
    "adam",
)
