"""``pullback predict``, with models that were saved by ``pullback train``."""

import io
import json
import sys

import numpy as np
import pytest

from pullback import nn, optim
from pullback.cli import main
from pullback.cli.workloads import WORKLOADS, imdb_cnn
from pullback.data import Vocabulary
from pullback.io import load_metadata, load_tensors, save, save_tensors
from pullback.tracing import flatten
from pullback.train import Trainer, save_checkpoint

VOCABULARY = Vocabulary(["good", "bad", "film"])
TEXT_SETTINGS = {
    "input": "text",
    "words": 5,
    "length": 10,
    "dimensions": 2,
    "filters": 1,
    "classes": ["negative", "positive"],
}
IMAGE_SETTINGS = {"input": "image", "shape": [6, 6], "scale": 1 / 255, "classes": 10}


@pytest.fixture
def text_model(tmp_path):
    """A network that sums up what speaks for a text and what against it."""
    model = imdb_cnn.restore(TEXT_SETTINGS)
    embedding, convolution, dense = model[0], model[1], model[5]
    embedding.weight[:] = [[0, 0], [0, 0], [1, 0], [-1, 0], [0, 0]]
    convolution.weight[:], convolution.bias[:] = 0, 1
    convolution.weight[0, 0] = 1  # the sum over three words, plus 1 so that relu keeps -1 apart from 0
    dense.weight[:], dense.bias[:] = 4, -4.5
    metadata = {
        "workload": "imdb-cnn",
        "settings": json.dumps(TEXT_SETTINGS),
        "vocabulary": VOCABULARY.to_json(),
    }
    save(model, tmp_path / "text.safetensors", metadata)
    return tmp_path / "text.safetensors"


@pytest.fixture
def image_model(tmp_path):
    """A network that tells which of the first ten pixels is the brightest; the cell begins with tanh."""
    settings = {**IMAGE_SETTINGS, "hidden": 10}
    model = WORKLOADS["mnist-rnn"].restore(settings)
    for array in (model[1].input_weight, model[1].recurrent_weight, model[1].bias, model[2].bias):
        array[:] = 0
    model[1].input_weight[:9, :9] = np.eye(9)
    model[2].weight[:] = 20 * np.eye(10)
    save(
        model,
        tmp_path / "image.safetensors",
        {"workload": "mnist-rnn", "settings": json.dumps(settings)},
    )
    return tmp_path / "image.safetensors"


def predict(model, *inputs):
    return main(["predict", "--model", str(model), *map(str, inputs)])


def rows(capsys):
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_texts(text_model, capsys):
    assert predict(text_model, "A good film", "a bad film", "x" * 100) == 0
    first, second, third = rows(capsys)
    assert first[-3:] == ["positive", "97.1", "%"] and second[-3] == "negative"
    assert third[0] == "x" * 59 + "…"


def test_texts_from_standard_input(text_model, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("good\n\nbad\n"))
    assert predict(text_model, "-") == 0
    assert [row[1] for row in rows(capsys)] == ["positive", "negative"]


def test_texts_from_a_file(text_model, tmp_path, capsys):
    (tmp_path / "texts").write_text("good\n\n  bad film\n", encoding="utf-8")
    assert predict(text_model, f"@{tmp_path / 'texts'}", "good") == 0
    found = rows(capsys)
    assert [row[-3] for row in found] == ["positive", "negative", "positive"]
    assert found[1][:2] == ["bad", "film"]


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "No such file"), (b"\xff\xfe", "is no utf-8 text"), (b"\n \n", "has no text")],
    ids=["missing", "bytes", "empty"],
)
def test_files_of_texts_that_cannot_be_read(text_model, tmp_path, capsys, content, message):
    if content is not None:
        (tmp_path / "texts").write_bytes(content)
    assert predict(text_model, "good", f"@{tmp_path / 'texts'}") == 1
    shown = capsys.readouterr().err
    assert message in shown and str(tmp_path / "texts") in shown


