"""What the tests of the operator families share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback.numpy  # noqa: F401  (fills the operators of nodes)
from pullback.graph import Graph, Node, Type, Variable, constant, is_float
from pullback.interpreter import evaluate
from pullback.transforms.reverse import cotangents


@pytest.fixture
def compute() -> Callable[..., np.ndarray]:
    """``compute(f, *arrays)``: the value of ``f`` traced on variables like ``arrays``."""

    def run(function: Callable[..., Any], *arrays: Any) -> np.ndarray:
        values = [np.asarray(array) for array in arrays]
        variables = tuple(Variable(Type(value.dtype, value.shape)) for value in values)
        return evaluate(Graph(variables, (function(*variables),)), values)[0]

    return run


@pytest.fixture
def gradients() -> Callable[..., list[np.ndarray]]:
    """``gradients(f, *arrays)``: the gradient of the sum of ``f`` by each array, zeros where it is absent."""

    def of(function: Callable[..., Any], variables: tuple[Node, ...]) -> list[Node]:
        output = function(*variables)
        seed = constant(np.ones(output.shape), output.dtype)
        bars = cotangents([output], [seed], variables)
        zeros = [constant(np.zeros(v.shape), v.dtype) for v in variables]
        return [zero if bar is None else bar for bar, zero in zip(bars, zeros)]

    def run(function: Callable[..., Any], *arrays: Any, order: int = 1) -> list[np.ndarray]:
        values = [np.asarray(array) for array in arrays]
        assert all(is_float(value.dtype) for value in values)
        variables = tuple(Variable(Type(value.dtype, value.shape)) for value in values)

        def nested(*nodes: Node) -> Node:
            return of(function, nodes)[0]

        wanted = of(function if order == 1 else nested, variables)
        return evaluate(Graph(variables, tuple(wanted)), values)

    return run
