"""``at(x)[index]`` and ``x[index]`` compiled, for indices of every kind, against NumPy's own."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.compiler.build import build
from pullback.compiler.target import Processor
from pullback.graph import OPERATORS, Graph, Type, Variable
from pullback.interpreter import evaluate
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


@pytest.mark.parametrize("method", ["max", "min"])
@pytest.mark.parametrize("columns", [1, 2, 20])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_positive_zeros_are_larger_than_negative_ones(method, columns, dtype, compiler, traced):
    random = np.random.default_rng(columns)
    x = random.choice(np.array([0.0, -0.0, -1.0, 1.0], dtype), (5, columns))
    values = random.choice(np.array([0.0, -0.0], dtype), (12, columns))
    places = random.integers(0, 5, 12)
    larger = x.copy()
    for place, row in zip(places, values):
        for k, value in enumerate(row):
            both = larger[place, k], value
            # The signs tell two zeros apart.
            key = [(number, not np.signbit(number)) for number in both]
            larger[place, k] = both[key.index({"max": max, "min": min}[method](key))]
    graph = traced(lambda x, i, v: update(x, method, i, v), x, places, values)
    found = update(x, method, places, values), evaluate(graph, [x, places, values])[0]
    compiled = [
        compiler.run(graph, [x, places, values], processor=processor)[0] for processor in compiler.processors
    ]
    for each in (*found, *compiled):
        np.testing.assert_array_equal(np.signbit(each), np.signbit(larger))
        np.testing.assert_array_equal(each, larger)


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


@pytest.mark.parametrize("method", [*EXACT, "power"])
def test_gradients_of_many_updates(method, compiler, traced):
    """What is accumulated on is one memory for all threads: no thread has the base of a scatter to itself."""
    random = np.random.default_rng(0)
    x, v = random.uniform(0.9, 1.1, 50), random.uniform(0.99, 1.01, 2000)
    i = random.integers(-50, 50, 2000)
    graph = traced(pb.grad(lambda x, v, i: (update(x, method, i, v) ** 2).sum(), (0, 1)), x, v, i)
    compiler.assert_same(graph, [x, v, i], rounding=2000)


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


@pytest.mark.parametrize("name", ["scatter_add", "scatter_set", "scatter_multiply"])
def test_counted_places_that_overlap(name, compiler, processor):
    """Places that are sums of loops' own counts: each element takes its updates in the order of the positions."""
    shape = (7, 33)
    x, updates = (Variable(Type(np.dtype(np.float32), s)) for s in ((39,), shape))
    counts = [OPERATORS["iota"](shape=shape, axis=axis, dtype=np.dtype(np.int64)) for axis in (0, 1)]
    graph = Graph((x, updates), (OPERATORS[name](x, updates, counts[0] + counts[1], axes=(0,)),))
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(s).astype(np.float32) for s in ((39,), shape)]
    compiler.assert_same(graph, arrays, processor=processor)


