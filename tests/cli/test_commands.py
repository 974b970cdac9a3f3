"""The command line, in this process."""

import argparse
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from pullback import load, nn
from pullback.cli import _parser, main
from pullback.cli.workloads import WORKLOADS
from pullback.cli.workloads.mnist_rnn import make_model
from pullback.data import load_digits
from pullback.errors import OutputError

pytestmark = pytest.mark.usefixtures("digits_only")


def test_training_writes_history_model_and_curves(tmp_path, capsys):
    assert main(["train", "mnist-rnn", "--epochs", "3", "--output", "out", "--hidden", "16"]) == 0
    shown = capsys.readouterr()
    assert (
        "using the digits of scikit-learn" in shown.out.replace("\n", " ")
        and "RNN(16 → 16, tanh)" in shown.out
    )
    assert "3/3  loss" in shown.err and "test" in shown.out and "steps/s" in shown.out
    history = json.loads((tmp_path / "out" / "history.json").read_text())
    assert (
        len(history["loss"]) == 3 and history["workload"] == "mnist-rnn" and history["interrupted"] is False
    )
    assert (tmp_path / "out" / "curves.png").read_bytes().startswith(b"\x89PNG")
    loaded = load(tmp_path / "out" / "model.safetensors", like=make_model(64, hidden=16, seed=1))
    test = load_digits().test
    accuracy = (loaded(test.inputs * (1 / 16)).argmax(axis=1) == test.labels).mean()
    assert accuracy == pytest.approx(history["validation_accuracy"][-1], abs=0.005)


def test_seeds_decide_the_training(tmp_path):
    weights = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert main(["train", "mnist-rnn", "--epochs", "1", "--seed", str(seed), "--output", name]) == 0
        weights.append(load(tmp_path / name / "model.safetensors")["layers.2.weight"])
    assert np.array_equal(weights[0], weights[1]) and not np.array_equal(weights[0], weights[2])


def test_the_defaults_learn_the_digits():
    options = argparse.Namespace(data=None, hidden=64, seed=0, batch=None, epochs=None, learning_rate=None)
    job = WORKLOADS["mnist-rnn"].prepare(options, print)
    from pullback.train import Trainer

    trainer = Trainer(job.model, job.loss, job.optimiser, batch_size=job.batch_size, scale=job.scale)
    trainer.fit(job.train, job.epochs)
    assert trainer.evaluate(job.test)["accuracy"] > 0.9


def test_the_network_is_that_of_the_workload():
    assert nn.parameter_count(make_model()) == 17_354


def test_a_missing_matplotlib_costs_only_the_curves(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["train", "mnist-rnn", "--epochs", "1", "--output", "out"]) == 0
    assert "pullback[plot]" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["history.json", "model.safetensors"]


