"""Constants are folded exactly where they may be."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pullback.compiler.passes import optimise
from pullback.compiler.passes.broadcast_late import broadcast_late
from pullback.compiler.passes.fold_constants import fold_constants
from pullback.graph import OPERATORS, Constant, Graph, Operation, constant
from pullback.operators.elementwise import filled

FLOAT = np.dtype(np.float32)


def value(graph: Graph) -> np.ndarray:
    (output,) = fold_constants(graph).outputs
    assert isinstance(output, Constant)
    return output.value


def test_small_constants_are_computed() -> None:
    x, y = constant(np.arange(6.0).reshape(2, 3)), constant(np.arange(3.0))
    made = OPERATORS["contract"](x, y, a_labels=(0, 1), b_labels=(1,), out_labels=(0,))
    np.testing.assert_array_equal(value(Graph((), (made,))), [5.0, 14.0])


def test_numbers_stay_broadcast() -> None:
    made = filled(1, FLOAT, (3, 50)) / filled(4, FLOAT, (3, 50))
    (output,) = optimise(Graph((), (made,)), [fold_constants, broadcast_late]).outputs
    assert isinstance(output, Operation)
    assert output.operator.name == "broadcast"
    assert output.shape == (3, 50)
    assert isinstance(output.inputs[0], Constant)
    assert output.inputs[0].value == np.float32(0.25)
    assert output.dtype == FLOAT


def test_uniform_constants_become_numbers(names: Callable) -> None:
    for array in (np.full((20, 30), -0.0), np.full((2,), 7, np.uint8), np.ones((3, 1), bool)):
        (output,) = fold_constants(Graph((), (constant(array),))).outputs
        assert names(Graph((), (output,))) == []
        assert isinstance(output, Operation)
        single = output.inputs[0]
        assert isinstance(single, Constant)
        assert single.shape == ()
        assert single.value.tobytes() == array[:1, ...].reshape(-1)[:1].tobytes()


def test_zeros_of_both_signs_are_not_one_number() -> None:
    mixed = constant(np.array([0.0, -0.0, 0.0]))
    graph = Graph((), (mixed,))
    assert fold_constants(graph) is graph


def test_large_results_are_not_computed(traced: Callable, names: Callable) -> None:
    column, row = constant(np.arange(30.0)), constant(np.arange(30.0))
    outer = OPERATORS["contract"](column, row, a_labels=(0,), b_labels=(1,), out_labels=(0, 1))
    graph = Graph((), (outer,))
    assert fold_constants(graph) is graph


def test_counting_stays_counting() -> None:
    graph = Graph((), (OPERATORS["iota"](shape=(3,), axis=0, dtype=np.dtype(np.int64)),))
    assert fold_constants(graph) is graph


def test_a_wrong_index_is_found_when_the_program_runs() -> None:
    index = OPERATORS["check_index"](constant(np.array([7])), extent=3, what="axis 0")
    graph = Graph((), (index,))
    assert fold_constants(graph) is graph


def test_a_negative_power_of_integers_is_left(names: Callable) -> None:
    made = OPERATORS["power"](constant(np.array([2, 3])), constant(np.array([-1, -2])))
    assert names(fold_constants(Graph((), (made,)))) == ["power"]


def test_what_is_invalid_folds_without_a_warning() -> None:
    made = constant(np.array([0.0, 1.0, -1.0])) / constant(np.array([0.0, 0.0, 0.0]))
    np.testing.assert_array_equal(value(Graph((), (made,))), [np.nan, np.inf, -np.inf])
