"""Dense layers, chains, reshaping, and what all modules share."""

import numpy as np
import pytest

from pullback import grad, jit, nn, optim, static
from pullback.errors import DTypeError, SettingError, ShapeError
from pullback.tracing import flatten, leaf_paths, map_tree


def test_dense_is_a_product_a_sum_and_an_activation():
    layer = nn.Dense(3, 2, activation=np.tanh, seed=0)
    x = np.random.default_rng(1).standard_normal((4, 5, 3)).astype(np.float32)
    np.testing.assert_allclose(layer(x), np.tanh(x @ layer.weight + layer.bias), rtol=1e-6)


def test_dense_without_bias_has_one_parameter():
    layer = nn.Dense(3, 2, bias=False, seed=0)
    assert leaf_paths(layer) == ["weight"]
    x = np.ones((4, 3), np.float32)
    np.testing.assert_array_equal(layer(x), x @ layer.weight)


def test_dense_in_float64():
    layer = nn.Dense(3, 2, dtype=np.float64, seed=0)
    assert layer.weight.dtype == layer.bias.dtype == layer(np.ones(3)).dtype == np.float64
    np.testing.assert_array_equal(layer.weight.astype(np.float32), nn.Dense(3, 2, seed=0).weight)


def test_seeds_decide_the_parameters():
    first, again, other = (nn.Dense(8, 8, seed=seed).weight for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_layers_that_share_a_generator_differ():
    random = np.random.default_rng(0)
    first, second = (nn.Dense(8, 8, seed=random).weight for _ in range(2))
    assert not np.array_equal(first, second)


def test_an_initialiser_leaves_the_bias_at_zero():
    layer = nn.Dense(8, 4, initialiser=nn.initialisers.glorot_uniform, seed=0)
    assert not layer.bias.any() and layer.weight.any()


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: nn.Dense(0, 2), ShapeError),
        (lambda: nn.Dense(3, 2, dtype=np.int32), DTypeError),
        (lambda: nn.Dense(3, 2, initialiser=lambda shape, random: np.ones(3)), ShapeError),
        (lambda: nn.Dense(3, 2)(np.ones((4, 2), np.float32)), ShapeError),
        (lambda: nn.Dense(3, 2)(np.float32(1)), ShapeError),
        (lambda: nn.Dense(3, 2)([[1.0, 2.0, 3.0]]), DTypeError),
        (lambda: jit(nn.Dense(3, 2))([[1.0, 2.0, 3.0]]), DTypeError),
        (lambda: nn.Dense(3, 2, initialiser="zeros"), SettingError),
        (lambda: nn.Chain(nn.Dense(3, 2), 7), TypeError),
    ],
    ids=[
        "no inputs",
        "integers",
        "initialiser's shape",
        "input's shape",
        "scalar",
        "list",
        "traced list",
        "name",
        "not callable",
    ],
)
def test_what_does_not_fit(make, error):
    with pytest.raises(error, match=r"\[(Dense|Chain)"):
        make()


def test_a_chain_is_its_layers_in_turn():
    chain = nn.Chain(nn.flatten, nn.Dense(6, 4, seed=0), nn.relu)
    x = np.random.default_rng(1).standard_normal((5, 2, 3)).astype(np.float32)
    np.testing.assert_array_equal(chain(x), nn.relu(chain[1](x.reshape(5, 6))))
    assert len(chain) == 3 and leaf_paths(chain) == ["layers.1.weight", "layers.1.bias"]


def test_reshape_and_flatten_keep_the_batch():
    x = np.arange(24).reshape(2, 3, 4)
    assert nn.Reshape(2, 6)(x).shape == (2, 2, 6) and nn.Reshape(-1)(x).shape == (2, 12)
    np.testing.assert_array_equal(nn.flatten(x), x.reshape(2, 12))
    assert nn.flatten(np.zeros((0, 3, 4))).shape == (0, 12)


class Scaled(nn.Module):
    """A module of a user's own: parameters, a part that is a module, and settings."""

    factor: np.ndarray
    inner: nn.Dense
    power: int = 2
    shift: float = static(default=0.5)

    def __call__(self, x):
        return self.factor * self.inner(x) ** self.power + self.shift


@pytest.fixture
def scaled():
    return Scaled(np.array(3.0), nn.Dense(2, 2, dtype=np.float64, seed=0))