def test_pictures(image_model, tmp_path, capsys):
    pictures = np.zeros((3, 6, 6), np.uint8)
    for number, row in enumerate(pictures):
        row.reshape(-1)[27 + number + 3] = 255  # of the last part of four, nine pixels from 27 on
    np.save(tmp_path / "three.npy", pictures)
    np.save(tmp_path / "one.npy", pictures[1] / 255)
    assert predict(image_model, tmp_path / "three.npy", tmp_path / "one.npy") == 0
    found = rows(capsys)
    assert [row[1] for row in found] == ["3", "4", "5", "4"]
    assert found[1][0].endswith("three.npy[1]") and found[3][0].endswith("one.npy")
    assert found[1][2:] == found[3][2:]


def test_a_network_that_was_just_trained(tmp_path, monkeypatch, capsys):
    from pullback.data import load_digits
    from pullback.errors import DownloadError

    def refuse(*_, **__):
        raise DownloadError("no network here")

    monkeypatch.setattr("pullback.data.digits.load_mnist", refuse)
    monkeypatch.chdir(tmp_path)
    test = load_digits().test
    np.save("digits.npy", test.inputs[:50])
    for workload in ("mnist-rnn", "mnist-cnn"):
        assert main(["train", workload, "--epochs", "8"]) == 0
        capsys.readouterr()
        assert predict(f"{workload}/model.safetensors", "digits.npy") == 0
        answers = [int(row[1]) for row in rows(capsys)]
        assert (np.array(answers) == test.labels[:50]).mean() > 0.8


def changed(path, tmp_path, **metadata):
    """The model with other metadata; None removes an entry."""
    entries = {name: text for name, text in {**load_metadata(path), **metadata}.items() if text is not None}
    save_tensors(tmp_path / "changed.safetensors", load_tensors(path), entries)
    return tmp_path / "changed.safetensors"


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"workload": None}, "does not say what network it holds"),
        ({"workload": "mnist-transformer"}, "does not say what network it holds"),
        ({"settings": None}, "does not say what network it holds"),
        ({"settings": "{"}, "unusable settings"),
        ({"settings": "[]"}, "unusable settings"),
        ({"settings": json.dumps({**TEXT_SETTINGS, "length": "long"})}, "unusable settings"),
        ({"settings": json.dumps({**TEXT_SETTINGS, "words": 0})}, "unusable settings"),
        ({"settings": json.dumps({**TEXT_SETTINGS, "filters": 2})}, "does not fit"),
        ({"settings": json.dumps({**TEXT_SETTINGS, "input": "sound"})}, "input is 'sound'"),
        ({"vocabulary": None}, "no vocabulary"),
        ({"vocabulary": "[]"}, "2 words, but the embedding has 5 rows"),
        ({"vocabulary": '["good", "good", "film"]'}, "'good' is there twice"),
    ],
)
def test_parts_that_do_not_fit(text_model, tmp_path, capsys, metadata, message):
    assert predict(changed(text_model, tmp_path, **metadata), "a good film") == 1
    assert message in capsys.readouterr().err


def test_a_picture_of_another_size(image_model, tmp_path, capsys):
    np.save(tmp_path / "a.npy", np.zeros((28, 28), np.uint8))
    assert predict(image_model, tmp_path / "a.npy") == 1
    assert "the model takes pictures of 6 × 6 pixels" in capsys.readouterr().err


def test_a_missing_model(tmp_path, capsys):
    assert predict(tmp_path / "none.safetensors", "a good film") == 1
    assert "cannot read" in capsys.readouterr().err


def test_a_picture_that_is_missing_or_none(image_model, tmp_path, capsys):
    assert predict(image_model, tmp_path / "none.npy") == 1
    assert "No such file" in capsys.readouterr().err
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY")
    assert predict(image_model, tmp_path / "a.npy") == 1
    assert "damaged" in capsys.readouterr().err


def test_a_model_that_is_truncated_or_a_text(text_model, tmp_path, capsys):
    content = text_model.read_bytes()
    for name, part in (("cut", content[:-7]), ("flipped", content[:-1] + b"\xff"), ("text", b"a good film")):
        (tmp_path / name).write_bytes(part)
        assert predict(tmp_path / name, "a good film") == 1
        assert "damaged" in capsys.readouterr().err


