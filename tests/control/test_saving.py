"""What is kept for the backward pass, and what that computes again to the same bits."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback.control.saving import chosen_to_save
from pullback.graph import Type, Variable
from pullback.transforms.reverse import cotangents

ROWS = np.random.default_rng(0).standard_normal((40, 6))


def with_a_mean_for_the_largest(x):
    """Of normalised rows, from their smallest element on, the largest gives way to a sum."""
    y = pb.silu(x)
    y = (y - np.mean(y, axis=-1, keepdims=True)) * (np.var(y, axis=-1, keepdims=True) + 0.01) ** -0.5
    y = y - np.min(y, axis=-1, keepdims=True)
    largest = np.max(y, axis=-1, keepdims=True)
    return np.where(y == largest, np.sum(y * x[..., 1:2], axis=-1, keepdims=True), y)


def in_a_loop(x):
    return pb.scan(lambda carry, row: (carry, with_a_mean_for_the_largest(row)), np.zeros_like(x[0]), x)[1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_largest_of_a_row_is_the_largest_in_the_backward_pass_too(dtype):
    """Its elements are sums with a product, which are rounded once or twice, as others need the product or not."""
    rows = ROWS.astype(dtype)
    wanted = pb.grad(lambda x: np.sum(with_a_mean_for_the_largest(x)))(rows)
    close = {"rtol": 1e-3 if dtype == np.float32 else 1e-10, "atol": 1e-4 if dtype == np.float32 else 1e-11}
    np.testing.assert_allclose(pb.jit(pb.grad(lambda x: np.sum(in_a_loop(x))))(rows), wanted, **close)
    inside = pb.jit(with_a_mean_for_the_largest)
    np.testing.assert_allclose(pb.grad(lambda x: np.sum(inside(x)))(rows), wanted, **close)


def kept(function, *shapes):
    """The operators of what is kept of a function."""
    inputs = [Variable(Type(np.dtype(np.float32), shape), "x") for shape in shapes]
    output = function(*inputs)
    seed = Variable(output.type, "cotangent")
    bars = [bar for bar in cotangents([output], [seed], inputs) if bar is not None]
    found = chosen_to_save(bars, [seed], (), inputs, [output])
    return sorted(node.operator.name for node in found)


def test_sums_with_a_product_that_both_passes_need_are_kept():
    def function(x, y):
        total = x * y + 1
        return total * total * np.max(total)

    assert kept(function, (5,), (5,)) == ["add", "max", "sum"], "the last is how many are the largest"
    assert kept(lambda x, y: function(2 * x, 1.0), (5,), (5,)) == ["max", "sum"], "a product by 2 is exact"


def test_sums_that_only_the_backward_pass_needs_are_made_there():
    assert kept(lambda x, y: np.tanh(x) * y, (5,), (5,)) == ["tanh"], "and not 1 - tanh(x) ** 2"
