"""Metrics: how good outputs are, for a whole epoch of batches.

A metric is any function ``(outputs, labels) -> scalar``, computed inside the training program. The trainer weights
each batch by its size, so the figure of an epoch is that of all its examples.

What is no mean over examples is an ``EpochMetric``: the program keeps what is needed of every example, and the
figure is computed from all of them once the epoch is done. ``precision``, ``recall``, ``f1`` and ``auc`` are such.
``confusion_matrix``, ``precision_recall_f1`` and ``area_under_curve`` work on outputs for a whole data set, such as
``trainer.predict(inputs)``, by NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pullback.errors import DataError, ShapeError
from pullback.numpy import argmax, astype, equal, greater, mean, one_hot, where
from pullback.numpy import max as max_
from pullback.numpy import sum as sum_

__all__ = [
    "METRICS",
    "EpochMetric",
    "Metric",
    "accuracy",
    "area_under_curve",
    "auc",
    "binary_accuracy",
    "confusion_matrix",
    "f1",
    "precision",
    "precision_recall_f1",
    "recall",
    "top_k_accuracy",
]

Array = NDArray[Any]

Metric = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class EpochMetric:
    """A figure of all the examples of an epoch, for what is no mean over them.

    ``examples(outputs, labels)`` is part of the program: a tuple of arrays, each with the axis of the batch first.
    ``figure`` is given these arrays for all examples, by NumPy, and gives a number. Called on the outputs and labels
    of a whole data set the metric gives that number at once.

    >>> worst = EpochMetric(
    ...     "worst", lambda y, t: (abs(y - t),), lambda errors: float(errors.max())
    ... )
    >>> worst(np.array([1.0, 2.0]), np.array([1.5, 2.0]))
    0.5
    """

    name: str
    examples: Callable[[Any, Any], tuple[Any, ...]]
    figure: Callable[..., float]

    def __call__(self, outputs: Array, labels: Array) -> float:
        """The figure of a whole data set."""
        return self.figure(
            *[np.asarray(part) for part in self.examples(np.asarray(outputs), np.asarray(labels))]
        )


def accuracy(logits: Any, labels: Any) -> Any:
    """The share of examples whose largest logit is at the label: ``float32``.

    ``logits`` (…, classes); ``labels`` (…), class numbers, or (…, classes), probabilities, of which the
    largest counts. Of equal logits the first counts.

    Raises ``ShapeError`` for shapes that do not fit, and for a single class, of which every answer is right.

    >>> float(accuracy(np.array([[0.1, 0.9], [0.8, 0.2]]), np.array([1, 1])))
    0.5
    """
    if logits.shape[-1:] == (1,) or (logits.ndim == 1 and labels.shape == logits.shape):
        raise ShapeError(
            f"[accuracy] logits of shape {tuple(logits.shape)} and labels of shape {tuple(labels.shape)}: of one class "
            "every answer is right. Use binary_accuracy for one logit per example, or no accuracy for a regression."
        )
    if labels.shape == logits.shape:
        labels = argmax(labels, axis=-1)
    if labels.shape != logits.shape[:-1]:
        raise ShapeError(
            f"[accuracy] logits of shape {tuple(logits.shape)} and labels of shape {tuple(labels.shape)}. "
            f"Give labels of shape {tuple(logits.shape[:-1])}."
        )
    return mean(astype(equal(argmax(logits, axis=-1), labels), np.float32))


def binary_accuracy(logits: Any, targets: Any) -> Any:
    """The share of elements whose logit has the sign that the target asks for: ``float32``.

    Positive where the target is above one half.

    >>> float(binary_accuracy(np.array([2.0, -1.0]), np.array([1, 1])))
    0.5
    """
    if logits.shape != targets.shape:
        raise ShapeError(
            f"[binary_accuracy] logits of shape {tuple(logits.shape)} and targets of shape "
            f"{tuple(targets.shape)}. Reshape one of them."
        )
    return mean(astype(equal(logits > 0, targets > 0.5), np.float32))


def top_k_accuracy(k: int) -> Metric:
    """The metric: the share of examples whose label is among the ``k`` largest logits, ``float32``.

    ``logits`` (…, classes); ``labels`` (…), class numbers. Logits that equal the label's do not count as larger.

    Raises ``ValueError`` for ``k`` below 1; the metric raises ``ShapeError`` for shapes that do not fit.

    >>> float(top_k_accuracy(2)(np.array([[0.1, 0.9, 0.5], [0.8, 0.2, 0.3]]), np.array([2, 1])))
    0.5
    """
    if k < 1:
        raise ValueError(f"[top_k_accuracy] k is {k}. Give 1 or more.")

    def metric(logits: Any, labels: Any) -> Any:
        if labels.shape != logits.shape[:-1]:
            raise ShapeError(
                f"[top_k_accuracy] logits of shape {tuple(logits.shape)} and labels of shape "
                f"{tuple(labels.shape)}. Give labels of shape {tuple(logits.shape[:-1])}."
            )
        # Counting what is larger needs no sorting. A label that is no class has a logit below all.
        chosen = one_hot(labels, logits.shape[-1], dtype=np.float32) > 0
        own = max_(where(chosen, logits, -np.inf), axis=-1, keepdims=True)
        larger = sum_(astype(greater(logits, own), np.int64), axis=-1)
        return mean(astype(larger < k, np.float32))

    metric.__name__ = f"top_{k}_accuracy"
    return metric


def confusion_matrix(logits: Array, labels: Array) -> NDArray[np.int64]:
    """How many examples of each class (row) were taken for each class (column).

    ``logits`` (N, classes), ``labels`` (N,), class numbers → (classes, classes), int64.

    Raises ``ShapeError`` for other shapes, ``DataError`` for a label that is no class.

    >>> confusion_matrix(np.array([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]]), np.array([1, 1, 0]))
    array([[0, 1],
           [1, 1]])
    """
    logits, labels = np.asarray(logits), np.asarray(labels)
    if logits.ndim != 2 or labels.shape != logits.shape[:1]:
        raise ShapeError(
            f"[confusion_matrix] logits of shape {logits.shape} and labels of shape {labels.shape}. "
            "Give (N, classes) and (N,)."
        )
    classes = logits.shape[1]
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        raise DataError(
            f"[confusion_matrix] the label in row {wrong[0]} is {labels[wrong[0]]}. "
            f"Give class numbers from 0 to {classes - 1}."
        )
    pairs = labels.astype(np.int64) * classes + logits.argmax(axis=1)
    return np.bincount(pairs, minlength=classes**2).reshape(classes, classes).astype(np.int64)


def precision_recall_f1(confusion: Array) -> tuple[Array, Array, Array]:
    r"""Precision, recall and :math:`F_1` of each class, float64, from a confusion matrix.

    .. math:: P = \frac{c_{kk}}{\sum_i c_{ik}}, \quad R = \frac{c_{kk}}{\sum_j c_{kj}}, \quad
        F_1 = \frac{2 P R}{P + R}

    0 where a denominator is. Their means over the classes are the macro averages.

    Raises ``ShapeError`` unless the matrix is square.

    >>> precision, recall, f1 = precision_recall_f1(np.array([[2, 2], [0, 4]]))
    >>> precision.round(3), recall.round(3), f1.round(3)
    (array([1.   , 0.667]), array([0.5, 1. ]), array([0.667, 0.8  ]))
    """
    table = np.asarray(confusion, np.float64)
    if table.ndim != 2 or table.shape[0] != table.shape[1]:
        raise ShapeError(f"[precision_recall_f1] a matrix of shape {table.shape}. Give (classes, classes).")
    right, taken, real = np.diag(table), table.sum(axis=0), table.sum(axis=1)
    return (
        right / np.where(taken > 0, taken, 1),
        right / np.where(real > 0, real, 1),
        2 * right / np.where(taken + real > 0, taken + real, 1),
    )


def area_under_curve(scores: Array, targets: Array) -> float:
    """The area under the receiver operating characteristic: how often a positive example scores above a negative.

    Ties count half. ``scores`` and ``targets`` have one shape; positive is a target above one half. NaN where
    all targets are alike, and where a score is NaN.

    Raises ``ShapeError`` for two shapes.

    Source: Mann & Whitney, *On a test of whether one of two random variables is stochastically larger than
    the other*, 1947.

    >>> area_under_curve(np.array([0.1, 0.4, 0.35, 0.8]), np.array([0, 0, 1, 1]))
    0.75
    """
    scores, targets = np.asarray(scores), np.asarray(targets)
    if scores.shape != targets.shape:
        raise ShapeError(
            f"[area_under_curve] scores of shape {scores.shape} and targets of shape {targets.shape}. "
            "Reshape one of them."
        )
    positive = targets.reshape(-1) > 0.5
    above, below = int(positive.sum()), int((~positive).sum())
    if not above or not below or np.isnan(scores).any():
        return float("nan")
    # Equal scores share the mean of their places in the order, counted from 1.
    _, which, times = np.unique(scores.reshape(-1), return_inverse=True, return_counts=True)
    ranks = np.cumsum(times) - (times - 1) / 2
    return float((ranks[which.reshape(-1)][positive].sum() - above * (above + 1) / 2) / (above * below))


def _answers(logits: Any, labels: Any) -> tuple[Any, Any]:
    """What each example was taken for, and what it is: bools for elements, class numbers for rows of logits."""
    if labels.shape == logits.shape:
        return logits > 0, labels > 0.5
    if labels.shape != logits.shape[:-1]:
        raise ShapeError(
            f"[precision, recall, f1] logits of shape {tuple(logits.shape)} and labels of shape "
            f"{tuple(labels.shape)}. Give labels of shape {tuple(logits.shape[:-1])}, or targets like the logits."
        )
    return astype(argmax(logits, axis=-1), np.int32), astype(labels, np.int32)


def _scores(scores: Any, targets: Any) -> tuple[Any, Any]:
    if scores.shape != targets.shape:
        raise ShapeError(
            f"[auc] scores of shape {tuple(scores.shape)} and targets of shape {tuple(targets.shape)}. "
            "Reshape one of them."
        )
    return scores, targets


def _average(which: int) -> Callable[[Array, Array], float]:
    """One of precision, recall and F1: of the positive elements, or the mean over the classes that are there."""

    def figure(taken: Array, real: Array) -> float:
        taken, real = taken.reshape(-1), real.reshape(-1)
        if not real.size:
            return float("nan")
        if real.dtype.kind != "b" and real.min() < 0:
            raise DataError(f"[precision, recall, f1] a label is {real.min()}. Give class numbers from 0.")
        classes = 2 if real.dtype.kind == "b" else int(max(taken.max(), real.max())) + 1
        table = np.bincount(real.astype(np.int64) * classes + taken, minlength=classes**2).reshape(
            classes, classes
        )
        figures = precision_recall_f1(table)[which]
        if real.dtype.kind == "b":
            return float(figures[1])
        return float(figures[(table.sum(axis=0) + table.sum(axis=1)) > 0].mean())

    return figure


precision = EpochMetric("precision", _answers, _average(0))
"""How many of those taken for a class belong to it, over an epoch.

