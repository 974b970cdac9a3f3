"""Loops whose bodies are equal are one, whoever traced them, and only where none waits for the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.compiler.passes import optimise
from pullback.compiler.passes.joined_loops import joined_loops
from pullback.compiler.passes.loops import scans
from pullback.graph import Graph, Operation, check
from pullback.interpreter import evaluate

Array = Any
RANDOM = np.random.default_rng(2)
W, XS = RANDOM.normal(size=(4, 4)) * 0.5, RANDOM.normal(size=(6, 4))


def loop(xs: Array, init: Any = None, keep: Any = lambda h, x: h.sum()) -> Any:
    start = np.ones_like(xs, shape=(4,)) if init is None else init
    return pb.scan(lambda h, x: (np.tanh(np.sin(h @ W) + x), keep(h, x)), start, xs)


def loss(xs: Array) -> Array:
    h, sums = loop(xs)
    return (h**2).sum() + (sums**2).sum()


def turns(graph: Graph, name: str) -> int:
    """How often the loops of a graph apply an operator."""
    bodies = [(node.attributes["trips"], node.attributes["body"].nodes()) for node in scans(graph)]
    return sum(
        trips * sum(isinstance(n, Operation) and n.operator.name == name for n in nodes)
        for trips, nodes in bodies
    )


def assert_kept(graph: Graph, joined: Graph, *arguments: Array) -> None:
    check(joined)
    for a, b in zip(evaluate(joined, arguments), evaluate(graph, arguments), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "several",
    [
        lambda xs: (loss(xs), pb.grad(loss)(xs)),
        lambda xs: (loss(xs), pb.grad(lambda xs: (pb.grad(loss)(xs) ** 2).sum())(xs)),
        lambda xs: (loss(xs), pb.grad(loss)(xs), pb.jvp(pb.grad(loss), (xs,), (xs,))[1]),
    ],
)
def test_a_function_traced_several_times_runs_its_loop_once(several: Any) -> None:
    graph = pb.trace(several, XS).graph
    assert turns(optimise(graph), "tanh") == len(XS)
    assert_kept(graph, optimise(graph), XS)


def joined(function: Any, *arguments: Array) -> int:
    graph = pb.trace(function, *arguments).graph
    found = joined_loops(graph)
    assert_kept(graph, found, *arguments)
    return len(scans(found))


def test_another_start_or_another_sequence_is_another_loop() -> None:
    assert joined(lambda xs: (loop(xs)[0], loop(xs, xs[0])[0]), XS) == 2
    assert joined(lambda xs: (loop(xs)[0], loop(xs[::-1])[0]), XS) == 2
    assert joined(lambda xs: (loop(xs)[0], loop(xs, keep=lambda h, x: h * x)[1]), XS) == 1


def test_loops_that_wait_for_each_other_stay_two() -> None:
    def after(xs: Array) -> Any:
        h, sums = loop(xs)
        other = pb.scan(
            lambda h, both: (np.tanh(np.sin(h @ W) + both[0]), both[1] * h), np.ones((4,)), (xs, sums)
        )
        return h, other

    assert joined(after, XS) == 2


def test_fewer_carries_among_more_and_equal_starts() -> None:
    def with_count(xs: Array) -> Any:
        def step(carry: Any, x: Array) -> Any:
            n, p, q = carry
            return (n + 1, np.sin(q) + x, p * x), q.sum()

        return pb.scan(step, (0.0, xs[0] * 0, xs[0] * 0), xs)

    def without(xs: Array) -> Any:
        return pb.scan(lambda c, x: ((np.sin(c[1]) + x, c[0] * x), c[0]), (xs[0] * 0, xs[0] * 0), xs)

    assert joined(lambda xs: (with_count(xs), without(xs)), XS) == 1
    assert joined(lambda xs: (without(xs), with_count(xs)), XS) == 1


def test_one_body_over_different_inputs() -> None:
    """The same variables stand for other arrays."""

    def both(xs: Array) -> Any:
        one = pb.scan(lambda h, x: (h * 0.5 + 1, (h + x).sum()), np.ones(4), xs)
        two = pb.scan(lambda h, x: (h * 0.5 + 1, (h * x).sum()), np.ones(4), np.cos(xs))
        return one, two

    assert joined(both, XS) == 1
