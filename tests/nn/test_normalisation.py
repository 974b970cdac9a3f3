"""All normalisation layers against NumPy written out by hand."""

import math

import numpy as np
import pytest

from pullback import grad, jit, nn, optim, random, value_and_grad
from pullback.errors import DTypeError, ShapeError
from pullback.testing import check_grads
from pullback.tracing import flatten, map_tree

KEY = random.key(0)
draw = np.random.default_rng(11)


def filled(layer):
    """The layer with weights and biases that are not those it begins with."""
    values = np.random.default_rng(5)
    return map_tree(lambda a: values.uniform(0.5, 1.5, a.shape).astype(a.dtype), layer)


def batch_norm_by_hand(x, axis, mean, variance, layer):
    along = [1] * x.ndim
    along[axis] = -1
    weight, bias, mean, variance = (
        np.asarray(a, np.float64).reshape(along) for a in (layer.weight, layer.bias, mean, variance)
    )
    return (x - mean) / np.sqrt(variance + layer.epsilon) * weight + bias


SHAPES = [
    ((12, 5), "first", 1),
    ((12, 5), "last", 1),
    ((6, 5, 7), "first", 1),
    ((6, 7, 5), "last", 2),
    ((4, 5, 3, 6), "first", 1),
    ((4, 3, 6, 5), "last", 3),
    ((2, 5, 3, 2, 4), "first", 1),
    ((2, 3, 2, 4, 5), "last", 4),
]


@pytest.mark.parametrize("compiled", [False, True], ids=["at once", "compiled"])
@pytest.mark.parametrize(("shape", "channels", "axis"), SHAPES, ids=str)
def test_batch_norm(shape, channels, axis, compiled):
    layer = filled(nn.BatchNorm(5, channels=channels, dtype=np.float64))

    def train(layer, x):
        with nn.training(KEY) as mode:
            y = layer(x)
        return y, mode.updated(layer)

    def evaluate(layer, x):
        return layer(x)

    if compiled:
        train, evaluate = jit(train), jit(evaluate)
    mean, variance = layer.running_mean, layer.running_variance
    axes = tuple(k for k in range(len(shape)) if k != axis)
    count = math.prod(shape) // 5
    for _ in range(3):
        x = draw.normal(3.0, 2.0, shape)
        middle, spread = x.mean(axis=axes), x.var(axis=axes)
        y, layer = train(layer, x)
        np.testing.assert_allclose(y, batch_norm_by_hand(x, axis, middle, spread, layer), atol=1e-10)
        mean = 0.9 * mean + 0.1 * middle
        variance = 0.9 * variance + 0.1 * spread * count / (count - 1)
        np.testing.assert_allclose(layer.running_mean, mean, rtol=1e-12)
        np.testing.assert_allclose(layer.running_variance, variance, rtol=1e-12)
        expected = batch_norm_by_hand(x, axis, mean, variance, layer)
        np.testing.assert_allclose(evaluate(layer, x), expected, atol=1e-10)


def test_batch_norm_keeps_its_dtypes():
    layer = nn.BatchNorm(3)
    with nn.training(KEY) as mode:
        y = layer(draw.normal(size=(8, 3)).astype(np.float32))
    assert y.dtype == np.float32
    assert [a.dtype for a in flatten(mode.updated(layer))[0]] == [np.float32] * 4


def test_the_momentum_is_the_share_of_the_new():
    x = draw.normal(size=(8, 3)).astype(np.float32)
    for momentum in (0.0, 0.25, 1.0):
        layer = nn.BatchNorm(3, momentum=momentum)
        with nn.training(KEY) as mode:
            layer(x)
        found = mode.updated(layer).running_mean
        np.testing.assert_allclose(found, momentum * x.mean(axis=0), atol=1e-7)


