"""The jobs on texts, from the command line, with made-up reviews."""

import json
import re

import numpy as np
import pytest

from pullback import load, nn
from pullback.cli import main
from pullback.cli.workloads import imdb_cnn, imdb_lstm
from pullback.data import Vocabulary, generate_reviews, imdb, read_glove
from pullback.io import load_metadata

OWN = (("positive", "good"), ("negative", "bad"))


@pytest.fixture(autouse=True)
def no_reviews(monkeypatch, tmp_path):
    """No reviews on this machine and no network; results and cache are in a folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("PULLBACK_DATA", raising=False)
    monkeypatch.setattr(imdb, "_HOMES", ())
    monkeypatch.chdir(tmp_path)


def run(*arguments):
    assert main([*map(str, arguments)]) == 0


def test_the_network_is_that_of_the_workload():
    model = imdb_cnn.make_model()
    assert nn.parameter_count(model) == 600_000 + (3 * 50 * 8 + 8) + (128 + 1)
    assert model(np.zeros((2, 130), np.int32)).shape == (2, 1)


def test_the_network_learns_made_up_reviews(tmp_path, capsys):
    run("train", "imdb-cnn", "--output", "out")
    shown = capsys.readouterr()
    assert "using 4,000 made-up reviews (no real ones): 3,200 to train on" in shown.out
    assert "test" in shown.out and "reviews" in shown.out
    history = json.loads((tmp_path / "out" / "history.json").read_text())
    assert history["validation_accuracy"][-1] > 0.9
    metadata = load_metadata(tmp_path / "out" / "model.safetensors")
    vocabulary = Vocabulary.from_json(metadata["vocabulary"])
    assert vocabulary == generate_reviews().split(0).vocabulary
    model = load(
        tmp_path / "out" / "model.safetensors", like=imdb_cnn.restore(json.loads(metadata["settings"]))
    )
    test = generate_reviews().split(0).test
    accuracy = ((model(test.inputs) > 0) == test.labels).mean()
    assert accuracy == pytest.approx(history["validation_accuracy"][-1], abs=0.005)


def test_the_recurrent_network_is_that_of_the_workload():
    model = imdb_lstm.make_model()
    assert nn.parameter_count(model) == 640_000 + 4 * 32 * (32 + 32 + 1) + (32 + 1)
    settings = {"words": 9, "length": 7, "dimensions": 3, "hidden": 5}
    assert imdb_lstm.parameters(settings) == nn.parameter_count(imdb_lstm.restore(settings))


@pytest.mark.parametrize("options", [(), ("--bucket", 20)])
def test_the_recurrent_network_learns_made_up_reviews(options, tmp_path, capsys):
    run("train", "imdb-lstm", "--length", 60, "--hidden", 16, "--epochs", 10, "--output", "out", *options)
    assert "LSTM(32 → 16)" in capsys.readouterr().out
    history = json.loads((tmp_path / "out" / "history.json").read_text())
    assert history["validation_accuracy"][-1] > 0.9
    texts = [
        " ".join(f"the {thing} is {word}." for thing in ("story", "cast", "plot", "script") for word in words)
        for words in (["superb", "brilliant"], ["dull", "awful"])
    ]
    run("predict", "--model", "out", *texts)
    good, bad = capsys.readouterr().out.splitlines()
    assert "positive" in good and "negative" in bad


@pytest.fixture
def short_training(monkeypatch):
    """Vectors are made in two epochs."""
    from pullback.cli.workloads import imdb_glove

    made = imdb_glove.corpus_vectors
    monkeypatch.setattr(imdb_glove, "corpus_vectors", lambda *a, **k: made(*a, **k, epochs=2))


def test_vectors_are_made_once_and_stay_fixed(tmp_path, capsys, short_training):
    run("train", "imdb-glove", "--epochs", 1, "--output", "out")
    assert "making some from 4,000 reviews" in capsys.readouterr().out
    (file,) = (tmp_path / "cache" / "pullback" / "data" / "vectors").iterdir()
    table = load(tmp_path / "out" / "model.safetensors")["layers.0.weight"]
    read = read_glove(file, generate_reviews().split(0).vocabulary)
    assert read.found[2:].all() and table.shape[1] == 50
    np.testing.assert_array_equal(table, read.vectors)
    run("train", "imdb-glove", "--epochs", 1, "--output", "again")
    shown = capsys.readouterr().out
    assert "making" not in shown and f"vectors from {file}" in shown
    first, again = (load(tmp_path / name / "model.safetensors") for name in ("out", "again"))
    assert all(np.array_equal(first[name], again[name]) for name in first)


def test_vectors_of_another_size_are_taken_as_they_are(tmp_path):
    (tmp_path / "v.txt").write_text("film 1 2 3\ndull 4 5 6\n")
    run("train", "imdb-glove", "--vectors", "v.txt", "--epochs", 1, "--output", "out")
    table = load(tmp_path / "out" / "model.safetensors")["layers.0.weight"]
    vocabulary = generate_reviews().split(0).vocabulary
    assert table[vocabulary.number("dull")].tolist() == [4, 5, 6]
    assert np.count_nonzero(table.any(axis=1)) == 2


def test_a_damaged_file_of_vectors(tmp_path, capsys):
    (tmp_path / "v.txt").write_text("film 1 2 3\ndull 4 5\n")
    assert main(["train", "imdb-glove", "--vectors", "v.txt"]) == 1
    assert "v.txt, line 2: expected a word and 3 values, found 2 values" in capsys.readouterr().err


def test_vectors_of_text_files(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("a good film\na bad film\n" * 3)
    (tmp_path / "b.txt").write_text("a good story\n")
    run(
        "train",
        "vectors",
        "a.txt",
        "b.txt",
        "--dimensions",
        4,
        "--words",
        3,
        "--epochs",
        2,
        "--output",
        "v.txt",
    )
    shown = capsys.readouterr()
    assert "3 words of 4 numbers in v.txt" in shown.out and "2/2  loss" in shown.err
    lines = (tmp_path / "v.txt").read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["a", "film", "good"]
    assert {len(line.split()) for line in lines} == {5}


def test_vectors_of_the_reviews(capsys):
    run("train", "vectors", "--epochs", 1, "--batch", 512)
    assert "made-up reviews" in capsys.readouterr().out
    assert read_glove("vectors.txt", Vocabulary(["film"])).found[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.txt"], "cannot read none.txt"),
        (["a.txt", "reviews.tar.gz"], "Give text files, or one archive"),
        (["reviews.tar.gz"], "has no aclImdb_v1.tar.gz"),
        (["a.txt", "--output", "a.txt/v.txt"], "cannot write to the folder"),
    ],
)
def test_files_that_make_no_vectors(tmp_path, capsys, arguments, message):
    (tmp_path / "a.txt").write_text("a good film\n")
    assert main(["train", "vectors", *arguments]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("workload", ["imdb-cnn", "imdb-lstm"])
def test_texts_of_ones_own(workload, tmp_path, capsys):
    lines = [f"{side}\tthe {word} film\u2028number {k}" for k in range(40) for side, word in OWN]
    file = tmp_path / "texts.tsv"
    file.write_text("\ufeff" + "\r\n".join(lines), encoding="utf-8")  # as spreadsheets write it
    out = tmp_path / "out"
    run("train", workload, "--data", file, "--output", out, "--epochs", 10, "--batch", 8, "--lr", 0.02)
    assert f"80 texts from {file}: 64 to train on, 16 to test on" in capsys.readouterr().out
    assert main(["evaluate", "--model", str(out), "--data", str(file)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "rows 80" in shown and "accuracy 100.00 %" in shown
    assert main(["predict", "--model", str(out), "a good film", "a bad film"]) == 0
    assert [line.split()[3] for line in capsys.readouterr().out.splitlines()] == ["positive", "negative"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("positive\tgood\n" * 9, "all 9 texts are positive. Give texts of both classes"),
        ("label\ttext\npositive\tgood\n", "line 1: 'label.*does not begin with a class"),
        ("positive,good\n", "line 1: .* does not begin with a class and a tab"),
        ("", "is empty"),
        ("0\tbad\n1\tgood\n", "2 reviews cannot be split"),
    ],
)
def test_texts_that_cannot_be_trained_on(content, message, tmp_path, capsys):
    file = tmp_path / "texts.tsv"
    file.write_text(content)
    assert main(["train", "imdb-cnn", "--data", str(file), "--output", str(tmp_path / "out")]) == 1
    assert re.search(message, capsys.readouterr().err)
