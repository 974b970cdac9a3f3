"""The recurrent network in other sizes, for which nothing was tuned."""

from __future__ import annotations

from dataclasses import replace

from contest import Settings
from report import Table

from suite.mnist_rnn import MNIST_RNN
from suite.training import training_table

VARIATIONS = (
    *(replace(MNIST_RNN, name=f"hidden-{units}", hidden=(units,)) for units in (48, 100, 200)),
    *(replace(MNIST_RNN, name=f"batch-{size}", batch=size) for size in (32, 37, 256)),
    replace(MNIST_RNN, name="7-steps", steps=7),
    replace(MNIST_RNN, name="relu-cell", activation="relu"),
    replace(MNIST_RNN, name="two-layers", hidden=(64, 64)),
)


def run(settings: Settings) -> list[Table]:
    return [training_table(settings, network, steps=200) for network in VARIATIONS]