def test_an_unwritable_folder_is_told_before_the_training(tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    assert main(["train", "mnist-rnn", "--output", "file"]) == 1
    shown = capsys.readouterr()
    assert "cannot write to the folder file" in shown.err and "Choose another with --output" in shown.err
    assert "RNN" not in shown.out


def test_a_loss_that_is_not_finite_keeps_the_results(tmp_path, capsys):
    assert main(["train", "mnist-rnn", "--epochs", "2", "--learning-rate", "1e38", "--output", "out"]) == 1
    assert "the loss became" in capsys.readouterr().err
    assert (tmp_path / "out" / "model.safetensors").exists() and (tmp_path / "out" / "history.json").exists()


def test_a_folder_without_the_data(tmp_path, capsys, monkeypatch):
    monkeypatch.undo()
    assert main(["train", "mnist-rnn", "--data", str(tmp_path), "--output", str(tmp_path / "out")]) == 1
    assert "has no train-images-idx3-ubyte" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["train"],
        ["train", "mnist-cnn-9"],
        ["train", "mnist-rnn", "--epochs", "0"],
        ["train", "mnist-rnn", "--seed", "-1"],
        ["train", "mnist-rnn", "--learning-rate", "nan"],
        ["train", "mnist-rnn", "--threads", "100000"],
    ],
    ids=" ".join,
)
def test_arguments_that_make_no_sense(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2 and "usage: pullback" in capsys.readouterr().err


def test_info_tells_versions_processor_and_cache(capsys):
    assert main(["info"]) == 0
    shown = capsys.readouterr().out
    for word in ("pullback", "llvmlite", "processor", "threads", "code cache"):
        assert word in shown


def test_version(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0 and capsys.readouterr().out.startswith("pullback ")


def test_a_second_training_does_not_replace_the_results_of_the_first(tmp_path, capsys):
    arguments = ["train", "mnist-rnn", "--epochs", "1", "--output", "out"]
    assert main(arguments) == 0
    before = (tmp_path / "out" / "model.safetensors").read_bytes()
    capsys.readouterr()
    assert main([*arguments, "--seed", "1"]) == 1
    shown = capsys.readouterr()
    assert "model.safetensors" in shown.err and "--output" in shown.err and "--overwrite" in shown.err
    assert "RNN" not in shown.out  # told before the training
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == before
    assert main([*arguments, "--seed", "1", "--overwrite"]) == 0
    assert (tmp_path / "out" / "model.safetensors").read_bytes() != before


def test_a_checkpoint_of_another_training_does_not_replace_results(tmp_path, capsys):
    arguments = ["train", "mnist-rnn", "--epochs", "1"]
    assert main([*arguments, "--output", "first"]) == 0
    assert main([*arguments, "--seed", "1", "--output", "second", "--checkpoint", "c"]) == 0
    before = (tmp_path / "first" / "model.safetensors").read_bytes()
    assert main([*arguments, "--seed", "1", "--output", "first", "--checkpoint", "c"]) == 1
    assert "would be replaced" in capsys.readouterr().err
    assert (tmp_path / "first" / "model.safetensors").read_bytes() == before


def test_word_vectors_are_not_replaced(tmp_path, capsys):
    (tmp_path / "texts").write_text("a good film\na bad film\n" * 5)
    (tmp_path / "v.txt").write_text("mine")
    arguments = ["train", "vectors", "texts", "--epochs", "1", "--dimensions", "2", "--output", "v.txt"]
    assert main(arguments) == 1
    assert (tmp_path / "v.txt").read_text() == "mine" and "--overwrite" in capsys.readouterr().err
    assert main([*arguments, "--overwrite"]) == 0


_PIPED = """
import sys
from pullback.data import digits
from pullback.errors import DownloadError
def refuse(*_, **__): raise DownloadError("no network here")
digits.load_mnist = refuse
from pullback.cli import _parser, main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX")
@pytest.mark.parametrize("closed", ["stdout", "both"])
def test_a_pipe_that_nobody_reads_costs_no_results(tmp_path, closed):
    """``pullback train … | head -1``, and with ``2>&1``."""
    both = closed == "both"
    arguments = [sys.executable, "-c", _PIPED, "train", "mnist-rnn", "--epochs", "2", "--output", "out"]
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT if both else subprocess.PIPE
    ) as process:
        assert process.stdout.readline()
        process.stdout.close()
        errors = "" if both else process.stderr.read().decode()
    assert process.returncode == 0
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [
        "curves.png",
        "history.json",
        "model.safetensors",
    ]
    if not both:
        assert "standard output was closed; model.safetensors, history.json, curves.png in out" in errors
        assert "Traceback" not in errors and "Exception" not in errors


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_info_to_a_full_disk(tmp_path):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "pullback.cli", "info"],
            check=False,
            stdout=full,
            stderr=subprocess.PIPE,
        )
    assert done.returncode == 141 and b"Traceback" not in done.stderr


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
def test_help_shows_the_defaults(workload, capsys):
    with pytest.raises(SystemExit):
        main(["train", workload.name, "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for defaults in workload.defaults.values():
        for value in defaults:
            assert str(value) in shown
    assert f"({workload.optimiser})" in shown and f"({workload.name})" in shown
    assert "--lr" in shown and "--optimizer" in shown and "--overwrite" in shown


def test_synonyms():
    arguments = ["--lr", "0.5", "--optimizer", "adam"]
    parsed = _parser().parse_args(["train", "mnist-rnn", *arguments])
    assert parsed.learning_rate == 0.5 and parsed.optimiser == "adam"
    assert _parser().parse_args(["train", "vectors", "--lr", "0.5"]).learning_rate == 0.5


def test_a_file_that_cannot_be_written_costs_no_other(tmp_path, capsys, monkeypatch):
    def full(*_):
        raise OutputError("the disk is full")

    monkeypatch.setattr("pullback.io.write_history", full)
    assert main(["train", "mnist-rnn", "--epochs", "1", "--output", "out"]) == 1
    assert "the disk is full" in capsys.readouterr().err
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["curves.png", "model.safetensors"]
