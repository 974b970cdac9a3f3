"""Every pass, and every combination of them, keeps what a graph computes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pullback.numpy as pnp
from pullback import grad, nn, one_hot, trace, vmap
from pullback.compiler.passes import PASSES, Pass, optimise
from pullback.graph import Graph, Node, Operation, Variable, check, constant, format_graph
from pullback.interpreter import evaluate
from pullback.operators.elementwise import filled
from pullback.testing import OperatorCase, operator_cases
from pullback.transforms.batching import batched
from pullback.transforms.reverse import cotangents

DTYPES = [np.dtype(name) for name in ("float32", "float64", "int64", "uint8", "bool")]
CASES = list(operator_cases(dtypes=DTYPES))
SEEDS = st.integers(0, 2**32 - 1)


def with_gradients(case: OperatorCase) -> Graph:
    """The case, its cotangents for a seed of ones, and those of the sum of their squares."""
    graph = case.graph()
    wanted = [graph.inputs[k] for k in case.differentiable]
    (output,) = graph.outputs
    if output.dtype.kind != "f" or not wanted:
        return graph
    seed = filled(1, output.dtype, output.shape)
    bars = [bar for bar in cotangents([output], [seed], wanted) if bar is not None]
    return Graph(graph.inputs, (output, *bars))


@pytest.mark.parametrize("name", sorted({case.operator.name for case in CASES}))
def test_operators_and_their_gradients(name: str, assert_kept: Callable) -> None:
    for case in CASES:
        if case.operator.name != name:
            continue
        graph = with_gradients(case)
        exact = {np.dtype(np.float32): 2e-6, np.dtype(np.float64): 1e-14}
        tolerance = max(exact.get(dtype, 0.0) for dtype in case.dtypes) if case.dtypes else 0.0
        for each in PASSES:
            assert_kept(graph, each(graph), case.arguments(), tolerance=tolerance)
        assert_kept(graph, optimise(graph), case.arguments(), tolerance=tolerance)


def test_single_samples_mapped_are_a_batch() -> None:
    """A network for a batch, applied to each sample by itself, becomes what it is for the batch."""
    network = nn.Chain(nn.Conv2d(2, 3, 3), nn.relu, nn.MaxPool2d(2), nn.Reshape(27), nn.Dense(27, 4))

    def loss(network: nn.Chain, x: Node, targets: Node) -> Node:
        return nn.softmax_cross_entropy(network(x), targets)

    def together(network: nn.Chain, x: Node, labels: Node) -> Node:
        return loss(network, x, one_hot(labels, 4))

    def mapped(network: nn.Chain, x: Node, labels: Node) -> Node:
        return vmap(lambda x, label: loss(network, x[None], one_hot(label, 4)[None]))(x, labels).mean()

    x, labels = np.ones((5, 2, 8, 8), np.float32), np.arange(5) % 4
    operators = [
        sorted(
            (node.operator.name, node.shape)
            for node in optimise(trace(grad(function), network, x, labels).graph).nodes()
            if isinstance(node, Operation)
        )
        for function in (together, mapped)
    ]
    assert operators[0] == operators[1]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(seed=SEEDS)
def test_random_graphs(seed: int, random_graph: Callable, assert_kept: Callable) -> None:
    graph, arrays = random_graph(seed)
    after = graph
    for each in PASSES:
        after = each(after)
        assert_kept(graph, after, arrays)
    assert_kept(graph, optimise(graph), arrays)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(seed=SEEDS)
def test_batches_of_random_graphs(seed: int, random_graph: Callable, assert_kept: Callable) -> None:
    """Every combination of batching rules: the batch of what each example gives, and what the passes make of it."""
    graph, arrays = random_graph(seed)
    random = np.random.default_rng(seed)
    chosen = [random.random() < 0.6 for _ in arrays]
    rows = [
        [random.permuted(x.ravel()).reshape(x.shape) if c else x for x, c in zip(arrays, chosen)]
        for _ in "123"
    ]
    inputs = tuple(
        Variable(x.type.with_shape((3, *x.shape))) if c else x for x, c in zip(graph.inputs, chosen)
    )
    after = Graph(inputs, tuple(batched(graph.outputs, graph.inputs, inputs)))
    given_arrays = [np.stack(column) if c else column[0] for column, c in zip(zip(*rows), chosen)]
    each = [evaluate(graph, row) for row in rows]
    for found, one, *examples in zip(evaluate(after, given_arrays), graph.outputs, *each):
        np.testing.assert_array_equal(found, np.stack(examples) if found.ndim > one.ndim else examples[0])
    assert_kept(after, optimise(after), given_arrays)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(seed=SEEDS, chosen=st.lists(st.sampled_from(PASSES), unique=True))
def test_random_graphs_and_passes(
    seed: int, chosen: list[Pass], random_graph: Callable, assert_kept: Callable
) -> None:
    graph, arrays = random_graph(seed)
    assert_kept(graph, optimise(graph, chosen), arrays)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(seed=SEEDS)
def test_a_good_graph_stays_as_it_is(seed: int, random_graph: Callable) -> None:
    graph, _ = random_graph(seed)
    once = optimise(graph)
    assert optimise(once) is once


def test_no_passes() -> None:
    x = Variable(constant(1.0).type, "x")
    graph = Graph((x,), (x * 1.0,))
    assert optimise(graph, ()) is graph


def test_what_is_made_keeps_the_line_that_it_was_written_on(traced: Callable) -> None:
    graph = traced(lambda x: pnp.negative(-x) - x.T.T / 4, ("float32", (3, 2)))
    for node in optimise(graph).nodes():
        if isinstance(node, Operation):
            assert node.source is not None
            assert node.source.file == __file__


def test_long_chains(traced: Callable) -> None:
    def chain(x: Variable) -> Variable:
        for _ in range(1000):
            x = -(x * 1.0).T + x
        return x

    graph = traced(chain, ("float64", (2, 2)))
    after = optimise(graph)
    check(after)
    assert len(after.nodes()) < len(graph.nodes()) / 2


def test_results_may_be_inputs_and_constants(traced: Callable) -> None:
    graph = traced(lambda x: (x * 1, pnp.negative(-x), x / x.dtype.type(1)), ("float32", (2,)))
    after = optimise(graph)
    assert format_graph(after) == "input  %0 x0: float32[2]\noutput %0, %0, %0"
