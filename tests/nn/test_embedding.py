"""Embeddings, trained and fixed, and radial basis functions."""

import numpy as np
import pytest

from pullback import Trainer, grad, jit, nn, optim, value_and_grad
from pullback.errors import DTypeError, IndexRangeError, SettingError, ShapeError
from pullback.testing import check_grads

TOKENS = np.array([[1, 4, 1], [0, 1, 4]])


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64])
def test_a_token_is_its_row(dtype):
    layer = nn.Embedding(5, 3, seed=0)
    tokens = TOKENS.astype(dtype)
    expected = layer.weight[TOKENS]
    np.testing.assert_array_equal(layer(tokens), expected)
    np.testing.assert_array_equal(jit(lambda layer, t: layer(t))(layer, tokens), expected)


@pytest.mark.parametrize("compiled", [False, True], ids=["interpreted", "compiled"])
def test_repeated_tokens_add_their_gradients(compiled):
    layer = nn.Embedding(5, 3, seed=0, dtype=np.float64)
    weights = np.random.default_rng(0).normal(size=(2, 3, 3))
    gradient = grad(lambda layer: (weights * layer(TOKENS)).sum())
    found = (jit(gradient) if compiled else gradient)(layer).weight
    expected = np.zeros((5, 3))
    np.add.at(expected, TOKENS, weights)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert not found[2:4].any()


def step(layer, state, tokens, optimiser):
    def loss(layer):
        return (layer(tokens) ** 2).sum()

    _, gradients = value_and_grad(loss)(layer)
    return optimiser.update(gradients, state, layer)


@pytest.mark.parametrize("compiled", [False, True], ids=["interpreted", "compiled"])
@pytest.mark.parametrize(
    "optimiser", [optim.SGD(0.1, 0.9, True, 0.1), optim.Adam(weight_decay=0.1)], ids=["SGD", "Adam"]
)
def test_a_fixed_table_stays_bit_for_bit(optimiser, compiled):
    layer = nn.Chain(nn.Embedding(5, 3, trainable=False, seed=0), nn.Dense(3, 3, seed=0))
    before, state = layer[0].weight.copy(), optimiser.init(layer)
    run = jit(step, static_argnums=3) if compiled else step
    for _ in range(3):
        layer, state = run(layer, state, TOKENS, optimiser)
    np.testing.assert_array_equal(layer[0].weight, before)
    assert not np.array_equal(layer[1].weight, nn.Dense(3, 3, seed=0).weight)


def test_a_fixed_table_has_no_gradient_and_no_state():
    layer = nn.Embedding(5, 3, trainable=False, seed=0)
    assert not grad(lambda layer: layer(TOKENS).sum())(layer).weight.any()
    assert optim.Adam().init(layer).mean.weight.size == 1
    assert optim.global_norm(layer) == 0 and nn.parameter_count(layer) == 0
    assert not np.array_equal(
        layer.weight, step(nn.Embedding(5, 3, seed=0), (), TOKENS, optim.SGD(0.1))[0].weight
    )


def test_from_vectors():
    vectors = np.arange(6.0).reshape(3, 2)
    layer = nn.Embedding.from_vectors(vectors)
    np.testing.assert_array_equal(layer.weight, vectors)
    assert layer.weight.dtype == np.float32 and not layer.trainable and vectors.flags.writeable
    assert nn.Embedding.from_vectors(vectors, trainable=True, dtype=np.float64).trainable
    layer.weight[0] = 9
    assert vectors[0, 1] == 1
    with pytest.raises(ShapeError, match=r"\[Embedding\]"):
        nn.Embedding.from_vectors(np.ones(3))


@pytest.mark.parametrize("compiled", [False, True], ids=["at once", "compiled"])
@pytest.mark.parametrize("token", [5, -1, 200])
def test_a_token_out_of_range_is_named_with_its_place(token, compiled):
    layer = nn.Embedding(5, 3, seed=0)
    tokens = TOKENS.copy()
    tokens[1, 2] = token
    with pytest.raises(IndexRangeError, match=rf"token: {token} at position \(1, 2\) is outside 0 to 4"):
        (jit(lambda layer, t: layer(t)) if compiled else layer.__class__.__call__)(layer, tokens)


