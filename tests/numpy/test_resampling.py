"""Interpolation against its formulas written out by hand, and channels turned into places and back."""

import math

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.errors import ShapeError
from pullback.testing import check_grads


def drawn(*shape):
    return np.random.default_rng(shape).standard_normal(shape)


def keys(d):
    """Keys' kernel of -3/4."""
    d, a = abs(d), -0.75
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * (d**3 - 5 * d**2 + 8 * d - 4) if d < 2 else 0.0


def matrix(n, m, mode, align_corners, ratio):
    """What each of ``n`` elements has of each of ``m``: (m, n)."""
    weights = np.zeros((m, n))
    for i in range(m):
        if mode.startswith("nearest"):
            weights[i, min(math.floor(ratio * (i + 0.5 * (mode == "nearest-exact"))), n - 1)] = 1
            continue
        place = i * (n - 1) / max(m - 1, 1) if align_corners else ratio * (i + 0.5) - 0.5
        if mode == "linear":
            place = min(max(place, 0), n - 1)
            kernel = lambda d: max(0.0, 1 - abs(d))  # noqa: E731
        else:
            kernel = keys
        for k in range(math.floor(place) - 1, math.floor(place) + 3):
            weights[i, min(max(k, 0), n - 1)] += kernel(place - k)
    return weights


MODES = [
    ("nearest", False),
    ("nearest-exact", False),
    ("linear", False),
    ("linear", True),
    ("cubic", False),
    ("cubic", True),
]


@pytest.mark.parametrize("channels", ["first", "last"])
@pytest.mark.parametrize(("mode", "align_corners"), MODES)
def test_sizes(mode, align_corners, channels):
    x = drawn(2, 3, 6, 7)
    given = x if channels == "first" else np.moveaxis(x, 1, -1)
    for size in ((12, 14), (3, 21), (4, 10), (1, 5), (6, 7), (11, 13), (9, 2)):
        rows, columns = (matrix(n, m, mode, align_corners, n / m) for n, m in zip(x.shape[2:], size))
        expected = rows @ x @ columns.T
        found = nn.interpolate(given, size, mode=mode, align_corners=align_corners, channels=channels)
        found = found if channels == "first" else np.moveaxis(found, -1, 1)
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("mode", "align_corners"), MODES)
def test_factors_along_one_axis_and_three(mode, align_corners):
    line, volume = drawn(1, 2, 9), drawn(1, 1, 3, 4, 2)
    for factor in (0.5, 1.0, 1.3, 1.5, 2, 2.5, 3):
        m = math.floor(9 * factor)
        weights = matrix(9, m, mode, align_corners, 1 / factor)
        found = nn.interpolate(line, scale_factor=factor, mode=mode, align_corners=align_corners)
        np.testing.assert_allclose(found, line @ weights.T, rtol=1e-10, atol=1e-12)
    a, b, c = (matrix(n, n * k, mode, align_corners, 1 / k) for n, k in zip(volume.shape[2:], (2, 1, 3)))
    found = nn.interpolate(volume, scale_factor=(2, 1, 3), mode=mode, align_corners=align_corners)
    np.testing.assert_allclose(found, np.einsum("zxyk,ix,jy,lk->zijl", volume[0], a, b, c)[None], atol=1e-12)


@pytest.mark.parametrize(("mode", "align_corners"), MODES)
def test_compiled_with_the_gradient(mode, align_corners):
    """The gradient is the transposed matrix, for sizes whose weights come again and others."""
    x = drawn(2, 3, 6, 6).astype(np.float32)
    cotangents = [drawn(2, 3, m, m).astype(np.float32) for m in (12, 10)]

    def loss(x):
        parts = [nn.interpolate(x, g.shape[2:], mode=mode, align_corners=align_corners) for g in cotangents]
        return sum((part * g).sum() for part, g in zip(parts, cotangents)), parts

    (_, parts), slope = pb.jit(pb.value_and_grad(loss, has_aux=True))(x)
    expected = np.zeros_like(x)
    for part, g in zip(parts, cotangents):
        weights = matrix(6, g.shape[-1], mode, align_corners, 6 / g.shape[-1])
        np.testing.assert_allclose(part, weights @ x @ weights.T, rtol=1e-4, atol=1e-5)
        expected = expected + weights.T @ g @ weights
    np.testing.assert_allclose(slope, expected, rtol=1e-4, atol=1e-4)


def test_derivatives_to_second_order():
    x = drawn(1, 1, 4, 3)
    check_grads(lambda x: np.sin(nn.interpolate(x, (8, 5), mode="cubic")), [x])
    check_grads(lambda x: np.sin(nn.interpolate(x, (7, 9), mode="linear", align_corners=True)), [x])
    check_grads(lambda x: np.sin(nn.interpolate(x, 6)), [x])


