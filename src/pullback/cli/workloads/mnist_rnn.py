"""A recurrent network reads a handwritten digit in four parts, from top to bottom.

The pixels of an image are four steps of equal length (of MNIST: 196 pixels, seven rows); a vanilla recurrent
cell with 64 units reads them, and a dense layer turns its last state into ten logits. Trained by plain SGD.
"""

from __future__ import annotations

import argparse
import math
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

_STEPS = 4
_DEFAULTS = {"MNIST": Defaults(5, 100, 0.015), "digits": Defaults(20, 20, 0.1)}
"""The digits are a fortieth of MNIST and take more and larger steps."""


def make_model(
    pixels: int = 784, hidden: int = 64, classes: int = 10, steps: int = _STEPS, seed: nn.Seed = 0
) -> nn.Chain:
    """The network, for images of this many pixels.

    >>> make_model()
    Chain(
      Reshape(4, 196),
      RNN(196 → 64, tanh),  # 16,704 parameters, 66.8 kB
      Dense(64 → 10),  # 650 parameters, 2.6 kB
    )  # 17,354 parameters, 69.4 kB
    """
    random = np.random.default_rng(seed)
    inputs = pixels // steps
    return nn.Chain(
        nn.Reshape(steps, inputs), nn.RNN(inputs, hidden, seed=random), nn.Dense(hidden, classes, seed=random)
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
        optimiser=optim.SGD(learning_rate if options.learning_rate is None else options.learning_rate),
        train=images.train,
        test=images.test,
        scale=images.scale,
        batch_size=options.batch or batch_size,
        epochs=options.epochs or epochs,
        settings=settings,
    )


def restore(settings: Mapping[str, Any], seed: nn.Seed = 0) -> nn.Chain:
    """A network of the sizes of a job's settings."""
    return make_model(math.prod(settings["shape"]), settings["hidden"], settings["classes"], seed=seed)


def parameters(settings: Mapping[str, Any]) -> int:
    """How many numbers that network has."""
    height, width = image_sizes(settings)
    hidden, classes = size_of(settings, "hidden"), size_of(settings, "classes")
    return hidden * (height * width // _STEPS + hidden + 1) + classes * (hidden + 1)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--hidden", type=positive, default=64, metavar="N", help="units of the recurrent cell (64)"
    )


WORKLOAD = Workload(
    "mnist-rnn",
    "a recurrent network on handwritten digits",
    _add_options,
    prepare,
    restore,
    parameters,
    _DEFAULTS,
    "sgd",
)
