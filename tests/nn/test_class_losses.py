"""Options of losses of classes: axes, weights, what is ignored, smoothing; against sums written out by hand."""

from functools import partial

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.errors import DTypeError, IndexRangeError, ShapeError
from pullback.testing import check_grads

random = np.random.default_rng(7)
SCORES = random.standard_normal((3, 5, 2, 4))
LABELS = random.integers(0, 5, (3, 2, 4))
LABELS[0, 1] = LABELS[2, 0, 3] = -100
WEIGHT = random.uniform(0.2, 2.0, 5)
SHARES = np.moveaxis(random.dirichlet(np.ones(5), (3, 2, 4)), -1, 1)


def log_softmax(scores):
    powers = np.exp(scores.astype(np.longdouble))
    return np.log(powers / powers.sum(axis=1, keepdims=True)).astype(float)


def loss_by_hand(name, z, logs, label, *, weight, smoothing):
    """The loss of one place, of its scores and their log softmax."""
    if name == "softmax_cross_entropy":
        return -(weight * ((1 - smoothing) * np.eye(5)[label] + smoothing / 5) * logs).sum()
    if name == "nll":
        return -weight[label] * z[label]
    if name == "softmax_focal":
        return -weight[label] * (1 - np.exp(logs[label])) ** 1.5 * logs[label]
    return weight[label] * sum(max(0, 0.7 - z[label] + z[k]) for k in range(5) if k != label) / 5


def losses_by_hand(name, weight, smoothing):
    """The loss and the weight of each place, one after the other; both 0 where it is ignored."""
    found, weights = np.zeros(LABELS.shape), np.zeros(LABELS.shape)
    logs = log_softmax(SCORES)
    for i, j, k in zip(*np.nonzero(LABELS != -100)):
        label = LABELS[i, j, k]
        found[i, j, k] = loss_by_hand(
            name, SCORES[i, :, j, k], logs[i, :, j, k], label, weight=weight, smoothing=smoothing
        )
        weights[i, j, k] = weight[label]
    return found, weights


CASES = [
    ("softmax_cross_entropy", {}),
    ("softmax_cross_entropy", {"label_smoothing": 0.1}),
    ("nll", {}),
    ("softmax_focal", {"gamma": 1.5}),
    ("multi_margin", {"margin": 0.7}),
]


@pytest.mark.parametrize("weighted", [False, True], ids=["even", "weighted"])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_classes_along_an_axis_with_weights_and_places_that_are_ignored(name, options, weighted):
    weight = WEIGHT if weighted else np.ones(5)
    expected, weights = losses_by_hand(name, weight, options.get("label_smoothing", 0))
    kept = weights > 0
    if name == "multi_margin":
        weights = kept.astype(float)
    spoilt = np.where(kept[:, None], SCORES, np.nan)  # what is ignored is not looked at

    def losses(scores):
        given = {"axis": 1, "ignore_index": -100, "weight": WEIGHT if weighted else None, **options}
        return [getattr(nn, name)(scores, LABELS, reduction=r, **given) for r in ("none", "sum", "mean")]

    def slopes(scores):
        return pb.grad(lambda scores: losses(scores)[2])(scores)

    at_once = losses(spoilt)
    compiled, slope = pb.jit(lambda scores: (losses(scores), slopes(scores)))(spoilt)
    for found in (at_once, compiled):
        np.testing.assert_allclose(found[0], expected, rtol=1e-12)
        assert found[1] == pytest.approx(expected.sum()) and found[2] == pytest.approx(
            expected.sum() / weights.sum()
        )
    np.testing.assert_allclose(slope, slopes(SCORES), rtol=1e-10, atol=1e-14)
    assert np.isfinite(slope).all() and not slope[np.broadcast_to(~kept[:, None], slope.shape)].any()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_probabilities_along_an_axis(smoothing):
    terms = WEIGHT[:, None, None] * ((1 - smoothing) * SHARES + smoothing / 5) * log_softmax(SCORES)
    expected = -terms.sum(axis=1)
    options = {"axis": 1, "weight": WEIGHT, "label_smoothing": smoothing}
    found = nn.softmax_cross_entropy(SCORES, SHARES, reduction="none", **options)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    # As in PyTorch, the mean of probabilities is over places, whatever the weights.
    mean = pb.jit(lambda z, p: nn.softmax_cross_entropy(z, p, **options))(SCORES, SHARES)
    assert mean == pytest.approx(expected.mean())
    kept = LABELS >= 0
    spoilt = np.where(kept[:, None], SHARES, np.nan)
    some = nn.softmax_cross_entropy(SCORES, spoilt, where=kept, **options)
    assert some == pytest.approx(expected[kept].mean())


