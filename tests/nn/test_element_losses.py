"""Losses of elements and of distances: formulas, masks that hide NaN, derivatives, and what is refused."""

import math
from functools import partial

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.errors import DTypeError, ShapeError
from pullback.testing import check_grads

random = np.random.default_rng(9)
Y, T = random.standard_normal((2, 4, 3))
COUNTS = random.poisson(2.0, (4, 3)).astype(float)
COUNTS[0] = 0, 1, 4
SHARES = random.random((4, 3))
VARIANCES = random.uniform(0.5, 2.0, (4, 1))
SIGNS = np.where(random.random((4, 3)) > 0.5, 1, -1)


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def stirling(t):
    return np.where(t > 1, t * np.log(np.maximum(t, 1)) - t + 0.5 * np.log(2 * np.pi * np.maximum(t, 1)), 0)


def focal(z, y):
    p = sigmoid(z)
    right = p * y + (1 - p) * (1 - y)
    entropy = -y * np.log(p) - (1 - y) * np.log(1 - p)
    return (0.25 * y + 0.75 * (1 - y)) * (1 - right) ** 1.5 * entropy


E = Y - T
LOSSES = {
    "smooth_l1": (
        partial(nn.smooth_l1, beta=0.5),
        (Y, T),
        np.where(abs(E) <= 0.5, E**2, abs(E) - 0.25),
    ),
    "log_cosh": (nn.log_cosh, (Y, T), np.log(np.cosh(E))),
    "squared_logarithmic_error": (
        nn.squared_logarithmic_error,
        (SHARES, COUNTS),
        (np.log1p(SHARES) - np.log1p(np.maximum(COUNTS, 1e-7))) ** 2,
    ),
    "absolute_percentage_error": (nn.absolute_percentage_error, (Y, T), 100 * abs(E / T)),
    "binary_cross_entropy": (
        partial(nn.binary_cross_entropy, weight=VARIANCES, positive_weight=[0.5, 1.0, 3.0]),
        (Y, SHARES),
        VARIANCES * (-SHARES * [0.5, 1.0, 3.0] * np.log(sigmoid(Y)) - (1 - SHARES) * np.log(1 - sigmoid(Y))),
    ),
    "binary_focal": (partial(nn.binary_focal, gamma=1.5, alpha=0.25), (Y, SHARES), focal(Y, SHARES)),
    "squared_hinge": (nn.squared_hinge, (Y, SIGNS), np.maximum(0, 1 - SIGNS * Y) ** 2),
    "poisson_nll": (
        partial(nn.poisson_nll, full=True),
        (Y, COUNTS),
        np.exp(Y) - COUNTS * Y + stirling(COUNTS),
    ),
    "poisson_nll of rates": (
        partial(nn.poisson_nll, log_input=False),
        (SHARES, COUNTS),
        SHARES - COUNTS * np.log(SHARES + 1e-8),
    ),
    "gaussian_nll": (
        partial(nn.gaussian_nll, variances=VARIANCES, full=True),
        (Y, T),
        0.5 * (np.log(2 * np.pi * VARIANCES) + E**2 / VARIANCES),
    ),
    "margin_ranking": (partial(nn.margin_ranking, labels=SIGNS, margin=0.3), (Y, T), None),
}
LOSSES["margin_ranking"] = (*LOSSES["margin_ranking"][:2], np.maximum(0, -SIGNS * E + 0.3))


@pytest.mark.parametrize("name", LOSSES)
def test_each_element_and_what_does_not_count(name):
    loss, arguments, expected = LOSSES[name]
    np.testing.assert_allclose(loss(*arguments, reduction="none"), expected, rtol=1e-7, atol=1e-9)
    kept = np.array([[True], [False], [True], [True]])
    spoilt = (np.where(kept, arguments[0], np.nan), arguments[1])

    def masked(x, other):
        return loss(x, other, where=kept)

    assert masked(*spoilt) == pytest.approx(expected[kept[:, 0]].mean())
    value, slope = pb.jit(pb.value_and_grad(masked))(*spoilt)
    assert value == pytest.approx(expected[kept[:, 0]].mean())
    np.testing.assert_allclose(slope, pb.grad(masked)(*arguments), rtol=1e-9, atol=1e-12)
    assert not slope[1].any()


