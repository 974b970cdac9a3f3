"""What the trainer's tests train: a small network on a small data set with labels that can be learnt."""

import numpy as np
import pytest

from pullback import nn
from pullback.data import Dataset


@pytest.fixture
def data():
    """103 rows of six bytes; the label is the place of the largest of the first three."""
    inputs = np.random.default_rng(0).integers(0, 256, (103, 6)).astype(np.uint8)
    return Dataset(inputs, inputs[:, :3].argmax(axis=1).astype(np.uint8))


@pytest.fixture
def make_model():
    """The same small network every time."""

    def make(dtype=np.float32):
        random = np.random.default_rng(1)
        return nn.Chain(
            nn.Dense(6, 8, activation=np.tanh, seed=random, dtype=dtype), nn.Dense(8, 3, seed=random)
        )

    return make
