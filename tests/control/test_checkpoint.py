"""Values computed again instead of kept: the same derivatives, and less memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.compiler.passes import PASSES, optimise
from pullback.compiler.plan import plan
from pullback.compiler.stages import check_stages
from pullback.compiler.target import Processor
from pullback.errors import TreeError
from pullback.graph import Graph, Operation, check, every_node
from pullback.interpreter import evaluate

Array = Any
RANDOM = np.random.default_rng(11)
X, W = RANDOM.normal(size=(3, 4)), RANDOM.normal(size=(4, 4)) * 0.6


def same(function: Any, policy: Any = None) -> Any:
    """A checkpoint that keeps everything."""
    return function


def deep(checkpoint: Any, x: Array, w: Array) -> Array:
    """Layers one after another, which close over their weights."""

    def layer(h: Array) -> Array:
        return np.tanh(np.sin(h @ w) + h)

    for _ in range(3):
        x = checkpoint(layer)(x)
    return (x**2).sum()


def products(checkpoint: Any, x: Array, w: Array) -> Array:
    """What products give is kept; structures go in and out."""

    def block(parts: Any, scale: Array = 2.0) -> Any:
        a, b = parts["a"], parts["b"]
        return {"a": np.tanh(np.exp(a @ b) * scale) @ b, "b": b, "sum": np.sin(a).sum()}

    made = checkpoint(block, policy="products")({"a": x, "b": w}, scale=x[0, 0])
    return (made["a"] * made["sum"]).sum() + made["b"].sum()


def nested(checkpoint: Any, x: Array, w: Array) -> Array:
    def inner(h: Array) -> Array:
        return np.sin(h @ w) * h

    def outer(h: Array) -> Array:
        return np.cos(checkpoint(inner)(checkpoint(inner)(h)))

    return checkpoint(outer)(x).sum()


def steps(checkpoint: Any, x: Array, w: Array) -> Array:
    def step(h: Array, row: Array) -> Any:
        h = np.tanh(np.sin(h @ w) + np.exp(row) @ w)
        return h, h.sum()

    h, sums = pb.scan(checkpoint(step), np.ones_like(x, shape=(4,)), x)
    return (h**2).sum() + (sums**2).sum()


CASES = {"deep": deep, "products": products, "nested": nested, "steps": steps}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Any:
    return CASES[request.param]


def with_checkpoints(case: Any) -> Any:
    return lambda x, w: case(pb.checkpoint, x, w)


def without(case: Any) -> Any:
    return lambda x, w: case(same, x, w)


def assert_close(found: Any, wanted: Any, tolerance: float = 1e-11) -> None:
    for a, b in zip(pb.flatten(found)[0], pb.flatten(wanted)[0], strict=True):
        assert np.shape(a) == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * (1 + np.abs(b).max(initial=0)))


def test_derivatives(case: Any) -> None:
    wanted = pb.value_and_grad(without(case), (0, 1))(X, W)
    function = pb.value_and_grad(with_checkpoints(case), (0, 1))
    assert_close(function(X, W), wanted)
    assert_close(pb.jit(function)(X, W), wanted)
    assert_close(with_checkpoints(case)(X, W), wanted[0])
    assert_close(pb.jit(with_checkpoints(case))(X, W), wanted[0])


def test_second_derivatives_and_forward_mode(case: Any) -> None:
    def slope(loss: Any) -> Any:
        gradient = pb.grad(loss, (0, 1))
        return pb.grad(lambda x, w: sum((g * np.cos(g)).sum() for g in gradient(x, w)), (0, 1))

    wanted = slope(without(case))(X, W)
    assert_close(slope(with_checkpoints(case))(X, W), wanted)
    assert_close(pb.jit(slope(with_checkpoints(case)))(X, W), wanted, 1e-10)
    along = np.cos(X), np.sin(W)
    assert_close(
        pb.jit(lambda x, w: pb.jvp(with_checkpoints(case), (x, w), along))(X, W),
        pb.jvp(without(case), (X, W), along),
    )


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0)])
def test_batches(case: Any, axes: Any) -> None:
    given = [p if axis is None else np.stack([p, -p]) for p, axis in zip((X, W), axes)]
    wanted = pb.vmap(pb.value_and_grad(without(case), (0, 1)), axes)(*given)
    function = pb.vmap(pb.value_and_grad(with_checkpoints(case), (0, 1)), axes)
    assert_close(function(*given), wanted)
    assert_close(pb.jit(function)(*given), wanted)
    total = pb.grad(lambda *given: pb.vmap(with_checkpoints(case), axes)(*given).sum(), (0, 1))
    assert_close(total(*given), pb.grad(lambda *g: pb.vmap(without(case), axes)(*g).sum(), (0, 1))(*given))


def test_every_pass_keeps_the_results(case: Any) -> None:
    graph = pb.trace(pb.value_and_grad(with_checkpoints(case), (0, 1)), X, W).graph
    wanted = evaluate(graph, [X, W])
    for _ in range(3):
        for each in PASSES:
            graph = each(graph)
            check(graph)
            assert_close(evaluate(graph, [X, W]), wanted)


def test_every_stage_of_the_compiler(case: Any, described: Processor) -> None:
    graph = pb.trace(pb.value_and_grad(with_checkpoints(case), (0, 1)), X, W).graph
    check_stages(graph, [X, W], described)


def counted(graph: Graph, name: str) -> int:
    return sum(isinstance(node, Operation) and node.operator.name == name for node in every_node(graph))


def arena(loss: Any, *arguments: Array) -> int:
    graph = pb.trace(pb.grad(loss, tuple(range(len(arguments)))), *arguments).graph
    return plan(graph, {}, Processor("generic", "+avx2,+fma", "x86_64", 32, 16)).memory.arena_bytes


def test_less_is_kept_and_more_computed() -> None:
    x, w = RANDOM.normal(size=(400, 64)), RANDOM.normal(size=(64, 64)) * 0.1

    def network(checkpoint: Any) -> Any:
        def part(h: Array, w: Array) -> Array:
            for _ in range(6):
                h = np.tanh(h @ w)
            return h

        def loss(x: Array, w: Array) -> Array:
            for _ in range(4):
                x = checkpoint(part)(x, w)
            return x.sum()

        return loss

    keeps, again = (arena(network(each), x, w) for each in (same, pb.checkpoint))
    assert again < 0.6 * keeps
    products = arena(network(lambda part: pb.checkpoint(part, policy="products")), x, w)
    assert again < products < 1.2 * keeps
    sines = [
        counted(optimise(pb.trace(pb.grad(network(each)), x, w).graph), "contract")
        for each in (same, pb.checkpoint, lambda part: pb.checkpoint(part, policy="products"))
    ]
    assert sines[0] == sines[2] < sines[1]


def test_steps_keep_their_carries_alone() -> None:
    x, w = RANDOM.normal(size=(100, 64)), RANDOM.normal(size=(64, 64)) * 0.1

    def loss(checkpoint: Any) -> Any:
        def step(h: Array, row: Array) -> Any:
            for _ in range(5):
                h = np.sin(np.tanh(h @ w) + row)
            return h, None

        return lambda x: pb.scan(checkpoint(step), x[0], x)[0].sum()

    assert arena(loss(pb.checkpoint), x) < 0.5 * arena(loss(same), x)


def test_a_policy_may_tell_by_the_operator() -> None:
    function = pb.checkpoint(lambda x: np.exp(np.sin(np.exp(x))), policy=lambda name: name == "exp")
    graph = optimise(pb.trace(pb.grad(lambda x: function(x).sum()), X).graph)
    # One exponential in each of both passes is kept; the sine of the first is what is computed again.
    assert counted(graph, "exp") == 2
    with pytest.raises(TreeError, match=r"no policy 'dots'.*nothing, products.*test_checkpoint"):
        pb.checkpoint(np.sin, policy="dots")
