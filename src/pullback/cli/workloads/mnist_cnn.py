"""A small convolutional network reads a handwritten digit.

Six 3 × 3 windows without bias move over the image, a relu and a 2 × 2 max pool follow, and two dense layers
without bias turn what is left (of MNIST: 1014 values) into ten logits. Trained by plain SGD.
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

_HIDDEN = 84
_DEFAULTS = {"MNIST": Defaults(3, 100, 0.01), "digits": Defaults(40, 20, 0.1)}
"""The digits are a fortieth of MNIST and take more and larger steps."""


def make_model(
    height: int = 28,
    width: int = 28,
    filters: int = 6,
    hidden: int = _HIDDEN,
    classes: int = 10,
    *,
    seed: nn.Seed = 0,
) -> nn.Chain:
    """The network, for images of this size.

    >>> make_model()
    Chain(
      Reshape(1, 28, 28),
      Conv2d(1 → 6, 3 × 3, no bias),  # 54 parameters, 216 bytes
      relu,
      MaxPool2d(2 × 2),
      flatten,
      Dense(1014 → 84, no bias, relu),  # 85,176 parameters, 340.7 kB
      Dense(84 → 10, no bias),  # 840 parameters, 3.4 kB
    )  # 86,070 parameters, 344.3 kB
    """
    random = np.random.default_rng(seed)
    pooled = filters * ((height - 2) // 2) * ((width - 2) // 2)
    return nn.Chain(
        nn.Reshape(1, height, width),
        nn.Conv2d(1, filters, 3, bias=False, seed=random),
        nn.relu,
        nn.MaxPool2d(2),
        nn.flatten,
        nn.Dense(pooled, hidden, bias=False, activation=nn.relu, seed=random),
        nn.Dense(hidden, classes, bias=False, seed=random),
    )


def prepare(options: argparse.Namespace, report: Report) -> Job:
    """The data, the network and the settings that suit them."""
    images = load_digits_or_mnist(options.data, report=report)
    epochs, batch_size, learning_rate = _DEFAULTS[images.name]
    settings = {"filters": options.filters, **image_settings(images)}
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
    height, width = settings["shape"]
    return make_model(height, width, settings["filters"], classes=settings["classes"], seed=seed)


def parameters(settings: Mapping[str, Any]) -> int:
    """How many numbers that network has."""
    height, width = image_sizes(settings)
    filters, classes = size_of(settings, "filters"), size_of(settings, "classes")
    pooled = filters * max((height - 2) // 2, 0) * max((width - 2) // 2, 0)
    return 9 * filters + _HIDDEN * (pooled + classes)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--filters", type=positive, default=6, metavar="N", help="output channels of the convolution (6)"
    )


WORKLOAD = Workload(
    "mnist-cnn",
    "a convolutional network on handwritten digits",
    _add_options,
    prepare,
    restore,
    parameters,
    _DEFAULTS,
    "sgd",
)