def test_a_layer_used_twice_learns_twice():
    layer = nn.BatchNorm(2, momentum=0.5, affine=False, dtype=np.float64)
    x = np.array([[0.0, 1.0], [2.0, 5.0]])
    with nn.training(KEY) as mode:
        layer(x)
        layer(x + 4)
    np.testing.assert_allclose(
        mode.updated(layer).running_mean, 0.5 * (0.5 * x.mean(axis=0)) + 0.5 * (x + 4).mean(axis=0)
    )


def test_derivatives_of_batch_norm_in_training():
    """Through the statistics of the batch too: the sum of a normalised batch does not change."""
    layer = filled(nn.BatchNorm(3, dtype=np.float64))
    weights = draw.normal(size=(6, 3))

    def loss(x, weight, bias):
        changed = nn.BatchNorm(3, dtype=np.float64)
        changed.weight, changed.bias = weight, bias
        with nn.training(KEY):
            return (weights * changed(x) ** 2).sum()

    check_grads(loss, [draw.normal(size=(6, 3)), layer.weight, layer.bias])


def test_derivatives_of_batch_norm_in_evaluation():
    layer = filled(nn.BatchNorm(3, dtype=np.float64))
    x = draw.normal(size=(6, 3))
    found = grad(lambda x: layer(x).sum())(x)
    np.testing.assert_allclose(
        found, np.broadcast_to(layer.weight / np.sqrt(layer.running_variance + 1e-5), (6, 3))
    )


def test_running_statistics_are_no_parameters():
    layer = nn.BatchNorm(3)
    assert nn.parameter_count(layer) == 6 and nn.parameter_bytes(layer) == 48

    def objective(layer, x):
        with nn.training(KEY) as mode:
            y = layer(x)
        return (y**3).sum(), mode.updated(layer)

    optimiser = optim.Adam(0.1, weight_decay=0.1)
    state = optimiser.init(layer)
    assert state.mean.running_mean.shape == () and state.mean.weight.shape == (3,)
    (_, changed), gradients = value_and_grad(objective, has_aux=True)(layer, X32)
    layer, state = optimiser.update(gradients, state, changed)
    assert layer.running_mean is changed.running_mean and not np.array_equal(layer.weight, np.ones(3))


X32 = draw.normal(size=(8, 3)).astype(np.float32)


def layer_norm_by_hand(x, layer):
    axes = tuple(range(x.ndim - len(layer.shape), x.ndim))
    centred = x - x.mean(axis=axes, keepdims=True)
    y = centred / np.sqrt(x.var(axis=axes, keepdims=True) + layer.epsilon)
    return y if layer.weight is None else y * layer.weight + layer.bias


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize(
    ("size", "shape"), [(6, (4, 6)), (6, (6,)), ((5, 6), (3, 5, 6)), (6, (2, 3, 4, 6))], ids=str
)
def test_layer_norm(size, shape, affine):
    layer = filled(nn.LayerNorm(size, affine=affine, dtype=np.float64))
    x = draw.normal(5.0, 3.0, shape)
    expected = layer_norm_by_hand(x, layer)
    np.testing.assert_allclose(layer(x), expected, atol=1e-10)
    np.testing.assert_allclose(jit(lambda layer, x: layer(x))(layer, x), expected, atol=1e-10)
    with nn.training(KEY) as mode:
        np.testing.assert_array_equal(layer(x), layer(x))
    assert mode.updated(layer).epsilon == layer.epsilon


def test_derivatives_of_layer_norm():
    layer = nn.LayerNorm((2, 3), dtype=np.float64)
    weights = draw.normal(size=(4, 2, 3))

    def loss(x, weight, bias):
        layer.weight, layer.bias = weight, bias
        return (weights * layer(x)).sum()

    check_grads(loss, [draw.normal(size=(4, 2, 3)), draw.normal(size=(2, 3)), draw.normal(size=(2, 3))])