def test_slices_need_no_computed_places(traced):
    texts = []
    build(
        traced(lambda x: x.at[::2, 1].set(0), np.zeros((6, 4))),
        {},
        Processor.host(),
        watch=lambda stage: stage.kernels and texts.append([format_kernel(k) for k in stage.kernels]),
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


# -- what an index selects


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_every_kind_of_selection(rank, dtype, compiler, traced):
    x, weights = drawn(SHAPE[:rank], dtype), drawn(1000, dtype, 1)
    cases = indices(rank) if rank < 3 else indices(rank)[dtype == "float32" :: 4]

    def weighted(x, index, w):
        return (x[index] * values_for(np.zeros(x.shape), index, w)).sum()

    def function(x, w):
        bars = [pb.grad(lambda x, index=index: weighted(x, index, w))(x) for index in cases]
        return [x[index] for index in cases], bars

    found = compiler.run(traced(function, x, weights), [x, weights])
    values, bars = found[: len(cases)], found[len(cases) :]
    for index, value, bar in zip(cases, values, bars, strict=True):
        np.testing.assert_array_equal(value, x[index], f"at {index}")
        wanted = updated(np.zeros_like(x), "add", index, values_for(x, index, weights))
        np.testing.assert_allclose(bar, wanted, rtol=1e-6, err_msg=f"at {index}")


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_selections_by_traced_indices(rank, compiler, traced):
    x, weights = drawn(SHAPE[:rank], "float32"), drawn(1000, "float32", 1)
    cases = list(traced_indices(rank))

    def function(x, w, i, j):
        def weighted(x, of):
            return (x[of(i, j)] * values_for(np.zeros(x.shape), of(*TRACED), w)).sum()

        return [x[of(i, j)] for of in cases], [pb.grad(lambda x, of=of: weighted(x, of))(x) for of in cases]

    found = compiler.run(traced(function, x, weights, *TRACED), [x, weights, *TRACED])
    for of, value, bar in zip(cases, found, found[len(cases) :]):
        index = of(*TRACED)
        np.testing.assert_array_equal(value, x[index], f"at {index}")
        wanted = updated(np.zeros_like(x), "add", index, values_for(x, index, weights))
        np.testing.assert_allclose(bar, wanted, rtol=1e-6, err_msg=f"at {index}")


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_take_and_take_along_axis(axis, compiler, traced, processor):
    x = drawn((3, 4, 5), "float32")
    places = np.array([[2, -1], [0, -3], [2, 2]])
    extent = x.size if axis is None else x.shape[axis]
    along = np.random.default_rng(0).integers(-extent, extent, 7 if axis is None else (3, 4, 5))

    def function(x, i, along):
        results = [
            np.take(x, i, axis),
            np.take(x, i * 3, axis, mode="wrap"),
            np.take(x, i * 3, axis, mode="clip"),
            np.take(x, places, axis),
            np.take_along_axis(x, along, axis),
        ]
        return results

    def gradient(x, i, along):
        return pb.grad(lambda x: sum((y**2).sum() for y in function(x, i, along)))(x)

    arrays = [x, places, along]
    for found, want in zip(
        compiler.run(traced(function, *arrays), arrays, processor=processor), function(*arrays)
    ):
        np.testing.assert_array_equal(found, want)
    compiler.assert_same(traced(gradient, *arrays), arrays, processor=processor, rounding=16)


def test_tokens_from_the_end_and_named_again(compiler, traced):
    """The gradient of a table: rows named many times, by negative tokens too, and by none."""
    table, tokens = drawn((6, 3), "float32"), np.array([[5, -1, 0], [-6, 5, 2]])

    def gradient(table, tokens):
        return pb.grad(lambda table: (table[tokens] ** 2).sum())(table)

    wanted = np.zeros_like(table)
    np.add.at(wanted, tokens, 2 * table[tokens])
    (found,) = compiler.run(traced(gradient, table, tokens), [table, tokens])
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    embedding = nn.Embedding(6, 3, seed=0)
    bar = pb.jit(pb.grad(lambda e, i: (e(i) ** 2).sum()))(embedding, tokens % 6)
    wanted = np.zeros_like(embedding.weight)
    np.add.at(wanted, tokens, 2 * embedding.weight[tokens])
    np.testing.assert_allclose(bar.weight, wanted, rtol=1e-6)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0), (0, 3, 2)])
def test_of_nothing(shape, compiler, traced):
    """Arrays without elements, and indices that name none."""
    table, index = drawn((4, 5), "float32"), np.zeros(shape, np.int64)
    empty = np.zeros((0, 4), np.float32)

    def function(table, empty, index):
        rows = table[index]
        return (
            rows,
            pb.grad(lambda table: (table[index] ** 2).sum())(table),
            table.at[index].set(rows),
            table.at[index].multiply(rows),
            pb.grad(lambda table: (table.at[index].power(table[index]) ** 2).sum())(table),
            empty.at[:, 1].add(1),
            empty.at[..., index].set(0),
            pb.grad(lambda empty: empty.at[:, [1, 1]].multiply(2.0).sum())(empty),
        )

    arrays = [table, empty, index]
    compiler.assert_same(traced(function, *arrays), arrays)
