"""``contract`` against ``numpy.einsum``: values, cotangents, loop form and errors."""

from __future__ import annotations

import string

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pullback.errors import DTypeError, ShapeError
from pullback.graph import Graph, Type, Variable, check
from pullback.interpreter import evaluate
from pullback.loops import Affine, Apply, Axis, Buffer, Literal, Reduce, load_at
from pullback.operators.products import contract


def variable(*shape: int, dtype: str = "float64") -> Variable:
    return Variable(Type(np.dtype(dtype), shape), "x")


def whole(shape: tuple[int, ...], start: int) -> np.ndarray:
    """Whole numbers, whose sums of products are exact in any order."""
    return (np.arange(start, start + int(np.prod(shape))) % 7 - 3).reshape(shape).astype(float)


def einsum(a: np.ndarray, b: np.ndarray, a_labels, b_labels, out_labels) -> np.ndarray:
    letters = [
        "".join(string.ascii_letters[k] for k in labels) for labels in (a_labels, b_labels, out_labels)
    ]
    return np.einsum(f"{letters[0]},{letters[1]}->{letters[2]}", a, b)


@st.composite
def products(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, tuple[int, ...]]]:
    """Shapes and labels in any order, with every kind of label and extents 0, 1 and more."""
    kinds = draw(st.lists(st.sampled_from(["batch", "rows", "columns", "summed"]), max_size=5))
    extents = [draw(st.integers(0, 4)) for _ in kinds]
    a = draw(st.permutations([k for k, kind in enumerate(kinds) if kind != "columns"]))
    b = draw(st.permutations([k for k, kind in enumerate(kinds) if kind != "rows"]))
    out = draw(st.permutations([k for k, kind in enumerate(kinds) if kind != "summed"]))
    labels = {"a_labels": tuple(a), "b_labels": tuple(b), "out_labels": tuple(out)}
    return tuple(extents[k] for k in a), tuple(extents[k] for k in b), labels


@given(products())
@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_every_labelling_is_einsum(loop_value, product):
    a_shape, b_shape, labels = product
    a, b = variable(*a_shape), variable(*b_shape)
    x, y = whole(a_shape, 1), whole(b_shape, 3)
    node = contract(a, b, **labels)
    expected = einsum(x, y, **labels)
    np.testing.assert_array_equal(evaluate(Graph((a, b), (node,)), [x, y])[0], expected, strict=True)
    np.testing.assert_array_equal(loop_value(node, {a: x, b: y}), expected)

    seed, bar = variable(*node.shape), whole(node.shape, 2)
    a_bar, b_bar = contract.pullback(node, seed)
    graph = Graph((a, b, seed), (a_bar, b_bar))
    check(graph)
    got = evaluate(graph, [x, y, bar])
    out, of_a, of_b = labels["out_labels"], labels["a_labels"], labels["b_labels"]
    np.testing.assert_array_equal(got[0], einsum(bar, y, out, of_b, of_a), strict=True)
    np.testing.assert_array_equal(got[1], einsum(x, bar, of_a, out, of_b), strict=True)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint16", "int64"])
def test_dtype_is_kept(dtype):
    a, b = variable(2, 3, dtype=dtype), variable(3, 2, dtype=dtype)
    node = contract(a, b, a_labels=(0, 1), b_labels=(1, 2), out_labels=(0, 2))
    x, y = np.full((2, 3), 9, dtype), np.full((3, 2), 5, dtype)
    (value,) = evaluate(Graph((a, b), (node,)), [x, y])
    assert node.dtype == value.dtype == dtype
    # 8-bit integers wrap around, as NumPy's do.
    np.testing.assert_array_equal(value, np.full((2, 2), 135).astype(dtype))


def test_loop_form():
    """A sum over fresh axes of a product of loads; axes of one turn and sums of nothing leave no loop."""
    a, b = Buffer("a", np.dtype("float64"), (2, 3)), Buffer("b", np.dtype("float64"), (3, 4))
    operands = [lambda index, buffer=buffer: load_at(buffer, index) for buffer in (a, b)]
    labels = {"a_labels": (0, 1), "b_labels": (1, 2), "out_labels": (0, 2)}
    index = [Affine.of(Axis("i", 2)), Affine.of(Axis("j", 4))]

    value = contract.lower(contract(variable(2, 3), variable(3, 4), **labels), operands, index)
    assert isinstance(value, Reduce) and value.kind == "add"
    (axis,) = value.over
    assert axis.extent == 3
    inner = Affine.of(axis)
    factors = (load_at(a, [index[0], inner]), load_at(b, [inner, index[1]]))
    assert value.body is Apply("multiply", factors, np.dtype("float64"))

    single = contract.lower(contract(variable(2, 1), variable(1, 4), **labels), operands, index)
    assert isinstance(single, Apply) and single.function == "multiply"
    nothing = contract.lower(contract(variable(2, 0), variable(0, 4), **labels), operands, index)
    assert nothing is Literal(0, np.dtype("float64"))


A, B = variable(2, 3), variable(3, 4)


@pytest.mark.parametrize(
    ("b", "labels", "error", "said"),
    [
        (
            B,
            ((0, 1), (0, 1), ()),
            ShapeError,
            r"\(2, 3\).*\(3, 4\).*label 0 is 2 long in one and 3 in the other",
        ),
        (B, ((0, 1), (1, 2), (0,)), ShapeError, "label 2 is in one only.*sum over that axis first"),
        (B, ((0, 1), (1, 2), (0, 2, 3)), ShapeError, "label 3 is in neither.*broadcast"),
        (B, ((0, 1), (1,), (0,)), ShapeError, "a label of its own"),
        (B, ((0, 0), (1, 2), (0, 1, 2)), ShapeError, "diagonal"),
        (B, ((0, 1), (1, 2), (0, 2, 2)), ShapeError, "a label of its own"),
        (
            variable(3, 4, dtype="float32"),
            ((0, 1), (1, 2), (0, 2)),
            DTypeError,
            r"float64 and float32.*\.astype",
        ),
    ],
)
def test_misuse_names_shapes_and_repair(b, labels, error, said):
    a_labels, b_labels, out_labels = labels
    with pytest.raises(error, match=said):
        contract(A, b, a_labels=a_labels, b_labels=b_labels, out_labels=out_labels)


def test_booleans_are_refused():
    flags = variable(2, dtype="bool")
    with pytest.raises(DTypeError, match=r"no bool.*\.astype"):
        contract(flags, flags, a_labels=(0,), b_labels=(0,), out_labels=())
