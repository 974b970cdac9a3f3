"""Losses: scalar functions of a model's outputs and what they should have been.

``reduction`` is ``"mean"`` over all examples, ``"sum"``, or ``"none"`` for one loss per example.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.errors import DTypeError, ShapeError
from pullback.graph import OPERATORS, Node
from pullback.numpy import (
    absolute,
    astype,
    log,
    log_softmax,
    logsumexp,
    maximum,
    mean,
    minimum,
    softplus,
    square,
    where,
)
from pullback.numpy import sum as sum_

__all__ = [
    "absolute_error",
    "binary_cross_entropy",
    "hinge",
    "huber",
    "kl_divergence",
    "softmax_cross_entropy",
    "squared_error",
]


def softmax_cross_entropy(logits: Any, labels: Any, *, reduction: str = "mean") -> Any:
    r"""The cross-entropy of labels and softmax(logits), :math:`\log \sum_k e^{z_k} - z_y`, without overflow.

    ``logits`` (…, classes), floats. ``labels`` (…), integers, each the number of a class; or (…, classes),
    floats, probabilities :math:`p`: then :math:`-\sum_k p_k \log \mathrm{softmax}(z)_k`.

    Raises ``IndexRangeError`` for a label that is no class (in a compiled function: when it runs),
    ``ShapeError`` and ``DTypeError`` for labels that do not fit.

    >>> logits = np.array([[2.0, 0.0], [0.0, 0.0]])
    >>> print(softmax_cross_entropy(logits, np.array([0, 1]), reduction="none").round(4))
    [0.1269 0.6931]
    >>> print(softmax_cross_entropy(logits, np.array([[1.0, 0.0], [0.0, 1.0]]), reduction="none").round(4))
    [0.1269 0.6931]
    """
    logits, labels = _array(logits), _array(labels)
    _check_logits("softmax_cross_entropy", logits)
    if labels.dtype.kind == "f":
        _check_shapes("softmax_cross_entropy", "probabilities", labels.shape, logits.shape)
        return _reduced(-sum_(labels * log_softmax(logits), axis=-1), reduction)
    _check_shapes("softmax_cross_entropy", "labels", labels.shape, logits.shape[:-1])
    chosen = _class_numbers(labels, logits.shape[-1])[..., None] == _positions(logits)
    # A sum over a mask rather than a gather: its pullback is elementwise, and fuses with the softmax.
    return _reduced(logsumexp(logits, axis=-1) - sum_(where(chosen, logits, 0), axis=-1), reduction)


def binary_cross_entropy(logits: Any, targets: Any, *, reduction: str = "mean") -> Any:
    r"""The cross-entropy of targets and sigmoid(logits), :math:`\log(1 + e^z) - z y`, without overflow.

    ``logits`` and ``targets`` have one shape; targets are 0 or 1 (any dtype) or probabilities.

    >>> round(float(binary_cross_entropy(np.array([0.0, 100.0]), np.array([1, 1]))), 4)
    0.3466
    """
    logits, targets = _array(logits), _array(targets)
    _check_logits("binary_cross_entropy", logits)
    _check_shapes("binary_cross_entropy", "targets", targets.shape, logits.shape)
    return _reduced(softplus(logits) - logits * astype(targets, logits.dtype), reduction)


def squared_error(outputs: Any, targets: Any, *, reduction: str = "mean") -> Any:
    r"""The squared error :math:`(y - t)^2` of each element; its mean is the mean squared error.

    >>> float(squared_error(np.array([1.0, 2.0]), np.array([0.0, 4.0])))
    2.5
    """
    outputs, targets = _array(outputs), _array(targets)
    _check_shapes("squared_error", "targets", targets.shape, outputs.shape)
    return _reduced(square(outputs - targets), reduction)


def absolute_error(outputs: Any, targets: Any, *, reduction: str = "mean") -> Any:
    r"""The absolute error :math:`|y - t|` of each element; its mean is the mean absolute error.

    >>> float(absolute_error(np.array([1.0, 2.0]), np.array([0.0, 4.0])))
    1.5
    """
    outputs, targets = _array(outputs), _array(targets)
    _check_shapes("absolute_error", "targets", targets.shape, outputs.shape)
    return _reduced(absolute(outputs - targets), reduction)


def huber(outputs: Any, targets: Any, *, delta: float = 1.0, reduction: str = "mean") -> Any:
    r"""Huber's loss of each element: a squared error near zero, an absolute one further out.

    .. math:: \tfrac12 e^2 \text{ where } |e| \le \delta, \quad \delta (|e| - \tfrac12 \delta)
        \text{ elsewhere}, \quad e = y - t

    Raises ``ValueError`` for a ``delta`` that is not positive.

    Source: Huber, *Robust estimation of a location parameter*, 1964.

    >>> print(huber(np.array([0.5, 3.0]), np.zeros(2), reduction="none"))
    [0.125 2.5  ]
    """
    if not delta > 0:
        raise ValueError(f"[huber] delta is {delta}. Give a positive number.")
    outputs, targets = _array(outputs), _array(targets)
    _check_shapes("huber", "targets", targets.shape, outputs.shape)
    size = absolute(outputs - targets)
    # What lies within delta counts squared, the rest once: no branch whose value would not be taken.
    near = minimum(size, delta)
    return _reduced(near * (size - 0.5 * near), reduction)


def hinge(outputs: Any, labels: Any, *, reduction: str = "mean") -> Any:
    r"""The hinge loss of each element, :math:`\max(0, 1 - s y)`, where :math:`s` is 1 or -1.

    ``outputs`` are scores; ``labels`` of the same shape are 1 or ``True`` for one class, and 0, -1 or
    ``False`` for the other, in any dtype.

    Source: Cortes & Vapnik, *Support-vector networks*, 1995.

    >>> print(hinge(np.array([2.0, 0.5, 0.5]), np.array([1, 1, 0]), reduction="none"))
    [0.  0.5 1.5]
    """
    outputs, labels = _array(outputs), _array(labels)
    _check_logits("hinge", outputs)
    _check_shapes("hinge", "labels", labels.shape, outputs.shape)
    return _reduced(maximum(1 - where(labels > 0, outputs, -outputs), 0), reduction)


def kl_divergence(logits: Any, probabilities: Any, *, reduction: str = "mean") -> Any:
    r"""The Kullback-Leibler divergence of softmax(logits) from given probabilities.

    .. math:: \sum_k p_k (\log p_k - \log \mathrm{softmax}(z)_k), \quad 0 \log 0 = 0

    Both have shape (…, classes); it is the cross-entropy without the entropy of :math:`p`, and 0 where the
    two agree.

    Source: Kullback & Leibler, *On information and sufficiency*, 1951.

    >>> p = np.array([[0.5, 0.5], [1.0, 0.0]])
    >>> print(kl_divergence(np.zeros((2, 2)), p, reduction="none").round(4))
    [0.     0.6931]
    """
    logits, probabilities = _array(logits), _array(probabilities)
    _check_logits("kl_divergence", logits)
    _check_shapes("kl_divergence", "probabilities", probabilities.shape, logits.shape)
    positive = probabilities > 0
    entropies = where(positive, probabilities * log(where(positive, probabilities, 1)), 0)
    return _reduced(sum_(entropies - probabilities * log_softmax(logits), axis=-1), reduction)


def _array(value: Any) -> Any:
    return value if isinstance(value, Node) else np.asarray(value)


def _class_numbers(labels: Any, classes: int) -> Any:
    """``labels`` as ``int64``, checked to be 0 to ``classes - 1``: at once, or when the program runs."""
    check_index = OPERATORS["check_index"]
    apply = check_index if isinstance(labels, Node) else check_index.reference
    return apply(labels, extent=classes, what="label", wrap=False)


def _positions(logits: Any) -> Any:
    """The number of the class at each place of ``logits``."""
    iota = OPERATORS["iota"]
    if isinstance(logits, Node):
        return iota(shape=logits.shape, axis=logits.ndim - 1, dtype=np.dtype(np.int64))
    return np.arange(logits.shape[-1])


def _check_logits(name: str, logits: Any) -> None:
    if logits.dtype.kind != "f":
        raise DTypeError(
            f"[{name}] logits of dtype {logits.dtype}. Give floats: a model's outputs before softmax."
        )


def _check_shapes(name: str, what: str, found: tuple[int, ...], expected: tuple[int, ...]) -> None:
    if found != expected:
        raise ShapeError(f"[{name}] {what} of shape {found} where {expected} is needed. Reshape one of them.")


def _reduced(losses: Any, reduction: str) -> Any:
    if reduction == "mean":
        return mean(losses)
    if reduction == "sum":
        return sum_(losses)
    if reduction == "none":
        return losses
    raise ValueError(f"reduction {reduction!r}. Use 'mean', 'sum' or 'none'.")
