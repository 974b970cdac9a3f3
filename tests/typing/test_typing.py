"""What a type checker sees: signatures that transformations keep, names that are loaded when used, wrong types."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import pullback

SAMPLES = sorted(Path(__file__).parent.glob("*.sample"))
SOURCE = Path(pullback.__file__).parent


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What mypy says of each line of the samples."""
    pytest.importorskip("mypy")
    folder, cache = tmp_path_factory.mktemp("samples"), tmp_path_factory.mktemp("mypy")
    files = [folder / f"{sample.stem}.py" for sample in SAMPLES]
    for sample, file in zip(SAMPLES, files):
        file.write_text(sample.read_text(encoding="utf-8"), encoding="utf-8")
    options = [
        "--config-file=",
        "--strict",
        "--no-error-summary",
        "--hide-error-context",
        f"--cache-dir={cache}",
    ]
    # Of the package's own files errors are the business of its own check; imports of theirs may not be there.
    options += ["--ignore-missing-imports", "--follow-imports=silent", "--allow-untyped-defs"]
    run = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *map(str, files)],
        capture_output=True,
        text=True,
        check=False,
        env={"MYPYPATH": str(SOURCE.parent), "PATH": "", "HOME": str(cache)},
    )
    found: dict[tuple[str, int], list[str]] = {}
    for line in run.stdout.splitlines():
        match = re.match(r"(.*?):(\d+): (error|note): (.*)", line)
        assert match, run.stdout + run.stderr
        found.setdefault((Path(match[1]).stem, int(match[2])), []).append(match[4])
    return found


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_every_line_gets_the_type_or_the_error_that_it_names(sample, said):
    """``# is T`` names what ``reveal_type`` says, ``# error: code`` an error; all other lines have none."""
    for number, line in enumerate(sample.read_text(encoding="utf-8").splitlines(), start=1):
        messages = said.get((sample.stem, number), [])
        revealed, error = re.search(r"# is (.*)", line), re.search(r"# error: ([\w-]+)", line)
        if revealed:
            assert [f'Revealed type is "{revealed[1]}"'] == messages, (number, line)
        elif error:
            assert any(f"[{error[1]}]" in message for message in messages), (number, line, messages)
        else:
            assert not messages, (number, line)


def test_names_that_are_loaded_when_used_are_typed():
    text = (SOURCE / "__init__.py").read_text(encoding="utf-8")
    typed = set(re.findall(r"^    from \S+ import \w+ as (\w+)$", text, re.MULTILINE))
    assert typed == {*pullback._MODULES, *pullback._NAMES}


def test_the_mark_of_a_typed_package_is_shipped():
    assert (SOURCE / "py.typed").exists()
