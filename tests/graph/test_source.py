"""Which line an operation belongs to."""

from __future__ import annotations

import inspect
import threading

import numpy as np

from pullback import numpy as pnp
from pullback.graph import (
    OPERATORS,
    Operation,
    Source,
    Type,
    Variable,
    current_source,
    substitute,
    topological,
    written_at,
)
from pullback.transforms.reverse import cotangents

SIN, COS = OPERATORS["sin"], OPERATORS["cos"]


def variable(*shape: int) -> Variable:
    return Variable(Type(np.dtype("float64"), shape), "x")


def here() -> int:
    """The line that this is called on."""
    return inspect.currentframe().f_back.f_lineno


def test_the_users_line_is_found_through_the_library_and_numpy():
    x = variable(3)
    direct, line = SIN(x), here()
    assert direct.source == Source(
        __file__, line, "test_the_users_line_is_found_through_the_library_and_numpy"
    )
    for node, line in (
        (x * x, here()),
        (pnp.mean(x), here()),
        (np.cos(x), here()),
        (np.concatenate([x, x]), here()),
        (x.min(), here()),
    ):
        assert node.source.file == __file__
        assert node.source.line == line


def test_an_operation_keeps_the_line_that_made_it_first():
    x = variable()
    first, line = SIN(x), here()
    again = SIN(x)
    assert again is first and again.source.line == line


def test_written_at_overrides_and_nests():
    outer, inner = Source("model.py", 1, "outer"), Source("model.py", 2, "inner")
    with written_at(outer):
        with written_at(inner):
            assert current_source() == inner
        assert current_source() == outer
        with written_at(None):
            assert current_source() is None
    assert current_source().file == __file__
    assert str(inner) == "model.py:2 in inner"


def test_written_at_ends_with_an_error():
    try:
        with written_at(None):
            raise KeyError
    except KeyError:
        pass
    assert current_source() is not None


def test_written_at_is_each_threads_own():
    found = []
    with written_at(Source("model.py", 1, "outer")):
        thread = threading.Thread(target=lambda: found.append(current_source()))
        thread.start()
        thread.join()
    assert found[0] != Source("model.py", 1, "outer")


def test_derivatives_belong_to_the_line_of_their_primal():
    x = variable(3)
    squares, first = pnp.sin(x) * x, here()
    total, second = pnp.sum(squares), here()
    (bar,) = cotangents([total], [pnp.ones(()) * pnp.sum(x)], [x])
    primal = set(topological([total]))
    lines = [
        node.source.line for node in topological([bar]) if isinstance(node, Operation) and node not in primal
    ]
    assert first in lines and second in lines
    assert all(node.source.file == __file__ for node in topological([bar]) if isinstance(node, Operation))


def test_substitution_keeps_lines():
    x = variable()
    node, line = COS(SIN(x)), here()
    (moved,) = substitute([node], {x: variable()})
    assert moved is not node and moved.source.line == line == moved.inputs[0].source.line