def test_a_module_is_a_tree_of_its_arrays(scaled):
    leaves, structure = flatten(scaled)
    assert structure.paths == ["factor", "inner.weight", "inner.bias"]
    assert leaves[0] is scaled.factor
    copy = map_tree(np.copy, scaled)
    assert (
        isinstance(copy, Scaled) and copy.power == 2 and copy.shift == 0.5 and copy.inner is not scaled.inner
    )


@pytest.mark.parametrize("compiled", [False, True], ids=["interpreted", "compiled"])
def test_the_gradient_of_a_module_is_a_module(scaled, compiled):
    x = np.array([1.0, -2.0])
    gradient = grad(lambda model: model(x).sum())
    found = (jit(gradient) if compiled else gradient)(scaled)
    y = x @ scaled.inner.weight + scaled.inner.bias
    np.testing.assert_allclose(found.factor, (y**2).sum())
    np.testing.assert_allclose(found.inner.bias, 2 * 3.0 * y)
    np.testing.assert_allclose(found.inner.weight, np.outer(x, 2 * 3.0 * y))


def test_a_module_prints_its_parts_and_parameters(scaled):
    assert repr(scaled).splitlines() == [
        "Scaled(",
        "  factor: float64[],",
        "  inner: Dense(2 → 2),  # 6 parameters, 48 bytes",
        "  power: 2,",
        "  shift: 0.5,",
        ")  # 7 parameters, 56 bytes",
    ]


def test_modules_inside_modules_are_indented():
    model = nn.Chain(nn.Chain(nn.Dense(2, 3, bias=False), np.tanh), nn.Reshape(3, 1))
    assert repr(model).splitlines() == [
        "Chain(",
        "  Chain(",
        "    Dense(2 → 3, no bias),  # 6 parameters, 24 bytes",
        "    tanh,",
        "  ),  # 6 parameters, 24 bytes",
        "  Reshape(3, 1),",
        ")  # 6 parameters, 24 bytes",
    ]


def test_modules_compare_by_identity(scaled):
    assert scaled != map_tree(np.copy, scaled) and scaled in {scaled: "a key"}


@pytest.mark.parametrize(
    "make",
    [
        lambda activation: nn.Dense(3, 2, activation=activation),
        lambda activation: nn.Conv1d(3, 2, 2, activation=activation),
        lambda activation: nn.ConvTranspose2d(3, 2, 2, activation=activation),
    ],
)
def test_activations_are_functions(make):
    with pytest.raises(
        SettingError, match=r"activation is 'relu', a str. Give a function itself, such as nn.relu"
    ):
        make("relu")
    with pytest.raises(SettingError, match=r"activation is the class PReLU. Make one of it"):
        make(nn.PReLU)


def test_a_class_is_no_layer_of_a_chain():
    with pytest.raises(
        TypeError, match=r"layer 1 is the class BatchNorm. Make a layer of it: BatchNorm\(…\)"
    ):
        nn.Chain(nn.Dense(3, 4), nn.BatchNorm)


def test_a_subclass_without_fields_is_made_as_its_base():
    class Doubled(nn.Dense):
        def __call__(self, x):
            return 2 * super().__call__(x)

    class Again(Doubled):
        pass

    x = np.ones((1, 3), np.float32)
    np.testing.assert_array_equal(Again(3, 2, seed=0)(x), 2 * nn.Dense(3, 2, seed=0)(x))


def test_a_subclass_with_a_field_has_it_in_its_init():
    class Base(nn.Module):
        weight: np.ndarray
        power: int = 1

    class Squared(Base):
        power: int = 2

    class Shifted(Base):
        shift: int = 0

    assert Squared(np.ones(1)).power == 2
    assert Shifted(np.ones(1), 3, 4).shift == 4


def test_what_is_set_without_being_a_field_is_printed():
    class Net(nn.Module):
        def __init__(self):
            self.first = nn.Dense(3, 2, seed=0)
            self._hidden = 7

        def __call__(self, x):
            return self.first(x)

    assert repr(Net()) == (
        "Net(\n  first: Dense(3 → 2),  # 8 parameters, 32 bytes\n)  # 8 parameters, 32 bytes"
    )


def test_trees_like_a_model_are_printed_whatever_they_hold():
    model = nn.Chain(nn.Embedding(5, 2, trainable=False), nn.BatchNorm(2), nn.Dense(2, 1))
    for tree in (optim.Adam(0.1).init(model), map_tree(lambda leaf: None, model)):
        assert "BatchNorm" in repr(tree) and "Embedding" in repr(tree)
