"""Pooling against loops, in every option and in compiled programs."""

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.errors import DTypeError, ShapeError
from pullback.testing import check_grads


def drawn(*shape):
    return np.random.default_rng(shape).standard_normal(shape)


def pooled(x, choose, size, stride, around, dilation):
    """``choose`` of the elements that each window sees; padding is NaN."""
    wide = np.pad(x, [(0, 0), (0, 0), *around], constant_values=np.nan)
    counts = [(n - (k - 1) * d - 1) // s + 1 for n, k, s, d in zip(wide.shape[2:], size, stride, dilation)]
    y = np.empty((*x.shape[:2], *counts))
    for p in np.ndindex(*counts):
        window = tuple(
            slice(i * s, i * s + (k - 1) * d + 1, d) for i, s, k, d in zip(p, stride, size, dilation)
        )
        seen = wide[(..., *window)].reshape(*x.shape[:2], -1)
        y[(..., *p)] = choose(seen)
    return y


OPTIONS = [
    ((2, 3, 16), 4, {}),
    ((2, 3, 17), 3, {"stride": 2}),
    ((2, 3, 6, 8), 2, {}),
    ((2, 3, 7, 9), (2, 3), {}),
    ((2, 3, 7, 9), 3, {"stride": 2, "padding": 1}),
    ((1, 1, 7, 9), 2, {"stride": 3, "padding": (1, 0)}),
    ((2, 3, 5, 5), 2, {"stride": 1, "padding": "same"}),
    ((2, 3, 5, 6), 2, {"padding": ((0, 1), (1, 1))}),
    ((1, 2, 4, 4, 6), 2, {}),
]


def arguments(shape, size, options):
    """The options written out for the reference."""
    rank = len(shape) - 2
    size = (size,) * rank if isinstance(size, int) else size
    stride = options.get("stride") or size
    stride = (stride,) * rank if isinstance(stride, int) else stride
    padding = options.get("padding", 0)
    if padding == "same":
        padding = [(0, 1)] * rank  # as it is for windows of two and a stride of one
    each = [padding] * rank if isinstance(padding, int) else padding
    return size, stride, [(p, p) if isinstance(p, int) else p for p in each]


@pytest.mark.parametrize("channels", ["first", "last"])
@pytest.mark.parametrize(("shape", "size", "options"), OPTIONS)
def test_pools_by_their_definition(shape, size, options, channels):
    x = drawn(*shape)
    sizes, stride, around = arguments(shape, size, options)
    ones = (1,) * len(sizes)
    given = x if channels == "first" else np.moveaxis(x, 1, -1)
    for function, choose in (
        (nn.max_pool, lambda seen: np.nanmax(seen, axis=-1)),
        (nn.avg_pool, lambda seen: np.nan_to_num(seen).mean(axis=-1)),
        (lambda *a, **k: nn.avg_pool(*a, **k, count_include_pad=False), lambda s: np.nanmean(s, axis=-1)),
    ):
        found = function(given, size, **options, channels=channels)
        found = found if channels == "first" else np.moveaxis(found, -1, 1)
        expected = pooled(x, choose, sizes, stride, around, ones)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_dilated_windows():
    x = drawn(2, 3, 9, 8)
    expected = pooled(x, lambda seen: np.nanmax(seen, -1), (2, 3), (2, 1), [(1, 1)] * 2, (3, 2))
    found = nn.max_pool(x, (2, 3), (2, 1), 1, dilation=(3, 2))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("shape", "size", "options"), OPTIONS)
def test_compiled_gradients_are_those_of_the_interpreter(shape, size, options):
    x = drawn(*shape).astype(np.float32)

    def loss(x):
        largest = nn.max_pool(x, size, **options)
        return (largest * nn.avg_pool(x, size, **options, count_include_pad=False) ** 2).sum()

    value_and_gradient = pb.value_and_grad(loss)
    for found, expected in zip(pb.jit(value_and_gradient)(x), value_and_gradient(x)):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"stride": 1}, {"stride": 3, "padding": 1, "dilation": 2}])
