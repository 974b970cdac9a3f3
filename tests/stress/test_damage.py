"""The stress programs, for a while: from a fixed seed and from a fresh one, which they print."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(module, *arguments):
    command = [sys.executable, "-m", f"tests.stress.{module}", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "\n0 of " in done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="memory is told by Linux")
@pytest.mark.parametrize("arguments", [("--count", "500", "--seed", "1"), ("--count", "200")])
def test_damaged_files(arguments):
    run("files", *arguments)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that can fork")
@pytest.mark.parametrize("arguments", [("--count", "25", "--seed", "1"), ("--count", "10")])
def test_killed_processes(arguments):
    run("kills", *arguments)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is told by Linux")
def test_memory_that_is_taken_and_given_back_is_noticed():
    program = """
import numpy as np
from tests.stress.files import _problem
from pathlib import Path
assert _problem(lambda path: None, Path("README.md"))[0] == ""
problem, grown = _problem(lambda path: np.ones(20_000_000), Path("README.md"))
assert "MB of memory for" in problem and 159e6 < grown < 180e6, (problem, grown)
assert "ZeroDivisionError" in _problem(lambda path: 1 // 0, Path("README.md"))[0]
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
