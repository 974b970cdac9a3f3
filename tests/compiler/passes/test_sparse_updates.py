"""Gradient descent on a table of which few rows are touched: in place, at these rows, and right."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback import nn, optim
from pullback.compiler.passes import optimise
from pullback.compiler.passes.sparse_updates import sparse_updates
from pullback.compiler.stages import check_stages
from pullback.errors import IndexRangeError

RANDOM = np.random.default_rng(0)
ROWS, WIDTH, PICKED = 400, 8, 12
TABLE = RANDOM.standard_normal((ROWS, WIDTH)).astype(np.float32)
APART = RANDOM.permutation(ROWS)[:PICKED]
SAME = np.array([3, 399, 3, 0, 3, 7, 0, 7, 7, 8, 9, 3])
SLOPES = RANDOM.standard_normal((PICKED, WIDTH)).astype(np.float32)
PLACES = {"apart": APART, "same": SAME, "one": np.full(PICKED, 5), "negative": -1 - APART}


def gradient(table, rows, slopes):
    return pb.grad(lambda table: np.sum(table[rows] * slopes))(table)


def descended(table, rows, slopes, rate=0.3):
    return table - rate * gradient(table, rows, slopes)


def sparse(function, *arguments) -> bool:
    """Whether the table, the first argument, is updated at few places."""
    graph = pb.trace(function, *arguments).graph
    return any(
        node.inputs[0] is graph.inputs[0]
        for node in optimise(graph).nodes()
        if node.inputs and node.operator.name == "scatter_add"
    )


FOUND = {
    "descent": descended,
    "ascent of the negative": lambda t, r, g: t + -0.3 * gradient(t, r, g),
    "two factors": lambda t, r, g: t - 0.5 * (0.25 * gradient(t, r, g)),
    "a quotient": lambda t, r, g: t - gradient(t, r, g) / 8,
    "twice": lambda t, r, g: t - 0.5 * (gradient(t, r, g) + gradient(t, r[::-1] // 2, 2 * g)),
    "two gathers": lambda t, r, g: t - 0.5 * pb.grad(lambda t: np.sum(t[r] * t[r // 2] * g))(t),
    "other shapes": lambda t, r, g: (
        t - 0.5 * pb.grad(lambda t: np.sum(t[r.reshape(3, 4)] ** 2) + np.sum(t[r[:5]] ** 2))(t)
    ),
    "the optimiser's": lambda t, r, g: optim.SGD(0.25).update(gradient(t, r, g), (), t)[0],
    "an axis within": lambda t, r, g: t - 0.5 * pb.grad(lambda t: np.sum(t[:, r[:1] % 8] ** 3))(t),
    "elements": lambda t, r, g: t - 0.5 * pb.grad(lambda t: np.sum(t[r, r % 8] ** 2))(t),
}
LEFT = {
    "a factor that is given": lambda t, r, g: t - g[0, 0] * gradient(t, r, g),
    "infinity": lambda t, r, g: t - np.float32(np.inf) * gradient(t, r, g),
    "not a number": lambda t, r, g: t - np.float32(np.nan) * gradient(t, r, g),
    "ascent": lambda t, r, g: t + 0.3 * gradient(t, r, g),  # -0.0 + 0.0 is 0.0
    "descent of the negative": lambda t, r, g: t - -0.3 * gradient(t, r, g),
    "gradient returned": lambda t, r, g: (descended(t, r, g), gradient(t, r, g)),
    "clipped": lambda t, r, g: t - optim.clip_by_norm(gradient(t, r, g), 1.0),
    "momentum": lambda t, r, g: optim.SGD(0.1, momentum=0.9).update(gradient(t, r, g), np.ones_like(t), t)[0],
    "many rows": lambda t, r, g: t - 0.3 * gradient(t, np.tile(r, 10), np.tile(g, (10, 1))),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_is_found(name):
    assert sparse(FOUND[name], TABLE, APART, SLOPES)


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left(name):
    assert not sparse(LEFT[name], TABLE, APART, SLOPES)


@pytest.mark.parametrize("rows", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("name", [*FOUND, *LEFT])
def test_values(name, rows):
    """As NumPy's, whatever is donated."""
    function = (FOUND | LEFT)[name]
    if (rows < 0).any() and name in ("twice", "two gathers", "an axis within", "elements"):
        rows = rows + ROWS
    with np.errstate(invalid="ignore"):
        expected = pb.trace(function, TABLE, rows, SLOPES).evaluate([TABLE, rows, SLOPES])
    for options in ({}, {"donate_argnums": 0}):
        found = pb.jit(function, **options)(TABLE.copy(), rows, SLOPES)
        for one, other in zip(*(x if isinstance(x, tuple) else (x,) for x in (found, expected))):
            np.testing.assert_allclose(one, other, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.parametrize("rows", [APART, SAME], ids=["apart", "same"])
def test_every_stage(name, rows, compiler):
    graph = pb.trace(FOUND[name], TABLE, rows, SLOPES).graph
    for processor in compiler.processors:
        check_stages(graph, [TABLE, rows, SLOPES], processor, {0: 0})


def test_bits_of_what_is_named_once():
    """Signs of zeros, infinities and NaN too, in rows that are touched and in others."""
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -2.5, 1e-45], np.float32)
    table = np.resize(special, (ROWS, WIDTH))
    slopes = np.resize(np.repeat(special, WIDTH), (64, WIDTH))
    rows = RANDOM.permutation(ROWS)[:64]
    with np.errstate(invalid="ignore"):
        dense = np.zeros_like(table)
        np.add.at(dense, rows, slopes)
        expected = table - np.float32(0.5) * dense
    assert sparse(lambda *a: descended(*a, rate=0.5), table, rows, slopes)
    found = pb.jit(lambda *a: descended(*a, rate=0.5), donate_argnums=0)(table.copy(), rows, slopes)
    np.testing.assert_array_equal(found, expected)
    zeros = expected == 0
    np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(expected[zeros]))