``logits`` (…, classes) with ``labels`` (…), class numbers: the mean over all classes that were seen or answered (the
macro average). ``logits`` and ``targets`` of one shape: of the elements with a positive logit, the share with a target
above one half.

>>> precision(np.array([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]]), np.array([1, 0, 0]))
0.75
"""

recall = EpochMetric("recall", _answers, _average(1))
"""How many of those that belong to a class were taken for it, over an epoch; arguments as of ``precision``.

>>> recall(np.array([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]]), np.array([1, 0, 0]))
0.75
"""

f1 = EpochMetric("f1", _answers, _average(2))
"""The harmonic mean of precision and recall of each class, over an epoch; arguments as of ``precision``.

>>> round(f1(np.array([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]]), np.array([1, 0, 0])), 4)
0.6667
"""

auc = EpochMetric("auc", _scores, area_under_curve)
"""``area_under_curve`` of an epoch.

>>> auc(np.array([0.1, 0.4, 0.35, 0.8]), np.array([0, 0, 1, 1]))
0.75
"""

METRICS: dict[str, Metric | EpochMetric] = {
    "accuracy": accuracy,
    "binary_accuracy": binary_accuracy,
    "precision": precision,
    "recall": recall,
    "f1": f1,
    "auc": auc,
}
"""The metrics that a trainer knows by name."""
