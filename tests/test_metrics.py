"""Metrics, at once and compiled."""

import numpy as np
import pytest

from pullback import jit, metrics
from pullback.errors import DataError, ShapeError

LOGITS = np.array([[2.0, 1.0, 0.0], [0.0, 0.0, 5.0], [1.0, 1.0, 0.0], [-3.0, -1.0, -2.0]], np.float32)
both = pytest.mark.parametrize("compiled", [False, True], ids=["at once", "compiled"])


@both
@pytest.mark.parametrize(
    ("labels", "expected"), [([0, 2, 0, 1], 1.0), ([1, 2, 1, 1], 0.5), ([2, 0, 2, 2], 0.0)]
)
def test_accuracy(compiled, labels, expected):
    function = jit(metrics.accuracy) if compiled else metrics.accuracy
    for dtype in (np.uint8, np.int64):
        assert function(LOGITS, np.array(labels, dtype)) == np.float32(expected)
    assert function(LOGITS, np.eye(3, dtype=np.float32)[labels]) == np.float32(expected)


@both
def test_binary_accuracy(compiled):
    function = jit(metrics.binary_accuracy) if compiled else metrics.binary_accuracy
    assert function(np.array([1.0, -1.0, 2.0, -2.0]), np.array([1, 0, 0, 0])) == np.float32(0.75)


def test_shapes_that_do_not_fit():
    with pytest.raises(ShapeError, match=r"shape \(4, 3\) and labels of shape \(3,\)"):
        metrics.accuracy(LOGITS, np.zeros(3, int))
    with pytest.raises(ShapeError, match="binary_accuracy"):
        metrics.binary_accuracy(LOGITS, np.zeros(4))


@both
@pytest.mark.parametrize("k", [1, 2, 3])
def test_top_k_accuracy(compiled, k):
    metric = metrics.top_k_accuracy(k)
    function = jit(metric) if compiled else metric
    logits = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32)
    labels = np.arange(50) % 4
    best = np.argsort(-logits, axis=1)[:, :k]
    assert function(logits, labels) == pytest.approx((best == labels[:, None]).any(axis=1).mean())
    assert function(logits, np.full(50, 4)) == 0
    assert metric.__name__ == f"top_{k}_accuracy"


def test_figures_of_classes_are_those_of_scikit_learn():
    reference = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(0)
    logits, labels = random.standard_normal((200, 5)), random.integers(0, 4, 200)
    logits[:, 3] = -9  # a class that is never chosen, besides one that never is a label
    confusion = metrics.confusion_matrix(logits, labels)
    chosen = logits.argmax(axis=1)
    np.testing.assert_array_equal(confusion, reference.confusion_matrix(labels, chosen, labels=range(5)))
    expected = reference.precision_recall_fscore_support(labels, chosen, labels=range(5), zero_division=0)
    for found, wanted in zip(metrics.precision_recall_f1(confusion), expected):
        np.testing.assert_allclose(found, wanted, rtol=1e-14)


def test_area_under_curve_is_that_of_scikit_learn():
    reference = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(0)
    targets = random.integers(0, 2, 300)
    scores = (targets + random.standard_normal(300) * 2).round(1)  # rounded: many ties
    expected = reference.roc_auc_score(targets, scores)
    assert metrics.area_under_curve(scores, targets) == pytest.approx(expected, rel=1e-14)
    assert np.isnan(metrics.area_under_curve(scores, np.ones(300)))
    assert np.isnan(metrics.area_under_curve(np.where(np.arange(300) == 7, np.nan, scores), targets))


def test_whole_data_sets_that_do_not_fit():
    with pytest.raises(ShapeError, match="top_k_accuracy"):
        metrics.top_k_accuracy(2)(LOGITS, np.zeros(3, int))
    with pytest.raises(ValueError, match="k is 0"):
        metrics.top_k_accuracy(0)
    with pytest.raises(ShapeError, match="confusion_matrix"):
        metrics.confusion_matrix(LOGITS, np.zeros(3, int))
    with pytest.raises(DataError, match="row 2 is 3"):
        metrics.confusion_matrix(LOGITS, np.array([0, 1, 3, 0]))
    with pytest.raises(ShapeError, match="precision_recall_f1"):
        metrics.precision_recall_f1(LOGITS)
    with pytest.raises(ShapeError, match="area_under_curve"):
        metrics.area_under_curve(np.zeros(3), np.zeros(4))


# -- Figures of whole epochs


def test_precision_recall_and_f1_are_the_macro_averages():
    from sklearn.metrics import precision_recall_fscore_support

    random = np.random.default_rng(2)
    for classes, labels in ((4, random.integers(0, 4, 50)), (6, random.integers(1, 3, 50))):
        logits = random.standard_normal((50, classes)).astype(np.float32)
        expected = precision_recall_fscore_support(
            labels, logits.argmax(axis=1), average="macro", zero_division=0
        )
        for metric, value in zip((metrics.precision, metrics.recall, metrics.f1), expected):
            assert metric(logits, labels) == pytest.approx(value, rel=1e-12)


def test_precision_recall_and_f1_of_elements_are_those_of_the_positive():
    logits, targets = np.array([[1.0], [2.0], [-1.0], [3.0]]), np.array([[1], [0], [1], [1]])
    assert metrics.precision(logits, targets) == pytest.approx(2 / 3)
    assert metrics.recall(logits, targets) == pytest.approx(2 / 3)
    assert metrics.f1(-logits, targets) == pytest.approx(2 * 1 / (1 + 3))
    assert metrics.recall(logits, np.zeros((4, 1))) == 0


def test_figures_of_epochs_check_what_they_are_given():
    with pytest.raises(ShapeError, match=r"\[precision, recall, f1\] logits of shape \(4, 3\)"):
        metrics.precision(LOGITS, np.zeros((4, 2)))
    with pytest.raises(DataError, match="a label is -1"):
        metrics.recall(LOGITS, np.array([0, 1, -1, 2]))
    with pytest.raises(ShapeError, match=r"\[auc\] scores of shape \(4, 3\)"):
        metrics.auc(LOGITS, np.zeros(4))
    assert np.isnan(metrics.f1(np.zeros((0, 3)), np.zeros(0, int)))
