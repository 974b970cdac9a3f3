"""Metrics, at once and compiled."""

import numpy as np
import pytest

from pullback import jit, metrics
from pullback.errors import ShapeError

LOGITS = np.array([[2.0, 1.0, 0.0], [0.0, 0.0, 5.0], [1.0, 1.0, 0.0], [-3.0, -1.0, -2.0]], np.float32)
both = pytest.mark.parametrize("compiled", [False, True], ids=["at once", "compiled"])


@both
@pytest.mark.parametrize(
    ("labels", "expected"), [([0, 2, 0, 1], 1.0), ([1, 2, 1, 1], 0.5), ([2, 0, 2, 2], 0.0)]
)
def test_accuracy(compiled, labels, expected):
    function = jit(metrics.accuracy) if compiled else metrics.accuracy
    for dtype in (np.uint8, np.int64):
        assert function(LOGITS, np.array(labels, dtype)) == np.float32(expected)
    assert function(LOGITS, np.eye(3, dtype=np.float32)[labels]) == np.float32(expected)


@both
def test_binary_accuracy(compiled):
    function = jit(metrics.binary_accuracy) if compiled else metrics.binary_accuracy
    assert function(np.array([1.0, -1.0, 2.0, -2.0]), np.array([1, 0, 0, 0])) == np.float32(0.75)


def test_shapes_that_do_not_fit():
    with pytest.raises(ShapeError, match=r"shape \(4, 3\) and labels of shape \(3,\)"):
        metrics.accuracy(LOGITS, np.zeros(3, int))
    with pytest.raises(ShapeError, match="binary_accuracy"):
        metrics.binary_accuracy(LOGITS, np.zeros(4))
