"""Stored code belongs to the compiler that made it: told by contents, and only where they are what was imported."""

from __future__ import annotations

import compileall
import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

import pullback
from pullback import sources

_RUN = """
import numpy as np, os, pullback as pb, sys
assert pb.__file__.startswith(sys.path[1]), pb.__file__
exec(os.environ.get("BEFORE", ""))
compiled = pb.jit(lambda x: np.tanh(x) + 1)
compiled(np.ones(5))
print(compiled.inspect(np.ones(5)).from_cache)
"""


@pytest.fixture
def copied(tmp_path):
    """``copied(path)``: whether a copy of the package at ``path`` finds the code of a program in its cache."""
    shutil.copytree(
        Path(pullback.__file__).parent,
        tmp_path / "site/pullback",
        ignore=shutil.ignore_patterns("__pycache__"),
    )

    def run(path: Path = tmp_path / "site", before: str = "") -> bool:
        time.sleep(
            2 * sources._CLOCK_STEP / 1e9
        )  # what was written just now counts as written while it was imported
        environment = {
            **os.environ,
            "PYTHONPATH": str(path),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PULLBACK_CACHE": str(tmp_path / "code"),
            "BEFORE": before,
        }
        command = [sys.executable, "-c", _RUN]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return {"True": True, "False": False}[done.stdout.strip()]

    run.package = tmp_path / "site/pullback"
    return run


def test_an_edit_of_the_same_size_and_time_is_found(copied):
    assert [copied(), copied()] == [False, True]
    file = copied.package / "compiler/schedules/cost.py"
    state, text = file.stat(), file.read_text()
    edited = text.replace("SHORT_CYCLES = 120_000.0", "SHORT_CYCLES = 150_000.0")
    assert edited != text
    file.write_text(edited)
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert file.stat().st_size == state.st_size
    assert file.stat().st_mtime_ns == state.st_mtime_ns
    assert [copied(), copied()] == [False, True]
    file.write_text(text)
    assert copied()
    (copied.package / "compiler/another.py").write_text("")
    assert not copied()


@pytest.mark.skipif(sys.platform == "win32", reason="needs the time of a file's own change")
def test_nothing_is_kept_of_a_compiler_that_is_edited_while_it_runs(copied):
    """What was imported may be the old or the new: neither finds what the other made."""
    edit = f"""
file = open({str(copied.package / "operators/logic.py")!r}, "a")
file.write("# edited")
file.close()
"""
    assert not copied(before=edit)
    assert not copied()  # the first one stored nothing
    assert copied()


def test_an_installation_without_sources(copied):
    compileall.compile_dir(copied.package, quiet=1, legacy=True)
    for file in copied.package.rglob("*.py"):
        file.unlink()
    assert [copied(), copied()] == [False, True]
    file = copied.package / "compiler/regions/parallelise.pyc"
    data = file.read_bytes()
    file.write_bytes(data + b"\0")
    assert not copied()


def test_an_installation_in_an_archive(copied, tmp_path):
    archive = tmp_path / "pullback.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in copied.package.rglob("*.py"):
            file.write(path, path.relative_to(copied.package.parent))
    assert [copied(archive), copied(archive)] == [False, True]
    with zipfile.ZipFile(archive, "a") as file:
        file.writestr("pullback/another.py", "")
    assert not copied(archive)


def test_files_that_cannot_be_read_are_no_key(monkeypatch):
    monkeypatch.setattr(sources, "__file__", "/nowhere/pullback/sources.py")
    assert sources.package_digest.__wrapped__() is None
