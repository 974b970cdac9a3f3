"""Metrics: how good outputs are, as a mean over a batch; computed inside the training program.

A metric is any function ``(outputs, labels) -> scalar``. The trainer weights each batch by its size, so the
figure of an epoch is that of all its examples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.errors import ShapeError
from pullback.numpy import argmax, astype, equal, mean

__all__ = ["METRICS", "Metric", "accuracy", "binary_accuracy"]

Metric = Callable[[Any, Any], Any]


def accuracy(logits: Any, labels: Any) -> Any:
    """The share of examples whose largest logit is at the label: ``float32``.

    ``logits`` (…, classes); ``labels`` (…), class numbers, or (…, classes), probabilities, of which the
    largest counts. Of equal logits the first counts.

    >>> float(accuracy(np.array([[0.1, 0.9], [0.8, 0.2]]), np.array([1, 1])))
    0.5
    """
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


METRICS: dict[str, Metric] = {"accuracy": accuracy, "binary_accuracy": binary_accuracy}
"""The metrics that a trainer knows by name."""
