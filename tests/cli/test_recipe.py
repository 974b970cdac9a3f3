"""The options that change how a workload is trained."""

import argparse
import json
import os
import signal

import numpy as np
import pytest

from pullback import load, optim
from pullback.cli import main
from pullback.cli.recipe import recipe
from pullback.cli.train import _add_workload
from pullback.cli.workloads import WORKLOADS, Job
from pullback.data import load_digits
from pullback.train import EarlyStopping, ReduceOnPlateau
from pullback.train.progress import Display

SGD = optim.SGD(0.25)


pytestmark = pytest.mark.usefixtures("digits_only")


@pytest.fixture
def chosen():
    """The optimiser and the callbacks for these options; 15 batches of 100 rows in each of 4 epochs."""
    digits = load_digits()

    def choose(*arguments, optimiser=SGD):
        parser = argparse.ArgumentParser()
        _add_workload(parser, WORKLOADS["mnist-cnn"])
        job = Job(
            note="",
            model=None,
            loss=None,
            optimiser=optimiser,
            train=digits.train,
            test=digits.test,
            scale=None,
            batch_size=100,
            epochs=4,
            settings={},
        )
        return recipe(parser.parse_args(arguments), job)

    return choose


def test_optimisers(chosen):
    assert chosen() == (SGD, [])
    assert chosen("--optimiser", "momentum")[0] == optim.SGD(0.25, momentum=0.9)
    assert chosen("--optimiser", "adam")[0] == optim.Adam()
    assert chosen("--optimiser", "lion", "--learning-rate", "0.5")[0] == optim.Lion(0.5)
    assert chosen("--optimiser", "sgd", optimiser=optim.Adam(0.5))[0] == optim.SGD(0.5)
    assert chosen("--weight-decay", "0.1")[0] == optim.SGD(0.25, weight_decay=0.1)
    assert chosen("--accumulate", "3")[0] == optim.Accumulate(SGD, 3)


def test_schedules_are_as_long_as_the_training(chosen):
    assert chosen("--schedule", "cosine")[0].learning_rate == optim.schedules.Cosine(0.25, 60)
    assert chosen("--schedule", "one-cycle")[0].learning_rate == optim.schedules.OneCycle(0.25, 60)
    optimiser, _ = chosen("--schedule", "warm-up", "--optimiser", "adamw", "--accumulate", "2")
    assert optimiser.optimiser.learning_rate == optim.schedules.WarmUpCosine(0.001, warm_up=2, steps=30)


def test_callbacks(chosen):
    optimiser, (plateau, stopping) = chosen("--schedule", "plateau", "--patience", "3")
    assert optimiser == optim.Adjustable(SGD)
    assert isinstance(plateau, ReduceOnPlateau) and plateau.figure == "validation_loss"
    assert isinstance(stopping, EarlyStopping) and stopping.patience == 3 and stopping.restore_best


def test_the_model_that_is_saved_is_the_best_one(tmp_path, capsys):
    arguments = ["--epochs", "25", "--patience", "1", "--learning-rate", "2.0", "--output", "out"]
    assert main(["train", "mnist-rnn", *arguments]) == 0
    history = json.loads((tmp_path / "out" / "history.json").read_text())
    best = int(np.argmin(history["validation_loss"]))
    assert len(history["loss"]) == best + 2 < 25
    shown = capsys.readouterr().out
    assert (
        f"that of epoch {best + 1}" in shown
        and f"{100 * history['validation_accuracy'][best]:.2f} %" in shown
    )
    model = WORKLOADS["mnist-rnn"].restore({"shape": [8, 8], "hidden": 64, "classes": 10})
    model = load(tmp_path / "out" / "model.safetensors", like=model)
    test = load_digits().test
    accuracy = (model(test.inputs * np.float32(1 / 16)).argmax(axis=1) == test.labels).mean()
    assert accuracy == pytest.approx(history["validation_accuracy"][best], abs=0.005)


