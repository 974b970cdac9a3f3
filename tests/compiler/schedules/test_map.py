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
