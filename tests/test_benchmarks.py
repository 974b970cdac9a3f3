"""The benchmark suite counts, orders and compares rightly; how fast anything is, no test asks."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def workload(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("workload")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    for prefix, count in (("", 20), ("test_", 10)):
        np.save(tmp_path / f"{prefix}images.npy", random.integers(0, 256, (count, 784), np.uint8))
        np.save(tmp_path / f"{prefix}labels.npy", random.integers(0, 10, count, np.uint8))
    return tmp_path


def test_operations_of_a_step_are_those_of_its_products(workload: Any) -> None:
    recurrent = workload.Network("r", hidden=(64,), steps=4)
    forward = 4 * 196 * 64 + 3 * 64 * 64 + 64 * 10
    state_gradients = 3 * 64 * 64 + 64 * 10
    assert workload.flops_per_step(recurrent) == 2 * 100 * (2 * forward + state_gradients)
    perceptron = workload.Network("p", hidden=(20, 30), batch=5)
    forward = 784 * 20 + 20 * 30 + 30 * 10
    assert workload.flops_per_step(perceptron) == 2 * 5 * (2 * forward + 20 * 30 + 30 * 10)


def test_batches_do_not_depend_on_the_pieces_they_are_asked_for_in(workload: Any) -> None:
    whole = workload.batch_rows(23, 5, 0, 12, seed=3)
    pieces = [workload.batch_rows(23, 5, first, steps, seed=3) for first, steps in ((0, 1), (1, 6), (7, 5))]
    assert np.array_equal(np.concatenate(pieces), whole)
    for epoch in whole.reshape(3, 20):
        assert len(set(epoch.tolist())) == 20


@pytest.mark.parametrize(
    "form",
    [
        {"hidden": (6,), "steps": 4},
        {"hidden": (6, 6), "steps": 7, "activation": "relu"},
        {"hidden": (6, 5), "activation": "relu"},
    ],
)
def test_a_worker_trains_the_network_that_numpy_knows(
    workload: Any, data: Path, form: dict[str, Any]
) -> None:
    network = workload.Network("small", batch=10, **form)
    job = workload.Job(network, str(data), threads=1)
    commands = [
        {"do": "start", "library": "pullback", "job": job.as_json()},
        {"do": "run", "steps": 2, "warm": 1},
        {"do": "accuracy"},
    ]
    done = subprocess.run(
        [sys.executable, str(FOLDER / "worker.py")],
        input="".join(json.dumps(command) + "\n" for command in commands),
        capture_output=True,
        text=True,
        check=True,
    )
    _, run, accuracy = map(json.loads, done.stdout.splitlines())
    images, labels = job.arrays()
    rows = workload.batch_rows(20, 10, 0, 1)[0]
    scores = workload.logits(network, job.initial_weights(), images[rows]).astype(np.float64)
    chosen = scores[np.arange(10), labels[rows]]
    expected = np.mean(np.log(np.exp(scores).sum(axis=1)) - chosen)
    assert len(run["losses"]) == 3
    assert run["losses"][0] == pytest.approx(expected, rel=1e-5)
    assert accuracy["accuracy"] in [k / 10 for k in range(11)]


def test_a_library_that_fails_is_left_out_with_a_line(
    workload: Any, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contest = importlib.import_module("contest")
    said: list[str] = []
    missing = contest.Entrant("no_such_library", "", sys.executable)
    settings = contest.Settings([missing], str(data), 1, 1, 1, False, said.append)
    with contest.started(settings, workload.Network("small", hidden=(4,), batch=10)) as running:
        assert running == []
    assert said == [
        "no_such_library: ModuleNotFoundError: No module named 'contenders.with_no_such_library'; left out"
    ]


def test_tables_read_the_same_as_text_and_as_markdown(workload: Any) -> None:
    report = importlib.import_module("report")
    table = report.Table("t", ("name", "ms"), [["a", "1.5"], ["long", "10"]], ["A note."])
    assert table.text() == "t\n\nname   ms\n----  ---\na     1.5\nlong   10\n\nA note."
    assert table.markdown() == (
        "### t\n\n| name | ms |\n| --- | ---: |\n| a | 1.5 |\n| long | 10 |\n\nA note."
    )
    assert report.relative_difference([1.0, 2.2], [1.0, 2.0]) == pytest.approx(0.1)


def test_every_benchmark_has_its_file(workload: Any) -> None:
    suite = importlib.import_module("suite")
    for file in suite.BENCHMARKS.values():
        assert callable(importlib.import_module(f"suite.{file}").run)
