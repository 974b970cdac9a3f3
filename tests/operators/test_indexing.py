"""Indexing operators: what is selected, what is added where, and what an index out of range says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pullback.errors import DTypeError, IndexRangeError, ShapeError
from pullback.graph import Graph, Type, Variable, check
from pullback.interpreter import evaluate
from pullback.loops import Affine, Apply, Axis, Buffer, load_at, walk
from pullback.operators.indexing import check_index, gather
from pullback.operators.scatters import scatter_add
from pullback.operators.shapes import broadcast, iota, reshape, slice, transpose

INT = np.dtype("int64")


def variable(*shape: int, dtype: str = "float64") -> Variable:
    return Variable(Type(np.dtype(dtype), shape), "x")


def whole(shape: tuple[int, ...], start: int = 1) -> np.ndarray:
    """Whole numbers that are all different, whose sums are exact."""
    return np.arange(start, start + int(np.prod(shape))).reshape(shape).astype(float)


@st.composite
def selections(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], list[np.ndarray]]:
    """A shape, axes of it, and indices into these, some of them several times."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    axes = tuple(sorted(draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))))
    index_shape = tuple(draw(st.lists(st.integers(0, 4), max_size=2)))
    seed = draw(st.integers(0, 1000))
    generator = np.random.default_rng(seed)
    return shape, axes, [generator.integers(0, shape[axis], index_shape) for axis in axes]


def selected_by_loops(x: np.ndarray, axes: tuple[int, ...], indices: list[np.ndarray]) -> dict:
    """Each place of the result, with the place of ``x`` that it is read from."""
    kept = [extent for axis, extent in enumerate(x.shape) if axis not in axes]
    places = {}
    for position in np.ndindex(*indices[0].shape):
        for rest in np.ndindex(*kept):
            others = iter(rest)
            chosen = {axis: int(index[position]) for axis, index in zip(axes, indices)}
            places[position + rest] = tuple(
                chosen[axis] if axis in chosen else next(others) for axis in range(x.ndim)
            )
    return places


@given(selections())
@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_gather_and_scatter_add_are_adjoint(loop_value, selection):
    shape, axes, indices = selection
    x, positions = variable(*shape), [variable(*i.shape, dtype="int64") for i in indices]
    array = whole(shape)
    places = selected_by_loops(array, axes, indices)

    node = gather(x, *positions, axes=axes)
    (value,) = evaluate(Graph((x, *positions), (node,)), [array, *indices])
    assert value.shape == node.shape and value.size == len(places)
    for result, source in places.items():
        assert value[result] == array[source]
    np.testing.assert_array_equal(loop_value(node, {x: array, **dict(zip(positions, indices))}), value)

    g, bar = variable(*node.shape), whole(node.shape, 3)
    x_bar, *none = gather.pullback(node, g)
    assert none == [None] * len(indices)
    graph = Graph((g, *positions), (x_bar,))
    check(graph)
    (scattered,) = evaluate(graph, [bar, *indices])
    expected = np.zeros(shape)
    for result, source in places.items():
        expected[source] += bar[result]
    np.testing.assert_array_equal(scattered, expected)


def test_scatter_add_adds_to_its_base_and_leaves_it():
    x, updates, i = variable(3), variable(4), variable(4, dtype="int64")
    node = scatter_add(x, updates, i, axes=(0,))
    base = np.array([10.0, 20.0, 30.0])
    (value,) = evaluate(
        Graph((x, updates, i), (node,)), [base, np.array([1.0, 2, 3, 4]), np.array([2, 0, 2, 2])]
    )
    np.testing.assert_array_equal(value, [12, 20, 38])
    np.testing.assert_array_equal(base, [10, 20, 30])


def test_scatter_add_pullback():
    x, updates, i = variable(3, 2), variable(4, 2), variable(4, dtype="int64")
    node = scatter_add(x, updates, i, axes=(0,))
    g = variable(3, 2)
    x_bar, updates_bar, none = scatter_add.pullback(node, g)
    assert x_bar is g and none is None
    bar, index = whole((3, 2)), np.array([2, 0, 2, 1])
    (value,) = evaluate(Graph((g, i), (updates_bar,)), [bar, index])
    np.testing.assert_array_equal(value, bar[index])


def test_scatter_add_adds_in_the_order_of_positions():
    """One large number among small ones: another order would give another sum."""
    x, updates, i = (variable(1, dtype="float32"), variable(4, dtype="float32"), variable(4, dtype="int64"))
    node = scatter_add(x, updates, i, axes=(0,))
    parts = np.array([1.0, 2**24, 1.0, -(2**24)], np.float32)
    (value,) = evaluate(
        Graph((x, updates, i), (node,)), [np.zeros(1, np.float32), parts, np.zeros(4, np.int64)]
    )
    total = np.float32(0)
    for part in parts:
        total += part
    assert value.dtype == np.float32 and value[0] == total != parts.astype(float).sum()


def test_gather_reads_through_views(loop_value):
    """The gathered index goes through shape operators below it, as arithmetic on integers."""
    x, i = variable(4, 6), variable(5, dtype="int64")
    view = transpose(slice(reshape(x, shape=(3, 8)), starts=(0, 1), stops=(3, 8), steps=(1, 2)), axes=(1, 0))
    node = gather(view, check_index(i, extent=4, what="row"), axes=(0,))
    array, index = whole((4, 6)), np.array([3, -4, 1, -1, 2])
    expected = array.reshape(3, 8)[:, 1:8:2].T[index]
    np.testing.assert_array_equal(loop_value(node, {x: array, i: index}), expected)