def test_smoothed_class_numbers_are_smoothed_probabilities():
    z, labels = SCORES[:, :, 0, 0], np.array([4, 0, 2])
    expected = nn.softmax_cross_entropy(z, 0.8 * np.eye(5)[labels] + 0.04)
    assert nn.softmax_cross_entropy(z, labels, label_smoothing=0.2) == pytest.approx(expected)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_losses_have_the_dtype_of_the_logits(name, options):
    z = SCORES.astype(np.float32)

    def losses(z):
        return getattr(nn, name)(z, LABELS, axis=1, ignore_index=-100, weight=WEIGHT, **options)

    assert losses(z).dtype == pb.jit(losses)(z).dtype == np.float32


@pytest.mark.parametrize("compiled", [False, True], ids=["interpreted", "compiled"])
@pytest.mark.parametrize(
    ("loss", "labels"),
    [
        (nn.softmax_cross_entropy, [0, 2]),
        (partial(nn.softmax_cross_entropy, label_smoothing=0.1, weight=[1.0, 0.0, 2.0]), [0, 2]),
        (partial(nn.softmax_focal, gamma=0.5), [0, 2]),
        (nn.multi_margin, [0, 2]),
        (nn.softmax_cross_entropy, [[0.5, 0.0, 0.5], [1.0, 0.0, 0.0]]),
        (nn.kl_divergence, [[0.5, 0.0, 0.5], [1.0, 0.0, 0.0]]),
    ],
)
def test_classes_that_are_ruled_out_have_no_part(loss, labels, compiled):
    """A logit of minus infinity is that of no class: everything else is as without it."""
    z, labels = np.array([[0.5, -np.inf, 1.0], [2.0, -np.inf, 0.0]]), np.array(labels)
    slope = pb.value_and_grad(lambda z: loss(z, labels))
    value, slopes = (pb.jit(slope) if compiled else slope)(z)
    near, near_slopes = slope(np.where(np.isinf(z), -800.0, z))
    np.testing.assert_allclose(value, near, rtol=1e-12)
    np.testing.assert_allclose(slopes, near_slopes, rtol=1e-12)
    assert (slopes[:, 1] == 0).all()


@pytest.mark.parametrize(
    "loss", [nn.softmax_cross_entropy, nn.softmax_focal, partial(nn.softmax_focal, gamma=0.5)]
)
def test_a_label_that_is_ruled_out_is_infinitely_wrong(loss):
    value, slopes = pb.value_and_grad(lambda z: loss(z, np.array([1])))(np.array([[0.0, -np.inf, 0.0]]))
    assert value == np.inf
    np.testing.assert_allclose(slopes, [[0.5, -1.0, 0.5]])
    weighted = partial(loss, weight=np.array([1.0, 0.0, 1.0]), reduction="sum")
    assert weighted(np.array([[0.0, -np.inf, 0.0]]), np.array([1])) == 0


def test_what_is_left_out_by_a_mask_and_by_a_label():
    kept = np.not_equal(LABELS, LABELS[1, 0, 0])
    options = {"axis": 1, "ignore_index": -100, "weight": WEIGHT}
    again = np.where(kept, LABELS, -100)
    expected = nn.softmax_cross_entropy(SCORES, again, **options)
    assert nn.softmax_cross_entropy(SCORES, LABELS, where=kept, **options) == pytest.approx(expected)


def test_of_nothing_there_is_no_mean():
    nothing = np.full((3, 2, 4), -100)
    options = {"axis": 1, "ignore_index": -100}
    mean = pb.jit(lambda z: nn.softmax_cross_entropy(z, nothing, **options))
    assert np.isnan(mean(SCORES))
    assert nn.softmax_cross_entropy(SCORES, nothing, reduction="sum", **options) == 0


def test_unsigned_labels_may_be_ignored():
    labels = np.array([0, 255, 3], np.uint8)
    z = SCORES[:, :, 0, 0]
    expected = nn.softmax_cross_entropy(z[[0, 2]], labels[[0, 2]])
    assert nn.softmax_cross_entropy(z, labels, ignore_index=255) == pytest.approx(expected)


