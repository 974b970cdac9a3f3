"""The examples of ``docs/precision.md`` run, and its table of errors is that of the tables that tests hold."""

import doctest
import re
from pathlib import Path

from pullback.compiler.codegen import vectormath
from pullback.numpy import activations, composite
from pullback.operators import complex_parts, special
from pullback.operators.accuracy import DERIVATIVES
from pullback.scipy import special as composed

PAGE = Path(__file__).parents[2] / "docs" / "precision.md"


def test_the_examples_of_the_page_run():
    found = doctest.testfile(str(PAGE), module_relative=False)
    assert found.attempted > 10 and not found.failed


def test_the_errors_on_the_page_are_those_stated_in_the_library():
    stated = {
        **vectormath.ACCURACY,
        **{name: (bound, bound) for name, bound in composite.ACCURACY.items()},
        **{name: (bound, bound) for name, bound in activations.ACCURACY.items()},
        **{name: (0.51, bound) for name, bound in special.ACCURACY.items()},
        **composed.ACCURACY,
    }
    assert on_the_page("") == stated
    assert on_the_page("complex ") == {name: (bound, bound) for name, bound in complex_parts.ACCURACY.items()}


def test_the_errors_of_derivatives_on_the_page_are_those_stated_in_the_library():
    assert on_the_page("", columns=4) == DERIVATIVES


def on_the_page(kind, columns=2):
    """The bounds in rows that begin with ``kind`` and names of functions."""
    found = {}
    for names, *bounds in re.findall(
        rf"^\| {kind}(`[^|]*`)" + r" \| ([\d.]+)" * columns + r" \|$", PAGE.read_text(), re.MULTILINE
    ):
        found.update(dict.fromkeys(re.findall(r"`(\w+)`", names), tuple(map(float, bounds))))
    return found