def test_what_does_not_fit():
    with pytest.raises(DTypeError, match="tokens of dtype float64"):
        nn.Embedding(5, 3)(np.ones(3))
    with pytest.raises(ShapeError, match=r"\[Embedding\]"):
        nn.Embedding(0, 3)
    with pytest.raises(ValueError, match=r"\[RBF\]"):
        nn.RBF(2, 3, width=0.0)
    with pytest.raises(ShapeError, match=r"\[RBF"):
        nn.RBF(2, 3)(np.ones((4, 3)))


def test_radial_basis_functions():
    layer = nn.RBF(2, 4, width=0.7, seed=0, dtype=np.float64)
    x = np.random.default_rng(1).normal(size=(3, 5, 2))
    squared = ((x[..., None, :] - layer.centres) ** 2).sum(axis=-1)
    expected = np.exp(-squared / (2 * 0.7**2))
    np.testing.assert_allclose(layer(x), expected, rtol=1e-12)
    np.testing.assert_allclose(jit(lambda layer, x: layer(x))(layer, x), expected, rtol=1e-12)
    assert nn.RBF(9, 2, seed=0).log_widths.tolist() == pytest.approx([np.log(3.0)] * 2)


def test_derivatives_of_radial_basis_functions():
    layer = nn.RBF(2, 4, width=1.5, seed=0, dtype=np.float64)

    def loss(x, centres, log_widths):
        changed = nn.RBF(2, 4, dtype=np.float64)
        changed.centres, changed.log_widths = centres, log_widths
        return (changed(x) ** 2).sum()

    check_grads(loss, [np.random.default_rng(1).normal(size=(5, 2)), layer.centres, layer.log_widths])


# -- Padding


@pytest.mark.parametrize("compiled", [False, True], ids=["interpreted", "compiled"])
def test_padding_is_zero_and_has_no_gradient(compiled):
    tokens = np.array([[1, 0, 2, 1], [0, 0, 3, 1]])
    layer, plain = nn.Embedding(4, 3, padding_idx=0, seed=0), nn.Embedding(4, 3, seed=0)
    plain.weight[0] = 0
    np.testing.assert_array_equal(layer(tokens), plain(tokens))
    assert layer(tokens).dtype == np.float32

    def loss(layer):
        return np.sum((layer(tokens) - 0.5) ** 2)

    gradient = jit(grad(loss)) if compiled else grad(loss)
    found, expected = gradient(layer).weight, gradient(plain).weight
    assert (found[0] == 0).all() and (expected[0] != 0).all()
    np.testing.assert_allclose(found[1:], expected[1:], rtol=1e-6)


def test_padding_is_zero_whatever_the_row_holds():
    layer = nn.Embedding.from_vectors(np.ones((3, 2)), padding_idx=np.int64(2), trainable=True)
    assert (layer.weight == [[1, 1], [1, 1], [0, 0]]).all()
    layer.weight[2] = np.nan
    for function in (layer, jit(layer)):
        np.testing.assert_array_equal(function(np.array([2, 0])), [[0, 0], [1, 1]])
    assert np.isfinite(jit(grad(lambda layer: np.sum(layer(np.array([2, 0])) ** 2)))(layer).weight).all()


@pytest.mark.parametrize(
    "optimiser", [optim.AdamW(0.1), optim.SGD(0.1, 0.9, weight_decay=0.1), optim.Lion(0.1)]
)
def test_optimisers_leave_the_row_of_padding_at_zero(optimiser):
    model = nn.Chain(
        nn.Embedding(5, 3, padding_idx=1, seed=0), lambda x: x.sum(axis=1), nn.Dense(3, 2, seed=0)
    )
    tokens = np.random.default_rng(0).integers(0, 5, (40, 6))
    before = model[0].weight.copy()
    Trainer(model, nn.softmax_cross_entropy, optimiser, batch_size=10).fit((tokens, tokens[:, 0] % 2), 3)
    assert (model[0].weight[1] == 0).all() and (model[0].weight[0] != before[0]).all()


@pytest.mark.parametrize("number", [-1, 4, 1.5, "0"])
def test_padding_that_is_no_row(number):
    with pytest.raises((ValueError, SettingError), match=r"\[Embedding\] padding_idx is "):
        nn.Embedding(4, 3, padding_idx=number)


def test_padding_is_part_of_the_description():
    assert repr(nn.Embedding(4, 3, False, padding_idx=0)).startswith("Embedding(4 × 3, padding 0, fixed)")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_vectors_are_copied(dtype):
    vectors = np.ones((3, 2), dtype)
    layer = nn.Embedding.from_vectors(vectors, dtype=dtype)
    assert layer.weight.dtype == dtype and not np.shares_memory(layer.weight, vectors)
