"""The cache key of programs with operators from outside the package: edited rules never run old code."""

from __future__ import annotations

import functools
import math
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from pullback import operators as _operators  # noqa: F401  (fills the table)
from pullback.compiler.key.graph import graph_key
from pullback.compiler.key.rules import Untold, describe, is_plain, rules_text
from pullback.graph import OPERATORS, Graph, Operator, Type, Variable
from pullback.loops import Apply
from pullback.operators.batching import batch_first

_MODULE = """
import numpy as np
from pullback.graph import Operator
from pullback.loops import Apply, Literal
from pullback.operators.batching import batch_first
{imports}

SCALE = {scale}

def helper(x):
    return Apply("{function}", (x, x), x.dtype)

def scaled(x):
    return Apply("multiply", (x, Literal(SCALE, x.dtype)), x.dtype)

def made(function):
    return lambda node, operands, index: function(scaled(operands[0](index)))

odd = Operator("odd", lambda x: x, lambda x: x, None, batch_first, made({lowering}), ())
"""

_RUN = """
import sys
sys.path.insert(0, {folder!r})
sys.dont_write_bytecode = True
import numpy as np
import pullback as pb
from odd import odd
from pullback.compiler.programs.executable import make_executable
from pullback.graph import Graph, Type, Variable
x = Variable(Type(np.dtype(np.float64), (3,)), "x")
program = make_executable(Graph((x,), (odd(x),)), {{}}).program
print(program(np.array([1.0, 2.0, 3.0]))[0].tolist(), program.code.cached)
"""


