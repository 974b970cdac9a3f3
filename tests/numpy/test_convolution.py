"""Convolution and its transpose against SciPy and against loops, in every option and in compiled programs."""

import itertools

import numpy as np
import pytest
from scipy import signal

import pullback as pb
from pullback import nn
from pullback.errors import ShapeError
from pullback.graph import Type, Variable
from pullback.testing import check_grads


def drawn(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def correlated(x, w, stride, dilation, groups):
    """SciPy's correlation of padded images, channel by channel: strides pick, dilation spreads the window."""
    spread = np.zeros((*w.shape[:2], *((k - 1) * d + 1 for k, d in zip(w.shape[2:], dilation))))
    spread[(..., *(slice(None, None, d) for d in dilation))] = w
    inputs, outputs = w.shape[1], w.shape[0] // groups
    images = []
    for image, o in itertools.product(x, range(w.shape[0])):
        group = image[o // outputs * inputs :][:inputs]
        images.append(sum(signal.correlate(c, k, "valid", method="direct") for c, k in zip(group, spread[o])))
    full = np.reshape(images, (len(x), w.shape[0], *images[0].shape))
    return full[(..., *(slice(None, None, s) for s in stride))]


OPTIONS = [
    ((2, 3, 11), (4, 3, 3), {}),
    ((2, 4, 11), (6, 2, 3), {"groups": 2, "stride": 2}),
    ((1, 1, 8, 9), (1, 1, 1, 1), {}),
    ((2, 3, 8, 9), (4, 3, 3, 2), {"stride": (2, 1), "padding": 1}),
    ((2, 3, 8, 9), (4, 3, 3, 4), {"padding": "same"}),
    ((2, 3, 8, 9), (4, 3, 3, 4), {"padding": "same", "stride": (3, 2)}),
    ((2, 3, 8, 9), (4, 3, 2, 3), {"dilation": (3, 2), "padding": ((1, 2), (0, 3))}),
    ((2, 4, 8, 9), (8, 1, 3, 3), {"groups": 4, "padding": (1, 0)}),
    ((1, 2, 5, 4, 6), (3, 2, 2, 3, 2), {"stride": (1, 1, 2), "dilation": (2, 1, 1)}),
]


def widths(padding, x, w, stride, dilation):
    """What a padding adds, written out once more."""
    if padding == "same":
        goal = [-(-n // s) for n, s in zip(x.shape[2:], stride)]
        reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilation)]
        total = [max((p - 1) * s + r - n, 0) for p, s, r, n in zip(goal, stride, reach, x.shape[2:])]
        return [(t // 2, t - t // 2) for t in total]
    rank = w.ndim - 2
    each = (padding,) * rank if isinstance(padding, int) else padding
    return [(p, p) if isinstance(p, int) else p for p in each]


def full(value, rank):
    return (value,) * rank if isinstance(value, int) else value


@pytest.mark.parametrize(("x_shape", "w_shape", "options"), OPTIONS)
def test_conv_is_scipys_correlation(x_shape, w_shape, options):
    x, w = drawn(*x_shape), drawn(*w_shape)
    rank = w.ndim - 2
    stride, dilation = (full(options.get(key, 1), rank) for key in ("stride", "dilation"))
    around = widths(options.get("padding", 0), x, w, stride, dilation)
    expected = correlated(np.pad(x, [(0, 0), (0, 0), *around]), w, stride, dilation, options.get("groups", 1))
    found = nn.conv(x, w, **options)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)
    last = nn.conv(np.moveaxis(x, 1, -1), w, **options, channels="last")
    np.testing.assert_allclose(np.moveaxis(last, -1, 1), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("channels", ["first", "last"])
@pytest.mark.parametrize(("x_shape", "w_shape", "options"), OPTIONS)
def test_compiled_gradients_are_those_of_the_interpreter(x_shape, w_shape, options, channels):
    x, w = drawn(*x_shape).astype(np.float32), drawn(*w_shape).astype(np.float32)
    x = x if channels == "first" else np.moveaxis(x, 1, -1)

    def loss(x, w):
        return (nn.conv(x, w, **options, channels=channels) ** 2).sum()

    gradient = pb.grad(loss, argnums=(0, 1))
    for found, expected in zip(pb.jit(gradient)(x, w), gradient(x, w)):
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4)


def test_only_what_windows_reach_is_padded_and_read():
    x, w = (Variable(Type(np.dtype(np.float32), shape), "x") for shape in ((1, 1, 8), (1, 1, 3)))
    for stride, padding, read in ((2, 1, 9), (1, 1, 10), (4, 0, 7), (5, 0, 8)):
        assert nn.conv(x, w, stride, padding).inputs[0].shape == (1, 1, read)


def test_derivatives_to_second_order():
    options = {"stride": (2, 1), "padding": "same", "dilation": (1, 2), "groups": 2, "channels": "last"}
    check_grads(lambda x, w: np.tanh(nn.conv(x, w, **options)), [drawn(2, 5, 4, 4), drawn(2, 2, 2, 3)])


def scattered(x, w, stride, padding, dilation, more):
    """Each element adds its window; then the padding is cut."""
    spatial = [
        (n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(x.shape[2:], stride, w.shape[2:], dilation)
    ]
    y = np.zeros((len(x), w.shape[1], *(n + m for n, m in zip(spatial, more))))
    for p in np.ndindex(*x.shape[2:]):
        for k in np.ndindex(*w.shape[2:]):
            place = [i * s + j * d for i, s, j, d in zip(p, stride, k, dilation)]
            y[(..., *place)] += x[(..., *p)] @ w[(..., *k)]
    return y[(..., *(slice(n, size - n) for n, size in zip(padding, y.shape[2:])))]


@pytest.mark.parametrize(
    ("x_shape", "w_shape", "stride", "padding", "dilation", "more"),
    [
        ((2, 3, 5), (3, 4, 3), (1,), (0,), (1,), (0,)),
        ((2, 3, 5), (3, 4, 3), (2,), (1,), (1,), (1,)),
        ((2, 3, 5), (3, 4, 2), (3,), (0,), (2,), (2,)),
        ((2, 3, 5), (3, 4, 2), (1,), (2,), (1,), (0,)),
        ((1, 2, 3, 4), (2, 1, 3, 2), (2, 1), (2, 1), (1, 2), (0, 1)),
        ((1, 1, 2, 3, 2), (1, 2, 2, 1, 2), (2, 2, 1), (0, 0, 0), (1, 1, 1), (0, 0, 0)),
    ],
)
def test_conv_transpose_adds_windows(x_shape, w_shape, stride, padding, dilation, more):
    x, w = drawn(*x_shape), drawn(*w_shape)
    expected = scattered(x, w, stride, padding, dilation, more)
    options = {"output_padding": more, "dilation": dilation}
    found = nn.conv_transpose(x, w, stride, padding, **options)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)
    x = np.moveaxis(x, 1, -1)
    found = nn.conv_transpose(x, w, stride, padding, **options, channels="last")
    np.testing.assert_allclose(np.moveaxis(found, -1, 1), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("groups", [1, 2])
def test_conv_transpose_is_the_adjoint_of_conv(groups):
    options = {"stride": (2, 3), "padding": (1, 0), "dilation": (1, 2), "groups": groups}
    x, w = drawn(2, 4, 9, 10), drawn(6, 4 // groups, 3, 2)
    y = nn.conv(x, w, **options)
    bar = drawn(*y.shape, seed=1)
    back = nn.conv_transpose(bar, w, **options, output_padding=(0, 1))
    assert back.shape == x.shape
    np.testing.assert_allclose(np.vdot(bar, y), np.vdot(back, x), rtol=1e-10)


def test_conv_transpose_compiled_and_differentiated():
    x, w = drawn(2, 4, 3, 4), drawn(4, 2, 3, 2)
    options = {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2}
    check_grads(lambda x, w: np.sin(nn.conv_transpose(x, w, **options)), [x, w])
    compiled = pb.jit(lambda x, w: nn.conv_transpose(x, w, **options))(x, w)
    np.testing.assert_allclose(compiled, nn.conv_transpose(x, w, **options), rtol=1e-10, atol=1e-12)


def test_dtypes_promote_as_everywhere():
    images, w = np.ones((1, 1, 4), np.uint8), np.ones((1, 1, 2), np.float32)
    assert nn.conv(images, w).dtype == np.float32
    assert nn.conv(images, w.astype(np.int16)).dtype == np.int16
    assert pb.jit(nn.conv)(images, w).dtype == np.float32


@pytest.mark.parametrize(
    ("x", "w", "options", "message"),
    [
        ((2, 28, 28), (6, 1, 3, 3), {}, r"\(2, 28, 28\).*want 4, \(batch, channels, height, width\)"),
        ((2, 28), (6, 1, 3), {"channels": "last"}, r"1 axis want 3, \(batch, length, channels\)"),
        ((2, 3, 5), (4, 3), {}, "three axes or more"),
        ((2, 3, 5), (4, 2, 3), {}, "3 channels; the weight of shape .* wants 2"),
        ((2, 3, 5), (4, 2, 3), {"channels": "last"}, "5 channels"),
        ((2, 3, 5), (4, 1, 3), {"groups": 3}, "4 channels of the weight's first axis .* groups=3"),
        ((2, 4, 5), (4, 1, 3), {"groups": 2}, "in 2 groups wants 2"),
        ((2, 3, 5), (4, 3, 6), {}, "a window of 6 elements is larger than the 5 of the input;"),
        ((2, 3, 5), (4, 3, 4), {"dilation": 3, "padding": 2}, r"10 elements \(4 at distance 3\).*2 \+ 2"),
        ((2, 3, 5), (4, 3, 2), {"stride": 0}, "stride=0"),
        ((2, 3, 5), (4, 3, 2), {"stride": (1, 1)}, "stride"),
        ((2, 3, 5), (4, 3, 2), {"padding": -1}, "padding=-1"),
        ((2, 3, 5), (4, 3, 2), {"padding": ((1, 1), (1, 1))}, "give 1 pairs"),
        ((2, 3, 5), (4, 3, 2), {"dilation": 1.5}, "dilation=1.5"),
    ],
)
def test_what_does_not_fit(x, w, options, message):
    with pytest.raises(ShapeError, match=message):
        nn.conv(np.zeros(x), np.zeros(w), **options)


@pytest.mark.parametrize("options", [{"padding": "full"}, {"channels": "middle"}])
def test_words_that_are_unknown(options):
    with pytest.raises(ValueError, match=r"full|middle"):
        nn.conv(np.zeros((1, 1, 5)), np.zeros((1, 1, 2)), **options)


@pytest.mark.parametrize(
    ("x", "w", "options", "error", "message"),
    [
        ((1, 2, 4), (3, 1, 2), {}, ShapeError, "2 channels; the weight of shape .* wants 3"),
        ((1, 2, 1), (2, 1, 2), {"padding": 1}, ShapeError, "make 0"),
        ((1, 2, 4), (2, 1, 2), {"output_padding": 1}, ShapeError, "less than stride"),
        ((1, 2, 4), (2, 1, 2), {"padding": "full"}, ValueError, "'valid', 'same'"),
        (
            (1, 2, 4),
            (2, 1, 2),
            {"padding": "same", "stride": 2, "output_padding": 1},
            ValueError,
            "output_padding=1 with padding='same'",
        ),
    ],
)
def test_what_does_not_fit_the_transpose(x, w, options, error, message):
    with pytest.raises(error, match=message):
        nn.conv_transpose(np.zeros(x), np.zeros(w), **options)


@pytest.mark.parametrize(
    ("size", "stride", "dilation"),
    [(1, 3, 1), (2, 3, 1), (3, 2, 1), (4, 2, 1), (5, 1, 1), (2, 3, 2), (3, 2, 3)],
)
def test_the_same_transposed_is_the_transpose_of_the_same(size, stride, dilation):
    """``sum(conv(y) * x) = sum(y * conv_transpose(x))``, of which the second has ``extent * stride`` elements."""
    x, w = drawn(2, 3, 4), drawn(3, 5, size)
    y = drawn(2, 5, 4 * stride)
    options = {"dilation": dilation}
    there = nn.conv(y, w, stride, "same", **options)
    back = nn.conv_transpose(x, w, stride, "same", **options)
    assert back.shape == y.shape
    np.testing.assert_allclose((there * x).sum(), (back * y).sum(), rtol=1e-10)
    layer = nn.ConvTranspose1d(3, 5, size, stride, "same", dilation=dilation, bias=False, dtype=np.float64)
    layer.weight = w
    np.testing.assert_allclose(pb.jit(layer)(x), back, rtol=1e-10, atol=1e-12)
    assert layer.describe().count("padding same") == 1
