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
    assert " 0 of " in f" {done.stdout}"


@pytest.mark.skipif(sys.platform != "linux", reason="memory is told by Linux")
@pytest.mark.parametrize("arguments", [("--count", "500", "--seed", "1"), ("--count", "200")])
def test_damaged_files(arguments):
    run("files", *arguments)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that can fork")
@pytest.mark.parametrize("arguments", [("--count", "25", "--seed", "1"), ("--count", "10")])
def test_killed_processes(arguments):
    run("kills", *arguments)
