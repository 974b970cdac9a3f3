"""Shape operators end in their simplest form."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import pullback.numpy as pnp
from pullback.compiler.passes import optimise
from pullback.compiler.passes.fold_constants import fold_constants
from pullback.compiler.passes.simplify_shapes import simplify_shapes
from pullback.graph import OPERATORS, Node
from pullback.operators.elementwise import filled

Shape = tuple[int, ...]


def spread(x: Node, shape: Shape, *axes: int) -> Node:
    return OPERATORS["broadcast"](x, shape=shape, axes=axes)


def pad(x: Node, low: Shape, high: Shape) -> Node:
    return OPERATORS["pad"](x, low=low, high=high)


def join(*pieces: Node, axis: int = 0) -> Node:
    return OPERATORS["concatenate"](*pieces, axis=axis)


def turn(x: Node, *axes: int) -> Node:
    return OPERATORS["transpose"](x, axes=axes)


def flip(x: Node, *axes: int) -> Node:
    return OPERATORS["reverse"](x, axes=axes)


def shaped(x: Node, *shape: int) -> Node:
    return OPERATORS["reshape"](x, shape=shape)


CASES: dict[str, tuple[Callable[[Node], Node], Shape, list[str]]] = {
    "reshape to the same": (lambda x: shaped(x, 2, 3), (2, 3), []),
    "reshape there and back": (lambda x: shaped(shaped(x, 6), 2, 3), (2, 3), []),
    "reshape of reshape": (lambda x: shaped(shaped(x, 6), 3, 2), (2, 3), ["reshape"]),
    "reshape of one number": (lambda x: shaped(spread(x, (2, 3)), 6), (), ["broadcast"]),
    "reshape of a broadcast": (lambda x: shaped(spread(x, (2, 3), 1), 2, 1, 3), (3,), ["broadcast"]),
    "reshape that mixes": (lambda x: shaped(spread(x, (2, 3), 1), 6), (3,), ["broadcast", "reshape"]),
    "broadcast to the same": (lambda x: spread(x, (2, 3), 0, 1), (2, 3), []),
    "broadcast of broadcast": (lambda x: spread(spread(x, (2, 3), 1), (2, 4, 3), 0, 2), (3,), ["broadcast"]),
    "broadcast that adds units": (lambda x: spread(x, (1, 3, 1), 1), (3,), ["reshape"]),
    "broadcast of units": (lambda x: spread(shaped(x, 3, 1), (3, 4), 0, 1), (3,), ["broadcast"]),
    "broadcast of one element": (lambda x: spread(x, (0, 2), 0), (1,), ["reshape", "broadcast"]),
    "transpose twice": (lambda x: turn(turn(x, 1, 0), 1, 0), (2, 3), []),
    "transpose of transpose": (lambda x: turn(turn(x, 1, 2, 0), 1, 2, 0), (2, 3, 4), ["transpose"]),
    "transpose of nothing": (lambda x: turn(x, 0, 1), (2, 3), []),
    "transpose of units": (lambda x: turn(x, 1, 0, 2), (2, 1, 3), ["reshape"]),
    "transpose of one number": (lambda x: turn(spread(x, (2, 3)), 1, 0), (), ["broadcast"]),
    "transpose of a broadcast": (lambda x: turn(spread(x, (2, 3), 1), 1, 0), (3,), ["broadcast"]),
    "transpose under a broadcast": (
        lambda x: turn(spread(x, (2, 4, 3), 0, 2), 2, 1, 0),
        (2, 3),
        ["transpose", "broadcast"],
    ),
    "transposes around units": (lambda x: turn(shaped(turn(x, 1, 0), 3, 1, 2), 2, 1, 0), (2, 3), ["reshape"]),
    "slice of everything": (lambda x: x[0:2, :], (2, 3), []),
    "slice of slice": (lambda x: x[1:9:3][1:], (10,), ["slice"]),
    "slice of slice to nothing": (lambda x: x[1:9:3][3:], (10,), ["slice"]),
    "slice of repeated axes": (lambda x: spread(x, (5, 3), 1)[1:3], (3,), ["broadcast"]),
    "slice of a broadcast": (lambda x: spread(x, (5, 3), 1)[1:3, ::2], (3,), ["slice", "broadcast"]),
    "slice to one element": (
        lambda x: spread(x, (5, 3), 1)[1:3, 1:2],
        (3,),
        ["slice", "reshape", "broadcast"],
    ),
    "slice of one piece": (lambda x: join(x, -x, x)[3:5], (3,), ["negative", "slice"]),
    "slice of a whole piece": (lambda x: join(x, -x, x)[3:6], (3,), ["negative"]),
    "slice of two pieces": (
        lambda x: join(-x, x, x * x)[1:5:2],
        (3,),
        ["negative", "concatenate", "slice"],
    ),
    "slice inside padding": (lambda x: pad(x, (2, 0), (1, 0))[2:4], (2, 3), []),
    "slice into padding": (lambda x: pad(x, (2, 0), (1, 0))[1:3, 1:], (2, 3), ["slice", "pad"]),
    "slice of padding alone": (lambda x: pad(x, (2,), (3,))[4:6], (2,), []),
    "slice in steps over padding": (lambda x: pad(x, (2,), (3,))[1:6:2], (2,), ["pad", "slice"]),
    "slice of a reverse": (lambda x: flip(x, 0, 1)[1:, ::2], (3, 5), ["slice", "reverse"]),
    "slice of a reverse to one element": (lambda x: flip(x, 1)[:, 1:2], (3, 5), ["slice"]),
    "transpose of a reverse": (lambda x: turn(flip(x, 0), 1, 0), (2, 3), ["reverse", "transpose"]),
    "reverse twice": (lambda x: flip(flip(x, 0), 0), (3,), []),
    "reverse of reverse": (lambda x: flip(flip(x, 0, 1), 0), (2, 3), ["reverse"]),
    "reverse of units": (lambda x: flip(x, 0), (1, 3), []),
    "reverse of repeated axes": (lambda x: flip(spread(x, (2, 3), 1), 0), (3,), ["broadcast"]),
    "reverse of a broadcast": (lambda x: flip(spread(x, (2, 3), 1), 0, 1), (3,), ["reverse", "broadcast"]),
    "pad by nothing": (lambda x: pad(x, (0,), (0,)), (3,), []),
    "pad of pad": (lambda x: pad(pad(x, (1,), (0,)), (0,), (2,)), (3,), ["pad"]),
    "pad of nothing": (lambda x: pad(x, (1, 0), (0, 0)), (0, 3), []),
    "concatenate of one": (join, (3,), []),
    "concatenate of empty pieces": (lambda x: join(x[:0], x, x[3:]), (3,), []),
    "concatenate of nothing": (lambda x: join(x[:0], x[3:]), (3,), ["slice"]),
    "concatenate of concatenate": (
        lambda x: join(join(x, -x), join(x, x)),
        (3,),
        ["negative", "concatenate"],
    ),
    "concatenate along another axis": (
        lambda x: join(join(x, x, axis=1), -join(x, x, axis=1)),
        (2, 2),
        ["concatenate", "negative", "concatenate"],
    ),
    "neighbouring slices": (lambda x: join(x[:2], x[2:4], x[4:]), (7,), []),
    "slices apart": (lambda x: join(x[:2], x[3:]), (7,), ["slice", "slice", "concatenate"]),
    "slices of other rows": (
        lambda x: join(x[:2, :2], x[1:3, 2:], axis=1),
        (3, 3),
        ["slice", "slice", "concatenate"],
    ),
    "slices in steps": (lambda x: join(x[0:3:2], x[3:5:2]), (7,), ["slice", "slice", "concatenate"]),
    "what is stacked as it was cut": (lambda x: pnp.stack([x[:, t] for t in range(3)], axis=1), (2, 3), []),
}


@pytest.mark.parametrize("name", CASES)
def test_rules(name: str, traced: Callable, names: Callable, assert_kept: Callable) -> None:
    function, shape, left = CASES[name]
    graph = traced(function, ("float64", shape))
    after = simplify_shapes(graph)
    assert names(after) == left
    x = np.random.default_rng(0).standard_normal(shape)
    assert_kept(graph, after, [x], signs=True)


POOL = {"axes": (1, 3), "sizes": (2, 2), "strides": (2, 1), "dilations": (1, 1)}


@pytest.mark.parametrize(
    ("before", "after", "axes"),
    [
        ((4, 3), (1, 4, 1, 3), (0, 1)),
        ((4, 1, 3), (1, 4, 1, 3), (0, 2)),
        ((1, 4, 3), (1, 4, 1, 3), (1, 2)),
        ((4, 2, 3), (1, 4, 2, 3), (0, 2)),
        ((4, 5, 3), (5, 4, 1, 3), None),
        ((4, 3, 1), (1, 4, 1, 3), None),
        ((12,), (1, 4, 1, 3), None),
    ],
)
def test_pooling_outside_units(
    before: Shape, after: Shape, axes: Shape | None, traced: Callable, names: Callable, assert_kept: Callable
) -> None:
    """Windows that move along axes 1 and 3 of ``after`` move along ``axes`` of what it was made of, if they may."""

    def pooled(x: Node) -> tuple[Node, ...]:
        image = shaped(x, *after)
        winner = OPERATORS["window_argmax"](image, **POOL)
        sparse = OPERATORS["max_unpool"](
            OPERATORS["gather_at_argmax"](image, winner, **POOL), winner, shape=after, **POOL
        )
        return OPERATORS["window_max"](image, **POOL), sparse

    graph = traced(pooled, ("float64", before))
    simple = simplify_shapes(graph)
    moving = {
        node.attributes["axes"] for node in simple.nodes() if "sizes" in getattr(node, "attributes", ())
    }
    assert moving == {axes or POOL["axes"]}
    assert ("reshape" in names(simple)[:1]) == (axes is None)
    x = np.random.default_rng(0).standard_normal(before)
    assert_kept(graph, simple, [x], signs=True)


def test_counting(traced: Callable, names: Callable, assert_kept: Callable) -> None:
    count = OPERATORS["iota"]
    dtype = np.dtype(np.float32)
    graph = traced(
        lambda x: (count(shape=(2, 3), axis=1, dtype=dtype), count(shape=(2, 1), axis=1, dtype=dtype), x),
        ("float32", ()),
    )
    after = simplify_shapes(graph)
    assert names(after) == ["iota", "broadcast"]
    assert_kept(graph, after, [np.ones((), np.float32)])


def test_zeros_are_padded_with_zeros(traced: Callable, names: Callable, assert_kept: Callable) -> None:
    for zero, left in ((0.0, []), (-0.0, ["pad"])):
        graph = traced(lambda x: pad(filled(zero, x.dtype, x.shape), (1,), (2,)), ("float32", (3,)))  # noqa: B023
        after = optimise(graph, (fold_constants, simplify_shapes))
        assert_kept(graph, after, [np.ones(3, np.float32)], signs=True)
        if not left:
            assert names(after) == left


def test_slices_are_inside_of_axes_of_one_element(traced: Callable, names: Callable, assert_kept: Callable):
    graph = traced(lambda x: shaped(x, 2, 1, 5)[:, :, 1:4], ("float32", (2, 5)))
    after = simplify_shapes(graph)
    assert names(after) == ["slice", "reshape"]
    assert_kept(graph, after, [np.arange(10, dtype=np.float32).reshape(2, 5)])