@pytest.mark.parametrize("compiled", [False, True], ids=["interpreted", "compiled"])
@pytest.mark.parametrize("value", [0.0, 7.5, 1e6])
def test_a_constant_row_has_finite_derivatives(value, compiled):
    layer = nn.LayerNorm(5)
    x = np.full((2, 5), value, np.float32)
    x[1] = np.arange(5)
    gradient = grad(lambda x: (layer(x) ** 2).sum() + layer(x)[0, 0])
    found = (jit(gradient) if compiled else gradient)(x)
    assert np.isfinite(found).all()
    expected = (np.eye(5)[0] - 0.2) / math.sqrt(
        1e-5
    )  # the mean's share taken away, the deviation that of epsilon
    np.testing.assert_allclose(found[0], expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("shape", "channels"), [((3, 6), "first"), ((3, 6, 4, 5), "first"), ((3, 4, 5, 6), "last")]
)
@pytest.mark.parametrize("groups", [1, 2, 3, 6])
def test_group_norm(shape, channels, groups):
    layer = filled(nn.GroupNorm(groups, 6, channels=channels, dtype=np.float64))
    x = draw.normal(2.0, 3.0, shape)
    first = x if channels == "first" else np.moveaxis(x, -1, 1)
    parts = first.reshape(3, groups, -1)
    parts = (parts - parts.mean(axis=2, keepdims=True)) / np.sqrt(parts.var(axis=2, keepdims=True) + 1e-5)
    along = (6, *[1] * (x.ndim - 2))
    expected = parts.reshape(first.shape) * layer.weight.reshape(along) + layer.bias.reshape(along)
    expected = expected if channels == "first" else np.moveaxis(expected, 1, -1)
    np.testing.assert_allclose(layer(x), expected, atol=1e-10)
    np.testing.assert_allclose(jit(lambda layer, x: layer(x))(layer, x), expected, atol=1e-10)


@pytest.mark.parametrize(("shape", "channels"), [((3, 6, 7), "first"), ((3, 4, 5, 6), "last")])
@pytest.mark.parametrize("affine", [False, True])
def test_instance_norm(shape, channels, affine):
    layer = filled(nn.InstanceNorm(6, affine=affine, channels=channels, dtype=np.float64))
    x = draw.normal(2.0, 3.0, shape)
    axes = tuple(range(2, x.ndim)) if channels == "first" else tuple(range(1, x.ndim - 1))
    expected = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)
    if affine:
        along = (6, *[1] * (x.ndim - 2)) if channels == "first" else (6,)
        expected = expected * layer.weight.reshape(along) + layer.bias.reshape(along)
    np.testing.assert_allclose(layer(x), expected, atol=1e-10)
    with nn.training(KEY):
        np.testing.assert_array_equal(layer(x), layer(x))
    groups = nn.GroupNorm(6, 6, affine=False, channels=channels)
    if not affine:
        np.testing.assert_allclose(jit(layer)(x), groups(x), atol=1e-10)


