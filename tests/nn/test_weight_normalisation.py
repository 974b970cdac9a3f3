"""Weight and spectral normalisation around layers."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback import nn, optim
from pullback.errors import ShapeError

F64 = {"dtype": np.float64}


def layers():
    return [
        (nn.Dense(4, 3, seed=0, **F64), np.ones((5, 4)), -1),
        (nn.Conv2d(2, 3, 3, seed=0, **F64), np.ones((2, 2, 5, 5)), 0),
        (nn.Conv1d(2, 4, 3, bias=False, seed=0, **F64), np.ones((2, 2, 6)), 0),
    ]


@pytest.mark.parametrize("layer, x, axis", layers())
def test_weight_norm_begins_as_the_layer_and_scales_outputs(layer, x, axis):
    x = np.random.default_rng(0).normal(size=x.shape)
    normal = nn.WeightNorm(layer)
    np.testing.assert_allclose(normal(x), layer(x), rtol=1e-12)
    np.testing.assert_allclose(pb.jit(lambda m, x: m(x))(normal, x), layer(x), rtol=1e-12)
    layer.weight = layer.weight * 7.0  # a direction has no length
    before = normal(x)
    normal.scale = normal.scale * 2
    bias = 0 if layer.bias is None else nn.WeightNorm(layer).layer.bias
    shaped = bias if np.ndim(bias) == 0 or axis == -1 else bias.reshape(-1, *[1] * (x.ndim - 2))
    np.testing.assert_allclose(normal(x) - shaped, 2 * (before - shaped), rtol=1e-10)


def test_weight_norm_has_the_gradients_of_its_formula():
    layer = nn.Dense(3, 2, seed=1, **F64)
    normal, x = nn.WeightNorm(layer), np.random.default_rng(0).normal(size=(4, 3))
    gradient = pb.grad(lambda m: np.sum(np.sin(m(x))))(normal)

    def plain(v, g, b):
        return np.sum(np.sin(x @ (v * (g / np.sqrt(np.sum(v * v, 0)))) + b))

    by_v, by_g, by_b = pb.grad(plain, (0, 1, 2))(layer.weight, normal.scale, layer.bias)
    np.testing.assert_allclose(gradient.layer.weight, by_v, rtol=1e-12)
    np.testing.assert_allclose(gradient.scale, by_g, rtol=1e-12)
    np.testing.assert_allclose(gradient.layer.bias, by_b, rtol=1e-12)
    np.testing.assert_allclose(
        np.sum(by_v * layer.weight, 0), 0, atol=1e-12
    )  # along the direction there is none


@pytest.mark.parametrize("layer, x, axis", layers())
def test_the_largest_singular_value_becomes_one(layer, x, axis):
    normal = nn.SpectralNorm(layer, seed=0, iterations=5)
    matrix = np.moveaxis(layer.weight, axis, 0).reshape(layer.weight.shape[axis], -1)

    @pb.jit
    def trained(model, key):
        with nn.training(key) as mode:
            value = model(x)
        return value, mode.updated(model)

    for step in range(60):
        _, normal = trained(normal, pb.random.key(step))
    value = float(normal.left @ matrix @ normal.right)
    assert value == pytest.approx(np.linalg.svd(matrix)[1][0], rel=1e-6)
    layer.weight = layer.weight / value
    np.testing.assert_allclose(normal(x), layer(x), rtol=1e-6)


def test_vectors_stay_outside_training_and_have_no_gradients():
    layer = nn.SpectralNorm(nn.Dense(4, 3, seed=0, **F64), seed=1)
    gradient = pb.grad(lambda m: np.sum(m(np.ones((2, 4))) ** 2))(layer)
    assert not gradient.left.any() and not gradient.right.any() and gradient.layer.weight.any()
    u, v, w = layer.left, layer.right, layer.layer.weight

    def plain(w):
        return np.sum((np.ones((2, 4)) @ (w / (u @ w.T @ v)) + layer.layer.bias) ** 2)

    np.testing.assert_allclose(gradient.layer.weight, pb.grad(plain)(w), rtol=1e-12)


@pytest.mark.parametrize("wrapper", [nn.WeightNorm, nn.SpectralNorm])
def test_they_are_trained(wrapper):
    inputs = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
    labels = inputs @ np.array([[0.2], [-0.5], [0.1]], np.float32)
    model = wrapper(nn.Dense(3, 1, seed=0))
    trainer = pb.Trainer(model, nn.squared_error, optim.Adam(0.05), metrics=(), batch_size=16)
    history = trainer.fit((inputs, labels), epochs=15)
    assert history["loss"][-1] < 0.5 * history["loss"][0]


@pytest.mark.parametrize("wrapper", [nn.WeightNorm, nn.SpectralNorm])
def test_what_has_no_weight_is_refused(wrapper):
    with pytest.raises(ShapeError, match="no array 'weight'"):
        wrapper(nn.Dropout(0.5))
    with pytest.raises(ShapeError, match=r"axis 2 of a weight of shape \(4, 3\)"):
        wrapper(nn.Dense(4, 3), axis=2)
    with pytest.raises(ValueError, match="iterations"):
        nn.SpectralNorm(nn.Dense(2, 2), iterations=0)
