"""The cache key of programs with operators from outside the package: such programs are not stored."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from pullback import operators as _operators  # noqa: F401  (fills the table)
from pullback.compiler.key.graph import graph_key
from pullback.compiler.key.rules import is_own, is_plain
from pullback.compiler.programs.executable import make_executable
from pullback.graph import OPERATORS, Graph, Operator, TupleType, Type, Variable
from pullback.loops import Apply
from pullback.operators.batching import batch_first
from pullback.operators.elementwise import elementwise_type, lower_elementwise


def test_operators_of_the_package_are_known_by_name():
    own = [each for each in OPERATORS.values() if each.type_rule.__module__.startswith("pullback.")]
    assert len(own) > 150
    for each in own:
        assert all(map(is_own, (each.type_rule, each.reference, each.lower))), each.name
        assert all(is_plain(tuple(case.attributes.items())) for case in each.cases), each.name


def twice(node, operands, index):
    return Apply("add", (operands[0](index), operands[0](index)), node.dtype)


class Thing:
    def __call__(self, node, operands, index):
        return twice(node, operands, index)


@pytest.mark.parametrize(
    "rule",
    [
        twice,
        lambda x: x,
        Thing(),
        functools.partial(twice),
        functools.lru_cache(twice),
        np.frompyfunc(twice, 1, 1),
        np.random.default_rng(0).normal,
        elementwise_type("odd", "f", Thing()),  # a rule of the package's that holds one from elsewhere
    ],
)
def test_rules_from_elsewhere_are_not_own(rule):
    assert not is_own(rule)
    assert not is_own((np.sin, rule))


def test_what_is_plain_says_all_in_its_text():
    single, double = (Type(np.dtype(kind), (3,)) for kind in (np.float32, np.float64))
    assert is_plain(TupleType.of([single])) and is_plain((1, "x", None, single))
    assert len({repr(TupleType.of([each])) for each in (single, double)}) == 2
    assert repr((0.0, 1)) != repr((-0.0, 1)) and repr((1,)) != repr((True,))
    assert not is_plain((1, Thing())) and not is_plain(twice)


def operator(name: str, lower) -> Operator:
    made = Operator(name, lambda x, **_: x, lambda x, **_: x, None, batch_first, lower, ())
    del OPERATORS[name]
    return made


X = Variable(Type(np.dtype(np.float32), (3,)), "x")


def test_graphs_with_such_operators_have_no_key():
    sine = OPERATORS["sin"]
    assert graph_key(Graph((X,), (sine(X),)), {}) is not None
    assert graph_key(Graph((X,), (operator("odd", twice)(sine(X)),)), {}) is None
    assert graph_key(Graph((X,), (operator("odd", lower_elementwise)(X),)), {}) is None
    assert graph_key(Graph((X,), (OPERATORS["broadcast"](X, shape=(2, 3), axes=(1,)),)), {}) is not None


def test_programs_with_such_operators_are_compiled_each_time(monkeypatch, tmp_path):
    monkeypatch.setenv("PULLBACK_CACHE", str(tmp_path / "code"))

    def squared(node, operands, index):
        return Apply("multiply", (operands[0](index), operands[0](index)), node.dtype)

    for lower, values in ((twice, [2.0, 4.0, 6.0]), (squared, [1.0, 4.0, 9.0])):
        program = make_executable(Graph((X,), (operator("odd", lower)(X),)), {}).program
        assert program(np.array([1, 2, 3], np.float32))[0].tolist() == values
        assert not program.code.cached
