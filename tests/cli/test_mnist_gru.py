"""The gated recurrent workload on digits: its network, its defaults, and a run from the command line."""

import argparse
import json

import pytest

from pullback import nn
from pullback.cli import main
from pullback.cli.workloads import WORKLOADS
from pullback.cli.workloads.mnist_gru import make_model
from pullback.train import Trainer

pytestmark = pytest.mark.usefixtures("digits_only")


def test_the_network_is_that_of_the_workload():
    settings = {"hidden": 7, "shape": [5, 6], "classes": 4}
    assert nn.parameter_count(make_model()) == 3 * 128 * (28 + 128 + 2) + 128 * 10 + 10
    workload = WORKLOADS["mnist-gru"]
    assert workload.parameters(settings) == nn.parameter_count(workload.restore(settings))


def test_the_defaults_learn_the_digits():
    options = argparse.Namespace(data=None, hidden=128, seed=0, batch=None, epochs=6, learning_rate=None)
    job = WORKLOADS["mnist-gru"].prepare(options, print)
    trainer = Trainer(job.model, job.loss, job.optimiser, batch_size=job.batch_size, scale=job.scale)
    trainer.fit(job.train, job.epochs)
    assert trainer.evaluate(job.test)["accuracy"] > 0.9


def test_training_and_reading(tmp_path, capsys):
    assert main(["train", "mnist-gru", "--epochs", "1", "--hidden", "16", "--output", "out"]) == 0
    assert "GRU(8 → 16)" in capsys.readouterr().out
    history = json.loads((tmp_path / "out" / "history.json").read_text())
    assert history["steps"] == [72] and history["workload"] == "mnist-gru"
    (tmp_path / "zero.npy").write_bytes(b"")
    assert main(["predict", "--model", "out", "zero.npy"]) == 1
    assert "zero.npy" in capsys.readouterr().err
