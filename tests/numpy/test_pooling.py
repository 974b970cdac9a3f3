"""Pooling against loops, in every option and in compiled programs."""

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.errors import DTypeError, IndexRangeError, ShapeError
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


# -- Windows beyond the end, where winners are, and so many windows


def indices_by_hand(x, size, stride, around, dilation):
    """For each window the place of its first largest element in the flat channel."""
    rows, columns = x.shape[2:]
    wide = np.pad(x, [(0, 0), (0, 0), *around], constant_values=np.nan)
    flat = np.pad(np.arange(rows * columns).reshape(rows, columns), around, constant_values=-1)
    counts = [(n - (k - 1) * d - 1) // s + 1 for n, k, s, d in zip(wide.shape[2:], size, stride, dilation)]
    found = np.empty((*x.shape[:2], *counts), int)
    for p in np.ndindex(*counts):
        window = tuple(
            slice(i * s, i * s + (k - 1) * d + 1, d) for i, s, k, d in zip(p, stride, size, dilation)
        )
        seen = wide[(..., *window)].reshape(*x.shape[:2], -1)
        found[(..., *p)] = flat[window].reshape(-1)[np.nanargmax(seen, axis=-1)]
    return found


@pytest.mark.parametrize("channels", ["first", "last"])
@pytest.mark.parametrize(("stride", "padding", "dilation"), [(2, 0, 1), (1, 1, 1), (2, 1, 2)])
def test_where_the_winners_are(stride, padding, dilation, channels):
    x = np.round(drawn(2, 3, 7, 9), 1)  # with equal elements
    given = x if channels == "first" else np.moveaxis(x, 1, -1)
    expected = indices_by_hand(x, (3, 3), (stride,) * 2, [(padding,) * 2] * 2, (dilation,) * 2)
    options = {"dilation": dilation, "channels": channels, "return_indices": True}
    for pool in (nn.max_pool, pb.jit(lambda x: nn.max_pool(x, 3, stride, padding, **options))):
        if pool is nn.max_pool:
            values, indices = pool(given, 3, stride, padding, **options)
        else:
            values, indices = pool(given)
        assert indices.dtype == np.int64
        found = indices if channels == "first" else np.moveaxis(indices, -1, 1)
        np.testing.assert_array_equal(found, expected)
        taken = np.take_along_axis(x.reshape(2, 3, -1), expected.reshape(2, 3, -1), -1)
        back = values if channels == "first" else np.moveaxis(values, -1, 1)
        np.testing.assert_array_equal(back, taken.reshape(expected.shape))


@pytest.mark.parametrize("dilation", [1, 2])
def test_padding_is_never_where_a_winner_is(dilation):
    x = np.full((1, 1, 4, 4), -np.inf)
    _, indices = nn.max_pool(x, 2, 2, 1, dilation=dilation, return_indices=True)
    # Of a window that begins in the padding the first element behind it, at the window's own distance.
    first = 0 if dilation == 1 else 1
    assert indices[0, 0, 0, 0] == first * 4 + first


def test_dilated_means():
    x = drawn(2, 3, 9, 8)
    expected = pooled(x, lambda seen: np.nan_to_num(seen).mean(-1), (2, 3), (2, 1), [(1, 1)] * 2, (3, 2))
    found = nn.avg_pool(x, (2, 3), (2, 1), 1, dilation=(3, 2))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_the_functions_round_up_as_the_layers_do():
    x = np.arange(5.0).reshape(1, 1, 5)
    np.testing.assert_array_equal(nn.max_pool(x, 2, ceil_mode=True), [[[1, 3, 4]]])
    np.testing.assert_array_equal(nn.avg_pool(x, 2, ceil_mode=True), [[[0.5, 2.5, 4]]])
    # The padding counts, what is beyond it does not.
    np.testing.assert_allclose(nn.avg_pool(x, 4, 3, 1, ceil_mode=True), [[[3 / 4, 9 / 4]]])
    np.testing.assert_allclose(
        nn.avg_pool(x, 4, 3, 1, ceil_mode=True, count_include_pad=False), [[[3 / 3, 9 / 3]]]
    )
    np.testing.assert_allclose(nn.avg_pool(x, 4, 4, 1, ceil_mode=True), [[[3 / 4, 7 / 3]]])


@pytest.mark.parametrize("channels", ["first", "last"])
def test_unpooling_puts_back(channels):
    x = drawn(2, 3, 5, 6) if channels == "first" else drawn(2, 5, 6, 3)
    sizes = {"output_size": (5, 6), "channels": channels}

    def there_and_back(x):
        y, indices = nn.max_pool(x, 2, channels=channels, return_indices=True)
        return nn.max_unpool(y, indices, 2, **sizes)

    kept = pb.grad(lambda x: nn.max_pool(x, 2, channels=channels).sum())(x)  # one for each winner
    np.testing.assert_array_equal(there_and_back(x), x * kept)
    np.testing.assert_array_equal(pb.jit(there_and_back)(x), x * kept)
    slope = pb.jit(pb.grad(lambda x: (there_and_back(x) ** 2).sum()))(x)
    np.testing.assert_allclose(slope, 2 * x * kept, rtol=1e-12)


def test_of_several_at_one_place_the_last_stays_and_takes_the_cotangent():
    indices = np.array([[[1, 1, 3]]])
    y = np.array([[[5.0, 6.0, 7.0]]])
    np.testing.assert_array_equal(nn.max_unpool(y, indices, 2, 1), [[[0, 6, 0, 7]]])
    slope = pb.grad(lambda y: (nn.max_unpool(y, indices, 2, 1) * [1.0, 10.0, 100.0, 1000.0]).sum())(y)
    np.testing.assert_array_equal(slope, [[[0, 10, 1000]]])


def adaptive_by_hand(x, sizes, choose):
    found = np.empty((*x.shape[:2], *sizes))
    for p in np.ndindex(*sizes):
        window = tuple(slice(i * n // m, -(-(i + 1) * n // m)) for i, n, m in zip(p, x.shape[2:], sizes))
        found[(..., *p)] = choose(x[(..., *window)].reshape(*x.shape[:2], -1))
    return found


@pytest.mark.parametrize("channels", ["first", "last"])
@pytest.mark.parametrize(
    ("shape", "sizes"),
    [((2, 3, 10), (4,)), ((2, 3, 6, 9), (3, 3)), ((2, 3, 7, 5), (3, 8)), ((1, 2, 3, 4, 5), (2, 2, 2))],
)
def test_so_many_windows(shape, sizes, channels):
    x = drawn(*shape)
    given = x if channels == "first" else np.moveaxis(x, 1, -1)

    def both(x):
        largest, indices = nn.adaptive_max_pool(x, sizes, channels, return_indices=True)
        return nn.adaptive_avg_pool(x, sizes, channels), largest, indices

    expected = adaptive_by_hand(x, sizes, lambda seen: seen.mean(-1))
    largest = adaptive_by_hand(x, sizes, lambda seen: seen.max(-1))
    for found in (both(given), pb.jit(both)(given)):
        mean, top, indices = (each if channels == "first" else np.moveaxis(each, -1, 1) for each in found)
        np.testing.assert_allclose(mean, expected, rtol=1e-12)
        np.testing.assert_array_equal(top, largest)
        taken = np.take_along_axis(x.reshape(*shape[:2], -1), indices.reshape(*shape[:2], -1), -1)
        np.testing.assert_array_equal(taken.reshape(largest.shape), largest)


def test_derivatives_of_so_many_windows():
    x = drawn(1, 2, 5, 6)
    check_grads(lambda x: np.sin(nn.adaptive_avg_pool(x, (3, 2))), [x])
    check_grads(lambda x: np.sin(nn.adaptive_max_pool(x, (3, 2))), [x])
    slope = pb.jit(pb.grad(lambda x: (nn.adaptive_max_pool(x, (3, 2)) ** 2).sum()))(x)
    np.testing.assert_allclose(slope, pb.grad(lambda x: (nn.adaptive_max_pool(x, (3, 2)) ** 2).sum())(x))


def test_what_is_no_number_stays_in_its_windows():
    x = np.arange(5.0).reshape(1, 1, 5)
    x[0, 0, 4] = np.nan
    np.testing.assert_array_equal(nn.adaptive_avg_pool(x, 3), [[[0.5, 2, np.nan]]])
    np.testing.assert_array_equal(nn.adaptive_max_pool(x, 3), [[[1, 3, np.nan]]])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda x: nn.max_unpool(x, np.zeros((2, 3, 4), int), 2), ShapeError, "indices for elements"),
        (lambda x: nn.max_unpool(x, np.zeros_like(x), 2), DTypeError, "those of max_pool"),
        (lambda x: nn.max_unpool(x, np.full(x.shape, 10), 2), IndexRangeError, "index: 10 at .* 0 to 9"),
        (lambda x: nn.max_unpool(x, np.full(x.shape, -1), 2), IndexRangeError, "index: -1"),
        (
            lambda x: nn.max_unpool(x, np.zeros(x.shape, int), 2, padding="same"),
            ValueError,
            "numbers of the pool",
        ),
        (lambda x: nn.adaptive_avg_pool(x, (2, 2)), ShapeError, r"output_size=\(2, 2\)"),
        (lambda x: nn.adaptive_avg_pool(x, 0), ShapeError, "output_size=0"),
        (lambda x: nn.adaptive_avg_pool(x[..., :0], 1), ShapeError, "nothing to pool"),
        (lambda x: nn.adaptive_max_pool(x > 0, 2), DTypeError, "no bool"),
    ],
)
def test_what_else_does_not_fit(make, error, message):
    with pytest.raises(error, match=message):
        make(drawn(2, 3, 5))
