"""What is standardised is sums and elementwise operations to the compiler, and so are its derivatives."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
import pullback.numpy as pnp
from pullback import grad, jit
from pullback.compiler.passes import optimise
from pullback.tracing.trace import trace

draw = np.random.default_rng(3)


@pytest.mark.parametrize("axes", [(0,), (0, 2), (1, 2)])
def test_nothing_of_it_is_left_in_values_or_derivatives(axes: tuple[int, ...]) -> None:
    x = draw.normal(3.0, 2.0, (4, 3, 5))
    weight = draw.normal(size=x.shape)

    def value(x):
        return pnp.sum(weight * pnp.standardise(x, axes))

    def slope(x):
        return pnp.sum(grad(value)(x) ** 2)

    for function in (value, grad(value), grad(slope)):
        graph = optimise(trace(function, x).graph)
        assert "standardise" not in {node.operator.name for node in graph.nodes() if node.inputs}
        np.testing.assert_allclose(jit(function)(x), function(x), rtol=1e-9, atol=1e-12)


def test_its_pullback_reads_the_array_in_one_sweep() -> None:
    """The closed form needs no sum of what it gives: the cotangent is the last thing made of the array."""
    x = draw.normal(size=(64, 48)).astype(np.float32)
    graph = optimise(trace(lambda x, g: pb.vjp(lambda x: pnp.standardise(x, 0), x)[1](g), x, x).graph)
    sums = [node for node in graph.nodes() if node.inputs and node.operator.name == "sum"]
    assert len(sums) == 4  # for the mean, the variance, and the two means over cotangents