def test_a_checkpoint_is_no_model_of_a_job(tmp_path, capsys):
    model = WORKLOADS["mnist-rnn"].restore({**IMAGE_SETTINGS, "hidden": 10})
    save_checkpoint(Trainer(model, nn.softmax_cross_entropy, optim.SGD(0.1)), tmp_path / "c.safetensors")
    assert predict(tmp_path / "c.safetensors", "a.npy") == 1
    assert "Give a model that pullback train wrote" in capsys.readouterr().err


def test_standard_input_that_is_no_text_or_empty(text_model, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"good\n\xff\xfe\n"), encoding="utf-8"))
    assert predict(text_model, "-") == 1
    assert "standard input is no utf-8 text" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n"))
    assert predict(text_model, "-") == 1
    assert "no text" in capsys.readouterr().err


def test_settings_that_ask_for_more_than_the_file_has(tmp_path, capsys):
    """A file of some hundred bytes asked for gigabytes, and got them."""
    for workload, settings in (
        ("imdb-cnn", {**TEXT_SETTINGS, "words": 10**9, "dimensions": 10**6}),
        ("imdb-cnn", {**TEXT_SETTINGS, "length": 10**9}),
        ("imdb-glove", {**TEXT_SETTINGS, "dimensions": 10**9}),
        ("mnist-rnn", {**IMAGE_SETTINGS, "hidden": 10**6}),
        ("mnist-cnn", {**IMAGE_SETTINGS, "shape": [10**5, 10**5], "filters": 6}),
        ("mnist-cnn", {**IMAGE_SETTINGS, "shape": [6, -6], "filters": 6}),
        ("mnist-cnn", {**IMAGE_SETTINGS, "shape": [6, 6], "filters": 2.5}),
    ):
        metadata = {"workload": workload, "settings": json.dumps(settings), "vocabulary": "[]"}
        save_tensors(tmp_path / "m.safetensors", {"a": np.zeros(2)}, metadata)
        assert predict(tmp_path / "m.safetensors", "a good film") == 1
        shown = capsys.readouterr().err
        assert "unusable settings" in shown and "m.safetensors" in shown


@pytest.mark.parametrize("name", WORKLOADS)
def test_parameters_are_counted_without_making_them(name):
    for k in (4, 8, 29):
        settings = {
            "shape": [k, 2 * k],
            "hidden": k,
            "filters": k,
            "classes": 7,
            "words": 40,
            "length": 10 * k,
            "characters": 12,
            "layers": 3,
        }
        settings["dimensions"] = k
        workload = WORKLOADS[name]
        model = workload.restore(settings)
        stored = sum(array.size for array in flatten(model)[0])
        assert workload.parameters(settings) == stored


def test_the_folder_of_a_training_is_its_model(text_model, tmp_path, capsys):
    text_model.rename(tmp_path / "model.safetensors")
    assert predict(tmp_path, "A good film") == 0
    assert rows(capsys)[0][-3] == "positive"


def test_texts_without_a_known_word(text_model, capsys):
    assert predict(text_model, "good", "xyz !", "a film") == 0
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 3
    assert (
        shown.err
        == "pullback: warning: 'xyz !' has no word that the model knows; its answer is about nothing.\n"
    )


def test_pictures_that_are_dark_on_light(image_model, tmp_path, capsys):
    dark = np.full((6, 6), 255, np.uint8)
    dark[2:4, 2:4] = 0
    np.save(tmp_path / "dark.npy", dark)
    np.save(tmp_path / "light.npy", 255 - dark)
    np.save(tmp_path / "both.npy", np.stack([dark, 255 - dark]))
    assert predict(image_model, *(tmp_path / f"{name}.npy" for name in ("dark", "light", "both"))) == 0
    first, second = capsys.readouterr().err.splitlines()
    assert "dark.npy looks dark on light" in first
    assert "both.npy has 1 of 2 pictures that look dark on light" in second


def test_many_texts_and_long_ones(text_model, tmp_path, capsys):
    (tmp_path / "texts").write_text("good\n" * 200 + "bad " * 100_000 + "\n")
    assert predict(text_model, f"@{tmp_path / 'texts'}") == 0
    assert [row[-3] for row in rows(capsys)] == ["positive"] * 200 + ["negative"]
    (tmp_path / "texts").write_text("bad " * 300_000)
    assert predict(text_model, f"@{tmp_path / 'texts'}") == 1
    assert "a line of more than" in capsys.readouterr().err
