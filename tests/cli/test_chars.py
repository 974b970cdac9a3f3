"""The character model, from the command line."""

import json
import os
import signal

import numpy as np
import pytest

from pullback import grad, load, nn, random
from pullback.cli import _parser, main
from pullback.cli.workloads import WORKLOADS
from pullback.cli.workloads.chars import Characters, written
from pullback.data import Alphabet
from pullback.errors import DownloadError
from pullback.io import load_metadata, load_tensors, save_tensors
from pullback.train import Trainer
from pullback.train.progress import Display

SMALL = "--batch 4 --steps 8 --hidden 12 --layers 2"


@pytest.fixture(autouse=True)
def text(monkeypatch, tmp_path):
    """A text of eight words in any order, in a folder of the test's own."""
    words = np.array(["the", "cat", "sat", "on", "a", "mat", "and", "slept"])
    lines = np.random.default_rng(0).choice(words, (90, 6))
    (tmp_path / "t.txt").write_text("".join(" ".join(line) + ".\n" for line in lines))
    monkeypatch.chdir(tmp_path)
    return (tmp_path / "t.txt").read_text()


def train(*options):
    return main(["train", "chars", "t.txt", *SMALL.split(), *" ".join(options).split()])


def sample(*options):
    return main(["sample", "--model", *options])


def test_training_and_writing(tmp_path, capsys, text):
    assert train("--epochs 2 --output out") == 0
    shown = capsys.readouterr()
    assert f"{len(text):,} characters from t.txt, {len(set(text))} different" in shown.out
    assert "GRU(64 → 12, 2 layers" in shown.out and "bits per character" in shown.out
    history = json.loads((tmp_path / "out" / "history.json").read_text())
    bits, loss = history["validation_bits_per_character"], history["validation_loss"]
    assert bits[1] < bits[0] < np.log2(len(set(text))) and np.allclose(np.multiply(bits, np.log(2)), loss)
    metadata = load_metadata(tmp_path / "out" / "model.safetensors")
    assert Alphabet.from_json(metadata["vocabulary"]) == Alphabet.of_text(text)
    kept = load(tmp_path / "out" / "model.safetensors")
    assert not any(name.startswith("states") for name in kept)
    settings = json.loads(metadata["settings"])
    assert WORKLOADS["chars"].parameters(settings) == sum(array.size for array in kept.values())

    assert sample("out", "--length", "70", "--prompt", "the cat ") == 0
    first = capsys.readouterr().out
    assert first.startswith("the cat ") and len(first) == 8 + 70 + 1
    assert set(first) <= set(text)
    assert sample("out/model.safetensors", "--length", "70", "--prompt", "the cat ") == 0
    assert capsys.readouterr().out == first
    assert sample("out", "--length", "70", "--prompt", "the cat ", "--seed", "1") == 0
    assert capsys.readouterr().out != first


def test_the_model_learns_the_words(capsys, text):
    assert train("--epochs 40 --hidden 32 --lr 0.01 --output out") == 0
    capsys.readouterr()
    assert sample("out", "--length", "200", "--temperature", "0.3") == 0
    found = capsys.readouterr().out[:200].replace(".", " ").split()[:-1]
    known = set(text.replace(".", " ").split())
    assert sum(word in known for word in found) > 0.8 * len(found) > 10


@pytest.mark.parametrize("layers", [1, 2])
def test_states_are_carried_from_batch_to_batch(layers):
    """What a batch begins with is what the batch before ended with, in the order that the job gives."""
    data = np.random.default_rng(0).integers(0, 5, (3, 4, 6))
    model = Characters(5, 7, layers, streams=4)
    whole = model(np.concatenate(list(data), axis=1))
    for number, batch in enumerate(data):
        with nn.training(random.key(number)) as mode:
            logits = model(batch)
        np.testing.assert_allclose(logits, whole[:, 6 * number : 6 * number + 6], rtol=1e-5, atol=1e-6)
        model = mode.updated(model)


def test_an_epoch_begins_with_nothing_before_it(capsys):
    """A training that stops between epochs goes on from its checkpoint with the same bits."""
    assert train("--epochs 3 --output whole") == 0
    for epochs in (1, 3):
        assert train(f"--epochs {epochs} --output parts --checkpoint c.safetensors") == 0
    assert "1 epochs from c.safetensors, 2 to go" in capsys.readouterr().out
    whole, parts = (load(f"{name}/model.safetensors") for name in ("whole", "parts"))
    assert all(np.array_equal(whole[name], parts[name]) for name in whole)


def test_gradients_end_where_the_batch_began():
    model = Characters(5, 7, streams=2)
    for state in model.states:
        state[:] = 0.5
    numbers = np.arange(10).reshape(2, 5) % 5

    def loss(model):
        with nn.training(random.key(0)):
            return nn.softmax_cross_entropy(model(numbers), numbers)

    gradient = grad(loss)(model)
    assert not any(state.any() for state in gradient.states) and gradient.dense.bias.any()
    begun = grad(lambda states: nn.softmax_cross_entropy(model.continued(numbers, states)[0], numbers))
    assert all(state.any() for state in begun(model.states))


def test_what_is_kept_is_not_what_is_saved():
    job = WORKLOADS["chars"].prepare(_parsed("t.txt", *SMALL.split()), print)
    trainer = Trainer(job.model, job.loss, job.optimiser, batch_size=4, metrics=job.metrics)
    trainer.fit(job.train[:8], 1, shuffle=False)
    assert all(state.any() for state in trainer.model.states)
    saved = job.to_save(trainer.model)
    assert saved.states is None and saved.dense is trainer.model.dense
    for callback in job.callbacks:
        callback(trainer)
    assert not any(state.any() for state in trainer.model.states)


