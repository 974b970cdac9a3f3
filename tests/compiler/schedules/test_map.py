"""Where the lanes of maps lie."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.compiler.lowering.lower import lower
from pullback.compiler.schedules.map import lane_axis
from pullback.compiler.target import Processor

EIGHT = Processor("generic", "+avx2,+fma", "x86_64", vector_bytes=32, vector_registers=16)


@pytest.mark.parametrize(
    ("size", "columns", "along"),
    [(5, 13, True), (7, 13, True), (8, 13, False), (20, 30, False), (5, 5, True)],
    ids=["of five", "of seven", "that fill a vector", "that fill several", "of one row of them"],
)
def test_lanes_lie_across_windows_that_fill_no_vector(size, columns, along):
    """Along windows of fewer elements than lanes there is nothing to gain, however few columns there are."""
    x = np.zeros((4, 3, columns), np.float32)
    (kernel,) = lower(pb.trace(lambda x: nn.max_pool(x, size, 2), x).graph, EIGHT).kernels
    assert (lane_axis(kernel, EIGHT) is kernel.axes[-1]) == along


@pytest.mark.parametrize(
    ("window", "size", "along"),
    [(3, 16, True), (3, 7, True), (7, 28, False), (8, 16, False)],
    ids=["of three", "of short rows", "of seven, whose rows cross lines", "that fills a vector"],
)
def test_lanes_lie_along_a_sum_where_its_results_fill_few(window, size, along):
    """The gradient of a depthwise convolution's weights has the extent of a window."""
    x, g = (np.zeros((2, 5, n, n), np.float32) for n in (size + window - 1, size))

    def loss(w, x, g):
        return (nn.conv(x, w, groups=5) * g).sum()

    gradient = pb.trace(pb.grad(loss), np.zeros((5, 1, window, window), np.float32), x, g)
    (kernel,) = (k for k in lower(gradient.graph, EIGHT).kernels if k.only_reduction)
    assert (lane_axis(kernel, EIGHT) is None) == along
