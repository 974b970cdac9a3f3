"""The example of ``docs/architecture.md``, an operator of one's own, runs."""

import doctest
from pathlib import Path

from pullback.graph import OPERATORS

PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"


def test_the_example_of_the_page_runs():
    before = set(OPERATORS)
    try:
        failed, attempted = doctest.testfile(str(PAGE), module_relative=False)
    finally:  # other tests go through the table
        for name in set(OPERATORS) - before:
            del OPERATORS[name]
    assert attempted >= 9 and not failed
