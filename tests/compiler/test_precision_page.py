"""The examples of ``docs/precision.md`` run."""

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "precision.md"


def test_the_examples_of_the_page_run():
    found = doctest.testfile(str(PAGE), module_relative=False)
    assert found.attempted > 10 and not found.failed
