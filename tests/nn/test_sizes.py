"""Sizes of layers: NumPy's integers are integers, and what is none, or too small, is refused by its name."""

import numpy as np
import pytest

from pullback import nn
from pullback.errors import SettingError, ShapeError
from pullback.tracing import flatten

LAYERS = [
    (lambda n: nn.Dense(n, 2), "inputs"),
    (lambda n: nn.Dense(2, n), "outputs"),
    (lambda n: nn.Embedding(n, 2), "rows"),
    (lambda n: nn.RNN(n, 2), "inputs"),
    (lambda n: nn.LSTM(2, n), "hidden"),
    (lambda n: nn.GRUCell(2, n), "hidden"),
    (lambda n: nn.Conv2d(n, 3, 2), "in_channels"),
    (lambda n: nn.Conv2d(3, 3, 2, groups=n), "groups"),
    (nn.BatchNorm, "features"),
    (nn.LayerNorm, "axis 0 of the shape"),
    (lambda n: nn.LayerNorm((2, n), affine=False), "axis 1 of the shape"),
    (nn.RMSNorm, "axis 0 of the shape"),
    (lambda n: nn.GroupNorm(n, 3), "groups"),
    (nn.InstanceNorm, "features"),
    (nn.PReLU, "features"),
    (lambda n: nn.RBF(2, n), "units"),
    (lambda n: nn.MultiHeadAttention(3, n), "heads"),
    (nn.PixelShuffle, "factor"),
    (nn.PixelUnshuffle, "factor"),
]


@pytest.mark.parametrize(
    ("make", "name"), LAYERS, ids=[f"{make(3)!r} {name}".split("\n")[0] for make, name in LAYERS]
)
def test_sizes_that_are_none(make, name):
    for size, error in (
        (0, ShapeError),
        (-1, ShapeError),
        (2.5, SettingError),
        ("3", SettingError),
        (None, SettingError),
    ):
        with pytest.raises(error, match=rf"\[\w+\] {name} is "):
            make(size)


@pytest.mark.parametrize(
    "make",
    [
        *(make for make, _ in LAYERS),
        lambda n: nn.Reshape(n, -1),
        nn.AdaptiveAvgPool2d,
        lambda n: nn.AdaptiveMaxPool2d((n, None)),
        lambda n: nn.MaxPool2d(5, padding=n),
        lambda n: nn.AvgPool2d(n, n, ((n, 0), (0, 0))),
        lambda n: nn.Conv2d(2, 3, n, padding=n),
        lambda n: nn.ConvTranspose1d(2, 3, n, padding=(n,)),
        nn.Upsample,
        lambda n: nn.Upsample(scale_factor=n),
        lambda n: nn.SpectralNorm(nn.Dense(2, 2, seed=0), iterations=n),
    ],
)
def test_numpys_integers_are_sizes_and_no_parameters(make):
    ours, numpys = make(3), make(np.int64(3))
    assert repr(ours) == repr(numpys)
    assert flatten(ours)[1] == flatten(numpys)[1]


def test_a_scale_is_no_parameter():
    assert nn.parameter_count(nn.Chain(nn.Upsample(scale_factor=1.5))) == 0


def test_extents_that_are_none():
    for extent in (784 / 4, "3", None):
        with pytest.raises(SettingError, match=r"extent 1 is .*Give an integer"):
            nn.Reshape(4, extent)
    with pytest.raises(ShapeError, match="extent 0 is -2"):
        nn.Reshape(-2)
