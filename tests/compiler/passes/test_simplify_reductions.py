"""Reductions run over nothing that needs no reduction."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from pullback import nn
from pullback.compiler.passes import optimise
from pullback.compiler.passes.simplify_reductions import simplify_reductions
from pullback.compiler.passes.simplify_shapes import simplify_shapes
from pullback.graph import OPERATORS, Node
from pullback.interpreter import evaluate

Shape = tuple[int, ...]


def spread(x: Node, shape: Shape, *axes: int) -> Node:
    return OPERATORS["broadcast"](x, shape=shape, axes=axes)


def reduce(name: str, x: Node, *axes: int) -> Node:
    return OPERATORS[name](x, axes=axes)


CASES: dict[str, tuple[Callable[[Node], Node], Shape, list[str]]] = {
    "sum over no axis": (lambda x: reduce("sum", x), (3,), []),
    "sum over one element": (lambda x: reduce("sum", x, 0), (1, 3), ["reshape"]),
    "sum over units and more": (lambda x: reduce("sum", x, 0, 1), (1, 3, 2), ["sum", "reshape"]),
    "prod over one element": (lambda x: reduce("prod", x, 1), (3, 1), ["reshape"]),
    "max over one element": (lambda x: reduce("max", x, 0, 1), (1, 1), ["reshape"]),
    "argmax over one element": (lambda x: reduce("argmax", x, 1), (3, 1), []),
    "argmin over no axis": (lambda x: reduce("argmin", x), (3,), []),
    "argmax over units and more": (lambda x: reduce("argmax", x, 0, 2), (1, 2, 3), ["argmax", "reshape"]),
    "sum of repeated values": (lambda x: reduce("sum", spread(x, (5, 3), 1), 0), (3,), ["multiply", "add"]),
    "sum of one number": (lambda x: reduce("sum", spread(x, (5, 3)), 0, 1), (), ["multiply", "add"]),
    "sum of repeated and other values": (
        lambda x: reduce("sum", spread(x, (5, 3), 1), 0, 1),
        (3,),
        ["sum", "multiply"],
    ),
    "sum of some repeated values": (
        lambda x: reduce("sum", spread(x, (5, 3, 2), 1), 0),
        (3,),
        ["multiply", "add", "broadcast"],
    ),
    "sum of values repeated no time": (lambda x: reduce("sum", spread(x, (0, 3), 1), 0), (3,), []),
    "max of repeated values": (lambda x: reduce("max", spread(x, (5, 3), 1), 0), (3,), []),
    "min of repeated values": (lambda x: reduce("min", spread(x, (5, 3), 1), 0, 1), (3,), ["min"]),
    "argmax of repeated values": (
        lambda x: reduce("argmax", spread(x, (5, 3), 1), 0),
        (3,),
        ["broadcast", "argmax"],
    ),
    "sum of own values": (lambda x: reduce("sum", spread(x, (5, 3), 1), 1), (3,), ["sum", "broadcast"]),
    "argmax of own values": (
        lambda x: reduce("argmax", spread(x, (2, 5, 3), 0, 2), 0, 2),
        (2, 3),
        ["argmax", "broadcast"],
    ),
    "sum of sum": (lambda x: reduce("sum", reduce("sum", x, 1), 0), (2, 3, 4), ["sum"]),
    "max of max": (lambda x: reduce("max", reduce("max", x, 0), 1), (2, 3, 4), ["max"]),
    "prod of prod": (lambda x: reduce("prod", reduce("prod", x, 0), 0), (2, 3), ["prod"]),
    "sum where units were added": (lambda x: reduce("sum", x[:, None, :], 2), (2, 3), ["sum", "reshape"]),
    "argmin where units were dropped": (
        lambda x: reduce("argmin", OPERATORS["reshape"](x, shape=(2, 3)), 0),
        (2, 1, 3),
        ["argmin", "reshape"],
    ),
    "max of rows in another shape": (
        lambda x: reduce("max", OPERATORS["reshape"](x, shape=(3, 2)), 0),
        (2, 3),
        ["reshape", "max"],
    ),
    "sum of max": (lambda x: reduce("sum", reduce("max", x, 0), 0), (2, 3), ["max", "sum"]),
}


@pytest.mark.parametrize("name", CASES)
def test_rules(name: str, traced: Callable, names: Callable, assert_kept: Callable) -> None:
    function, shape, left = CASES[name]
    graph = traced(function, ("float64", shape))
    after = simplify_reductions(graph)
    assert names(after) == left
    x = np.random.default_rng(0).standard_normal(shape)
    assert_kept(graph, after, [x], tolerance=1e-15)


def test_what_is_not_finite_stays_so(traced: Callable, assert_kept: Callable) -> None:
    x = np.array([math.inf, -math.inf, math.nan, -0.0])
    graph = traced(
        lambda x: (reduce("sum", spread(x, (5, 4), 1), 0), reduce("sum", spread(x, (0, 4), 1), 0)),
        ("float64", (4,)),
    )
    assert_kept(graph, simplify_reductions(graph), [x], signs=True)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64"])
def test_sums_of_integers_wrap_around(dtype: str, traced: Callable, assert_kept: Callable) -> None:
    graph = traced(lambda x: reduce("sum", spread(x, (300, 3), 1), 0), (dtype, (3,)))
    limits = np.iinfo(dtype)
    assert_kept(graph, simplify_reductions(graph), [np.array([limits.min, 1, limits.max], dtype)])


def test_equal_values_are_summed_with_one_rounding(traced: Callable) -> None:
    graph = traced(lambda x: reduce("sum", spread(x, (30_000,)), 0), ("float32", ()))
    after = optimise(graph, (simplify_shapes, simplify_reductions))
    x = np.float32(0.1)
    assert evaluate(after, [np.asarray(x)])[0] == np.float32(30_000 * np.float64(x))


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.uint64])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_sum_that_is_one_element_reads_it_at_its_place(axis, dtype, traced, names, assert_kept):
    """What is not at the label may be anything; labels that are no number of the axis choose nothing."""
    random = np.random.default_rng(axis)
    x = random.standard_normal((3, 70, 4) if axis == 1 else (70, 70, 70)).astype(np.float32)
    label = random.integers(0, 90, (*x.shape[:axis], *x.shape[axis + 1 :])).astype(dtype)
    if np.issubdtype(dtype, np.signedinteger):
        label[0] = -1
    x[1, 1], x[2, 2] = np.nan, -0.0

    def picked(x, label):
        number = np.arange(70, dtype=dtype).reshape([-1 if k == axis else 1 for k in range(3)])
        return np.sum(np.where(np.expand_dims(label, axis) == number, x, 0), axis=axis)

    graph = traced(picked, (x.dtype, x.shape), (dtype, label.shape))
    simpler = optimise(graph)
    assert "sum" not in names(simpler)
    assert_kept(graph, simpler, [x, label], signs=True)


def test_sums_over_masks_that_are_no_places_stay(traced, names):
    types = (np.float32, (5, 70)), (np.int64, (5,))
    for other in (
        lambda x, y: np.sum(np.where(y[:, None] == np.arange(1, 71), x, 0), 1),
        lambda x, y: np.sum(np.where(y[:, None] <= np.arange(70), x, 0), 1),
        lambda x, y: np.sum(np.where(y[:, None] == np.arange(70), x, 1), 1),
        lambda x, y: np.sum(np.where(y[:, None] == np.arange(70), x, 0), 0),
        lambda x, y: np.sum(np.where((y[:, None] + np.arange(70)) == np.arange(70), x, 0), 1),
    ):
        assert "sum" in names(optimise(traced(other, *types)))


def test_a_checked_label_is_read_without_a_question(traced, names):
    types = (np.float32, (5, 70)), (np.int64, (5,))
    kept = names(optimise(traced(nn.softmax_cross_entropy, *types)))
    assert kept.count("gather") == 1
    assert "equal" not in kept