def factorisation(tables, i, j, ratings):
    def loss(tables):
        return np.mean((np.sum(tables["u"][i] * tables["v"][j], axis=1) - ratings) ** 2)

    value, slopes = pb.value_and_grad(loss)(tables)
    return optim.SGD(0.5).update(slopes, (), tables)[0], value


def ratings(count, rows, seed=0):
    random = np.random.default_rng(seed)
    return (
        random.integers(0, rows, count),
        random.integers(0, rows, count),
        random.standard_normal(count).astype(np.float32),
    )


def tables(rows, width=16):
    random = np.random.default_rng(1)
    return {name: random.standard_normal((rows, width)).astype(np.float32) for name in "uv"}


def test_tables_stay_where_they_are():
    """Though each gradient reads rows of the other table, and indices are checked."""
    given = tables(20_000)
    arguments = given, *ratings(256, 20_000)
    compiled = pb.jit(factorisation, donate_argnums=0)
    expected, loss = factorisation({name: table.copy() for name, table in given.items()}, *arguments[1:])
    found, value = compiled(*arguments)
    assert found["u"] is given["u"] and found["v"] is given["v"]
    assert value == pytest.approx(loss, rel=1e-5)
    for name in "uv":
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, atol=1e-6)
    assert compiled.memory_bytes(*arguments) < given["u"].nbytes / 4


def test_a_wrong_index_changes_nothing():
    given = tables(1000)
    before = {name: table.copy() for name, table in given.items()}
    i, j, wanted = ratings(64, 1000)
    compiled = pb.jit(factorisation, donate_argnums=0)
    for index in (i, j):
        kept, index[-1] = index[-1], 1000
        with pytest.raises(IndexRangeError, match="1000 at position"):
            compiled(given, i, j, wanted)
        index[-1] = kept
    for name in "uv":
        np.testing.assert_array_equal(given[name], before[name])
    compiled(given, i, j, wanted)
    assert not np.array_equal(given["u"], before["u"])


def test_the_same_bits_for_any_number_of_threads():
    i, j, wanted = ratings(3000, 500)
    results = []
    before = pb.get_num_threads()
    try:
        for threads in (1, 2, 3):
            pb.set_num_threads(threads)
            compiled = pb.jit(factorisation, donate_argnums=0)
            for _ in range(3):
                results.append(compiled(tables(20_000), i, j, wanted)[0])
    finally:
        pb.set_num_threads(before)
    for found in results[1:]:
        for name in "uv":
            np.testing.assert_array_equal(found[name], results[0][name])


def test_many_steps():
    given, steps = tables(5_000), 7
    data = [np.stack(column) for column in zip(*(ratings(64, 5_000, seed) for seed in range(steps)))]
    one = {name: table.copy() for name, table in given.items()}
    compiled = pb.jit(factorisation, donate_argnums=0)
    (many, losses), done = compiled.run_steps((given, *data), steps, (1, 2, 3))
    for step in range(steps):
        one, loss = compiled(one, *(column[step] for column in data))
        assert loss == losses[step]
    assert done == steps
    for name in "uv":
        np.testing.assert_array_equal(many[name], one[name])


def test_an_embedding_learns():
    embedding = nn.Embedding(300, 4)
    rows = np.arange(0, 40, 2)

    def step(layer, rows):
        value, slopes = pb.value_and_grad(lambda layer: np.mean((layer(rows) - 1) ** 2))(layer)
        return optim.SGD(2.0).update(slopes, (), layer)[0], value

    compiled = pb.jit(step, donate_argnums=0)
    losses = []
    for _ in range(200):
        embedding, loss = compiled(embedding, rows)
        losses.append(float(loss))
    assert losses[-1] < losses[0] / 10


def test_long_chains_take_time_in_proportion():
    """Neither recursion nor a table of all that every one of them is made of."""

    def function(t, r, g):
        slope = gradient(t, r, g)
        for _ in range(3000):
            slope = slope * 0.999
        for _ in range(3000):
            t = t + t
        return t - slope

    graph = pb.trace(function, TABLE, APART, SLOPES).graph
    assert sparse_updates(graph) is graph
