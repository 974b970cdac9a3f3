"""Loops whose backward pass runs steps again: the same values and derivatives, less memory, as many runs as stated."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.compiler.passes import PASSES, optimise
from pullback.compiler.plan import plan
from pullback.compiler.stages import check_stages
from pullback.compiler.target import Processor
from pullback.control.schedules import kept_carries, levels_of, most_levels, most_steps, segments
from pullback.errors import ShapeError, TreeError
from pullback.graph import Graph, Operation, check, regions
from pullback.interpreter import evaluate

Array = Any
RANDOM = np.random.default_rng(5)
W = RANDOM.normal(size=(4, 4)) * 0.5
WAYS = ("sqrt", "recursive", 2, (3,), (5, 2))


def loss(w: Array, xs: Array, checkpoint: Any, reverse: bool = False) -> Array:
    def step(h: Array, x: Array) -> Any:
        h = np.tanh(np.sin(h @ w) + x)
        return h, {"sum": h.sum(), "row": x * h[0]}

    h, kept = pb.scan(step, np.ones_like(xs, shape=(4,)), xs, reverse=reverse, checkpoint=checkpoint)
    return (h**2).sum() + (kept["sum"] ** 2).sum() + (kept["row"] * xs).sum()


def bounded(w: Array, xs: Array, checkpoint: Any, reverse: bool = False) -> Array:
    """Turns as long as something holds, each an inner loop of counted turns."""

    def turn(h: Array) -> Array:
        return pb.fori_loop(0, 3, lambda i, h: np.tanh(h @ w) + i + xs[0], h, checkpoint=checkpoint)

    return pb.while_loop(lambda h: h.sum() < 20, turn, xs[0], max_steps=len(xs), checkpoint=checkpoint).sum()


def nested(w: Array, xs: Array, checkpoint: Any, reverse: bool = False) -> Array:
    """A loop in a loop, and a loop without a state."""

    def outer(h: Array, x: Array) -> Any:
        return pb.scan(lambda k, part: (np.tanh(k @ w) + part, k), h, xs * x, checkpoint=checkpoint)

    h, kept = pb.scan(outer, xs[0], xs, reverse=reverse, checkpoint=checkpoint)
    return (h**2).sum() + (pb.map(lambda k: np.sin(k @ w), kept, checkpoint=checkpoint) ** 2).sum()


CASES = {"loop": loss, "bounded": bounded, "nested": nested}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Any:
    return CASES[request.param]


def steps(count: int) -> Array:
    return np.random.default_rng(count).normal(size=(count, 4)) * 0.5


def assert_close(found: Any, wanted: Any, tolerance: float = 1e-11) -> None:
    for a, b in zip(pb.flatten(found)[0], pb.flatten(wanted)[0], strict=True):
        assert np.shape(a) == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * (1 + np.abs(b).max(initial=0)))


@pytest.mark.parametrize(("count", "reverse"), [(1, False), (2, True), (7, False), (7, True), (12, False)])
def test_values_and_derivatives(count: int, reverse: bool) -> None:
    xs = steps(count)
    wanted = pb.jit(pb.value_and_grad(lambda w, xs: loss(w, xs, None, reverse), (0, 1)))(W, xs)
    for way in WAYS:
        function = pb.value_and_grad(lambda w, xs, way=way: loss(w, xs, way, reverse), (0, 1))
        assert_close(function(W, xs), wanted)
        assert_close(pb.jit(function)(W, xs), wanted)


def test_no_step() -> None:
    function = pb.jit(pb.value_and_grad(lambda xs: loss(W, xs, "sqrt")))
    value, gradient = function(np.zeros((0, 4)))
    assert value == 4
    assert gradient.shape == (0, 4)


def test_every_derivative(case: Any) -> None:
    xs = steps(5)  # two segments of two, and one left over

    def slope(way: Any) -> Any:
        gradient = pb.grad(lambda w, xs: case(w, xs, way), (0, 1))
        return pb.grad(lambda w, xs: sum((g * np.cos(g)).sum() for g in gradient(w, xs)), (0, 1))

    for transform in (
        lambda way: pb.value_and_grad(lambda w, xs: case(w, xs, way), (0, 1)),
        *([slope] if case is not nested else []),  # which is many loops to compile
        lambda way: lambda w, xs: pb.jvp(lambda w, xs: case(w, xs, way), (w, xs), (np.cos(w), np.sin(xs))),
        lambda way: (
            lambda w, xs: pb.vmap(pb.grad(lambda w, xs: case(w, xs, way)), (None, 0))(w, np.stack([xs, -xs]))
        ),
    ):
        assert_close(pb.jit(transform("sqrt"))(W, xs), transform(None)(W, xs), 1e-9)


def test_every_pass(case: Any) -> None:
    arguments = [W, steps(4)]
    graph = pb.trace(pb.value_and_grad(lambda w, xs: case(w, xs, (3,)), (0, 1)), *arguments).graph
    wanted = evaluate(graph, arguments)
    for each in PASSES:
        graph = each(graph)
        check(graph)
        assert_close(evaluate(graph, arguments), wanted)


def test_every_stage(described: Processor) -> None:
    arguments = [W, steps(4)]
    graph = pb.trace(pb.value_and_grad(lambda w, xs: loss(w, xs, (3,)), (0, 1)), *arguments).graph
    check_stages(graph, arguments, described)


def test_one_bit_pattern_for_any_number_of_threads() -> None:
    function = pb.jit(pb.value_and_grad(lambda w, xs: loss(w, xs, "sqrt"), (0, 1)))
    xs, before, found = steps(23), pb.get_num_threads(), set()
    try:
        for threads in (1, 2, 3):
            pb.set_num_threads(threads)
            found.add(b"".join(np.asarray(leaf).tobytes() for leaf in pb.flatten(function(W, xs))[0]))
    finally:
        pb.set_num_threads(before)
    assert len(found) == 1


# ---------------------------------------------------------------------- memory and work


def arena(function: Any, *arguments: Array) -> int:
    graph = pb.trace(function, *arguments).graph
    return plan(graph, {}, Processor("generic", "+avx2,+fma", "x86_64", 32, 16)).memory.arena_bytes


@pytest.mark.parametrize("count", [1024, 1021])
@pytest.mark.parametrize("stateless", [False, True])
def test_memory(count: int, stateless: bool) -> None:
    """Also where lengths do not divide each other: parts of sequences are read and written where they lie."""
    w, xs = np.ones((32, 32)), np.zeros((count, 16, 32))

    def function(checkpoint: Any) -> Any:
        def loss(w: Array, xs: Array) -> Array:
            def step(h: Array, x: Array) -> Any:
                for _ in range(3):
                    h = np.tanh(h @ w + x)
                return h, None

            if stateless:
                return (pb.map(lambda x: step(x, x)[0].sum(), xs, checkpoint=checkpoint) ** 2).sum()
            return pb.scan(step, np.ones((16, 32)), xs, checkpoint=checkpoint)[0].sum()

        return pb.grad(loss, (0, 1))

    plain, root, three = (arena(function(way), w, xs) / xs.nbytes for way in (None, "sqrt", 3))
    assert plain > 5  # of each step the states and their cotangents
    assert root < 0.7
    assert three < 0.7 * root


def runs(graph: Graph, name: str = "tanh") -> int:
    """How often an operator is applied when the graph is run."""
    found = 0
    for node in graph.nodes():
        if isinstance(node, Operation):
            found += node.operator.name == name
            found += node.attributes.get("trips", 1) * sum(runs(region, name) for region in regions(node))
    return found


@pytest.mark.parametrize("trips", [81, 83])
@pytest.mark.parametrize("levels", [0, 1, 2, 3])
def test_each_level_runs_each_step_once_more(levels: int, trips: int) -> None:
    xs = steps(trips)
    graph = optimise(pb.trace(pb.value_and_grad(lambda xs: loss(W, xs, levels)), xs).graph)
    assert trips <= runs(graph) <= (levels + 1) * trips
    length = levels_of(trips, levels)[0] if levels else trips
    assert runs(graph) >= (levels + 1) * (trips - trips % length)


@cache
def can_be_reversed(count: int, carries: int, again: int) -> bool:
    """Whether so many steps can be, by the meaning of it: go some steps on, keep that carry, reverse what follows."""
    if count == 1:
        return True
    if again == 0:
        return False
    if carries == 1:
        return count - 1 <= again  # from the start to each step
    return any(
        can_be_reversed(split, carries, again - 1) and can_be_reversed(count - split, carries - 1, again)
        for split in range(1, count)
    )


@pytest.mark.parametrize("carries", [1, 2, 3, 4])
@pytest.mark.parametrize("again", [0, 1, 2, 3])
def test_the_most_steps_are_those_of_revolve(carries: int, again: int) -> None:
    most = most_steps(carries, again)
    assert can_be_reversed(most, carries, again)
    assert not can_be_reversed(most + 1, carries, again)


@pytest.mark.parametrize("levels", [0, 1, 2, 3])
def test_segments_keep_no_less_than_revolve_and_not_much_more(levels: int) -> None:
    """Segments of one length cost at most ``(l + 1)!^(1/(l + 1))`` of what the best of all schedules keeps."""
    for trips in (64, 81, 100, 1000, 10_000):
        kept = kept_carries(trips, levels_of(trips, levels))
        assert trips <= most_steps(kept, levels + 1)
        assert kept <= 1.2 * (levels + 1) * trips ** (1 / (levels + 1)) + levels + 1


@pytest.mark.parametrize("share", [1.0, 1 / 4, 1 / 16])
@pytest.mark.parametrize("trips", [1, 2, 3, 5, 97, 1000, 1021])
def test_lengths_of_segments(trips: int, share: float) -> None:
    for levels in range(most_levels(trips) + 1):
        lengths = levels_of(trips, levels, share)
        assert all(b < a for a, b in zip((trips, *lengths), lengths))
        assert all(length >= 1 for length in lengths)


def test_errors() -> None:
    for wrong, kind, said in (
        ("log", TreeError, r"no checkpoint='log'; give \"sqrt\", \"recursive\".*test_schedules"),
        (-1, TreeError, "no number of levels"),
        (True, TreeError, "no number of levels"),
        ((0,), ShapeError, "at least one step"),
        ((2, 4), ShapeError, r"each is cut into shorter ones, such as \(100, 10\)"),
    ):
        with pytest.raises(kind, match=said):
            segments(10, wrong)
