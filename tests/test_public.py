"""What ``import pullback`` gives, and what it does not load."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np

import pullback


def test_every_public_name_is_there():
    for name in pullback.__all__:
        assert getattr(pullback, name) is not None
    assert set(pullback.__all__) <= set(dir(pullback))


def test_packages_are_loaded_when_first_used():
    code = "import pullback, sys; print(*sys.modules); print(pullback.optim.__name__)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded, package = run.stdout.splitlines()
    heavy = {"llvmlite", "rich", "safetensors", "matplotlib", "sklearn", "pullback.nn", "pullback.compiler"}
    assert not heavy & set(loaded.split())
    assert package == "pullback.optim"


def test_a_name_that_is_not_there():
    assert not hasattr(pullback, "no_such_name")


def test_modules_named_as_numpy_is_do_not_hide_it():
    assert pullback.numpy is not np
    assert pullback.numpy.pi == np.pi


def test_the_page_of_layers_and_losses_names_what_there_is():
    page = (Path(__file__).parents[1] / "docs" / "networks.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    losses = rows[next(k for k, row in enumerate(rows) if "softmax_cross_entropy" in row) :]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", re.sub(r"\(.*\)", "", row))}
    assert all(hasattr(pullback.nn, name) for name in named)
    assert set(pullback.nn.losses.__all__) == {
        name for row in losses for name in re.findall(r"`(\w+)`", re.sub(r"\(.*\)", "", row))
    }
