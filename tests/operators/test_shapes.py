"""Shape operators: lowering, adjoints and errors that are special to them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pullback.errors import DTypeError, PullbackError, ShapeError
from pullback.graph import Graph, Node, Type, Variable, constant
from pullback.interpreter import evaluate
from pullback.loops import Affine, Axis, Buffer, Load, load_at, row_major, walk
from pullback.operators.concatenation import concatenate
from pullback.operators.indexing import check_index, gather
from pullback.operators.shapes import broadcast, iota, pad, reshape, reverse, slice, transpose

FLOAT = np.dtype("float64")


def variable(*shape: int, dtype: str = "float64") -> Variable:
    return Variable(Type(np.dtype(dtype), shape), "x")


def counted(shape: tuple[int, ...], dtype: str = "float64") -> np.ndarray:
    """Numbers that are all different, so that no element can stand for another."""
    return np.arange(1, 1 + int(np.prod(shape))).reshape(shape).astype(dtype)


def by_pullback(node: Node, x: Variable, seed: np.ndarray) -> np.ndarray:
    """The cotangent of ``x`` through a chain of operations of which each has one input."""
    bar: Node = constant(seed, FLOAT)
    while node is not x:
        (bar,) = node.operator.pullback(node, bar)
        (node,) = node.inputs
    return evaluate(Graph((), (bar,)), [])[0]


@st.composite
def chains(draw: st.DrawFn) -> tuple[Variable, Node]:
    """One to five shape operators in a row."""
    extents = st.integers(1, 4)
    x = variable(*draw(st.lists(extents, min_size=0, max_size=3)))
    node: Node = x
    for _ in range(draw(st.integers(1, 5))):
        rank = node.ndim
        kind = draw(st.sampled_from(["broadcast", "reshape", "transpose", "slice", "reverse", "pad"]))
        if kind == "broadcast" and node.size <= 100:
            places = draw(st.sets(st.integers(0, rank), max_size=1))
            axes = tuple(k for k in range(rank + len(places)) if k not in places)
            shape = [draw(extents) for _ in range(rank + len(places))]
            for k, extent in zip(axes, node.shape):
                shape[k] = extent if extent != 1 else shape[k]
            node = broadcast(node, shape=tuple(shape), axes=axes)
        elif kind == "reshape":
            node = reshape(node, shape=draw(factorisations(node.size)))
        elif kind == "transpose":
            node = transpose(node, axes=tuple(draw(st.permutations(range(rank)))))
        elif kind == "slice":
            starts = tuple(draw(st.integers(0, extent)) for extent in node.shape)
            stops = tuple(draw(st.integers(start, extent)) for start, extent in zip(starts, node.shape))
            steps = tuple(draw(st.integers(1, 3)) for _ in range(rank))
            node = slice(node, starts=starts, stops=stops, steps=steps)
        elif kind == "reverse":
            node = reverse(
                node,
                axes=tuple(sorted(draw(st.sets(st.sampled_from(range(rank)) if rank else st.nothing())))),
            )
        elif node.size <= 100:
            widths = [tuple(draw(st.integers(0, 2)) for _ in range(rank)) for _ in range(2)]
            node = pad(node, low=widths[0], high=widths[1])
    return x, node


@st.composite
def factorisations(draw: st.DrawFn, size: int) -> tuple[int, ...]:
    """A shape of ``size`` elements."""
    if size == 0:
        return draw(st.sampled_from([(0,), (0, 3), (2, 0)]))
    shape = []
    while size > 1:
        shape.append(draw(st.sampled_from([d for d in range(2, size + 1) if size % d == 0])))
        size //= shape[-1]
    for _ in range(draw(st.integers(0, 2))):
        shape.insert(draw(st.integers(0, len(shape))), 1)
    return tuple(shape)


@given(chains())
@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_chains_lower_and_transpose(loop_value, chain):
    x, node = chain
    array = counted(x.shape)
    (expected,) = evaluate(Graph((x,), (node,)), [array])
    np.testing.assert_array_equal(loop_value(node, {x: array}), expected)
    if node is not x:
        # Whole numbers, so the two inner products of an adjoint pair are equal, not only close.
        seed = counted(node.shape)[::-1] if node.ndim else counted(node.shape)
        assert np.vdot(seed, expected) == np.vdot(by_pullback(node, x, seed), array)


@pytest.mark.parametrize("shape", [(6, 20), (24, 5), (120,), (2, 3, 4, 5), (5, 4, 6), (6, 1, 4, 5), (8, 15)])
def test_reshapes_of_memory_are_plain_loads(shape):
    """An array in memory is read with plain strides in any shape: no division in the loop."""
    stored = Buffer("x", FLOAT, (6, 4, 5))
    between = reshape(variable(6, 4, 5), shape=(3, 40))
    node = reshape(between, shape=shape)

    def operand(index):
        return reshape.lower(between, [lambda inner: load_at(stored, inner)], index)

    axes = [Axis("i", extent) for extent in shape]
    index = [Affine.of(axis) for axis in axes]
    flat = Affine.total(i * stride for i, stride in zip(index, row_major(shape)))
    assert reshape.lower(node, [operand], index) is Load(stored, flat)


def test_padded_gather(loop_value):
    x, i = variable(3), variable(2, dtype="int64")
    node = pad(gather(x, check_index(i, extent=3, what="index"), axes=(0,)), low=(2,), high=(1,))
    value = loop_value(node, {x: np.array([1.0, 2.0, 3.0]), i: np.array([-1, 0])})
    np.testing.assert_array_equal(value, [0, 0, 3, 1, 0])


def test_what_is_concatenated_lies_in_order():
    """NumPy puts parts that are broadcast in another order, in which it would sum them in another order, too."""
    part = np.broadcast_to(np.arange(4.0), (64, 4, 4))
    assert not np.concatenate([part, part]).flags.c_contiguous
    assert concatenate.reference(part, part, axis=0).flags.c_contiguous


def test_concatenated_parts_are_read_where_they_are():
    """A slice of a concatenation that lies inside one part is a plain load of that part."""
    a, b = variable(4), variable(5)
    joined = concatenate(a, b, axis=0)
    buffers = [Buffer("a", FLOAT, (4,)), Buffer("b", FLOAT, (5,))]
    operands = [lambda index, buffer=buffer: load_at(buffer, index) for buffer in buffers]
    axis = Axis("i", 4)
    inside = concatenate.lower(joined, operands, [Affine.of(axis) + 5])
    assert inside is load_at(buffers[1], [Affine.of(axis) + 1])
    across = concatenate.lower(joined, operands, [Affine.of(axis) + 2])
    loads = [part for part in walk(across) if isinstance(part, Load)]
    assert {load.buffer for load in loads} == set(buffers)
    assert all(load.guard is not None for load in loads)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float32"])
def test_dtype_is_kept(dtype):
    x = variable(2, 3, dtype=dtype)
    nodes = [
        broadcast(x, shape=(2, 2, 3), axes=(1, 2)),
        reshape(x, shape=(6,)),
        transpose(x, axes=(1, 0)),
        slice(x, starts=(0, 1), stops=(2, 3), steps=(1, 2)),
        reverse(x, axes=(0,)),
        pad(x, low=(1, 0), high=(0, 0)),
        concatenate(x, x, axis=1),
    ]
    array = (counted((2, 3)) % 2).astype(dtype)
    for node in nodes:
        assert node.dtype == dtype
        reference = node.operator.reference(*([array] * len(node.inputs)), **node.attributes)
        assert reference.dtype == dtype and reference.shape == node.shape


X = variable(2, 3)


@pytest.mark.parametrize(
    ("misuse", "error", "said"),
    [
        (
            lambda: broadcast(X, shape=(2, 4), axes=(0, 1)),
            ShapeError,
            r"\(2, 3\).*\(2, 4\).*3 meets 4.*reshape",
        ),
        (lambda: broadcast(X, shape=(3, 2), axes=(1, 0)), ShapeError, "rising order"),
        (lambda: broadcast(X, shape=(2, 3), axes=(0,)), ShapeError, "axes"),
        (lambda: broadcast(X, shape=(2, 3), axes=(0, 2)), ShapeError, "axes"),
        (lambda: broadcast(X, shape=(2, -3), axes=(0, 1)), ShapeError, "negative extent"),
        (lambda: reshape(X, shape=(4, 2)), ShapeError, r"\(2, 3\) holds 6 elements and \(4, 2\) 8"),
        (lambda: reshape(X, shape=(-2, -3)), ShapeError, "negative extent"),
        (lambda: transpose(X, axes=(0, 0)), ShapeError, "exactly once"),
        (lambda: transpose(X, axes=(0,)), ShapeError, "exactly once"),
        (lambda: transpose(variable(), axes=(0,)), ShapeError, "scalar"),
        (lambda: slice(X, starts=(0, 2), stops=(2, 4), steps=(1, 1)), ShapeError, r"\[2:4\] along axis 1"),
        (lambda: slice(X, starts=(2, 0), stops=(1, 3), steps=(1, 1)), ShapeError, r"\[2:1\] along axis 0"),
        (lambda: slice(X, starts=(0, 0), stops=(2, 3), steps=(1, 0)), ShapeError, "steps are 1 or more"),
        (lambda: slice(X, starts=(0,), stops=(2, 3), steps=(1, 1)), ShapeError, "one for each of its 2 axes"),
        (lambda: reverse(X, axes=(1, 0)), ShapeError, "rising order"),
        (lambda: reverse(X, axes=(2,)), ShapeError, r"axes \(2,\)"),
        (lambda: pad(X, low=(0, -1), high=(0, 0)), ShapeError, "slice to cut"),
        (lambda: pad(X, low=(0,), high=(0, 0)), ShapeError, "one for each of its 2 axes"),
        (lambda: concatenate(axis=0), ShapeError, "at least one"),
        (lambda: concatenate(X, axis=2), ShapeError, "axis 2"),
        (lambda: concatenate(variable(), axis=0), ShapeError, "stack"),
        (lambda: concatenate(X, variable(3, 3), axis=1), ShapeError, r"\(2, 3\) and \(3, 3\) along axis 1"),
        (lambda: concatenate(X, variable(2), axis=0), ShapeError, r"\(2, 3\) and \(2,\)"),
        (lambda: concatenate(X, variable(2, 3, dtype="int64"), axis=0), DTypeError, r"\.astype"),
        (lambda: iota(shape=(2,), axis=1, dtype=FLOAT), ShapeError, "axis 1"),
        (lambda: iota(shape=(2,), axis=0, dtype=np.dtype(bool)), DTypeError, "bool"),
    ],
)
def test_misuse_names_shapes_repair_and_line(misuse, error, said):
    with pytest.raises(error, match=said) as caught:
        misuse()
    assert isinstance(caught.value, PullbackError)
    assert f"{__file__}:{misuse.__code__.co_firstlineno} in <lambda>" in str(caught.value)
