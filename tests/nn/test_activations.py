"""Activations with parameters."""

import numpy as np
import pytest

from pullback import grad, jit, nn
from pullback.errors import DTypeError, ShapeError


@pytest.mark.parametrize(
    ("shape", "channels", "along"),
    [
        ((4, 3), "first", (1, 3)),
        ((4, 3, 5), "first", (1, 3, 1)),
        ((4, 3, 5, 2), "first", (1, 3, 1, 1)),
        ((4, 5, 3), "last", (1, 1, 3)),
    ],
)
def test_a_slope_for_each_feature(shape, channels, along):
    layer = nn.PReLU(3, channels=channels)
    layer.weight[:] = [0.1, 0.5, -2.0]
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    expected = np.where(x > 0, x, layer.weight.reshape(along) * x)
    np.testing.assert_array_equal(layer(x), expected)
    np.testing.assert_array_equal(jit(layer)(x), expected)
    slopes = grad(lambda layer: layer(x).sum())(layer).weight
    axes = tuple(axis for axis, extent in enumerate(along) if extent == 1)
    np.testing.assert_allclose(slopes, np.minimum(x, 0).sum(axis=axes), rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_slope_for_all(dtype):
    layer = nn.PReLU(slope=0.5, dtype=dtype)
    for shape in ((), (3,), (2, 3, 4)):
        y = layer(np.full(shape, -2, dtype))
        assert y.dtype == dtype and y.shape == shape and (y == -1).all()
    assert nn.parameter_count(layer) == 1


def test_what_does_not_fit():
    with pytest.raises(ShapeError, match=r"\[PReLU\(3\)\].*\(4, 5\); axis 1 must have 3"):
        nn.PReLU(3)(np.zeros((4, 5)))
    with pytest.raises(ShapeError, match=r"\[PReLU\(3, channels last\)\].*axis 2 must have 3"):
        nn.PReLU(3, channels="last")(np.zeros((4, 3, 5)))
    with pytest.raises(ShapeError, match="features is 0"):
        nn.PReLU(0)
    with pytest.raises(DTypeError, match="PReLU"):
        nn.PReLU(dtype=np.int64)
    with pytest.raises(ValueError, match="channels='middle'"):
        nn.PReLU(channels="middle")