def test_figures_of_pytorch():
    """``torch.nn.functional.interpolate`` of the numbers 0 to 4, to four places."""
    x = np.arange(5.0).reshape(1, 1, 1, 5)
    figures = {
        ("nearest", False): [0, 0, 1, 1, 2, 3, 3, 4],
        ("nearest-exact", False): [0, 0, 1, 2, 2, 3, 4, 4],
        ("linear", False): [0, 0.4375, 1.0625, 1.6875, 2.3125, 2.9375, 3.5625, 4],
        ("linear", True): [0, 0.5714, 1.1429, 1.7143, 2.2857, 2.8571, 3.4286, 4],
        ("cubic", False): [-0.0928, 0.3491, 1.0881, 1.6472, 2.3528, 2.9119, 3.6509, 4.0928],
    }
    for (mode, align_corners), expected in figures.items():
        found = nn.interpolate(x, (1, 8), mode=mode, align_corners=align_corners)
        np.testing.assert_allclose(found[0, 0, 0], expected, atol=6e-5)


def test_images_that_double_take_each_twice_whatever_the_factor():
    x = np.arange(3.0).reshape(1, 1, 1, 3)
    found = nn.interpolate(x, scale_factor=(1.0, 2.3))
    np.testing.assert_array_equal(found[0, 0, 0], [0, 0, 1, 1, 2, 2])
    np.testing.assert_array_equal(nn.interpolate(x[0], scale_factor=2.3)[0, 0], [0, 0, 0, 1, 1, 2])


def test_an_area_is_an_adaptive_mean():
    x = drawn(2, 3, 6, 7)
    np.testing.assert_array_equal(nn.interpolate(x, (4, 3), mode="area"), nn.adaptive_avg_pool(x, (4, 3)))


def test_dtypes():
    x = np.arange(4, dtype=np.uint8).reshape(1, 1, 2, 2)
    assert nn.interpolate(x, 4).dtype == np.uint8
    assert nn.interpolate(x, 4, mode="linear").dtype.kind == "f"
    assert nn.interpolate(x.astype(np.float32), 5, mode="cubic").dtype == np.float32
    assert nn.interpolate(x > 1, 4).dtype == np.bool_


@pytest.mark.parametrize("channels", ["first", "last"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_channels_become_places_and_places_channels(rank, channels):
    extents = (3, 2, 4)[:rank]
    x = drawn(2, 5 * 2**rank, *extents)
    y = np.empty((2, 5, *(2 * n for n in extents)))
    for k, inside in enumerate(np.ndindex(*(2,) * rank)):
        y[(..., *(slice(i, None, 2) for i in inside))] = x[:, k :: 2**rank]
    if channels == "last":
        x, y = np.moveaxis(x, 1, -1), np.moveaxis(y, 1, -1)
    np.testing.assert_array_equal(nn.PixelShuffle(2, channels)(x), y)
    np.testing.assert_array_equal(nn.PixelUnshuffle(2, channels)(y), x)
    slope = pb.jit(pb.grad(lambda x: (nn.pixel_shuffle(x, 2, channels) * y).sum()))(np.zeros_like(x))
    np.testing.assert_array_equal(slope, x)


def test_layers():
    x = drawn(1, 2, 3, 4)
    layer = nn.Upsample(scale_factor=2, mode="cubic", align_corners=True)
    expected = nn.interpolate(x, scale_factor=2, mode="cubic", align_corners=True)
    np.testing.assert_array_equal(layer(x), expected)
    assert repr(layer) == "Upsample(by 2, cubic, corners aligned)"
    assert repr(nn.Upsample((4, 5), channels="last")) == "Upsample(to (4, 5), nearest, channels last)"
    assert repr(nn.PixelShuffle(3)) == "PixelShuffle(3)"


X = np.zeros((1, 3, 4, 5))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: nn.interpolate(X, 4, mode="bilinear"), ValueError, "'linear'"),
        (lambda: nn.interpolate(X, 4, align_corners=True), ValueError, "align_corners with mode='nearest'"),
        (lambda: nn.interpolate(X), ValueError, "give one of them"),
        (lambda: nn.interpolate(X, 4, scale_factor=2), ValueError, "give one of them"),
        (lambda: nn.interpolate(X, (4, 5, 6)), ShapeError, r"size=\(4, 5, 6\)"),
        (lambda: nn.interpolate(X, 0), ShapeError, "size=0"),
        (lambda: nn.interpolate(X, scale_factor=-1), ShapeError, "scale_factor=-1"),
        (lambda: nn.interpolate(X, scale_factor=0.2), ShapeError, "there must be one"),
        (lambda: nn.interpolate(X[:, :, :0], 4), ShapeError, "no elements"),
        (lambda: nn.interpolate(X[0, 0], 4), ShapeError, "want 3"),
        (lambda: nn.pixel_shuffle(X, 2), ShapeError, "3 channels"),
        (lambda: nn.pixel_unshuffle(X, 2), ShapeError, r"extents \(4, 5\)"),
        (lambda: nn.pixel_shuffle(X, 0), ShapeError, "factor=0"),
        (lambda: nn.Upsample(2, channels="middle"), ValueError, "channels='middle'"),
    ],
)
def test_what_does_not_fit(make, error, message):
    with pytest.raises(error, match=message):
        make()
