"""Every public function of NumPy on a traced value: NumPy's result, or an error of our own that says what is wrong."""

from __future__ import annotations

import importlib.util
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import pullback as pb
from pullback.errors import PullbackError, TracingError

DOCS = Path(__file__).parents[2] / "docs"
_spec = importlib.util.spec_from_file_location("numpy_table", DOCS / "numpy_table.py")
table = importlib.util.module_from_spec(_spec)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    _spec.loader.exec_module(table)
    FUNCTIONS = table.functions()
PAGE = (DOCS / "numpy.md").read_text()
SAME_NUMPY = f"NumPy {'.'.join(np.__version__.split('.')[:2])};" in PAGE


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_result_is_numpys_or_an_error_of_our_own(name):
    function = FUNCTIONS[name]
    for call, expected in table.calls(function):
        try:
            found = pb.trace(call, table.X).evaluate([table.X])
        except PullbackError as error:
            own = name.rpartition(".")[2]
            known = {own, getattr(function, "__name__", own), "traced value", "numpy_table.py"}
            assert any(each in str(error) for each in known), str(error)
        except AttributeError as error:
            assert "a traced value" in str(error)
        except ValueError as error:  # NumPy's, where it fills an array: the cause says what is wrong
            assert isinstance(error.__cause__, TracingError)
        else:
            assert table.agrees(found, expected)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(not SAME_NUMPY, reason="the page is about another NumPy")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_page_says_what_is_supported(name):
    assert table.row(name, FUNCTIONS[name]) in PAGE, (
        "write the page anew: python docs/numpy_table.py > docs/numpy.md"
    )


@pytest.mark.skipif(not SAME_NUMPY, reason="the page is about another NumPy")
def test_the_page_lists_every_function_and_counts_them():
    listed = re.findall(r"^\| `([\w.]+)` \|(.*)\|$", PAGE, re.MULTILINE)
    assert [name for name, _ in listed] == list(FUNCTIONS)
    ticks = sum("✓" in marks for _, marks in listed)
    assert PAGE.rstrip().endswith(f"{ticks} of {len(listed)} are available.")


CHANGES = {
    "copyto": lambda x: np.copyto(x, 1.0),
    "put": lambda x: np.put(x, [0], 1.0),
    "putmask": lambda x: np.putmask(x, x > 0, 1.0),
    "place": lambda x: np.place(x, [True], 1.0),
    "fill_diagonal": lambda x: np.fill_diagonal(x, 1.0),
    "put_along_axis": lambda x: np.put_along_axis(x, np.array([[0]]), 1.0, 0),
    "add with out": lambda x: np.add(x, 1.0, out=x),
    "out of concrete": lambda x: np.add(x, 1.0, out=np.zeros((3, 3))),
    "concrete in place": lambda x: np.zeros((3, 3)).__iadd__(x),
    "sum with out": lambda x: np.sum(x, axis=0, out=np.zeros(3)),
    "add.at": lambda x: np.add.at(x, [0], 1.0),
    "item": lambda x: x.__setitem__(0, 1.0),
    "deleted": lambda x: x.__delitem__(0),
    "into concrete": lambda x: np.zeros(3).__setitem__(slice(None), x[0]),
    "fill": lambda x: x.fill(0.0),
    "sort": lambda x: x.sort(),
    "method put": lambda x: x.put([0], 1.0),
    "resize": lambda x: x.resize((9,)),
    "partition": lambda x: x.partition(1),
    "shape": lambda x: setattr(x, "shape", (9,)),
    "dtype": lambda x: setattr(x, "dtype", np.float32),
    "shuffle": lambda x: np.random.default_rng(0).shuffle(x),
}


@pytest.mark.filterwarnings("ignore:you are shuffling")
@pytest.mark.parametrize("name", CHANGES)
def test_nothing_changes_a_traced_value(name):
    with pytest.raises((TracingError, AttributeError), match=r"traced value|takes no out="):
        pb.trace(CHANGES[name], table.X)
