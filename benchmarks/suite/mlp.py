"""A perceptron large enough that its products are all that counts: 784 → 2048 → 2048 → 10, batch 256."""

from __future__ import annotations

from contest import Settings
from report import Table
from workload import Network

from suite.training import training_table

PERCEPTRON = Network("mlp", hidden=(2048, 2048), activation="relu", batch=256)


def run(settings: Settings) -> list[Table]:
    return [training_table(settings, PERCEPTRON, steps=8)]
