"""Losses against their definitions, far from zero too, and their derivatives."""

from functools import partial

import numpy as np
import pytest

from pullback import grad, jit, nn
from pullback.errors import DTypeError, IndexRangeError, ShapeError
from pullback.testing import check_grads

random = np.random.default_rng(3)
LOGITS = random.standard_normal((6, 4))
LABELS = np.array([0, 3, 1, 1, 2, 0], np.uint8)


def log_softmax(z):
    z = z.astype(np.longdouble)
    return z - np.log(np.exp(z).sum(axis=-1, keepdims=True))


def run(function, *arguments, compiled):
    return jit(function)(*arguments) if compiled else function(*arguments)


both = pytest.mark.parametrize("compiled", [False, True], ids=["at once", "compiled"])


@both
@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64])
def test_cross_entropy_of_class_numbers(compiled, dtype):
    expected = -log_softmax(LOGITS)[np.arange(6), LABELS]
    labels = LABELS.astype(dtype)
    found = run(
        lambda z, y: nn.softmax_cross_entropy(z, y, reduction="none"), LOGITS, labels, compiled=compiled
    )
    np.testing.assert_allclose(found, expected.astype(float), rtol=1e-12)
    assert run(nn.softmax_cross_entropy, LOGITS, labels, compiled=compiled) == pytest.approx(
        float(expected.mean())
    )
    total = run(
        lambda z, y: nn.softmax_cross_entropy(z, y, reduction="sum"), LOGITS, labels, compiled=compiled
    )
    assert total == pytest.approx(float(expected.sum()))


@both
def test_cross_entropy_of_probabilities(compiled):
    p = random.dirichlet(np.ones(4), 6)
    expected = -(p * log_softmax(LOGITS)).sum(axis=-1).mean()
    assert run(nn.softmax_cross_entropy, LOGITS, p, compiled=compiled) == pytest.approx(float(expected))


def test_one_hot_labels_and_class_numbers_agree():
    one_hot = np.eye(4)[LABELS]
    expected = nn.softmax_cross_entropy(LOGITS, LABELS)
    assert nn.softmax_cross_entropy(LOGITS, one_hot) == pytest.approx(expected, rel=1e-12)


@both
def test_the_gradient_is_softmax_minus_one_hot(compiled):
    expected = (np.exp(log_softmax(LOGITS)) - np.eye(4)[LABELS]) / 6
    found = run(grad(nn.softmax_cross_entropy), LOGITS, LABELS, compiled=compiled)
    np.testing.assert_allclose(found, expected.astype(float), rtol=1e-10, atol=1e-14)


@both
@pytest.mark.parametrize("size", [1e4, -1e4, 1e30])
def test_large_logits_neither_overflow_nor_lose_the_gradient(compiled, size):
    z = np.array([[size, 0.0, 0.0]], np.float32)
    y = np.array([0])
    expected = 0.0 if size > 0 else -size + np.log(2)
    assert run(nn.softmax_cross_entropy, z, y, compiled=compiled) == pytest.approx(expected, rel=1e-6)
    gradient = run(grad(nn.softmax_cross_entropy), z, y, compiled=compiled)
    np.testing.assert_allclose(gradient, [[0, 0, 0]] if size > 0 else [[-1, 0.5, 0.5]], atol=1e-6)


@both
@pytest.mark.parametrize("label", [4, -1, 200])
def test_labels_out_of_range(compiled, label):
    labels = LABELS.astype(np.int64)
    labels[2] = label
    with pytest.raises(IndexRangeError, match=f"label: {label} at position .*2.* is outside 0 to 3"):
        run(nn.softmax_cross_entropy, LOGITS, labels, compiled=compiled)


@pytest.mark.parametrize(
    ("logits", "labels", "error"),
    [
        (LOGITS, LABELS[:5], ShapeError),
        (LOGITS, np.ones((6, 3)), ShapeError),
        (LOGITS.astype(int), LABELS, DTypeError),
    ],
    ids=["number of labels", "number of probabilities", "integer logits"],
)
def test_what_does_not_fit(logits, labels, error):
    with pytest.raises(error, match=r"\[softmax_cross_entropy\]"):
        nn.softmax_cross_entropy(logits, labels)


@both
def test_binary_cross_entropy(compiled):
    z = np.array([-800.0, -2.0, 0.0, 3.0, 800.0])
    y = np.array([1, 0, 1, 0, 1])
    expected = np.array([800.0, np.log1p(np.exp(-2.0)), np.log(2), np.log1p(np.exp(3.0)), 0.0])
    found = run(lambda z, y: nn.binary_cross_entropy(z, y, reduction="none"), z, y, compiled=compiled)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-300)


def test_errors_of_elements():
    y, t = np.array([1.0, 2.0, 4.0]), np.array([0.0, 4.0, 4.0])
    assert nn.squared_error(y, t) == pytest.approx(5 / 3) and nn.absolute_error(y, t) == pytest.approx(1)
    np.testing.assert_array_equal(nn.squared_error(y, t, reduction="none"), [1, 4, 0])
    assert nn.absolute_error(y, t, reduction="sum") == 3


