"""The examples of ``docs/calls.md`` run."""

import doctest
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "calls.md"


def test_the_examples_of_the_page_run():
    pytest.importorskip("scipy")
    found = doctest.testfile(str(PAGE), module_relative=False)
    assert found.attempted > 10 and not found.failed
