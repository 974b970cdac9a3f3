"""Nothing is computed for each repetition of a value."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import pullback.numpy as pnp
from pullback.compiler.passes import optimise
from pullback.compiler.passes.broadcast_late import broadcast_late
from pullback.compiler.passes.simplify_shapes import simplify_shapes
from pullback.graph import OPERATORS, Node

Shape = tuple[int, ...]


def spread(x: Node, shape: Shape, *axes: int) -> Node:
    return OPERATORS["broadcast"](x, shape=shape, axes=axes)


CASES: dict[str, tuple[Callable[[Node], Node], Shape, Shape]] = {
    "one operand": (lambda x: pnp.exp(spread(x, (4, 3), 1)), (3,), (3,)),
    "twice the same": (lambda x: spread(x, (4, 3), 1) * spread(-x, (4, 3), 1), (3,), (3,)),
    "with a number": (lambda x: spread(x, (4, 3), 1) * 2.0, (3,), (3,)),
    "with a sum": (lambda x: spread(x, (4, 3), 1) / spread(pnp.sum(x), (4, 3)), (3,), (3,)),
    "two numbers": (lambda x: spread(x, (4, 3)) / spread(-x, (4, 3)), (), ()),
    "another dtype": (lambda x: spread(x, (4, 3), 1).astype("int32"), (3,), (3,)),
    "a mask": (lambda x: pnp.where(spread(x > 0, (4, 3), 1), 1.0, spread(x, (4, 3), 1)), (3,), (3,)),
    "other axes": (lambda x: spread(x, (4, 3, 5), 1) + spread(x, (4, 3, 3), 2)[:, :, :1], (3,), (4, 3, 5)),
    "axes together": (lambda x: spread(x, (3, 4, 3), 0) + spread(x, (3, 4, 3), 2), (3,), (3, 3)),
    "joined axes": (lambda x: pnp.tanh(pnp.repeat(x, 2)) + 1, (3,), (3,)),
    "a number before joined axes": (lambda x: pnp.where(pnp.repeat(x > 0, 2), 1.0, 2.0), (3,), (3,)),
    "all axes": (lambda x: spread(x, (3, 3), 0) + spread(x, (3, 3), 1), (3,), (3, 3)),
}


@pytest.mark.parametrize("name", CASES)
def test_cases(name: str, traced: Callable, assert_kept: Callable) -> None:
    function, shape, largest = CASES[name]
    graph = traced(function, ("float64", shape))
    after = broadcast_late(graph)
    computed = [n.size for n in after.nodes() if hasattr(n, "operator") and n.operator.elementwise]
    assert max(computed) == math.prod(largest)
    x = np.random.default_rng(0).standard_normal(shape)
    assert_kept(graph, after, [x], tolerance=1e-15)


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: pnp.repeat(pnp.repeat(x, 3, 2), 2, 1), (4, 5, 6)),
        (lambda x: pnp.repeat(pnp.tile(x, (1, 3)), 4, 0), (2, 3)),
        (lambda x: pnp.broadcast_to(pnp.repeat(x, 2)[:, None], (6, 5)), (3,)),
        (lambda x: spread(pnp.repeat(x, 2).reshape(1, 6), (4, 5, 6), 1, 2), (3,)),
    ],
    ids=["images", "tiles", "rows", "one row"],
)
def test_repetitions_of_repetitions_are_one_broadcast(function, shape, traced: Callable, names, assert_kept):
    graph = traced(function, ("float64", shape))
    after = optimise(graph, [simplify_shapes, broadcast_late])
    assert names(after) == ["broadcast", "reshape"]
    assert_kept(graph, after, [np.random.default_rng(0).standard_normal(shape)])


@pytest.mark.parametrize(
    ("function", "shape", "left"),
    [
        (lambda x: pnp.exp(x.reshape(2, 1)) * 2, (2,), ["exp", "multiply", "reshape"]),
        (
            lambda x: x.reshape(1, 3) - spread(pnp.sum(x).reshape(1), (1, 3), 0),
            (3,),
            ["sum", "broadcast", "subtract", "reshape"],
        ),
    ],
    ids=["a number", "repeated values"],
)
def test_axes_of_one_element_come_behind(
    function, shape, left, traced: Callable, names, assert_kept: Callable
):
    graph = traced(function, ("float64", shape))
    after = optimise(graph, [simplify_shapes, broadcast_late])
    assert names(after) == left
    assert_kept(graph, after, [np.random.default_rng(0).standard_normal(shape)])


def test_what_is_reshaped_otherwise_stays(traced: Callable, names: Callable) -> None:
    """Axes that are cut cannot be joined behind another operation."""
    graph = traced(lambda x: spread(spread(x, (4, 6), 1).reshape(8, 3), (2, 8, 3), 1, 2), ("float64", (6,)))
    assert broadcast_late(graph) is graph