def test_gather_checks_an_index_that_does_not_matter(loop_value):
    x, i = variable(1), variable(3, dtype="int64")
    repeated = broadcast(x, shape=(4,), axes=(0,))
    node = gather(repeated, check_index(i, extent=4, what="row"), axes=(0,))
    np.testing.assert_array_equal(loop_value(node, {x: np.array([7.0]), i: np.array([0, -4, 3])}), [7, 7, 7])
    with pytest.raises(IndexRangeError, match="row: 4 at position"):
        loop_value(node, {x: np.array([7.0]), i: np.array([0, 4, 3])})


@pytest.mark.parametrize("dtype", ["int64", "uint8", "int16"])
def test_check_index_lowers_to_a_checked_int64(dtype):
    i = variable(3, dtype=dtype)
    node = check_index(i, extent=7, what="token")
    buffer, axis = Buffer("i", np.dtype(dtype), (3,)), Axis("i", 3)
    value = check_index.lower(node, [lambda index: load_at(buffer, index)], [Affine.of(axis)])
    assert isinstance(value, Apply) and value.function == "check_index" and value.dtype == INT
    assert dict(value.attributes) == {"extent": 7, "what": "token", "wrap": True, "source": node.source}
    functions = [part.function for part in walk(value) if isinstance(part, Apply)]
    assert functions == (["check_index"] if dtype == "int64" else ["cast", "check_index"])
    assert value.operands[0].dtype == INT


def checked(index, extent, **attributes):
    array = np.asarray(index)
    i = variable(*array.shape, dtype=str(array.dtype))
    node = check_index(i, extent=extent, what="index", **attributes)
    (value,) = evaluate(Graph((i,), (node,)), [array])
    assert value.dtype == INT
    return value.tolist()


def test_check_index_gives_positions():
    assert checked([0, -1, -3, 2], 3) == [0, 2, 0, 2]
    assert checked([0, 2], 3, wrap=False) == [0, 2]
    assert checked(np.array([250, 3], np.uint8), 251) == [250, 3]
    assert checked(np.zeros((0,), np.int64), 0) == []


@pytest.mark.parametrize(
    ("index", "extent", "attributes", "said"),
    [
        ([0, 3], 3, {}, r"index: 3 at position \(1,\) is outside -3 to 2; "),
        ([[0], [-4]], 3, {}, r"index: -4 at position \(1, 0\) is outside -3 to 2; "),
        (-1, 3, {"wrap": False}, r"index: -1 is outside 0 to 2; "),
        ([0], 0, {}, r"index: 0 at position \(0,\) is outside an axis of no elements; "),
    ],
)
def test_check_index_names_the_value_and_the_range(index, extent, attributes, said):
    with pytest.raises(IndexRangeError, match=said):
        checked(index, extent, **attributes)


X, PLACES = variable(3, 4), variable(2, dtype="int64")


@pytest.mark.parametrize(
    ("misuse", "error", "said"),
    [
        (lambda: gather(X, axes=()), ShapeError, "0 indices"),
        (
            lambda: gather(X, PLACES, axes=(0, 1)),
            ShapeError,
            r"1 indices for axes \(0, 1\) of float64\[3, 4\]",
        ),
        (lambda: gather(X, PLACES, PLACES, axes=(1, 0)), ShapeError, "rising order"),
        (lambda: gather(X, PLACES, axes=(2,)), ShapeError, r"axes \(2,\) of shape \(3, 4\)"),
        (
            lambda: gather(X, PLACES, variable(3, dtype="int64"), axes=(0, 1)),
            ShapeError,
            r"\(2,\) and \(3,\) differ",
        ),
        (lambda: gather(X, variable(2, dtype="int32"), axes=(0,)), DTypeError, r"int32.*\.astype"),
        (lambda: gather(X, variable(2), axes=(0,)), DTypeError, r"float64.*\.astype"),
        (
            lambda: scatter_add(X, variable(2, 3), PLACES, axes=(0,)),
            ShapeError,
            r"\(2, 3\).*broadcast.*\(2, 4\)",
        ),
        (
            lambda: scatter_add(X, variable(2, 4, dtype="float32"), PLACES, axes=(0,)),
            DTypeError,
            "float64 and float32",
        ),
        (
            lambda: scatter_add(variable(3, dtype="bool"), variable(2, dtype="bool"), PLACES, axes=(0,)),
            DTypeError,
            "no bool",
        ),
        (lambda: check_index(variable(2), extent=3, what="label"), DTypeError, r"label: float64.*\.astype"),
        (lambda: check_index(variable(2, dtype="bool"), extent=3, what="index"), DTypeError, "bool"),
    ],
)
def test_misuse_names_shapes_and_repair(misuse, error, said):
    with pytest.raises(error, match=said):
        misuse()


def test_gather_at_counted_positions_reads_plainly():
    """``x[arange(3), labels]``: the counted index is a stride, only the label is computed."""
    labels = Buffer("labels", INT, (3,))
    node = gather(
        variable(3, 4), iota(shape=(3,), axis=0, dtype=INT), variable(3, dtype="int64"), axes=(0, 1)
    )
    axis, table = Affine.of(Axis("i", 3)), Buffer("x", np.dtype("float64"), (3, 4))
    value = gather.lower(
        node,
        [
            lambda index: load_at(table, index),
            lambda index: iota.lower(node.inputs[1], [], index),
            lambda index: load_at(labels, index),
        ],
        [axis],
    )
    assert value is load_at(table, [axis, load_at(labels, [axis])])
    assert len(value.dynamic) == 1 and value.offset == axis * 4
