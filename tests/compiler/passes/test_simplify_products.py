"""Products keep only what is a product's work."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import pullback.numpy as pnp
from pullback.compiler.passes import optimise
from pullback.compiler.passes.fold_constants import fold_constants
from pullback.compiler.passes.simplify_products import simplify_products
from pullback.compiler.passes.simplify_shapes import simplify_shapes
from pullback.graph import OPERATORS, Node
from pullback.operators.elementwise import filled

Shape = tuple[int, ...]
PASSES = (fold_constants, simplify_shapes, simplify_products)


def contract(a: Node, b: Node, labels: str) -> Node:
    first, second, out = (tuple(map(ord, part)) for part in labels.replace("->", ",").split(","))
    return OPERATORS["contract"](a, b, a_labels=first, b_labels=second, out_labels=out)


def spread(x: Node, shape: Shape, *axes: int) -> Node:
    return OPERATORS["broadcast"](x, shape=shape, axes=axes)


CASES: dict[str, tuple[Callable[[Node, Node], Node], Shape, Shape, list[str]]] = {
    "transposed operands": (lambda a, b: contract(a.T, b.T, "ik,kj->ij"), (5, 2), (3, 5), ["contract"]),
    "an axis of one": (
        lambda a, b: contract(a, b, "bik,bkj->bij"),
        (1, 2, 3),
        (1, 3, 4),
        ["reshape"] * 2 + ["contract", "reshape"],
    ),
    "outer": (lambda a, b: contract(a, b, "i,j->ij"), (3,), (4,), ["broadcast", "broadcast", "multiply"]),
    "outer, transposed": (
        lambda a, b: contract(a, b, "i,j->ji"),
        (3,),
        (4,),
        ["broadcast", "broadcast", "multiply"],
    ),
    "a sum over one": (
        lambda a, b: contract(a, b, "ik,kj->ij"),
        (3, 1),
        (1, 4),
        ["reshape", "broadcast"] * 2 + ["multiply"],
    ),
    "elements": (lambda a, b: contract(a, b, "ij,ji->ij"), (3, 4), (4, 3), ["transpose", "multiply"]),
    "a number": (lambda a, b: contract(a, b, ",ij->ij"), (), (4, 3), ["broadcast", "multiply"]),
    "rows repeated": (
        lambda a, b: contract(spread(a, (5, 3), 1), b, "ik,kj->ij"),
        (3,),
        (3, 4),
        ["contract", "broadcast"],
    ),
    "columns repeated": (
        lambda a, b: contract(a, spread(b, (3, 5), 0), "ik,kj->ji"),
        (2, 3),
        (3,),
        ["contract", "broadcast"],
    ),
    "a batch repeated": (
        lambda a, b: contract(spread(a, (5, 2, 3), 1, 2), b, "bik,bkj->bij"),
        (2, 3),
        (5, 3, 4),
        ["contract"],
    ),
    "a batch repeated in both": (
        lambda a, b: contract(spread(a, (5, 2, 3), 1, 2), spread(b, (5, 3, 4), 1, 2), "bik,bkj->bij"),
        (2, 3),
        (3, 4),
        ["contract", "broadcast"],
    ),
    "a sum of repeated values": (
        lambda a, b: contract(spread(a, (2, 3), 0), b, "ik,kj->ij"),
        (2,),
        (3, 4),
        ["broadcast", "contract"],
    ),
    "a constant": (
        lambda a, b: contract(filled(0.5, a.dtype, (2, 3)), b, "ik,kj->ij"),
        (2,),
        (3, 4),
        ["sum", "multiply", "broadcast"],
    ),
    "a constant on the right, transposed": (
        lambda a, b: contract(b, filled(2, a.dtype, (3,)), "ikj,k->ji"),
        (2,),
        (2, 3, 4),
        ["sum", "transpose", "multiply"],
    ),
    "a sum that is a product": (
        lambda a, b: pnp.sum(a[:, :, None] * b[None, :, :], axis=1),
        (2, 3),
        (3, 4),
        ["contract"],
    ),
    "a sum that is a stack of products": (
        lambda a, b: pnp.sum(a[:, :, None, :] * b[:, None, :, :], axis=3),
        (2, 5, 3),
        (2, 4, 3),
        ["contract"],
    ),
    "a sum of a row of products": (
        lambda a, b: pnp.sum(a * b[None, :], axis=1),
        (2, 3),
        (3,),
        ["broadcast", "multiply", "sum"],
    ),
    "a sum over own axes": (
        lambda a, b: pnp.sum(a[:, None] * b[None, :], axis=1),
        (3,),
        (4,),
        ["broadcast", "broadcast", "multiply", "sum"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_cases(name: str, traced: Callable, names: Callable, assert_kept: Callable) -> None:
    function, a, b, left = CASES[name]
    graph = traced(function, ("float64", a), ("float64", b))
    after = optimise(graph, PASSES)
    assert sorted(names(after)) == sorted(left)
    random = np.random.default_rng(0)
    assert_kept(graph, after, [random.standard_normal(a), random.standard_normal(b)], tolerance=1e-14)


def test_infinite_constants_stay_in_the_sum(traced: Callable, names: Callable, assert_kept: Callable) -> None:
    graph = traced(lambda x: contract(filled(math.inf, x.dtype, (3,)), x, "k,kj->j"), ("float64", (3, 2)))
    after = optimise(graph, PASSES)
    assert names(after) == ["contract"]
    assert_kept(graph, after, [np.array([[1.0, -1.0], [1.0, 1.0], [2.0, 3.0]])])


def test_equal_products_are_one_node(traced: Callable) -> None:
    graph = traced(
        lambda a, b: (
            contract(a, b, "ik,kj->ij"),
            contract(a, b, "xy,yz->xz"),
            contract(a, b.T, "ab,cb->ac"),
        ),
        ("float32", (2, 3)),
        ("float32", (3, 4)),
    )
    after = optimise(graph, PASSES)
    assert after.outputs[0] is after.outputs[1] is after.outputs[2]
