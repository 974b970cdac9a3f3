"""Convolution layers: parameters, shapes, descriptions, errors, and a network that learns."""

import numpy as np
import pytest

from pullback import grad, jit, nn, optim
from pullback.data import load_digits
from pullback.errors import DTypeError, ShapeError
from pullback.tracing import flatten, leaf_paths
from pullback.train import Trainer

CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSES = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}


def drawn(*shape, dtype=np.float32):
    return np.random.default_rng(shape).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_convolution_a_bias_and_an_activation(rank):
    x = drawn(2, 4, *(6, 5, 4)[:rank])
    options = {"dilation": 2, "groups": 2}
    layer = CONVOLUTIONS[rank](4, 6, 2, 1, "same", **options, activation=np.tanh, seed=0)
    expected = nn.conv(x, layer.weight, padding="same", **options)
    expected = np.tanh(expected + layer.bias.reshape(6, *(1,) * rank))
    np.testing.assert_array_equal(layer(x), expected)
    last = CONVOLUTIONS[rank](4, 6, 2, 1, "same", **options, activation=np.tanh, channels="last", seed=0)
    np.testing.assert_array_equal(last.weight, layer.weight)
    np.testing.assert_allclose(
        np.moveaxis(last(np.moveaxis(x, 1, -1)), -1, 1), expected, rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_transpose_leads_back(rank):
    extents = (9, 8, 7)[:rank]
    there = CONVOLUTIONS[rank](2, 5, 3, 2, 1, seed=0)
    back = TRANSPOSES[rank](5, 2, 3, 2, 1, output_padding=tuple((n + 1) % 2 for n in extents), seed=0)
    x = drawn(3, 2, *extents)
    y = back(there(x))
    assert y.shape == x.shape
    expected = nn.conv_transpose(there(x), back.weight, 2, 1, output_padding=back.output_padding)
    np.testing.assert_array_equal(y, expected + back.bias.reshape(2, *(1,) * rank))


def test_parameters_begin_as_pytorchs():
    layer = nn.Conv2d(8, 32, (3, 5), groups=2, seed=0)
    assert layer.weight.shape == (32, 4, 3, 5) and layer.bias.shape == (32,)
    limit = 1 / np.sqrt(4 * 3 * 5)
    for parameter in (layer.weight, layer.bias):
        assert 0.8 * limit < abs(parameter).max() <= limit
    back = nn.ConvTranspose2d(8, 32, (3, 5), groups=2, seed=0)
    assert back.weight.shape == (8, 16, 3, 5) and back.bias.shape == (32,)
    assert 0.9 / np.sqrt(16 * 3 * 5) < abs(back.weight).max() <= 1 / np.sqrt(16 * 3 * 5)


def test_initialisers_see_the_window_first_and_the_outputs_last():
    asked = []

    def ones(shape, random):
        asked.append(shape)
        return np.ones(shape)

    layer = nn.Conv2d(4, 6, (3, 5), initialiser=ones, groups=2)
    assert asked == [(3, 5, 2, 6)] and layer.weight.shape == (6, 2, 3, 5) and not layer.bias.any()
    glorot = nn.Conv1d(3, 5, 7, initialiser=nn.initialisers.glorot_uniform, seed=0).weight
    assert abs(glorot).max() <= np.sqrt(6 / (7 * (3 + 5)))


def test_without_bias_there_is_one_parameter():
    assert leaf_paths(nn.Conv2d(1, 6, 3, bias=False)) == ["weight"]
    assert leaf_paths(nn.ConvTranspose1d(1, 6, 3)) == ["weight", "bias"]


def test_seeds_and_dtypes():
    single, double = nn.Conv1d(2, 3, 4, seed=7), nn.Conv1d(2, 3, 4, seed=7, dtype=np.float64)
    assert double.weight.dtype == double(drawn(1, 2, 9, dtype=np.float64)).dtype == np.float64
    np.testing.assert_array_equal(double.weight.astype(np.float32), single.weight)
    random = np.random.default_rng(0)
    assert not np.array_equal(nn.Conv1d(2, 3, 4, seed=random).weight, nn.Conv1d(2, 3, 4, seed=random).weight)
    with pytest.raises(DTypeError):
        nn.Conv1d(2, 3, 4, dtype=np.int32)


@pytest.mark.parametrize(
    ("layer", "text"),
    [
        (nn.Conv2d(1, 6, 3, bias=False), "Conv2d(1 → 6, 3 × 3, no bias)"),
        (
            nn.Conv2d(4, 6, (3, 5), 2, "same", groups=2),
            "Conv2d(4 → 6, 3 × 5, stride 2, padding same, groups 2)",
        ),
        (nn.Conv2d(4, 6, 3, (2, 1), (1, 0)), "Conv2d(4 → 6, 3 × 3, stride 2 × 1, padding (1, 0))"),
        (nn.Conv1d(4, 6, 3, dilation=2, channels="last"), "Conv1d(4 → 6, 3, dilation 2, channels last)"),
        (nn.Conv3d(4, 6, 3, activation=nn.relu), "Conv3d(4 → 6, 3 × 3 × 3, relu)"),
        (nn.ConvTranspose2d(4, 6, 3, 2, groups=2), "ConvTranspose2d(4 → 6, 3 × 3, stride 2, groups 2)"),
    ],
)
def test_descriptions(layer, text):
    assert layer.describe() == text
    assert repr(layer).startswith(f"{text}  # {nn.parameter_count(layer)} parameters")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.Conv2d(3, 6, 3, groups=2), "groups=2 do not divide 3 input channels and 6 output"),
        (lambda: nn.ConvTranspose2d(4, 3, 3, groups=2), r"\[ConvTranspose2d\] groups=2"),
        (lambda: nn.Conv2d(3, 6, 3, groups=0), "groups is 0"),
        (lambda: nn.Conv2d(3, 6, (3, 3, 3)), r"\[Conv2d\]: kernel_size=\(3, 3, 3\)"),
        (lambda: nn.Conv2d(3, 6, 0), "kernel_size=0"),
        (lambda: nn.Conv1d(3, 6, 3, stride=0), "stride=0"),
        (lambda: nn.Conv1d(3, 6, 3, dilation=0), "dilation=0"),
        (lambda: nn.Conv1d(3, 6, 3, padding=-1), "padding=-1"),
        (lambda: nn.ConvTranspose1d(3, 6, 3, output_padding=-1), "output_padding=-1"),
        (lambda: nn.Conv2d(0, 6, 3), r"\[Conv2d\] in_channels is 0"),
        (lambda: nn.Conv2d(1, 6, 3)(np.zeros((28, 28))), "want 4"),
        (lambda: nn.Conv2d(1, 6, 3)(np.zeros((5, 28, 28))), r"\(batch, channels, height, width\)"),
        (lambda: nn.Conv2d(1, 6, 3)(np.zeros((5, 3, 28, 28))), "3 channels"),
        (lambda: nn.Conv2d(1, 6, 3)(np.zeros((5, 1, 2, 28))), "a window of 3 elements is larger than the 2"),
    ],
)
def test_what_does_not_fit(make, message):
    with pytest.raises(ShapeError, match=message):
        make()


