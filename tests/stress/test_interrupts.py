"""A few interrupts and forks of each kind; the modules beside this one do as many as they are asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def stress(module: str, *options: object) -> None:
    command = [sys.executable, "-m", f"tests.stress.{module}", *map(str, options)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("what", ["compile", "call", "fit", "save"])
def test_interrupts_at_chosen_moments(what):
    stress("moments", "--what", what, "--count", 40)


@pytest.mark.parametrize("what", ["compile", "call", "fit", "save", "import"])
def test_interrupts_at_random_moments(what):
    stress("interrupts", "--what", what, "--count", 8)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forks():
    stress("forks", "--count", 10)
