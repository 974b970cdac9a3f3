"""Pooling layers: shapes, descriptions and errors."""

import numpy as np
import pytest

from pullback import jit, nn
from pullback.errors import ShapeError
from pullback.tracing import flatten


def drawn(*shape):
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("channels", ["first", "last"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_layers_are_their_functions(rank, channels):
    x = drawn(2, *(6, 7, 8, 9)[: rank + 1])
    largest = getattr(nn, f"MaxPool{rank}d")(2, 1, 1, 2, channels=channels)
    mean = getattr(nn, f"AvgPool{rank}d")(3, 2, 1, count_include_pad=False, channels=channels)
    np.testing.assert_array_equal(jit(largest)(x), nn.max_pool(x, 2, 1, 1, dilation=2, channels=channels))
    expected = nn.avg_pool(x, 3, 2, 1, count_include_pad=False, channels=channels)
    np.testing.assert_allclose(jit(mean)(x), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("channels", ["first", "last"])
def test_global_layers_are_their_functions(channels):
    x = drawn(2, 3, 4, 5)
    np.testing.assert_array_equal(nn.GlobalMaxPool(channels)(x), nn.global_max_pool(x, channels))
    np.testing.assert_array_equal(nn.GlobalAvgPool(channels)(x), nn.global_avg_pool(x, channels))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_layers_that_take_and_put_back(rank):
    x = drawn(2, 3, *(4, 6, 8)[:rank])
    values, indices = getattr(nn, f"MaxPool{rank}d")(2, return_indices=True)(x)
    back = getattr(nn, f"MaxUnpool{rank}d")(2)
    np.testing.assert_array_equal(back(values, indices), nn.max_unpool(values, indices, 2))
    assert back(values, indices, output_size=9).shape == (2, 3, *(9,) * rank)
    mean = getattr(nn, f"AdaptiveAvgPool{rank}d")(3)
    np.testing.assert_array_equal(mean(x), nn.adaptive_avg_pool(x, 3))
    largest = getattr(nn, f"AdaptiveMaxPool{rank}d")(3, return_indices=True)
    for found, expected in zip(largest(x), nn.adaptive_max_pool(x, 3, return_indices=True)):
        np.testing.assert_array_equal(found, expected)


def test_they_have_no_parameters():
    for layer in (nn.MaxPool2d(2), nn.AvgPool1d(3, padding=1), nn.GlobalMaxPool("last")):
        assert not flatten(layer)[0]


@pytest.mark.parametrize(
    ("layer", "text"),
    [
        (nn.MaxPool2d(2), "MaxPool2d(2 × 2)"),
        (nn.MaxPool1d(8, channels="last"), "MaxPool1d(8, channels last)"),
        (nn.MaxPool2d((2, 3), 1, 1, 2), "MaxPool2d(2 × 3, stride 1, padding 1, dilation 2)"),
        (nn.AvgPool2d(3, 2, "same"), "AvgPool2d(3 × 3, stride 2, padding same)"),
        (nn.AvgPool3d(2, (1, 1, 2)), "AvgPool3d(2 × 2 × 2, stride 1 × 1 × 2)"),
        (nn.AvgPool1d(3, 2, dilation=2), "AvgPool1d(3, stride 2, dilation 2)"),
        (nn.MaxUnpool2d(2, 3), "MaxUnpool2d(2 × 2, stride 3)"),
        (nn.MaxUnpool1d(3, padding=1, channels="last"), "MaxUnpool1d(3, padding (1,), channels last)"),
        (nn.AdaptiveAvgPool2d((7, None)), "AdaptiveAvgPool2d(7 × as it is)"),
        (nn.AdaptiveMaxPool1d(4, channels="last"), "AdaptiveMaxPool1d(4, channels last)"),
        (nn.GlobalMaxPool(), "GlobalMaxPool()"),
        (nn.GlobalAvgPool("last"), "GlobalAvgPool(channels last)"),
    ],
)
def test_descriptions(layer, text):
    assert repr(layer) == text


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.MaxPool2d(2)(np.zeros((5, 28, 28))), r"\[MaxPool2d\(2 × 2\)\].*want 4"),
        (lambda: nn.AvgPool1d(2)(np.zeros((5, 1, 28, 28))), r"\[AvgPool1d\(2\)\].*want 3"),
        (lambda: nn.MaxPool2d((2, 2, 2)), r"\[MaxPool2d\]: kernel_size"),
        (lambda: nn.MaxPool2d(0), "kernel_size=0"),
        (lambda: nn.AvgPool2d(2, 0), "stride=0"),
        (lambda: nn.AvgPool2d(2, padding=-1), "padding=-1"),
        (lambda: nn.MaxPool2d(5)(np.zeros((1, 1, 4, 6))), "a window of 5 elements is larger than the 4"),
        (lambda: nn.MaxPool2d(2, padding=2)(np.zeros((1, 1, 4, 6))), "nothing but padding"),
        (lambda: nn.MaxUnpool2d(2)(np.zeros((1, 1, 4)), None), r"\[MaxUnpool2d\(2 × 2\)\].*want 4"),
        (lambda: nn.AdaptiveAvgPool2d((2, 2, 2)), r"\[AdaptiveAvgPool2d\]: output_size"),
        (lambda: nn.AdaptiveMaxPool2d(2)(np.zeros((1, 1, 4))), r"\[AdaptiveMaxPool2d\(2 × 2\)\].*want 4"),
    ],
)
def test_what_does_not_fit(make, message):
    with pytest.raises(ShapeError, match=message):
        make()


