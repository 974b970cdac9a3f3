"""The programs of ``docs/tutorial.md`` run."""

import doctest
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"


def test_the_programs_of_the_page_run() -> None:
    pytest.importorskip("scipy")
    found = doctest.testfile(str(PAGE), module_relative=False)
    assert found.attempted > 25
    assert not found.failed