def test_words_that_are_unknown():
    with pytest.raises(ValueError, match=r"\[Conv2d\]: channels='middle'"):
        nn.Conv2d(1, 6, 3, channels="middle")
    with pytest.raises(ValueError, match="padding='full'"):
        nn.Conv2d(1, 6, 3, padding="full")


@pytest.mark.parametrize("channels", ["first", "last"])
def test_networks_compiled(channels):
    options = {"channels": channels, "seed": 0}
    network = nn.Chain(
        nn.Conv2d(3, 4, 3, padding=1, activation=nn.relu, **options),
        nn.MaxPool2d(2, channels=channels),
        nn.Conv2d(4, 5, 3, 2, bias=False, **options),
        nn.AvgPool2d(2, 1, channels=channels),
        nn.ConvTranspose2d(5, 2, 2, 2, **options),
        np.tanh,
        nn.GlobalMaxPool(channels),
    )
    x = drawn(2, 3, 14, 14) if channels == "first" else drawn(2, 14, 14, 3)
    gradient = grad(lambda network, x: (network(x) ** 2).sum())
    found, expected = (flatten(f(network, x))[0] for f in (jit(gradient), gradient))
    assert len(found) == len(expected) == 5
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)


def test_a_small_network_learns_the_digits():
    digits = load_digits()
    random = np.random.default_rng(0)
    network = nn.Chain(
        nn.Reshape(1, 8, 8),
        nn.Conv2d(1, 8, 3, activation=nn.relu, seed=random),
        nn.MaxPool2d(2),
        nn.flatten,
        nn.Dense(72, 10, seed=random),
    )
    trainer = Trainer(network, nn.softmax_cross_entropy, optim.SGD(0.2), batch_size=20, scale=digits.scale)
    trainer.fit(digits.train, 6)
    assert trainer.evaluate(digits.test)["accuracy"] > 0.9


def test_channels_that_lie_elsewhere_are_told():
    with pytest.raises(ShapeError, match=r'28 channels; .* wants 3: channels="last" reads them there'):
        nn.Conv2d(3, 4, 3)(np.zeros((2, 28, 28, 3), np.float32))
    with pytest.raises(ShapeError, match=r'28 channels; .* wants 3: channels="first" reads them there'):
        nn.ConvTranspose2d(3, 4, 3, channels="last")(np.zeros((2, 3, 28, 28), np.float32))
