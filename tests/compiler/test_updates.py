"""``at(x)[index]`` compiled: values against NumPy's ``ufunc.at``, gradients against the interpreter."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import pullback as pb
from pullback.compiler.build import build
from pullback.compiler.runtime.processor import Processor
from pullback.loops.printer import format_kernel

METHODS = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "power": np.power,
    "max": np.maximum,
    "min": np.minimum,
}
EXACT = ["set", "add", "subtract", "multiply", "divide", "max", "min"]
INTEGERS = ["set", "add", "subtract", "multiply", "max", "min"]
ENTRIES = [
    1,
    -1,
    slice(None),
    slice(None, None, 2),
    slice(None, None, -2),
    slice(1, 3),
    slice(0, 0),
    np.array([2, -1, 2]),
    np.array([[1], [-3]]),
]
SHAPE = (3, 4, 5)
REPEATED = ENTRIES[-2]


def indices(rank):
    """Every combination of entries, with new axes and ellipses among them, and masks."""
    entries = ENTRIES if rank < 3 else [ENTRIES[k] for k in (1, 2, 3, 4, 7, 8)]
    found = list(itertools.product(entries, repeat=rank))
    found += [(None, *found[k][:1], None, *found[k][1:]) for k in range(0, len(found), 9)]
    found += [(...,), (..., REPEATED), (REPEATED, ...), (1, ...), (..., -1, None)]
    if rank > 1:
        found += [(REPEATED, ..., REPEATED), (REPEATED, None, REPEATED), (REPEATED, ..., 1)]
    mask = np.arange(np.prod(SHAPE[:rank])).reshape(SHAPE[:rank]) % 3 > 0
    return [*found, mask, np.arange(SHAPE[0]) != 1]


def drawn(shape, dtype, seed=0):
    random = np.random.default_rng(seed)
    values = random.uniform(0.5, 2.5, shape) if np.dtype(dtype).kind == "f" else random.integers(1, 9, shape)
    return values.astype(dtype)


def updated(x, method, index, value):
    """What NumPy makes of a copy."""
    result = x.copy()
    if method == "set":
        result[index] = value
    else:
        METHODS[method].at(result, index, value)
    return result


def update(x, method, index, value):
    return getattr(pb.at(x)[index], method)(value)


def values_for(x, index, values):
    shape = np.empty(x.shape, bool)[index].shape
    return values[: int(np.prod(shape))].reshape(shape)


def chosen(rank, methods):
    """Each index with one of the methods, by turns, but "add" with all of them."""
    every = indices(rank)
    found = [("add", index) for index in every]
    others = [method for method in methods if method != "add"]
    return found + [(others[k % len(others)], index) for k, index in enumerate(every)]


@pytest.mark.parametrize(("number", "dtype"), list(enumerate(["float32", "float64", "int32"])))
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_every_kind_of_index(rank, number, dtype, compiler, traced):
    """In every dtype; those in three dimensions are many, and shared out among the dtypes."""
    methods = EXACT if np.dtype(dtype).kind == "f" else INTEGERS
    x, values = drawn(SHAPE[:rank], dtype), drawn(1000, dtype, 1)
    cases = chosen(rank, methods)
    if rank == 3:
        cases = cases[number::3]
    graph = traced(lambda x, v: [update(x, m, i, values_for(x, i, v)) for m, i in cases], x, values)
    for (method, index), found in zip(cases, compiler.run(graph, [x, values]), strict=True):
        wanted = updated(x, method, index, values_for(x, index, values))
        np.testing.assert_array_equal(found, wanted, f"{method} at {index}")


TRACED = np.array([1, -2, 1]), np.array([[2], [-1]])
"""What is traced when an index is made of traced ones."""


def traced_indices(rank):
    """Indices made of traced ones: by themselves, beside others, broadcast against each other, apart."""
    yield lambda i, j: i
    yield lambda i, j: i[0]
    yield lambda i, j: (None, i)
    if rank > 1:
        yield lambda i, j: (slice(None), i)
        yield lambda i, j: (i, i)
        yield lambda i, j: (slice(None, None, -2), i)
        yield lambda i, j: (i, slice(1, None, 2))
        yield lambda i, j: (i, j)
        yield lambda i, j: (i[0], slice(None, None, 2))
        yield lambda i, j: (i, -1)
        yield lambda i, j: (2 * (i % 2), i)
    if rank > 2:
        yield lambda i, j: (i, slice(None), i)
        yield lambda i, j: (slice(None), i, j)
        yield lambda i, j: (i, slice(0, 3, 2), j)
        yield lambda i, j: (i, slice(None), np.array([0, 0, 1]))
        yield lambda i, j: (slice(None, None, -1), slice(None), i)
        yield lambda i, j: (..., i)
        yield lambda i, j: (i, np.array([[1], [1]]), i)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_traced_indices(rank, dtype, compiler, traced):
    methods = EXACT if np.dtype(dtype).kind == "f" else INTEGERS
    x, values = drawn(SHAPE[:rank], dtype), drawn(1000, dtype, 1)
    i, j = TRACED
    cases = list(itertools.product(methods, traced_indices(rank)))
    graph = traced(
        lambda x, v, i, j: [
            update(x, m, of(i, j), values_for(np.zeros(x.shape), of(*TRACED), v)) for m, of in cases
        ],
        x,
        values,
        i,
        j,
    )
    for (method, of), found in zip(cases, compiler.run(graph, [x, values, i, j]), strict=True):
        wanted = updated(x, method, of(i, j), values_for(x, of(i, j), values))
        np.testing.assert_array_equal(found, wanted, f"{method} at {of(i, j)}")


@pytest.mark.parametrize("method", [*EXACT, "power"])
def test_gradients(method, compiler, traced):
    """Of known and traced places, named once and again, against the interpreter."""
    x, values = drawn((3, 4), "float64"), drawn(100, "float64", 1)
    known = indices(2)[::4]

    def loss(x, v, i, j):
        parts = [update(x, method, index, values_for(np.zeros((3, 4)), index, v)) for index in known]
        for of in traced_indices(2):
            parts.append(update(x, method, of(i, j), values_for(np.zeros((3, 4)), of(*TRACED), v)))
        return sum(((k + 1) * part**2).sum() for k, part in enumerate(parts))

    arrays = [x, values, *TRACED]
    graph = traced(pb.grad(loss, (0, 1)), *arrays)
    compiler.assert_same(graph, arrays, rounding=64)


@pytest.mark.parametrize("method", [*EXACT, "power"])
def test_second_order(method, compiler, traced):
    x, v, i = drawn((4, 2), "float64"), drawn((5, 2), "float64", 1), np.array([2, 0, 2, 2, 1])

    def loss(x, v, i):
        return (update(x, method, i, v) ** 3).sum()

    def slope(x, v, i):
        bars = pb.grad(loss, (0, 1))(x, v, i)
        return sum((bar**2).sum() for bar in bars)

    compiler.assert_same(traced(pb.grad(slope, (0, 1)), x, v, i), [x, v, i], rounding=256)
    compiler.assert_same(traced(pb.jacobian(pb.grad(loss, 1), 1), x, v, i), [x, v, i], rounding=256)


@pytest.mark.parametrize("method", [*EXACT, "power"])
def test_batches(method, compiler, traced):
    x, v = drawn((5, 3, 2), "float64"), drawn((5, 4, 2), "float64", 1)
    i = np.random.default_rng(0).integers(-3, 3, (5, 4))

    def gradient(x, v, i):
        return pb.grad(lambda x, v: (update(x, method, i, v) ** 2).sum(), (0, 1))(x, v)

    for axes in ((0, 0, 0), (None, 0, 0), (0, None, None), (None, None, 0)):
        given = [a if axis == 0 else a[0] for a, axis in zip((x, v, i), axes)]
        compiler.assert_same(traced(pb.vmap(gradient, axes), *given), given, rounding=64)


@pytest.mark.parametrize("method", [*EXACT, "power"])
@pytest.mark.parametrize("rows", [1, 3, 700])
def test_many_updates_are_made_in_one_order(rows, method, compiler, traced, processor):
    """Enough for several chunks: each element still gets its own in the order of the positions."""
    random = np.random.default_rng(rows)
    x, v = drawn((rows, 5), "float32"), random.uniform(0.9, 1.1, (9000, 5)).astype(np.float32)
    i = random.integers(-rows, rows, 9000)
    graph = traced(lambda x, v, i: (update(x, method, i, v), update(x[:, 0], method, i, v[:, 0])), x, v, i)
    rounding = 20000 if method == "power" else 0
    compiler.assert_same(graph, [x, v, i], processor=processor, rounding=rounding)


@pytest.mark.parametrize("method", ["set", "multiply", "max"])
def test_updates_of_donated_arrays(method):
    """In place, before and after the old values are read."""
    step = pb.jit(lambda x, v, i: (update(x, method, i, v), x.sum()), donate_argnums=0)
    x, v, i = drawn((6, 3), "float32"), drawn((4, 3), "float32", 1), np.array([5, 0, 5, -1])
    wanted, total = updated(x, method, i, v), x.sum()
    found, before = step(x, v, i)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_allclose(before, total, rtol=1e-6)


def test_places_of_a_stride_that_is_no_axis(compiler, traced):
    """Flat places, as of ``x[::2]``: a product of indices, two of them, and sums that belong to no axis."""
    x, v = drawn(36, "float64"), drawn(18, "float64", 1)
    i = np.array([0, 2, 1, 0, 2, 2])

    def function(x, v, i):
        rows, columns = i[:, None] * 2, np.arange(3)
        return [
            x.at[rows * 6 + columns].add(v.reshape(6, 3)),
            x.at[rows * 4 + i[:, None] + columns * 5].set(v.reshape(6, 3)),
            x.at[5 * i[::-1] + 7 * i + 3].multiply(v[:6]),
        ]

    rows, columns = i[:, None] * 2, np.arange(3)
    wanted = [
        updated(x, "add", rows * 6 + columns, v.reshape(6, 3)),
        updated(x, "set", rows * 4 + i[:, None] + columns * 5, v.reshape(6, 3)),
        updated(x, "multiply", 5 * i[::-1] + 7 * i + 3, v[:6]),
    ]
    for found, want in zip(compiler.run(traced(function, x, v, i), [x, v, i]), wanted, strict=True):
        np.testing.assert_array_equal(found, want)


def test_slices_need_no_computed_places(traced):
    texts = []
    build(
        traced(lambda x: x.at[::2, 1].set(0), np.zeros((6, 4))),
        {},
        Processor.host(),
        watch=lambda stage, _, kernels: texts.append([format_kernel(kernel) for kernel in kernels]),
    )
    assert any("result0[8*i + 1] set= 0.0" in text for text in texts[0])


@pytest.mark.parametrize("method", ["set", "add", "multiply"])
def test_an_index_out_of_range_changes_nothing(method):
    step = pb.jit(lambda x, i: update(x, method, i, 2), donate_argnums=0)
    x = drawn((6, 3), "float32")
    before = x.copy()
    with pytest.raises(pb.errors.IndexRangeError, match=r"-7 at position \(1,\)"):
        step(x, np.array([0, -7]))
    np.testing.assert_array_equal(x, before)
