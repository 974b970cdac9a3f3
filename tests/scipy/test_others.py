"""Convolutions and interpolation against SciPy, and their derivatives."""

import numpy as np
import pytest

import pullback as pb
from pullback.scipy.ndimage import map_coordinates
from pullback.scipy.signal import convolve, correlate
from pullback.testing import check_grads

RANDOM = np.random.default_rng(6)


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("shapes", [((9,), (4,)), ((4,), (9,)), ((5, 6), (2, 3)), ((4, 5, 3), (2, 2, 2))])
def test_convolutions(shapes, mode):
    signal = pytest.importorskip("scipy.signal")
    x, y = (RANDOM.normal(size=shape) for shape in shapes)
    np.testing.assert_allclose(convolve(x, y, mode), signal.convolve(x, y, mode, "direct"), atol=1e-12)
    np.testing.assert_allclose(
        pb.jit(lambda x, y: convolve(x, y, mode))(x, y), convolve(x, y, mode), atol=1e-12
    )
    if shapes[0] > shapes[1]:
        np.testing.assert_allclose(correlate(x, y, mode), signal.correlate(x, y, mode, "direct"), atol=1e-12)
    check_grads(lambda x, y: convolve(x, y, mode), [x, y])


@pytest.mark.parametrize(
    ("mode", "theirs"),
    [
        ("constant", "grid-constant"),
        ("nearest", "nearest"),
        ("mirror", "mirror"),
        ("reflect", "reflect"),
        ("wrap", "grid-wrap"),
    ],
)
@pytest.mark.parametrize("order", [0, 1])
def test_interpolation(mode, theirs, order):
    ndimage = pytest.importorskip("scipy.ndimage")
    x, places = RANDOM.normal(size=(4, 5)), RANDOM.uniform(-3, 7, size=(2, 30))
    wanted = ndimage.map_coordinates(x, places, order=order, mode=theirs, cval=0.5)
    for run in (lambda f: f, pb.jit):
        found = run(lambda x, places: map_coordinates(x, places, order, mode, 0.5))(x, places)
        np.testing.assert_allclose(found, wanted, atol=1e-12)
    check_grads(lambda x, places: map_coordinates(x, places, order, mode), [x, places], order=1)
