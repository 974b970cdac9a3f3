"""Slices of what was interleaved, and zeros around it, are those of its parts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pullback.compiler.passes import optimise
from pullback.graph import Graph, Operation, Type, Variable
from pullback.interpreter import evaluate
from pullback.operators.elementwise import filled
from pullback.operators.interleave import interleave, part_shape, places
from pullback.operators.shapes import pad, slice

FLOAT = np.dtype(np.float32)


def interleaved(shape, strides, zeros=()):
    parts = [
        filled(0, FLOAT, part_shape(shape, strides, place))
        if place in zeros
        else Variable(Type(FLOAT, part_shape(shape, strides, place)), "x")
        for place in places(strides)
    ]
    return [part for part in parts if isinstance(part, Variable)], interleave(
        *parts, strides=strides, shape=shape
    )


def assert_kept(inputs, output):
    """The passes leave the value as it was; returns the simplified output."""
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(x.shape).astype(FLOAT) for x in inputs]
    graph = Graph(tuple(inputs), (output,))
    better = optimise(graph)
    for found, expected in zip(evaluate(better, arrays), evaluate(graph, arrays), strict=True):
        np.testing.assert_array_equal(found, expected)
    return better.outputs[0]


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("step", [1, 2, 3, 4, 6])
def test_slices(stride, step):
    for start, stop in itertools.combinations_with_replacement(range(8), 2):
        inputs, joined = interleaved((2, 7), (1, stride))
        found = assert_kept(inputs, slice(joined, starts=(0, start), stops=(2, stop), steps=(1, step)))
        if step % stride == 0 and step > 1 and isinstance(found, Operation):
            assert found.operator is not interleave, "one part of it is enough"


@pytest.mark.parametrize("place", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_zeros_around(place):
    zeros = [other for other in places((2, 2)) if other != place]
    for low, high in itertools.product(itertools.product((0, 1, 2), repeat=2), repeat=2):
        inputs, joined = interleaved((5, 4), (2, 2), zeros)
        assert_kept(inputs, pad(joined, low=low, high=high))


def test_zeros_that_only_parts_of_zeros_take_in_cost_nothing():
    """The cotangent of every second element, of an even number of them, ends in the first of two places."""
    inputs, joined = interleaved((5, 5), (2, 2), [(0, 1), (1, 0), (1, 1)])
    found = assert_kept(inputs, pad(joined, low=(0, 0), high=(1, 1)))
    assert found.operator is interleave and found.inputs[0] is inputs[0]


def test_sums_are_inside():
    (a, b, c, d), first = interleaved((5, 4), (2, 2))
    _, second = interleaved((5, 4), (2, 2), [(0, 1), (1, 0), (1, 1)])
    (e,) = (part for part in second.inputs if isinstance(part, Variable))
    found = assert_kept((a, b, c, d, e), first + second)
    assert found.operator is interleave
