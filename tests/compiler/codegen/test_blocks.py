"""Vectors cut off in memory."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np
import pytest

import pullback as pb
from pullback.compiler.codegen.blocks import load_lanes, store_lanes
from pullback.compiler.llvm.function import Module

KINDS = {"float": np.float32, "double": np.float64}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
def test_first_lanes_of_a_vector_in_another_order(machine, kind, lanes):
    """LLVM 22 takes the wrong element of eight doubles where the first lane alone is stored."""
    vector = f"<{lanes} x {kind}>"
    module, orders = Module(), [np.roll(np.arange(lanes), -first) for first in range(lanes)]
    cases = list(itertools.product(range(1, lanes + 1), range(lanes)))
    for count, k in cases:
        f = module.function(f"first{count}_{k}", [("ptr", "source"), ("ptr", "target")])
        ordered = f.shuffled(
            vector, load_lanes(f, f["source"], kind, lanes, lanes), "poison", orders[k].tolist()
        )
        store_lanes(f, f.value(f"fneg {vector} {ordered}"), f["target"], kind, lanes, count)
        f.returns()
    built = machine(module)
    x = np.arange(1, lanes + 1, dtype=KINDS[kind])
    for count, k in cases:
        y = np.zeros(lanes, x.dtype)
        built.function(f"first{count}_{k}", None, ctypes.c_void_p, ctypes.c_void_p)(
            x.ctypes.data, y.ctypes.data
        )
        np.testing.assert_array_equal(
            y, np.where(np.arange(lanes) < count, -x[orders[k]], 0), str((count, k))
        )


@pytest.mark.parametrize("rows", [9, 17])
def test_a_row_left_over(rows):
    """A map whose lanes lie along the rows, of which the last one is written alone."""

    def slope(x):
        return pb.grad(lambda x: np.sum(chosen(x) * np.cos(np.arange(x.size)).reshape(x.shape)))(x)

    def chosen(x):
        value = pb.log_sigmoid(x)
        value = value + np.prod(value, axis=1, keepdims=True)
        total = np.sum(x * value[:, 1:2], axis=1, keepdims=True)
        return np.where(value == np.max(value, axis=1, keepdims=True), total, value) + total

    curvature = pb.grad(lambda x: np.sum(slope(x) * np.cos(np.arange(x.size)).reshape(x.shape)))
    x = np.random.default_rng(3).normal(size=(rows, 5))
    np.testing.assert_allclose(
        pb.jit(curvature)(x), pb.trace(curvature, x).evaluate([x]), rtol=1e-9, atol=1e-12
    )