def test_a_focal_loss_without_gamma_is_a_cross_entropy():
    z, labels = SCORES[:, :, 0, 0], np.array([4, 0, 2])
    expected = nn.softmax_cross_entropy(z, labels)
    assert nn.softmax_focal(z, labels, gamma=0) == pytest.approx(expected)


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0])
def test_focal_losses_of_certain_answers_have_the_slope_zero(gamma):
    z, labels = np.array([[900.0, -900.0, 0.0], [0.0, 0.0, 0.0]]), np.array([0, 1])
    slope = pb.grad(lambda z: nn.softmax_focal(z, labels, gamma=gamma))
    for found in (slope(z), pb.jit(slope)(z)):
        assert not found[0].any() and np.isfinite(found).all() and found[1].all()
    x, targets = np.array([900.0, -900.0, 1.0], np.float32), np.array([1, 0, 1])
    slope = pb.grad(lambda x: nn.binary_focal(x, targets, gamma=gamma))
    for found in (slope(x), pb.jit(slope)(x)):
        assert not found[:2].any() and np.isfinite(found).all() and found[2]


@pytest.mark.parametrize(
    "loss",
    [
        lambda z: nn.softmax_cross_entropy(
            z, LABELS, axis=1, weight=WEIGHT, ignore_index=-100, label_smoothing=0.1
        ),
        lambda z: nn.softmax_focal(z, LABELS, axis=1, weight=WEIGHT, ignore_index=-100),
        lambda z: nn.multi_margin(z, LABELS, axis=1, squared=True, ignore_index=-100),
        lambda z: nn.kl_divergence(z, SHARES, axis=1),
    ],
    ids=["cross entropy", "focal", "margin", "divergence"],
)
def test_derivatives_agree_with_finite_differences(loss):
    check_grads(loss, [SCORES])


@pytest.mark.parametrize("compiled", [False, True], ids=["at once", "compiled"])
def test_only_the_ignored_label_may_be_no_class(compiled):
    def loss(z, labels):
        return nn.softmax_cross_entropy(z, labels, axis=1, ignore_index=7)

    with pytest.raises(IndexRangeError, match=r"label: -100 at position .* is outside 0 to 4"):
        (pb.jit(loss) if compiled else loss)(SCORES, LABELS)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: nn.softmax_cross_entropy(SCORES, LABELS), ShapeError, "labels of shape"),
        (lambda: nn.softmax_cross_entropy(SCORES, LABELS, axis=4), ShapeError, "axis 4"),
        (
            lambda: nn.softmax_cross_entropy(np.zeros((2, 3)), np.eye(3, dtype=int)[:2]),
            ShapeError,
            r"dtype int64 where \(2,\) .*labels\.argmax\(1\).*probabilities as floats",
        ),
        (
            lambda: nn.softmax_cross_entropy(np.zeros((2, 3)), np.ones(2)),
            ShapeError,
            r"\(2,\) and dtype float64.*labels\.astype\(np\.int64\)",
        ),
        (
            lambda: nn.softmax_cross_entropy(SCORES, np.abs(LABELS) % 5, axis=1, weight=WEIGHT[1:]),
            ShapeError,
            r"\(5,\)",
        ),
        (lambda: nn.softmax_cross_entropy(SCORES, LABELS, axis=1, label_smoothing=2), ValueError, "is 2"),
        (
            lambda: nn.softmax_cross_entropy(SCORES, SHARES, axis=1, ignore_index=3),
            ValueError,
            "ignore_index=3",
        ),
        (lambda: nn.softmax_cross_entropy(SCORES, LABELS, axis=1, where=LABELS), DTypeError, "Give bools"),
        (
            lambda: nn.softmax_cross_entropy(SCORES, LABELS, axis=1, where=np.ones(3, bool)),
            ShapeError,
            "broadcast",
        ),
        (lambda: nn.nll(LABELS, LABELS, axis=1), DTypeError, "Give floats"),
        (lambda: nn.nll(SCORES, LABELS * 1.0, axis=1), DTypeError, r"\[nll\] labels of dtype float64"),
        (lambda: nn.softmax_cross_entropy(SCORES[0, :, 0].T, [*"abcd"]), DTypeError, "labels of dtype <U1"),
        (lambda: nn.multi_margin(SCORES, LABELS > 2, axis=1), DTypeError, r"labels of dtype bool.*astype"),
        (lambda: nn.softmax_focal(SCORES, LABELS, axis=1, gamma=-1), ValueError, "gamma is -1"),
        (
            lambda: nn.kl_divergence(SCORES, SHARES, axis=1, reduction="batchmean"),
            ValueError,
            "'mean', 'sum'",
        ),
    ],
)
def test_what_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()
