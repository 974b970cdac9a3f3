"""Forward mode by transposing the pullback."""

from __future__ import annotations

import numpy as np

import pullback.numpy  # noqa: F401  (fills the operators of nodes)
from pullback.graph import Graph, Type, Variable, free_variables
from pullback.interpreter import evaluate
from pullback.transforms.forward import tangents


def variable(name: str, dtype: str = "float64", shape: tuple[int, ...] = (3,)) -> Variable:
    return Variable(Type(np.dtype(dtype), shape), name)


def test_tangent_of_a_product() -> None:
    x, dx = variable("x"), variable("dx")
    (tangent,) = tangents([np.sin(x) * x], [x], [dx])
    values = [np.array([0.1, 0.2, 0.3]), np.array([1.0, -1.0, 2.0])]
    (found,) = evaluate(Graph((x, dx), (tangent,)), values)
    np.testing.assert_allclose(
        found, (np.cos(values[0]) * values[0] + np.sin(values[0])) * values[1], rtol=1e-14
    )


def test_no_cotangent_is_left_in_the_result() -> None:
    x, dx = variable("x"), variable("dx")
    function = np.where(x > 0, np.sqrt(np.abs(x)) ** x, np.max(x)) / np.prod(x)
    (tangent,) = tangents([function], [x], [dx])
    assert {v.name for v in free_variables([tangent])} == {"x", "dx"}


def test_an_output_that_is_an_input() -> None:
    x, dx = variable("x"), variable("dx")
    (tangent,) = tangents([x], [x], [dx])
    assert tangent is dx


def test_absent_tangents() -> None:
    x, y, dx = variable("x"), variable("y"), variable("dx")
    assert tangents([np.sin(y)], [x], [dx]) == [None]
    assert tangents([np.sin(x)], [x], [None]) == [None]
    assert tangents([np.argmax(x), x > 0], [x], [dx]) == [None, None]
    first, second = tangents([np.sin(x), np.cos(y)], [x, y], [dx, None])
    assert first is not None
    assert second is None
