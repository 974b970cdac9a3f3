"""Sums at known places become gathers, whatever the places, the axes and the values are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import pullback as pb
import pullback.numpy as pnp
from pullback.compiler.passes import optimise
from pullback.compiler.passes.gathered_scatters import gathered_scatters
from pullback.graph import OPERATORS, Node, constant

broadcast, scatter_add = OPERATORS["broadcast"], OPERATORS["scatter_add"]
RANDOM = np.random.default_rng(0)


def zeros(shape: tuple[int, ...], value: float = 0.0, dtype: str = "float64") -> Node:
    return broadcast(constant(value, np.dtype(dtype)), shape=shape, axes=())


def summed(shape: tuple[int, ...], axes: tuple[int, ...], *places: np.ndarray) -> Callable[[Node], Node]:
    return lambda updates: scatter_add(
        zeros(shape, dtype=str(updates.dtype)), updates, *map(constant, places), axes=axes
    )


EVEN = RANDOM.permutation(np.arange(60) % 20)
UNEVEN = np.append(np.delete(EVEN, [3, 5]), [7, 7, 7])


@pytest.mark.parametrize(
    ("shape", "axes", "places", "rest"),
    [
        ((20,), (0,), (EVEN,), ()),
        ((20,), (0,), (UNEVEN,), ()),
        ((21,), (0,), (EVEN,), ()),
        ((20, 3), (0,), (EVEN.reshape(4, 15),), (3,)),
        ((3, 20, 2), (1,), (UNEVEN,), (3, 2)),
        ((2, 4, 5), (1, 2), (EVEN // 5, EVEN % 5), (2,)),
        ((4, 3, 5), (0, 2), (EVEN // 5, EVEN % 5), (3,)),
        ((5,), (0,), (np.array(3),), ()),
        ((5, 2), (0,), (np.array(3),), (2,)),
        ((1, 4), (0,), (np.zeros(9, np.int64),), (4,)),
        ((7,), (0,), (np.array([6]),), ()),
        ((7,), (0,), (np.array([0, 0, 0, 0]),), ()),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_values(shape, axes, places, rest, dtype, traced: Callable, names: Callable, assert_kept: Callable):
    """Infinities and NaN stay in the elements that they are added to, and zeros keep their signs."""
    updates = RANDOM.integers(-4, 5, (*places[0].shape, *rest)).astype(dtype)
    graph = traced(summed(shape, axes, *places), (dtype, updates.shape))
    after = gathered_scatters(graph)
    assert "scatter_add" not in names(after)
    for values in (
        updates,
        np.full_like(updates, -0.0),
        RANDOM.choice([1, np.inf, np.nan, -0.0], updates.shape),
    ):
        assert_kept(graph, after, [values.astype(dtype)])
        compiled = pb.jit(summed(shape, axes, *places))(values.astype(dtype))
        wanted = np.zeros(shape, dtype)
        np.add.at(np.moveaxis(wanted, axes, range(len(axes))), places, values.astype(dtype))
        np.testing.assert_array_equal(compiled, wanted)
        np.testing.assert_array_equal(np.signbit(compiled), np.signbit(wanted))


def test_the_order_of_terms(traced: Callable):
    """Those of one element are added in the order of the updates."""
    graph = gathered_scatters(traced(summed((2,), (0,), np.array([1, 0, 1, 0, 0, 1])), ("float64", (6,))))
    tables = [node.value for node in graph.nodes() if hasattr(node, "value") and node.dtype == np.int64]
    np.testing.assert_array_equal(tables, [[[1, 0], [3, 2], [4, 5]]])


def test_the_sum_is_made_as_the_result_lies(traced: Callable):
    """A sum that was turned afterwards would be read across memory by what follows."""
    graph = gathered_scatters(traced(summed((3, 20, 2), (1,), UNEVEN), ("float32", (61, 3, 2))))
    assert [node.operator.name for node in graph.outputs] == ["sum"]


def _stays(updates: Node, places: Node) -> tuple[Node, ...]:
    even = constant(EVEN)
    return (
        scatter_add(zeros((20,)), updates, places, axes=(0,)),
        scatter_add(zeros((20,), -0.0), updates, even, axes=(0,)),
        scatter_add(zeros((20,), 1.0), updates, even, axes=(0,)),
        scatter_add(zeros((20,)), updates, constant(EVEN // 4), axes=(0,)),
        scatter_add(zeros((130,)), updates, even, axes=(0,)),
        scatter_add(zeros((20,), 0, "int64"), places, even, axes=(0,)),
    )


def test_what_stays(traced: Callable):
    """Computed places, other bases, a few elements with most updates, large tables with few, integers."""
    graph = traced(_stays, ("float64", (60,)), ("int64", (60,)))
    assert gathered_scatters(graph) is graph


def test_updates_are_computed_where_they_are_read(traced: Callable, names: Callable, assert_kept: Callable):
    places, inner = EVEN.reshape(20, 3), RANDOM.integers(0, 7, (20, 3))
    weights = RANDOM.integers(-3, 4, 3).astype(float)

    def function(x: Node, table: Node, rows: Node) -> Node:
        spread = broadcast(x, shape=(20, 3), axes=(0,))
        picked = OPERATORS["gather"](table, constant(inner), axes=(0,))
        updates = spread * picked * broadcast(constant(weights), shape=(20, 3), axes=(1,)) - rows
        return summed((20,), (0,), places)(updates)

    arrays = [RANDOM.integers(-3, 4, shape).astype(float) for shape in ((20,), (7,), (20, 3))]
    graph = traced(function, *(("float64", array.shape) for array in arrays))
    after = gathered_scatters(graph)
    assert_kept(graph, after, arrays)
    gathered = [
        node.inputs[0] for node in after.nodes() if getattr(node, "operator", None) is OPERATORS["gather"]
    ]
    assert {id(node) for node in gathered} == {id(node) for node in after.inputs}


def test_what_is_expensive_or_shared_is_computed_once(
    traced: Callable, names: Callable, assert_kept: Callable
):
    def function(x: Node) -> tuple[Node, ...]:
        shared, gathered = x * x * x * x * x * x, summed((20,), (0,), EVEN)
        return gathered(pnp.exp(x)), gathered(shared), shared

    arrays = [RANDOM.integers(-2, 3, 60).astype(float)]
    graph = traced(function, ("float64", (60,)))
    after = gathered_scatters(graph)
    assert names(after).count("multiply") == 5
    assert names(after).count("exp") == 1
    assert_kept(graph, after, arrays, tolerance=1e-12)


def test_reshaped_updates(traced: Callable, names: Callable, assert_kept: Callable):
    def function(x: Node, y: Node) -> Node:
        return summed((20, 2), (0,), EVEN)(pnp.reshape(x * y[:, None, None], (60, 2)))

    arrays = [RANDOM.integers(-3, 4, shape).astype(float) for shape in ((12, 5, 2), (12,))]
    graph = traced(function, *(("float64", array.shape) for array in arrays))
    after = optimise(graph)
    assert "scatter_add" not in names(after)
    assert_kept(graph, after, arrays)


@pytest.mark.parametrize("places", [EVEN, UNEVEN, EVEN.reshape(3, 20), np.arange(500) % 20], ids=len)
def test_gradients(places):
    """Of a table behind a gather, by finite differences."""
    weights = RANDOM.standard_normal((*places.shape, 2))

    def function(x):
        return np.sum(np.sin(x[places]) * weights + x[places][..., :1] ** 2)

    x, direction = RANDOM.standard_normal((2, 20, 2))
    found = pb.jit(pb.grad(function))(x)
    step = 1e-6
    difference = (function(x + step * direction) - function(x - step * direction)) / (2 * step)
    np.testing.assert_allclose(np.sum(found * direction), difference, rtol=1e-7)
    np.testing.assert_allclose(found, pb.grad(function)(x), rtol=1e-11, atol=1e-11)
    again = pb.jit(pb.grad(function))(x)
    np.testing.assert_array_equal(again, found)


def test_batches_and_second_derivatives():
    def function(x):
        return np.sum(x[EVEN] ** 3 * np.arange(60.0))

    xs = RANDOM.standard_normal((3, 20))
    batch = pb.jit(pb.vmap(pb.grad(function)))(xs)
    np.testing.assert_allclose(batch, [pb.grad(function)(x) for x in xs], rtol=1e-12)
    np.testing.assert_allclose(pb.jit(pb.hessian(function))(xs[0]), pb.hessian(function)(xs[0]), rtol=1e-12)