@pytest.mark.parametrize(
    "name", ["log_cosh", "binary_focal", "poisson_nll", "gaussian_nll", "binary_cross_entropy"]
)
def test_derivatives_agree_with_finite_differences(name):
    loss, (outputs, targets), _ = LOSSES[name]
    check_grads(lambda y: loss(y, targets), [outputs])


def test_far_from_zero():
    z = np.array([-800.0, 800.0])
    np.testing.assert_allclose(nn.log_cosh(z, np.zeros(2), reduction="none"), 800 - math.log(2))
    np.testing.assert_allclose(nn.binary_focal(z, np.array([1, 0]), reduction="none"), 800)
    np.testing.assert_allclose(nn.binary_focal(z, np.array([0, 1]), reduction="none"), 0)
    assert np.isfinite(pb.grad(lambda z: nn.binary_focal(z, np.array([0, 1]), reduction="sum"))(z)).all()


INFINITE = [math.inf, math.inf, -math.inf, -math.inf, math.inf, -math.inf]
CERTAIN = [0, 1, 0, 1, 0.25, 0.25]


@pytest.mark.parametrize("compiled", [False, True], ids=["interpreted", "compiled"])
@pytest.mark.parametrize(
    "loss",
    [
        nn.binary_cross_entropy,
        partial(nn.binary_cross_entropy, positive_weight=1.0, weight=np.ones(6)),
        nn.binary_focal,
        partial(nn.binary_focal, gamma=0.5),
    ],
)
def test_infinite_logits_are_right_or_wrong(loss, compiled):
    z, y = np.array(INFINITE), np.array(CERTAIN)
    losses, slope = partial(loss, reduction="none"), pb.grad(partial(loss, reduction="sum"))
    losses, slopes = ((pb.jit(f) if compiled else f)(z, y) for f in (losses, slope))
    np.testing.assert_array_equal(losses, [math.inf, 0, 0, math.inf, math.inf, math.inf])
    np.testing.assert_array_equal(slopes, [1, 0, 0, -1, 0.75, -0.25])


def test_a_binary_cross_entropy_keeps_the_digits_of_what_is_almost_certain():
    z = np.array([20.0, -30.0], np.float32)
    losses = nn.binary_cross_entropy(z, np.array([1, 0]), reduction="none")
    np.testing.assert_allclose(losses, np.exp([-20.0, -30.0]), rtol=1e-6)


def test_what_there_is_none_of_is_no_part_of_a_loss():
    z = np.array([-math.inf, 0.0])
    np.testing.assert_array_equal(nn.poisson_nll(z, np.array([0, 1]), reduction="none"), [0, 1])
    slopes = pb.grad(lambda z: nn.log_cosh(z, np.zeros(2), reduction="sum"))(z)
    np.testing.assert_array_equal(slopes, [-1, 0])
    np.testing.assert_array_equal(nn.log_cosh(z, np.zeros(2), reduction="none"), [math.inf, 0])
    curvature = pb.grad(pb.grad(lambda e: nn.log_cosh(e, np.float64(0.0))))
    assert curvature(0.0) == 1


def test_a_variance_is_bounded_in_value_and_not_in_slope():
    y, t = np.array([0.5]), np.array([0.0])
    value, slope = pb.value_and_grad(lambda v: nn.gaussian_nll(y, t, v, epsilon=0.1))(np.array([1e-9]))
    assert value == pytest.approx(0.5 * (math.log(0.1) + 2.5))
    assert slope[0] == pytest.approx(0.5 * (1 / 0.1 - 0.25 / 0.01))


