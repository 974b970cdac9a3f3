"""The interpreter: values, order, memory."""

from __future__ import annotations

import gc
import weakref

import numpy as np

from pullback import interpreter
from pullback.graph import Case, Graph, Node, Operator, Sample, Type, Variable, constant
from pullback.graph.operator import OPERATORS
from pullback.operators.arithmetic import add, divide, multiply
from pullback.operators.batching import batch_first
from pullback.operators.transcendental import exp, log


def variable(dtype: str = "float64", shape: tuple[int, ...] = (3,)) -> Variable:
    return Variable(Type(np.dtype(dtype), shape), "x")


def test_outputs_in_their_order() -> None:
    x = variable()
    y = multiply(x, x)
    total, square, same = interpreter.evaluate(Graph((x,), (add(y, x), y, x)), [np.array([1.0, 2.0, 3.0])])
    assert total.tolist() == [2, 6, 12]
    assert square.tolist() == [1, 4, 9]
    assert same.tolist() == [1, 2, 3]


def test_arguments_are_taken_in_the_graphs_dtype() -> None:
    x = variable("float32", ())
    (value,) = interpreter.evaluate(Graph((x,), (exp(x),)), [0.0])
    assert value.dtype == np.float32
    assert value.shape == ()
    assert value == 1


def test_constants_may_be_outputs() -> None:
    assert interpreter.evaluate(Graph((), (constant(3.0),)), [])[0] == 3


def test_a_shared_node_is_computed_once() -> None:
    x = variable()
    y = exp(x)
    seen: list[Node] = []
    interpreter.evaluate(
        Graph((x,), (add(y, y), multiply(y, y))), [np.zeros(3)], lambda node, _: seen.append(node)
    )
    assert len(seen) == 4
    assert sum(node is y for node in seen) == 1


def test_inputs_are_watched_before_their_users() -> None:
    x = variable()
    y = exp(x)
    z = log(y)
    seen: list[Node] = []
    interpreter.evaluate(Graph((x,), (z,)), [np.zeros(3)], lambda node, _: seen.append(node))
    assert [id(node) for node in seen] == [id(x), id(y), id(z)]


def test_arithmetic_raises_no_warnings() -> None:
    x = variable()
    (value,) = interpreter.evaluate(Graph((x,), (divide(x, x),)), [np.zeros(3)])
    assert np.isnan(value).all()


def test_values_are_dropped_after_their_last_use() -> None:
    alive: list[int] = []
    made: list[weakref.ref[np.ndarray]] = []

    def reference(x: np.ndarray) -> np.ndarray:
        alive.append(sum(known() is not None for known in made))
        result = x + 1
        made.append(weakref.ref(result))
        return result

    step = Operator("step", lambda x: x, reference, None, batch_first, None, (Case((Sample((3,)),)),))
    try:
        x = variable()
        node: Node = x
        for _ in range(10):
            node = step(node)
        gc.collect()
        (value,) = interpreter.evaluate(Graph((x,), (node,)), [np.zeros(3)])
    finally:
        del OPERATORS["step"]
    assert value.tolist() == [10, 10, 10]
    assert max(alive) <= 2