def _parsed(*arguments):
    return _parser().parse_args(["train", "chars", *arguments])


def test_temperatures():
    model = Characters(6, 8, 1, seed=3)
    begin = np.array([1, 2, 3])

    def text(temperature, seed=0, length=150):
        return np.concatenate(list(written(model, begin, length, temperature, seed))).tolist()

    likeliest, numbers = [], begin
    for _ in range(10):
        numbers = np.append(numbers, model(numbers[None])[0, -1].argmax())
        likeliest.append(numbers[-1])
    assert text(0.0)[:10] == likeliest and text(0.0, 1) == text(0.0) and text(1e-4)[:10] == likeliest
    assert text(1.0) == text(1.0)[:150] != text(1.0, 1)
    assert text(1.0, length=70) == text(1.0)[:70]
    counts = np.bincount(text(1e4, length=3000), minlength=6)
    assert counts.min() > 400  # near uniform


def test_draws_have_the_probabilities_of_the_softmax():
    model = Characters(4, 5, 1, seed=0)
    model.dense.weight[:] = 0
    model.dense.bias[:] = np.log([0.1, 0.2, 0.3, 0.4])
    numbers = np.concatenate(list(written(model, np.array([0]), 4000, 1.0, 0)))
    np.testing.assert_allclose(np.bincount(numbers) / 4000, [0.1, 0.2, 0.3, 0.4], atol=0.03)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read t.txt: No such file"),
        (b"", "t.txt is empty"),
        (b"one li\xe4ne", "t.txt is no UTF-8 text: byte 0xe4 at 6, in line 1"),
        (
            b"too short",
            "t.txt has 9 characters, of which the last 2 are kept to validate; 4 streams of 8 steps need 33",
        ),
        (b"z" * 500, "t.txt has no character but 'z'"),
    ],
    ids=["missing", "empty", "bytes", "short", "one character"],
)
def test_files_that_teach_nothing(tmp_path, capsys, content, message):
    (tmp_path / "t.txt").unlink() if content is None else (tmp_path / "t.txt").write_bytes(content)
    assert train("--output out") == 1
    assert message in capsys.readouterr().err
    assert not list((tmp_path / "out").iterdir())


def test_arguments_that_make_no_sense(capsys):
    for command in (
        ["train", "chars"],
        ["train", "chars", "t.txt", "--steps", "0"],
        ["train", "chars", "t.txt", "--data", "."],
        ["sample"],
        ["sample", "--model", "out", "--temperature", "-1"],
        ["sample", "--model", "out", "--temperature", "inf"],
        ["sample", "--model", "out", "--temperature", "nan"],
        ["sample", "--model", "out", "--length", "0"],
    ):
        with pytest.raises(SystemExit) as ended:
            main(command)
        assert ended.value.code == 2 and "usage: pullback" in capsys.readouterr().err


def test_prompts_and_models_that_do_not_fit(tmp_path, capsys):
    assert train("--epochs 1 --output out") == 0
    assert sample("out", "--prompt", "the zoo") == 1
    assert "'z' is not among the" in capsys.readouterr().err
    assert main(["predict", "--model", "out", "the cat"]) == 1
    assert "Use pullback sample" in capsys.readouterr().err
    arrays, metadata = load_tensors("out/model.safetensors"), load_metadata("out/model.safetensors")
    for name, changes, message in (
        ("fewer", {"vocabulary": json.dumps("abc")}, "3 characters, but the network has"),
        ("none", {"vocabulary": None}, "has no vocabulary"),
        ("other", {"vocabulary": "[1]"}, "expected a string of different characters"),
        (
            "text",
            {"settings": metadata["settings"].replace('"characters",', '"text", "classes": ["a", "b"],')},
            "words",
        ),
        (
            "huge",
            {"settings": json.dumps({**json.loads(metadata["settings"]), "hidden": 10**6})},
            "unusable settings",
        ),
    ):
        entries = {key: value for key, value in {**metadata, **changes}.items() if value is not None}
        save_tensors(tmp_path / name, arrays, entries)
        assert sample(name) == 1
        assert message in capsys.readouterr().err


def test_other_models_write_nothing(capsys, monkeypatch):
    def refuse(*_, **__):
        raise DownloadError("no network here")

    monkeypatch.setattr("pullback.data.digits.load_mnist", refuse)
    assert main(["train", "mnist-rnn", "--epochs", "1", "--output", "digits"]) == 0
    capsys.readouterr()
    assert sample("digits") == 1
    assert "is no model of characters" in capsys.readouterr().err


def test_ctrl_c_leaves_whole_files(tmp_path, monkeypatch, capsys):
    update = Display.update

    def interrupted(display, epoch, step, figures, rate):
        update(display, epoch, step, figures, rate)
        if epoch == 1 and step > 1:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Display, "update", interrupted)
        assert train("--epochs 9 --output out --checkpoint c.safetensors") == 130
    history = json.loads((tmp_path / "out" / "history.json").read_text())
    assert history["interrupted"] is True and len(history["loss"]) == 2
    assert sample("out", "--length", "5") == 0
    capsys.readouterr()
    assert train("--epochs 2 --output out --checkpoint c.safetensors") == 0
    assert "1 epochs from c.safetensors, 1 to go" in capsys.readouterr().out


def test_writing_to_nobody(monkeypatch):
    assert train("--epochs 1 --output out") == 0

    class Closed:
        encoding = "ascii"

        def write(self, text):
            raise BrokenPipeError

        def flush(self):
            pass

    monkeypatch.setattr("sys.stdout", Closed())
    assert sample("out") == 141