@pytest.mark.parametrize("compiled", [False, True], ids=["at once", "compiled"])
def test_distances(compiled):
    run = pb.jit if compiled else lambda f: f
    a, p, n = random.standard_normal((3, 5, 4))
    labels = np.array([1, 0, -1, 1, 0])
    kept = np.array([True, True, False, True, True])
    cosine = (a * p).sum(1) / np.sqrt((a**2).sum(1) * (p**2).sum(1))
    np.testing.assert_allclose(run(nn.cosine_similarity)(a, p), cosine, rtol=1e-12)
    pairs = np.where(labels > 0, 1 - cosine, np.maximum(0, cosine - 0.1))
    spoilt = np.where(kept[:, None], a, np.nan)
    found = run(lambda a, p: nn.cosine_embedding(a, p, labels, margin=0.1, where=kept))(spoilt, p)
    assert found == pytest.approx(pairs[kept].mean())
    triplets = np.maximum(
        0, np.linalg.norm(a - p + 1e-6, axis=1) - np.linalg.norm(a - n + 1e-6, axis=1) + 0.5
    )
    found = run(lambda *x: nn.triplet_margin(*x, margin=0.5, reduction="sum", where=kept))(spoilt, p, n)
    assert found == pytest.approx(triplets[kept].sum())


def test_slopes_of_distances():
    a, p, n = random.standard_normal((3, 5, 4))
    check_grads(nn.cosine_similarity, [a, p])
    check_grads(lambda a, p, n: nn.triplet_margin(a, p, n, margin=9.0), [a, p, n])
    zero = np.zeros(4)
    np.testing.assert_array_equal(pb.grad(nn.cosine_similarity, argnums=1)(zero, p[0]), zero)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: nn.smooth_l1(Y, T, beta=0), ValueError, r"\[smooth_l1\] beta is 0"),
        (lambda: nn.log_cosh(Y, T[1:]), ShapeError, r"\[log_cosh\] targets of shape \(3, 3\)"),
        (lambda: nn.squared_error(Y, T, where=np.ones((3, 4), bool)), ShapeError, r"\[squared_error\] where"),
        (lambda: nn.absolute_error(Y, T, where=COUNTS), DTypeError, r"\[absolute_error\] where of dtype"),
        (lambda: nn.binary_cross_entropy(Y, T, weight=np.ones(4)), ShapeError, r"weight of shape \(4,\)"),
        (lambda: nn.binary_focal(Y, SHARES, alpha=2.0), ValueError, r"\[binary_focal\] alpha is 2"),
        (lambda: nn.binary_focal(Y, SHARES, gamma=-2.0), ValueError, r"\[binary_focal\] gamma is -2"),
        (lambda: nn.gaussian_nll(Y, T, np.ones(4)), ShapeError, r"variances of shape \(4,\)"),
        (lambda: nn.gaussian_nll(Y, T, SHARES, epsilon=0), ValueError, r"epsilon is 0"),
        (lambda: nn.poisson_nll(SIGNS, SIGNS), DTypeError, r"\[poisson_nll\] outputs of dtype"),
        # Of unsigned integers differences would wrap, and of bools there are none.
        (
            lambda: nn.squared_error(np.uint8([3]), np.uint8([200])),
            DTypeError,
            r"\[squared_error\] outputs of",
        ),
        (lambda: nn.absolute_error(COUNTS > 1, COUNTS > 1), DTypeError, "outputs of dtype bool. Give floats"),
        (lambda: nn.binary_cross_entropy(SIGNS, SIGNS), DTypeError, "logits of dtype int64"),
        (lambda: nn.cosine_similarity(Y, T, epsilon=0), ValueError, "epsilon is 0"),
        (lambda: nn.cosine_embedding(Y, T, SIGNS), ShapeError, r"\[cosine_embedding\] labels"),
        (lambda: nn.margin_ranking(Y, T, SIGNS[0]), ShapeError, r"\[margin_ranking\] labels"),
        (lambda: nn.triplet_margin(Y, T, T[:, :2]), ShapeError, r"\[triplet_margin\]"),
    ],
)
def test_what_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()
