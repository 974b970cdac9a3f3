"""Clipping of gradients."""

import numpy as np
import pytest

from pullback import jit, optim
from pullback.tracing import map_tree

GRADIENTS = {"a": np.array([3.0, -0.5], np.float32), "b": [np.array([[4.0]], np.float32)]}
both = pytest.mark.parametrize("compiled", [False, True], ids=["interpreted", "compiled"])


def clipped(function, limit, compiled, gradients=GRADIENTS):
    clip = lambda gradients: function(gradients, limit)  # noqa: E731
    return (jit(clip) if compiled else clip)(gradients)


@both
def test_by_norm_scales_all_leaves_by_one_factor(compiled):
    found = clipped(optim.clip_by_norm, 2.0, compiled)
    norm = np.sqrt(9 + 0.25 + 16)
    np.testing.assert_allclose(found["a"], GRADIENTS["a"] * 2 / norm, rtol=1e-6)
    np.testing.assert_allclose(found["b"][0], GRADIENTS["b"][0] * 2 / norm, rtol=1e-6)
    assert found["a"].dtype == np.float32
    assert optim.global_norm(found) == pytest.approx(2.0, rel=1e-6)


@both
def test_by_norm_leaves_short_gradients_alone(compiled):
    found = clipped(optim.clip_by_norm, 100.0, compiled)
    np.testing.assert_array_equal(found["a"], GRADIENTS["a"])


@both
def test_by_norm_of_zero_gradients(compiled):
    found = clipped(optim.clip_by_norm, 1.0, compiled, map_tree(np.zeros_like, GRADIENTS))
    np.testing.assert_array_equal(found["a"], [0, 0])


@both
def test_by_value(compiled):
    found = clipped(optim.clip_by_value, 1.0, compiled)
    np.testing.assert_array_equal(found["a"], np.array([1.0, -0.5], np.float32))
    np.testing.assert_array_equal(found["b"][0], [[1.0]])


def test_integers_beside_the_weights_do_not_count():
    tree = {"w": np.array([3.0]), "count": np.array([100])}
    found = optim.clip_by_norm(tree, 1.5)
    assert found["count"].tolist() == [100] and found["w"].tolist() == [1.5]


@pytest.mark.parametrize("function", [optim.clip_by_norm, optim.clip_by_value])
@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan")])
def test_limits_are_positive(function, limit):
    with pytest.raises(ValueError, match="positive"):
        function(GRADIENTS, limit)


@both
@pytest.mark.parametrize("function", [optim.clip_by_norm, optim.clip_by_value])
def test_an_infinite_limit_clips_nothing(function, compiled):
    found = clipped(function, float("inf"), compiled)
    map_tree(np.testing.assert_array_equal, found, GRADIENTS)


@both
@pytest.mark.parametrize("size", [1e30, 1e-30])
def test_by_norm_of_gradients_whose_squares_float32_does_not_hold(compiled, size):
    gradients = {"a": np.array([3 * size, -4 * size], np.float32)}
    assert optim.global_norm(gradients) == pytest.approx(5 * size, rel=1e-6)
    found = clipped(optim.clip_by_norm, size, compiled, gradients)["a"]
    np.testing.assert_allclose(found, np.array([0.6, -0.8]) * size, rtol=1e-6)