def test_derivatives_to_second_order(options):
    check_grads(lambda x: np.sin(nn.max_pool(x, 2, **options)), [drawn(2, 2, 5, 7)])
    options.pop("dilation", None)
    check_grads(lambda x: np.sin(nn.avg_pool(x, 2, **options, count_include_pad=False)), [drawn(2, 2, 5, 7)])


def test_the_first_of_equal_winners_takes_the_cotangent():
    x = np.zeros((1, 1, 2, 4), np.float32)
    gradient = pb.grad(lambda x: nn.max_pool(x, 2).sum())
    expected = [[1, 0, 1, 0], [0, 0, 0, 0]]
    np.testing.assert_array_equal(gradient(x)[0, 0], expected)
    np.testing.assert_array_equal(pb.jit(gradient)(x)[0, 0], expected)


def test_padding_is_never_the_largest():
    x = np.full((1, 1, 3), -5.0)
    np.testing.assert_array_equal(nn.max_pool(x, 3, 1, 1), x)
    whole = np.full((1, 1, 3), -5, np.int8)
    np.testing.assert_array_equal(nn.max_pool(whole, 3, 1, 1), whole)


def test_nan_wins():
    x = np.array([[[1.0, np.nan, 2.0, 0.0]]])
    np.testing.assert_array_equal(nn.max_pool(x, 2), [[[np.nan, 2.0]]])


def test_integers():
    x = np.arange(8, dtype=np.uint8).reshape(1, 1, 8)
    assert nn.max_pool(x, 2).dtype == np.uint8
    np.testing.assert_array_equal(nn.avg_pool(x, 2), [[[0.5, 2.5, 4.5, 6.5]]])
    with pytest.raises(DTypeError, match="no bool"):
        nn.max_pool(x > 3, 2)


@pytest.mark.parametrize("shape", [(2, 3, 7), (2, 3, 4, 5), (2, 3, 2, 3, 4)])
def test_global_pools(shape):
    x = drawn(*shape)
    flat = x.reshape(2, 3, -1)
    last = np.moveaxis(x, 1, -1)
    np.testing.assert_array_equal(nn.global_max_pool(x), flat.max(axis=-1))
    np.testing.assert_array_equal(nn.global_max_pool(last, "last"), flat.max(axis=-1))
    np.testing.assert_allclose(nn.global_avg_pool(x), flat.mean(axis=-1), rtol=1e-12)
    np.testing.assert_allclose(nn.global_avg_pool(last, "last"), flat.mean(axis=-1), rtol=1e-12)
    check_grads(lambda x: np.sin(nn.global_max_pool(x)) * nn.global_avg_pool(x), [x])


@pytest.mark.parametrize(
    ("shape", "size", "options", "message"),
    [
        ((2, 3, 5), 6, {}, "a window of 6 elements is larger than the 5 of the input"),
        ((2, 3, 5), 3, {"dilation": 3}, r"a window of 7 elements \(3 at distance 3\)"),
        (
            (2, 3, 5),
            2,
            {"padding": 2},
            r"window 0 along axis 2 of shape \(2, 3, 5\) sees nothing but padding",
        ),
        ((2, 3, 5), 2, {"padding": ((0, 3),)}, "window 3 along axis 2"),
        ((2, 3, 4, 5), 2, {"padding": ((0, 0), (0, 2)), "stride": 1}, "window 5 along axis 3"),
        ((2, 3), 2, {}, "want 3"),
        ((2, 3, 5), (2, 2), {}, r"size=\(2, 2\)"),
        ((2, 3, 5), 0, {}, "size=0"),
        ((2, 3, 5), 2, {"stride": 0}, "stride=0"),
    ],
)
def test_what_does_not_fit(shape, size, options, message):
    with pytest.raises(ShapeError, match=message):
        nn.max_pool(np.zeros(shape), size, **options)


def test_nothing_to_pool():
    with pytest.raises(ShapeError, match="nothing to pool"):
        nn.global_max_pool(np.zeros((2, 3, 0)))
    with pytest.raises(ShapeError, match="want 3"):
        nn.global_avg_pool(np.zeros((2, 3)))