def test_all_of_it_together(tmp_path):
    options = "--optimiser adam --weight-decay 1e-4 --schedule plateau --accumulate 2 --patience 5 --epochs 3"
    assert main(["train", "mnist-cnn", *options.split(), "--output", "out"]) == 0
    history = json.loads((tmp_path / "out" / "history.json").read_text())
    assert history["optimiser"].startswith("Accumulate(optimiser=Adjustable(optimiser=Adam(")
    assert history["loss"][-1] < history["loss"][0]


def test_a_schedule_that_does_not_fit(capsys):
    options = ["--schedule", "one-cycle", "--epochs", "1", "--batch", "2000"]
    assert main(["train", "mnist-cnn", *options]) == 1
    assert "--schedule one-cycle does not fit into 1 updates" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    ["--optimiser lbfgs", "--schedule later", "--patience 0", "--accumulate 0", "--weight-decay -1"],
)
def test_options_that_make_no_sense(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["train", "mnist-cnn", *arguments.split()])
    assert ended.value.code == 2 and "usage: pullback" in capsys.readouterr().err


def test_a_training_goes_on_from_its_checkpoint(tmp_path, capsys):
    options = ["--optimiser", "adam", "--accumulate", "3", "--patience", "9"]
    for name, epochs in (("whole", "4"), ("parts", "2"), ("parts", "4"), ("parts", "3")):
        checkpoint = ["--checkpoint", f"{name}/kept/c.safetensors"]
        assert main(["train", "mnist-cnn", *options, "--epochs", epochs, *checkpoint, "--output", name]) == 0
        if epochs == "4":
            models = [load(tmp_path / name / "model.safetensors") for name in ("whole", name)]
    shown = capsys.readouterr().out
    assert "2 epochs from parts/kept/c.safetensors, 2 to go" in shown and "4 epochs from" in shown
    assert all(np.array_equal(models[0][array], models[1][array]) for array in models[0])
    history = json.loads((tmp_path / "parts" / "history.json").read_text())
    assert len(history["loss"]) == 4


def test_a_checkpoint_of_another_network(tmp_path, capsys):
    arguments = ["--epochs", "1", "--checkpoint", "c.safetensors"]
    assert main(["train", "mnist-cnn", *arguments]) == 0
    before = (tmp_path / "c.safetensors").read_bytes()
    assert main(["train", "mnist-rnn", *arguments]) == 1
    assert "does not fit" in capsys.readouterr().err
    assert main(["train", "mnist-cnn", *arguments, "--filters", "7"]) == 1
    assert "expected float32[7, 1, 3, 3]" in capsys.readouterr().err.replace("\n", " ")
    assert main(["train", "mnist-cnn", *arguments, "--optimiser", "adam"]) == 1
    assert "optimiser was SGD, and is Adam" in capsys.readouterr().err
    assert (tmp_path / "c.safetensors").read_bytes() == before


def test_ctrl_c_leaves_whole_files(tmp_path, monkeypatch, capsys):
    """In the middle of the third epoch; the checkpoint is that of the second, and can be gone on from."""
    update = Display.update

    def interrupted(display, epoch, step, figures, rate):
        update(display, epoch, step, figures, rate)
        if epoch == 2 and step > 1:
            os.kill(os.getpid(), signal.SIGINT)

    arguments = ["train", "mnist-cnn", "--checkpoint", "c.safetensors", "--output", "out"]
    with monkeypatch.context() as patch:
        patch.setattr(Display, "update", interrupted)
        assert main([*arguments, "--epochs", "9"]) == 130
    history = json.loads((tmp_path / "out" / "history.json").read_text())
    assert history["interrupted"] is True and len(history["loss"]) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.safetensors", "out"]
    model = WORKLOADS["mnist-cnn"].restore({"shape": [8, 8], "filters": 6, "classes": 10})
    assert all(np.isfinite(array).all() for array in load(tmp_path / "out" / "model.safetensors").values())
    load(tmp_path / "out" / "model.safetensors", like=model)
    capsys.readouterr()
    assert main([*arguments, "--epochs", "3"]) == 0
    assert "2 epochs from c.safetensors, 1 to go" in capsys.readouterr().out
