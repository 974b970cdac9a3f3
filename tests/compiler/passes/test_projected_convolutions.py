"""Convolutions made of one product for each place."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pullback.compiler.passes.projected_convolutions import projected_convolutions
from pullback.graph import Node
from pullback.operators.convolution import convolve

CASES = [
    ((2, 30, 50), (8, 50, 3), "b0c,oc0->b0o", (1,), (1,)),
    ((2, 40, 40), (3, 40, 4), "b0c,oc0->0bo", (1,), (2,)),
    ((40, 2, 29, 18), (4, 3, 40, 2), "cb10,o0c1->b10o", (1, 1), (2, 1)),
    ((2, 41, 60), (60, 4, 4), "b0c,co0->b0o", (2,), (1,)),
]


TEXT = ("float32", (2, 30, 50)), ("float32", (8, 50, 3))


def sixteen(itemsize: int) -> int:
    return 64 // itemsize


def convolution(layouts: str, strides: tuple[int, ...], dilations: tuple[int, ...]) -> Callable[..., Node]:
    x, w, out = layouts.replace("->", ",").split(",")
    return lambda a, b: convolve(
        a, b, x_layout=x, w_layout=w, out_layout=out, strides=strides, dilations=dilations
    )


def operators(graph) -> set[str]:  # type: ignore[no-untyped-def]
    return {node.operator.name for node in graph.nodes() if hasattr(node, "operator")}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_any_layout(case, dtype, traced: Callable, assert_kept: Callable) -> None:
    x, w, *how = case
    graph = traced(convolution(*how), (dtype, x), (dtype, w))
    after = projected_convolutions(graph, lambda itemsize: 16)
    assert "convolve" not in operators(after) and "contract" in operators(after)
    random = np.random.default_rng(0)
    arrays = [random.integers(-3, 4, shape).astype(dtype) for shape in (x, w)]
    assert_kept(graph, after, arrays)


@pytest.mark.parametrize(
    ("x", "w", "layouts"),
    [
        ((2, 30, 50), (16, 50, 3), "b0c,oc0->b0o"),  # the outputs fill vectors
        ((2, 30, 50), (8, 50, 1), "b0c,oc0->b0o"),  # a window of one element
        ((2, 50, 30), (8, 50, 3), "bc0,oc0->bo0"),  # the lanes lie along the places
        ((2, 30, 1), (8, 1, 3), "b0c,oc0->b0o"),  # hardly anything is summed
        ((2, 30, 3, 50), (3, 8, 50, 3), "b0gc,goc0->b0go"),  # groups
    ],
)
def test_what_gains_nothing_stays(x, w, layouts, traced: Callable) -> None:
    graph = traced(convolution(layouts, (1,), (1,)), ("float32", x), ("float32", w))
    assert projected_convolutions(graph, sixteen) is graph


def test_narrow_vectors_are_full_already(traced: Callable) -> None:
    graph = traced(convolution("b0c,oc0->b0o", (1,), (1,)), *TEXT)
    assert projected_convolutions(graph, lambda itemsize: 8) is graph
    assert projected_convolutions(graph, sixteen) is not graph