def run_odd(folder: Path, **parts: object) -> tuple[list[float], bool]:
    """What the operator of a module written anew gives in a process of its own, and whether the cache had it."""
    given = {"imports": "", "scale": 1.0, "function": "add", "lowering": "helper", **parts}
    (folder / "odd.py").write_text(_MODULE.format(**given))
    code = textwrap.dedent(_RUN.format(folder=str(folder)))
    environment = {**os.environ, "PULLBACK_CACHE": str(folder / "code")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    values, _, cached = done.stdout.strip().rpartition(" ")
    return eval(values), cached == "True"


def test_an_edited_operator_runs_its_new_code(tmp_path):
    """The same cache, operator by operator edited: its lowering, a helper's helper, a number, another module."""
    assert run_odd(tmp_path) == ([2.0, 4.0, 6.0], False)
    assert run_odd(tmp_path) == ([2.0, 4.0, 6.0], True)
    assert run_odd(tmp_path, function="multiply") == ([1.0, 4.0, 9.0], False)
    assert run_odd(tmp_path, scale=2.0) == ([4.0, 8.0, 12.0], False)
    assert run_odd(tmp_path, lowering="scaled") == ([1.0, 2.0, 3.0], False)
    assert run_odd(tmp_path) == ([2.0, 4.0, 6.0], True)
    for function, values in (("add", [2.0, 4.0, 6.0]), ("multiply", [1.0, 4.0, 9.0])):
        other = f'from pullback.loops import Apply\ndef help(x):\n    return Apply("{function}", (x, x), x.dtype)\n'
        (tmp_path / "elsewhere.py").write_text(other)
        lowering = "lambda x: elsewhere.help(x)"
        assert run_odd(tmp_path, imports="import elsewhere", lowering=lowering) == (values, False)


def test_what_cannot_be_told_is_not_stored(tmp_path):
    hidden = "lambda x: getattr(__import__('sys').modules[__name__], 'helper')(x)"
    assert run_odd(tmp_path, lowering=hidden) == ([2.0, 4.0, 6.0], False)
    assert run_odd(tmp_path, lowering=hidden) == ([2.0, 4.0, 6.0], False)


def test_operators_of_the_package_are_known_by_name():
    """Their rules are in the digest of the package's files; describing them would cost every program."""
    assert all(
        rules_text(each) == name
        for name, each in OPERATORS.items()
        if each.lower is None or each.lower.__module__.startswith("pullback.")
    )
    assert all(
        is_plain(tuple(case.attributes.items()))
        for each in OPERATORS.values()
        for case in each.cases
        if each.type_rule.__module__.startswith("pullback.")
    )


TWO, THREE = 2.0, 3.0
ARRAY = np.array([1.0, 2.0])


def doubled(x):
    return x * TWO


def tripled(x):
    return x * THREE


def with_default(x, factor=2.0):
    return x * factor


def with_another(x, factor=3.0):
    return x * factor


def even(n):
    return n == 0 or odd(n - 1)


def odd(n):
    return n != 0 and even(n - 1)


def closed(value):
    return lambda x: x + value


def nested(function):
    def outer(x):
        return [function(y) for y in x]

    return outer


def late(x):
    return x + not_there_yet  # noqa: F821


def counting(x):
    global TWO
    TWO = x


def importing(x):
    import wave

    return wave.open(x)


def passed_on(x):
    return np.add(x, os)


class Thing:
    def __call__(self, x):
        return x


PAIRS = [
    (doubled, tripled),
    (lambda x: x + 1, lambda x: x + 1.0),
    (lambda x: x + 1, lambda x: x + True),
    (lambda x: x + 0.0, lambda x: x + -0.0),
    (lambda x: x in {1, 2}, lambda x: x in {1, 3}),
    (with_default, with_another),
    (closed(1), closed(1.0)),
    (closed(ARRAY), closed(ARRAY + 1)),
    (closed(ARRAY), closed(ARRAY.astype(np.float32))),
    (closed(np.float64(0.0)), closed(np.float64(-0.0))),
    (closed([1, 2]), closed([2, 1])),
    (closed((1, 2)), closed([1, 2])),
    (closed({"a": 1}), closed({"a": 2})),
    (closed(np.sin), closed(np.cos)),
    (closed(math.sin), closed(math.cos)),
    (closed(np.dtype(np.int32)), closed(np.dtype(np.int64))),
    (closed(closed(1)), closed(closed(2))),
    (nested(doubled), nested(tripled)),
    (functools.partial(with_default, factor=1), functools.partial(with_default, factor=2)),
    (lambda x: 1 + np.sin(x), lambda x: 1 + np.cos(x)),
    (lambda x, y: x, lambda x, *y: x),
]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_functions_that_differ_are_told_apart(one, other):
    assert describe(one) == describe(one)
    assert describe(one) != describe(other)


def test_functions_that_behave_alike_are_described_alike():
    assert describe(closed(1)) == describe(closed(1))
    assert describe(closed(np.array([1.0]))) == describe(closed(np.array([1.0])))
    assert describe(even) != describe(odd)


def test_a_global_is_looked_up_each_time(monkeypatch):
    before = describe(nested(doubled))
    monkeypatch.setitem(globals(), "TWO", 5.0)
    assert describe(nested(doubled)) != before


@pytest.mark.parametrize(
    "untold",
    [
        late,
        counting,
        importing,
        passed_on,
        Thing(),
        closed(Thing()),
        closed(object()),
        closed(os),
        closed(functools.lru_cache(doubled)),
        closed(np.frompyfunc(doubled, 1, 1)),
        closed(np.array([Thing()])),
        closed(np.random.default_rng(0)),
        lambda x: np.random.rand(),
        lambda x: eval("x"),
        lambda x: getattr(x, x.name),
        lambda x: np.load("file"),
        lambda x: os.environ["X"],
    ],
)
def test_what_is_hidden_is_untold(untold):
    with pytest.raises(Untold):
        describe(untold)


def operator(name: str, lower) -> Operator:
    made = Operator(name, lambda x, **_: x, lambda x, **_: x, None, batch_first, lower, ())
    del OPERATORS[name]
    return made


def test_keys_of_graphs_with_such_operators():
    x = Variable(Type(np.dtype(np.float32), (3,)), "x")

    def key(lower, **attributes):
        return graph_key(Graph((x,), (operator("odd", lower)(x, **attributes),)), {})

    def twice(node, operands, index):
        return Apply("add", (operands[0](index), operands[0](index)), node.dtype)

    def square(node, operands, index):
        return Apply("multiply", (operands[0](index), operands[0](index)), node.dtype)

    assert key(twice) == key(twice) is not None
    assert key(twice) != key(square)
    assert key(twice, by=doubled) not in (None, key(twice, by=tripled))
    assert key(twice, by=Thing()) is None
    assert key(Thing()) is None
    one, other = operator("odd", twice), operator("odd", square)
    assert graph_key(Graph((x,), (one(x), other(x))), {}) is None
