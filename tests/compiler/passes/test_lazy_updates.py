"""Rows of tables without a gradient are left alone: by the definition, and by programs that do not look at them."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback import nn, optim
from pullback.compiler.passes import optimise
from pullback.graph import Operation

ROWS, WIDTH = 300, 5
APART, REPEATED = np.array([7, 299, 0, 31]), np.array([[7, 7], [0, 7], [31, 0]])
OPTIMISERS = [
    optim.SGD(0.1),
    optim.SGD(lambda step: 0.5 / (1 + step), momentum=0.9, nesterov=True),
    optim.Adam(0.01, weight_decay=0.1, amsgrad=True),
    optim.AdamW(lambda step: 0.01 / (1 + step)),
    optim.RMSProp(0.01),
]


def _stepped(optimiser):
    def step(tables, state, rows, wanted):
        def loss(tables):
            return np.sum((tables["u"][rows] * tables["bias"] - wanted) ** 2) + np.sum(
                tables["u"][rows[:1]] ** 2
            )

        value, gradients = pb.value_and_grad(loss)(tables)
        tables, state = optimiser.update(gradients, state, tables)
        return tables, state, value

    return step


def _given(rows, optimiser):
    random = np.random.default_rng(0)
    tables = {
        "u": random.normal(size=(ROWS, WIDTH)).astype(np.float32),
        "bias": random.normal(size=WIDTH).astype(np.float32),
    }
    wanted = random.normal(size=(*rows.shape, WIDTH)).astype(np.float32)
    return tables, optimiser.init(tables), rows, wanted


@pytest.mark.parametrize("optimiser", OPTIMISERS, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("rows", [APART, REPEATED], ids=["apart", "repeated"])
def test_touched_rows_step_as_they_would_and_others_stay(optimiser, rows):
    lazy = optim.Lazy(optimiser, rows=100)
    tables, state, rows, wanted = _given(rows, lazy)
    want = _stepped(lazy)
    compiled = pb.jit(_stepped(lazy), donate_argnums=(0, 1))
    known, others = (tables, state), np.setdiff1d(np.arange(ROWS), rows)
    mine = pb.tracing.map_tree(np.copy, (tables, state))
    for _ in range(3):
        *known, value = want(*known, rows, wanted)
        *mine, loss = compiled(*mine, rows, wanted)
        np.testing.assert_allclose(loss, value, rtol=1e-5)
    for one, other in zip(pb.tracing.flatten(mine)[0], pb.tracing.flatten(known)[0], strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-7)
        if np.shape(one) == (ROWS, WIDTH):
            assert not np.array_equal(np.asarray(one)[rows], tables["u"][rows])
    np.testing.assert_array_equal(mine[0]["u"][others], tables["u"][others])


@pytest.mark.parametrize("optimiser", OPTIMISERS, ids=lambda each: type(each).__name__)
def test_a_table_by_itself_steps_as_one_in_a_dict(optimiser):
    """The count of steps, a leaf as the table is, stays a number."""
    lazy, gradient = optim.Lazy(optimiser, rows=3), np.zeros((3, 2))
    gradient[1] = 0.5
    table, tables = np.ones((3, 2)), {"u": np.ones((3, 2))}
    state, states = lazy.init(table), lazy.init(tables)
    for _ in range(3):
        table, state = lazy.update(gradient, state, table)
        tables, states = lazy.update({"u": gradient}, states, tables)
    for one, other in zip(
        pb.tracing.flatten((table, state))[0], pb.tracing.flatten((tables, states))[0], strict=True
    ):
        np.testing.assert_array_equal(one, other, strict=True)


@pytest.mark.parametrize("optimiser", OPTIMISERS, ids=lambda each: type(each).__name__)
def test_what_is_not_trained_and_16_bits_have_the_other_optimisers_state(optimiser):
    """Running statistics, of which the state has a zero each; means of float16 are float32."""
    model = nn.Chain(nn.Dense(5, 6, seed=0), nn.BatchNorm(6))
    model[0].weight = model[0].weight.astype(np.float16)
    model[1].running_mean += 3
    lazy, gradients = optim.Lazy(optimiser, rows=2), pb.tracing.map_tree(np.ones_like, model)
    states = [each.update(gradients, each.init(model), model)[1] for each in (lazy, optimiser)]
    for one, other in zip(*(pb.tracing.flatten(state)[0] for state in states), strict=True):
        np.testing.assert_array_equal(one, other, strict=True)


@pytest.mark.parametrize("optimiser", OPTIMISERS, ids=lambda each: type(each).__name__)
def test_a_step_computes_nothing_for_whole_tables(optimiser):
    lazy = optim.Lazy(optimiser, rows=100)
    graph = optimise(pb.trace(_stepped(lazy), *_given(REPEATED, lazy)).graph)
    whole = [n for n in graph.nodes() if isinstance(n, Operation) and n.shape == (ROWS, WIDTH)]
    assert {node.operator.name for node in whole} == {"scatter_set"}


def test_a_gradient_that_is_needed_as_a_whole_stays_whole():
    lazy = optim.Lazy(optim.SGD(0.1), rows=100)

    def step(table, rows):
        slope = pb.grad(lambda table: np.sum(table[rows] ** 2))(table)
        return lazy.update(slope, (), table)[0], slope

    table = np.ones((ROWS, WIDTH), np.float32)
    moved, slope = pb.jit(step)(table, APART)
    np.testing.assert_allclose(moved, table - np.float32(0.1) * slope, rtol=1e-6)
    graph = optimise(pb.trace(step, table, APART).graph)
    names = {node.operator.name for node in graph.nodes() if isinstance(node, Operation)}
    assert "scatter_set" not in names


def test_rows_that_are_named_with_a_gradient_of_zero_stay():
    """Nor does their velocity change, as that of rows that are not named."""
    lazy = optim.Lazy(optim.SGD(0.1, momentum=0.9), rows=100)

    def step(table, velocity, rows, weights):
        slope = pb.grad(lambda table: np.sum(table[rows] * weights[:, None]))(table)
        return lazy.update(slope, velocity, table)

    table, velocity = np.ones((2, ROWS, WIDTH), np.float32)
    weights = np.array([1, 0, 0, 2], np.float32)
    moved, after = pb.jit(step)(table, velocity, APART, weights)
    changed = np.flatnonzero((moved != 1).any(1))
    assert changed.tolist() == [7, 31]
    assert np.flatnonzero((after != 1).any(1)).tolist() == [7, 31]


def test_small_arrays_take_the_other_steps():
    lazy, plain = optim.Lazy(optim.SGD(0.1, momentum=0.9), rows=100), optim.SGD(0.1, momentum=0.9)
    weights, slope = np.ones((50, 3)), np.zeros((50, 3))
    velocity = np.ones((50, 3))
    for one, other in zip(lazy.update(slope, velocity, weights), plain.update(slope, velocity, weights)):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match="rows is 0"):
        optim.Lazy(optim.SGD(0.1), rows=0)
