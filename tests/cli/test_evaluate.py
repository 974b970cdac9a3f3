"""``pullback evaluate``, with models that were saved by ``pullback train``, or as it saves them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pullback.cli import main
from pullback.cli.workloads import WORKLOADS, imdb_cnn
from pullback.data import Vocabulary, load_digits
from pullback.io import save

TEXTS = {
    "input": "text",
    "words": 5,
    "length": 10,
    "dimensions": 2,
    "filters": 1,
    "classes": ["negative", "positive"],
}


@pytest.fixture
def text_model(tmp_path: Path) -> Path:
    """A network that sums up what speaks for a text and what against it."""
    model = imdb_cnn.restore(TEXTS)
    embedding, convolution, dense = model[0], model[1], model[5]
    embedding.weight[:] = [[0, 0], [0, 0], [1, 0], [-1, 0], [0, 0]]
    convolution.weight[:], convolution.bias[:] = 0, 1
    convolution.weight[0, 0] = 1
    dense.weight[:], dense.bias[:] = 4, -4.5
    words = Vocabulary(["good", "bad", "film"]).to_json()
    save(
        model,
        tmp_path / "text.safetensors",
        {"workload": "imdb-cnn", "settings": json.dumps(TEXTS), "vocabulary": words},
    )
    return tmp_path / "text.safetensors"


@pytest.fixture
def image_model(tmp_path: Path) -> Path:
    """A network that tells which of the first nine pixels is the brightest."""
    settings = {"input": "image", "shape": [6, 6], "scale": 1 / 255, "classes": 10, "hidden": 10}
    model = WORKLOADS["mnist-rnn"].restore(settings)
    for array in (model[1].input_weight, model[1].recurrent_weight, model[1].bias, model[2].bias):
        array[:] = 0
    model[1].input_weight[:9, :9] = np.eye(9)
    model[2].weight[:] = 20 * np.eye(10)
    # The last of four parts decides: pictures are read in parts of nine pixels.
    save(model, tmp_path / "image.safetensors", {"workload": "mnist-rnn", "settings": json.dumps(settings)})
    return tmp_path / "image.safetensors"


def evaluate(model: Path, *options: object) -> int:
    return main(["evaluate", "--model", str(model), *map(str, options)])


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_a_model_that_was_trained(digits_only, capsys):
    assert main(["train", "mnist-rnn", "--epochs", "2", "--seed", "3"]) == 0
    trained = " ".join(lines(capsys))
    history = json.loads(Path("mnist-rnn/history.json").read_text())
    assert evaluate(Path("mnist-rnn")) == 0
    found = lines(capsys)
    assert f"loss {history['validation_loss'][-1]:.4f}" in found, trained
    assert f"accuracy {100 * history['validation_accuracy'][-1]:.2f} %" in found
    assert "rows 359" in found
    test = load_digits().test.labels
    rows = [line.replace("│", " ").split() for line in found if line.startswith("│")]
    assert [sum(map(int, row[1:11])) for row in rows] == np.bincount(test, minlength=10).tolist()
    assert evaluate(Path("mnist-rnn"), "--part", "training", "--batch", 7) == 0
    assert "rows 1,438" in lines(capsys)


def test_pictures_in_folders_of_their_classes(image_model, tmp_path, capsys):
    folder = tmp_path / "pictures"
    for label, bright in ((0, 0), (2, 2), (4, 2)):
        picture = np.zeros((6, 6), np.uint8)
        picture.reshape(-1)[27 + bright] = 255
        (folder / str(label)).mkdir(parents=True)
        np.save(folder / str(label) / "one.npy", picture)
    assert evaluate(image_model, "--data", folder) == 0
    found = lines(capsys)
    assert found[0] == f"3 pictures from {folder}"
    assert "rows 3" in found and "accuracy 66.67 %" in found
    row = next(line for line in found if line.startswith("│ 4 "))
    assert row.replace("│", " ").split()[1:11] == list("0010000000")
    (folder / "4" / ".DS_Store").touch()
    assert evaluate(image_model, "--data", folder) == 0
    assert "rows 3" in lines(capsys)
    (folder / "ten").mkdir()
    assert evaluate(image_model, "--data", folder) == 1
    assert "'ten', which is no class" in capsys.readouterr().err


def test_lines_of_classes_and_texts(text_model, tmp_path, capsys):
    file = tmp_path / "reviews.tsv"
    file.write_text("positive\ta good film\n\n0\ta bad film\nnegative\tgood, good\n1\tgood film\n")
    assert evaluate(text_model, "--data", file) == 0
    found = lines(capsys)
    assert "rows 4" in found and "accuracy 75.00 %" in found
    assert [line.replace("│", " ").split()[:3] for line in found if line.startswith("│")] == [
        ["negative", "1", "1"],
        ["positive", "0", "2"],
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("good film\n", "does not begin with a class and a tab"),
        ("\n", "has no text"),
        ("2\tgood\n", "line 1"),
    ],
)
def test_files_that_are_no_labelled_texts(text_model, tmp_path, capsys, content, message):
    file = tmp_path / "reviews.tsv"
    file.write_text(content)
    assert evaluate(text_model, "--data", file) == 1
    assert message in capsys.readouterr().err


def test_a_model_of_characters(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("abc " * 400)
    small = ["--hidden", "8", "--layers", "1", "--steps", "8", "--batch", "4", "--epochs", "1"]
    assert main(["train", "chars", "text.txt", *small]) == 0
    capsys.readouterr()
    assert evaluate(Path("chars"), "--data", "text.txt") == 0
    found = lines(capsys)
    assert found[0] == "1,600 characters from text.txt"
    assert any(line.startswith("bits per character") for line in found)
    assert any(line.startswith("perplexity") for line in found)
    assert evaluate(Path("chars")) == 1
    assert "--data FILE" in capsys.readouterr().err


def test_data_of_another_size(digits_only, image_model, capsys):
    assert evaluate(image_model) == 1
    assert "reads pictures of 6 × 6, and these are of 8 × 8" in capsys.readouterr().err


def test_files_that_are_no_models(tmp_path, capsys):
    assert evaluate(tmp_path / "nothing.safetensors") == 1
    (tmp_path / "text.safetensors").write_text("no model")
    assert evaluate(tmp_path / "text.safetensors") == 1
    assert capsys.readouterr().err.count("pullback: ") == 2