def test_words_that_are_unknown():
    with pytest.raises(ValueError, match=r"\[MaxPool2d\]: channels='middle'"):
        nn.MaxPool2d(2, channels="middle")
    with pytest.raises(ValueError, match="channels='middle'"):
        nn.GlobalMaxPool("middle")(np.zeros((1, 2, 3)))


# -- Windows beyond the end


def by_hand(x, size, stride, padding, dilation, mean, count_include_pad):
    """One axis, (length,): every window that begins in the input or its first padding, as far as it reaches."""
    low, high = padding
    found = []
    for start in range(-low, len(x) + high - (size - 1) * dilation - 1 + stride, stride):
        if start >= len(x):
            break
        places = start + dilation * np.arange(size)
        inside = x[places[(places >= 0) & (places < len(x))]]
        counted = (places < len(x) + high).sum() if count_include_pad else len(inside)
        found.append(inside.sum() / counted if mean else inside.max())
    return np.array(found)


@pytest.mark.parametrize("channels", ["first", "last"])
@pytest.mark.parametrize(
    ("length", "size", "stride", "padding", "dilation"),
    [
        (7, 2, 2, (0, 0), 1),
        (8, 2, 2, (0, 0), 1),
        (7, 3, 2, (1, 1), 1),
        (10, 3, 3, (1, 1), 1),
        (5, 3, 4, (0, 1), 1),
        (4, 2, 3, (1, 1), 1),
        (2, 3, 2, (0, 0), 1),
        (11, 3, 2, (1, 0), 3),
    ],
)
def test_windows_may_reach_beyond_the_end(length, size, stride, padding, dilation, channels):
    x = drawn(2, 3, length)
    given = x if channels == "first" else x.transpose(0, 2, 1)
    options = {"channels": channels, "ceil_mode": True}
    layers = [(nn.MaxPool1d(size, stride, [padding], dilation, **options), False, False)]
    if dilation == 1:
        layers += [
            (nn.AvgPool1d(size, stride, [padding], count_include_pad=counted, **options), True, counted)
            for counted in (False, True)
        ]
    for layer, mean, counted in layers:
        wanted = [
            [by_hand(row, size, stride, padding, dilation, mean, counted) for row in rows] for rows in x
        ]
        wanted = np.transpose(wanted, (0, 1, 2) if channels == "first" else (0, 2, 1))
        for compute in (layer, jit(layer)):
            np.testing.assert_allclose(compute(given), wanted, rtol=1e-6)


def test_axes_reach_beyond_their_ends_each_by_itself():
    x = drawn(1, 1, 5, 6)
    assert nn.MaxPool2d(2, ceil_mode=True)(x).shape == (1, 1, 3, 3)
    assert nn.AvgPool2d((2, 4), ceil_mode=True)(x).shape == (1, 1, 3, 2)
    assert nn.MaxPool2d(2)(x).shape == (1, 1, 2, 3)
    mean = nn.AvgPool2d((2, 4), ceil_mode=True)(x)
    np.testing.assert_allclose(mean[0, 0, 2, 1], x[0, 0, 4, 4:].mean(), rtol=1e-6)
    assert repr(nn.MaxPool2d(2, ceil_mode=True)) == "MaxPool2d(2 × 2, ceil mode)"
