"""The convolutional workload: its network, its defaults, and a run from the command line."""

import argparse
import json

import pytest

from pullback import nn
from pullback.cli import main
from pullback.cli.workloads import WORKLOADS
from pullback.cli.workloads.mnist_cnn import make_model
from pullback.train import Trainer

pytestmark = pytest.mark.usefixtures("digits_only")


def test_the_network_is_that_of_the_workload():
    assert nn.parameter_count(make_model()) == 54 + 1014 * 84 + 84 * 10


def test_the_defaults_learn_the_digits():
    options = argparse.Namespace(data=None, filters=6, seed=0, batch=None, epochs=None, learning_rate=None)
    job = WORKLOADS["mnist-cnn"].prepare(options, print)
    trainer = Trainer(job.model, job.loss, job.optimiser, batch_size=job.batch_size, scale=job.scale)
    trainer.fit(job.train, job.epochs)
    assert trainer.evaluate(job.test)["accuracy"] > 0.9


def test_training_one_image_at_a_time(tmp_path, capsys):
    command = ["train", "mnist-cnn", "--epochs", "1", "--batch", "1", "--learning-rate", "0.01"]
    assert main([*command, "--filters", "4", "--output", "out"]) == 0
    assert "Conv2d(1 → 4, 3 × 3, no bias)" in capsys.readouterr().out
    history = json.loads((tmp_path / "out" / "history.json").read_text())
    assert history["steps"] == [1438] and history["validation_accuracy"][0] > 0.8
