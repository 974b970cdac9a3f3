import subprocess
import sys

import pytest

from pullback.errors import DataError, MissingExtra, OutputError
from pullback.io import plot_history

# Older releases of matplotlib meet deprecations of their own dependencies while they are imported.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:matplotlib")

HISTORY = {
    "loss": [1.5, 0.7, 0.5],
    "validation_loss": [0.9, float("nan"), float("inf")],
    "accuracy": [0.5, 0.8, 0.9],
    "validation_accuracy": [0.7, 0.8, 0.85],
    "seconds": [1.0, 1.0, 1.0],
    "final_loss": 0.5,
    "network": "mnist-rnn",
}


def svg_labels(path):
    """The texts of a picture: matplotlib leaves each as a comment beside its glyphs."""
    lines = path.read_text().splitlines()
    return [line.strip()[5:-4] for line in lines if line.strip().startswith("<!-- ")]


@pytest.mark.parametrize(("ending", "magic"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_pictures(tmp_path, ending, magic):
    pytest.importorskip("matplotlib")
    plot_history(HISTORY, tmp_path / f"curves.{ending}")
    assert (tmp_path / f"curves.{ending}").read_bytes().startswith(magic)
    assert [entry.name for entry in tmp_path.iterdir()] == [f"curves.{ending}"]


def test_what_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    plot_history(HISTORY, tmp_path / "curves.svg")
    labels = svg_labels(tmp_path / "curves.svg")
    assert labels.count("epoch") == 2
    assert {"validation loss", "validation accuracy"} <= set(labels)
    assert not {"seconds", "final loss", "network"} & set(labels)


def test_one_panel_when_there_is_no_accuracy(tmp_path):
    pytest.importorskip("matplotlib")
    plot_history({"loss": [1.0], "accuracy": [None]}, tmp_path / "curves.svg")
    labels = svg_labels(tmp_path / "curves.svg")
    assert labels.count("epoch") == 1
    assert "accuracy" not in labels


def test_no_global_state(tmp_path):
    pytest.importorskip("matplotlib")
    program = """
import sys
import matplotlib
settings = lambda: list(dict.items(matplotlib.rcParams))  # without choosing a backend, as reading them would
before = settings()
from pullback.io import plot_history
plot_history({"loss": [1.0, 2.0]}, sys.argv[1])
assert "matplotlib.pyplot" not in sys.modules
assert settings() == before
"""
    command = [sys.executable, "-c", program, str(tmp_path / "a.png")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("history", [{}, {"loss": []}, {"loss": [None]}, {"seconds": [1.0]}, {"loss": 0.5}])
def test_nothing_to_draw(tmp_path, history):
    with pytest.raises(DataError, match="nothing to draw"):
        plot_history(history, tmp_path / "a.png")


@pytest.mark.parametrize("name", ["curves", "curves.txt"])
def test_unknown_ending(tmp_path, name):
    pytest.importorskip("matplotlib")
    with pytest.raises(DataError, match=r"Use .png, .svg or .pdf"):
        plot_history(HISTORY, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_unwritable(tmp_path):
    pytest.importorskip("matplotlib")
    with pytest.raises(OutputError, match="Create the folder"):
        plot_history(HISTORY, tmp_path / "runs" / "a.png")


def test_without_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match=r"Install pullback\[plot\]"):
        plot_history(HISTORY, tmp_path / "a.png")