def test_instance_norm_of_a_single_position():
    with pytest.raises(ShapeError, match=r"\[InstanceNorm\(6, not affine\)\] .* one position"):
        nn.InstanceNorm(6)(np.ones((3, 6, 1)))


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize(("size", "shape"), [(6, (4, 6)), ((5, 6), (3, 5, 6)), (6, (2, 3, 6))], ids=str)
def test_rms_norm(size, shape, affine):
    layer = filled(nn.RMSNorm(size, affine=affine, epsilon=0.1, dtype=np.float64))
    x = draw.normal(1.0, 3.0, shape)
    axes = tuple(range(x.ndim - len(layer.shape), x.ndim))
    expected = x / np.sqrt((x**2).mean(axes, keepdims=True) + 0.1) * (layer.weight if affine else 1)
    np.testing.assert_allclose(layer(x), expected, atol=1e-12)
    np.testing.assert_allclose(jit(lambda layer, x: layer(x))(layer, x), expected, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_epsilon_of_rms_norm_is_that_of_the_dtype(dtype):
    x = np.full((1, 4), 1e-9, dtype)
    expected = 1e-9 / math.sqrt(1e-18 + np.finfo(dtype).eps)
    np.testing.assert_allclose(nn.RMSNorm(4, affine=False)(x), np.full((1, 4), expected), rtol=1e-6)
    assert np.isfinite(grad(lambda x: nn.RMSNorm(4)(x).sum())(np.zeros((1, 4), dtype))).all()


def test_derivatives_of_rms_and_instance_norm():
    rms = nn.RMSNorm((2, 3), dtype=np.float64)
    weights = draw.normal(size=(4, 2, 3))

    def loss(x, weight):
        rms.weight = weight
        return (weights * rms(x)).sum()

    check_grads(loss, [draw.normal(size=(4, 2, 3)), draw.normal(size=(2, 3))])
    check_grads(lambda x: (weights * nn.InstanceNorm(2)(x)).sum(), [draw.normal(size=(4, 2, 3))])


def trained(layer, x):
    with nn.training(KEY):
        return layer(x)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: nn.BatchNorm(3)(np.ones((4, 2))), ShapeError),
        (lambda: nn.BatchNorm(3)(np.ones(3)), ShapeError),
        (lambda: nn.BatchNorm(3, channels="last")(np.ones((4, 3, 2))), ShapeError),
        (lambda: trained(nn.BatchNorm(3), np.ones((1, 3))), ShapeError),
        (lambda: nn.BatchNorm(3, momentum=1.5), ValueError),
        (lambda: nn.BatchNorm(3, epsilon=0.0), ValueError),
        (lambda: nn.BatchNorm(3, channels="second"), ValueError),
        (lambda: nn.BatchNorm(0), ShapeError),
        (lambda: nn.BatchNorm(3, dtype=np.int32), DTypeError),
        (lambda: nn.BatchNorm(3)([[1.0, 2.0, 3.0]]), DTypeError),
        (lambda: nn.LayerNorm(3)([1.0, 2.0, 3.0]), DTypeError),
        (lambda: nn.LayerNorm(3)(np.ones((3, 4))), ShapeError),
        (lambda: nn.LayerNorm((2, 3))(np.ones(3)), ShapeError),
        (lambda: nn.LayerNorm(3, epsilon=-1), ValueError),
        (lambda: nn.GroupNorm(4, 6), ShapeError),
        (lambda: nn.GroupNorm(2, 6)(np.ones((3, 5))), ShapeError),
        (lambda: nn.InstanceNorm(6)(np.ones((3, 5, 4))), ShapeError),
        (lambda: nn.InstanceNorm(6, channels="second"), ValueError),
        (lambda: nn.RMSNorm(3)(np.ones((3, 4))), ShapeError),
        (lambda: nn.RMSNorm(3)(np.ones((4, 3), int)), DTypeError),
        (lambda: nn.RMSNorm(3, epsilon=0.0), ValueError),
    ],
)
def test_what_does_not_fit(make, error):
    with pytest.raises(error, match=r"^\[(Batch|Layer|Group|Instance|RMS)Norm"):
        make()


def test_descriptions():
    assert repr(nn.BatchNorm(3, affine=False, channels="last")) == (
        "BatchNorm(3, not affine, channels last)  # 0 parameters, 24 bytes with what is fixed"
    )
    assert repr(nn.LayerNorm((2, 3))) == "LayerNorm(2 × 3)  # 12 parameters, 48 bytes"
    assert repr(nn.GroupNorm(2, 6)) == "GroupNorm(6 in 2 groups)  # 12 parameters, 48 bytes"
    assert repr(nn.RMSNorm((2, 3))) == "RMSNorm(2 × 3)  # 6 parameters, 24 bytes"
    assert repr(nn.InstanceNorm(2, channels="last")) == "InstanceNorm(2, not affine, channels last)"