@pytest.mark.parametrize(
    "loss", [nn.squared_error, nn.absolute_error, nn.binary_cross_entropy], ids=lambda loss: loss.__name__
)
def test_shapes_must_be_equal(loss):
    with pytest.raises(ShapeError, match=loss.__name__):
        loss(np.ones((3, 1)), np.ones(3))


def test_unknown_reduction():
    with pytest.raises(ValueError, match="'mean', 'sum' or 'none'"):
        nn.squared_error(np.ones(2), np.ones(2), reduction="average")


def test_derivatives_agree_with_finite_differences():
    p = random.dirichlet(np.ones(4), 6)
    t = random.standard_normal((6, 4))
    check_grads(lambda z: nn.softmax_cross_entropy(z, LABELS), [LOGITS], tolerance=1e-5)
    check_grads(lambda z: nn.softmax_cross_entropy(z, p), [LOGITS], tolerance=1e-5)
    check_grads(lambda z: nn.binary_cross_entropy(z, p), [LOGITS], tolerance=1e-5)
    check_grads(lambda z: nn.squared_error(z, t), [LOGITS], tolerance=1e-5)
    check_grads(lambda z: nn.absolute_error(z, t), [LOGITS], order=1)


OUTPUTS = np.array([-3.0, -0.4, 0.0, 0.3, 2.5])


@both
@pytest.mark.parametrize("delta", [0.5, 1.0, 4.0])
def test_huber(compiled, delta):
    size = np.abs(OUTPUTS - 0.1)
    expected = np.where(size <= delta, size**2 / 2, delta * (size - delta / 2))
    targets = np.full(5, 0.1)
    loss = partial(nn.huber, delta=delta, reduction="none")
    np.testing.assert_allclose(run(loss, OUTPUTS, targets, compiled=compiled), expected)
    slopes = run(grad(partial(nn.huber, delta=delta, reduction="sum")), OUTPUTS, targets, compiled=compiled)
    np.testing.assert_allclose(slopes, np.clip(OUTPUTS - targets, -delta, delta))


@both
@pytest.mark.parametrize("labels", [[1, -1, 1, -1, 1], [1, 0, 1, 0, 1], [True, False, True, False, True]])
def test_hinge(compiled, labels):
    signs = np.array([1, -1, 1, -1, 1])
    expected = np.maximum(0, 1 - signs * OUTPUTS)
    loss = partial(nn.hinge, reduction="none")
    np.testing.assert_allclose(run(loss, OUTPUTS, np.array(labels), compiled=compiled), expected)
    assert run(nn.hinge, OUTPUTS, np.array(labels), compiled=compiled) == pytest.approx(expected.mean())


@both
def test_kl_divergence_is_cross_entropy_without_the_entropy(compiled):
    p = random.dirichlet(np.ones(4), 6)
    entropies = -(p * np.log(p)).sum(axis=-1)
    cross = nn.softmax_cross_entropy(LOGITS, p, reduction="none")
    found = run(partial(nn.kl_divergence, reduction="none"), LOGITS, p, compiled=compiled)
    np.testing.assert_allclose(found, cross - entropies, rtol=1e-10)
    agreeing = np.exp(log_softmax(LOGITS)).astype(float)
    np.testing.assert_allclose(run(nn.kl_divergence, LOGITS, agreeing, compiled=compiled), 0, atol=1e-14)


@both
def test_kl_divergence_from_certainty_has_derivatives(compiled):
    p = np.eye(4)[LABELS]
    assert run(nn.kl_divergence, LOGITS, p, compiled=compiled) == pytest.approx(
        nn.softmax_cross_entropy(LOGITS, LABELS)
    )
    found = run(grad(nn.kl_divergence, argnums=1), LOGITS, p, compiled=compiled)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("loss", [nn.huber, nn.kl_divergence])
def test_derivatives_of_other_losses(loss):
    check_grads(loss, [LOGITS, random.dirichlet(np.ones(4), 6)])


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: nn.huber(LOGITS, LOGITS[1:]), ShapeError),
        (lambda: nn.huber(LOGITS, LOGITS, delta=0.0), ValueError),
        (lambda: nn.hinge(LOGITS, LABELS), ShapeError),
        (lambda: nn.hinge(LABELS, LABELS), DTypeError),
        (lambda: nn.kl_divergence(LOGITS, LABELS), ShapeError),
        (lambda: nn.kl_divergence(LABELS, LABELS), DTypeError),
    ],
)
def test_what_other_losses_refuse(make, error):
    with pytest.raises(error, match=r"^\[(huber|hinge|kl_divergence)\]"):
        make()


def test_an_axis_too_few_or_too_many_is_told():
    with pytest.raises(
        ShapeError, match=r"Give targets one more axis, y\[..., None\], or take the outputs' last one"
    ):
        nn.squared_error(np.ones((6, 1)), np.ones(6))
    with pytest.raises(ShapeError, match=r"where \(6,\) is needed. Take the last axis away: y\[..., 0\]"):
        nn.softmax_cross_entropy(LOGITS, LABELS[:, None])
