"""Traces: variables and their names, results, what is closed over, and values that outlive their trace."""

import dataclasses
import threading
from typing import Any

import numpy as np
import pytest

from pullback import grad, jit
from pullback.errors import DTypeError, ShapeError, TracingError, TreeError
from pullback.graph import Constant, Type, check, format_graph
from pullback.tracing import Static, eval_shape, flatten, trace, trace_flat


@dataclasses.dataclass
class Layer:
    weights: Any
    power: int = 2

    def __call__(self, x):
        return (x @ self.weights) ** self.power


def test_variables_are_named_by_their_paths():
    traced = trace(
        lambda layers, x, *, shift: layers[0](x) + shift["by"],
        [Layer(np.ones((2, 2)))],
        np.ones(2),
        shift={"by": 1.0},
    )
    assert [variable.name for variable in traced.graph.inputs] == ["arg0.0.weights", "arg1", "shift.by"]
    check(traced.graph)


def test_operations_know_their_line():
    text = format_graph(trace(lambda x: np.sin(x) + 1, 1.0).graph)
    assert "test_trace.py:" in text
    assert "in <lambda>" in text


def test_python_numbers_are_weak_variables():
    graph = trace(lambda b, i, f, x: (b, i, f, x), True, 2, 0.5, np.float64(1)).graph
    assert [(v.dtype.name, v.type.weak) for v in graph.inputs] == [
        ("bool", True), ("int64", True), ("float64", True), ("float64", False)
    ]  # fmt: skip


def test_types_stand_for_values():
    graph = trace(lambda x: x.sum(), Type(np.dtype("float32"), (100, 3))).graph
    assert str(graph.inputs[0].type) == "float32[100, 3]"


def test_results_are_trees_of_nodes_and_constants():
    traced = trace(lambda x: {"y": x + 1, "n": 3, "z": [np.ones(2), None]}, np.ones(2))
    assert repr(traced.out_structure) == "Structure({'n': *, 'y': *, 'z': [*, None]})"
    assert isinstance(traced.graph.outputs[0], Constant)
    result = traced.evaluate([np.array([1.0, 2.0])])
    np.testing.assert_array_equal(result["y"], [2.0, 3.0])
    assert result["n"] == 3


def test_static_arguments_are_python_values():
    traced = trace(lambda x, n: sum(x for _ in range(n)), 1.0, Static(3))
    assert len(traced.graph.inputs) == 1
    assert traced.evaluate([2.0]) == 6.0


def test_by_structure_and_types():
    structure = flatten(((1.0, np.ones(2)), {}))[1]
    traced = trace_flat(
        np.multiply, structure, [Type(np.dtype("float64"), (), True), Type(np.dtype("float32"), (2,))]
    )
    assert traced.graph.outputs[0].dtype == np.float32
    assert traced.in_structure == structure


@pytest.mark.parametrize("result", ["text", object(), {"a": np.sin}])
def test_a_result_that_is_no_array(result):
    with pytest.raises(TreeError, match="result of a traced function"):
        trace(lambda x: result, 1.0)


@pytest.mark.parametrize("dtype", ["clongdouble", "datetime64[s]", "U3"])
def test_dtypes_that_no_graph_holds(dtype):
    with pytest.raises(DTypeError, match=r"arg0: dtype .* has no place in a graph; cast"):
        trace(np.negative, np.zeros(2, dtype))


def test_results_are_private_arrays():
    x = np.ones(3)
    traced = trace(lambda x: (x, x, np.broadcast_to(x, (2, 3)), x[:1], np.zeros(3)), x)
    results = traced.evaluate([x])
    for result in results:
        result[...] = 7.0
    np.testing.assert_array_equal(x, 1.0)
    np.testing.assert_array_equal(traced.evaluate([x])[4], 0.0)


def test_results_without_axes_are_scalars():
    result = trace(lambda x: x.sum(), np.ones(3, np.float32)).evaluate([np.ones(3, np.float32)])
    assert isinstance(result, np.float32)


def test_variables_of_the_traces_around_are_free():
    inner = []

    def outer(x):
        inner.append(trace(lambda y: x * y, 2.0))
        return x

    traced = trace(outer, 1.0)
    assert inner[0].free == traced.graph.inputs
    assert traced.free == ()


def test_a_value_that_outlives_its_trace():
    kept = []
    trace(kept.append, 1.0)
    with pytest.raises(TracingError, match=r"Variable.arg0: float64.*over.*return it"):
        trace(lambda y: y * kept[0], 2.0)
    with pytest.raises(TracingError, match="is over"):
        grad(lambda y: y * kept[0])(2.0)


def test_a_trace_that_fails_is_over_too():
    kept = []

    def failing(x):
        kept.append(x)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        trace(failing, 1.0)
    with pytest.raises(TracingError, match="is over"):
        trace(lambda: kept[0] + 1)


def test_traces_of_several_threads_do_not_meet():
    results = {}

    def work(number):
        def function(x):
            for _ in range(20):
                x = grad(lambda y: number * y * y)(x)
            return x

        results[number] = trace(function, 1.0).evaluate([1.0])

    threads = [threading.Thread(target=work, args=(number,)) for number in (0.25, 0.5, 1.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: (2 * number) ** 20 for number in (0.25, 0.5, 1.0)}


def test_types_of_results_without_values():
    def function(x, *, scale):
        return {"row": (x @ x[0]) * scale, "place": x.argmax(axis=1), "total": x.sum()}

    for scale in (2.0, np.float64(2), Type(np.dtype(np.float64), ())):
        x = np.ones((4, 4), np.float32)
        found, wanted = eval_shape(function, x, scale=scale), trace(function, x, scale=scale)
        types = [node.type for node in wanted.graph.outputs]
        assert wanted.out_structure.unflatten(types) == found
        if not isinstance(scale, Type):
            values = function(x, scale=scale)
            assert {k: (v.shape, v.dtype) for k, v in found.items()} == {
                k: (np.shape(v), v.dtype) for k, v in values.items()
            }
    inside = []
    jit(lambda x: inside.append(eval_shape(np.outer, x, x)) or x)(np.ones(3))
    assert inside[0].shape == (3, 3)
    with pytest.raises(ShapeError):
        eval_shape(np.matmul, np.ones((2, 3)), np.ones((2, 3)))
