"""The main job: a recurrent network on MNIST, the 784 pixels as 4 steps of 196, one cell of 64 units."""

from __future__ import annotations

from contest import Settings
from report import Table
from workload import Network

from suite.training import training_table

MNIST_RNN = Network("mnist-rnn", hidden=(64,), steps=4)


def run(settings: Settings) -> list[Table]:
    return [training_table(settings, MNIST_RNN, steps=300)]
