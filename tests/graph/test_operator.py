"""The table of operators."""

from __future__ import annotations

import numpy as np
import pytest

from pullback.graph import OPERATORS, Operator, Type, Variable
from pullback.graph.protocol import vocabulary


def test_names_are_unique():
    known = OPERATORS["sin"]
    with pytest.raises(ValueError, match="two operators are named sin"):
        Operator(
            "sin", known.type_rule, known.reference, known.pullback, known.batch, known.lower, known.cases
        )
    assert OPERATORS["sin"] is known


def test_the_table_is_keyed_by_name():
    assert all(operator.name == name for name, operator in OPERATORS.items())
    assert sorted([OPERATORS["sin"], OPERATORS["add"]]) == [OPERATORS["add"], OPERATORS["sin"]]


def test_python_operators_are_answered_by_the_vocabulary():
    x, y = (Variable(Type(np.dtype("float64"), (3,)), name) for name in "xy")
    for name, made in {
        "add": x + x,
        "subtract": x - x,
        "multiply": x * x,
        "divide": x / x,
        "negative": -x,
        "absolute": abs(x),
        "less": x < y,
        "equal": x == y,
    }.items():
        assert made.operator is OPERATORS[name]
        assert made is vocabulary[name](*made.inputs)


def test_scalars_stand_on_either_side():
    x = Variable(Type(np.dtype("float64"), ()), "x")
    assert [part.type.shape for part in (2 - x).inputs] == [(), ()]
    assert (2 - x).inputs[1] is x and (x - 2).inputs[0] is x
    assert (2 / x).inputs[1] is x and (2 // x).inputs[1] is x and (2**x).inputs[1] is x
