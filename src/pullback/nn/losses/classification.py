"""Losses of classes: of logits along an axis, and the number of a class or probabilities for each place."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pullback.errors import DTypeError, ShapeError
from pullback.graph import OPERATORS, Node, dtype_kind
from pullback.nn.losses.common import (
    as_array,
    check_floats,
    check_shapes,
    counted,
    focused,
    not_negative,
    numbers_below,
    reduced,
    times,
    visible,
)
from pullback.numpy import expand_dims, expm1, log, log_softmax, logsumexp, maximum
from pullback.numpy import sum as sum_
from pullback.numpy import where as choose
from pullback.numpy.axes import normal_axis

__all__ = ["kl_divergence", "multi_margin", "nll", "softmax_cross_entropy", "softmax_focal"]


def softmax_cross_entropy(
    logits: Any,
    labels: Any,
    *,
    axis: int = -1,
    weight: Any = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    where: Any = None,
    reduction: str = "mean",
) -> Any:
    r"""The cross-entropy of labels and softmax(logits), :math:`\log \sum_k e^{z_k} - z_y`, without overflow.

    ``logits`` are floats, with classes along ``axis``: (…, classes), or (batch, classes, height, width) with
    ``axis=1``. ``labels`` are integers, each the number of a class, of the logits' shape without ``axis``; or
    floats of the logits' shape, probabilities :math:`p`: then :math:`-\sum_k p_k \log \mathrm{softmax}(z)_k`.

    A class that is ruled out by a logit of minus infinity has no part in either, and its slope is 0; where it is the
    label the loss is infinite.

    ``weight`` (classes,) weights each class, :math:`-w_y \log \mathrm{softmax}(z)_y`; the mean is then divided by
    the sum of the labels' weights (of probabilities: by their number). Places whose label is ``ignore_index``, which
    need be no class, do not count. ``label_smoothing`` :math:`\epsilon` takes
    :math:`(1 - \epsilon) p_k + \epsilon / \text{classes}` for the probabilities, of which that of a class number is 1.

    Raises ``IndexRangeError`` for a label that is no class (in a compiled function: when it runs), ``ShapeError`` and
    ``DTypeError`` for labels or weights that do not fit, ``ValueError`` for smoothing that is no share.

    Source of label smoothing: Szegedy et al., *Rethinking the Inception architecture*, 2016.

    >>> logits = np.array([[2.0, 0.0], [0.0, 0.0]])
    >>> print(softmax_cross_entropy(logits, np.array([0, 1]), reduction="none").round(4))
    [0.1269 0.6931]
    >>> print(softmax_cross_entropy(logits, np.array([[1.0, 0.0], [0.0, 1.0]]), reduction="none").round(4))
    [0.1269 0.6931]
    >>> float(softmax_cross_entropy(logits, np.array([-1, 1]), ignore_index=-1).round(4))
    0.6931
    """
    name = "softmax_cross_entropy"
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"[{name}] label_smoothing is {label_smoothing}. Give a share from 0 to 1.")
    if dtype_kind(as_array(labels).dtype) == "f":
        return _cross_entropy_of_probabilities(
            logits,
            labels,
            axis=axis,
            weight=weight,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            where=where,
            reduction=reduction,
        )
    places = _places(name, logits, labels, axis, weight, ignore_index, where)
    logits, axis = places.scores, places.axis
    if label_smoothing:
        even = label_smoothing / logits.shape[axis]
        # In the logits' dtype: of two numbers alone the choice would be float64.
        own, other = (np.asarray(share, logits.dtype) for share in (1 - label_smoothing + even, even))
        share = choose(places.chosen, own, other)
        share = share if places.weight is None else share * places.weight
        losses = -sum_(times(share, log_softmax(logits, axis)), axis=axis)
    else:
        # A sum over a mask rather than a gather: its pullback is elementwise, and fuses with the softmax.
        losses = places.weighted(logsumexp(logits, axis) - places.of_label(logits))
    return places.reduced(losses, reduction)


def nll(
    log_probabilities: Any,
    labels: Any,
    *,
    axis: int = -1,
    weight: Any = None,
    ignore_index: int | None = None,
    where: Any = None,
    reduction: str = "mean",
) -> Any:
    r"""The negative log-likelihood of labels under given log probabilities, :math:`-w_y \log p_y`.

    Arguments and errors are those of ``softmax_cross_entropy``, with class numbers for labels.

    >>> float(nll(np.log([[0.25, 0.75], [0.5, 0.5]]), np.array([1, 0])).round(4))
    0.4904
    """
    places = _places("nll", log_probabilities, labels, axis, weight, ignore_index, where)
    return places.reduced(-places.weighted(places.of_label(places.scores)), reduction)


def softmax_focal(
    logits: Any,
    labels: Any,
    *,
    gamma: float = 2.0,
    axis: int = -1,
    weight: Any = None,
    ignore_index: int | None = None,
    where: Any = None,
    reduction: str = "mean",
) -> Any:
    r"""The focal loss of classes, :math:`-w_y (1 - p_y)^\gamma \log p_y` with :math:`p = \mathrm{softmax}(z)`.

    What is answered well already counts less, the more so the larger ``gamma``; with 0 it is
    ``softmax_cross_entropy``, whose arguments, mean and errors it has, with class numbers for labels. Keras's
    ``CategoricalFocalCrossentropy`` has ``alpha`` for ``weight``, and divides a mean by the number of labels.

    Raises ``ValueError`` for a negative ``gamma``.

    Source: Lin et al., *Focal loss for dense object detection*, 2017.

    >>> print(softmax_focal(np.array([[2.0, 0.0], [0.0, 0.0]]), np.array([0, 1]), reduction="none").round(4))
    [0.0018 0.1733]
    """
    not_negative("softmax_focal", "gamma", gamma)
    places = _places("softmax_focal", logits, labels, axis, weight, ignore_index, where)
    entropies = logsumexp(places.scores, places.axis) - places.of_label(places.scores)
    losses = entropies if gamma == 0 else focused(-expm1(-entropies), gamma, entropies)
    return places.reduced(places.weighted(losses), reduction)


def multi_margin(
    scores: Any,
    labels: Any,
    *,
    margin: float = 1.0,
    squared: bool = False,
    axis: int = -1,
    weight: Any = None,
    ignore_index: int | None = None,
    where: Any = None,
    reduction: str = "mean",
) -> Any:
    r"""The hinge loss of several classes, :math:`\frac{w_y}{K} \sum_{k \ne y} \max(0, m - z_y + z_k)^p` of :math:`K`.

    ``squared`` is :math:`p = 2` for 1. Arguments and errors are those of ``softmax_cross_entropy``, with class
    numbers for labels; the mean is over the labels that count, without their weights.

    Source: Crammer & Singer, *On the algorithmic implementation of multiclass kernel-based vector machines*, 2001;
    summed over classes as in Weston & Watkins, 1999.

    >>> float(multi_margin(np.array([[0.1, 0.2, 0.4, 0.8]]), np.array([3])).round(4))
    0.325
    """
    places = _places("multi_margin", scores, labels, axis, weight, ignore_index, where)
    own = expand_dims(places.of_label(places.scores), places.axis)
    over = maximum(margin - own + places.scores, 0)
    over = over * over if squared else over
    losses = sum_(choose(places.chosen, 0, over), axis=places.axis) / places.scores.shape[places.axis]
    return reduced("multi_margin", places.weighted(losses), reduction, places.mask)


def kl_divergence(
    logits: Any, probabilities: Any, *, axis: int = -1, where: Any = None, reduction: str = "mean"
) -> Any:
    r"""The Kullback-Leibler divergence of softmax(logits) from given probabilities.

    .. math:: \sum_k p_k (\log p_k - \log \mathrm{softmax}(z)_k), \quad 0 \log 0 = 0

    Both have shape (…, classes), or classes along ``axis``; it is the cross-entropy without the entropy of :math:`p`,
    and 0 where the two agree. PyTorch's ``kl_div`` takes logarithms of probabilities for the logits, which are
    logits too, and this mean with ``reduction="batchmean"``.

    Source: Kullback & Leibler, *On information and sufficiency*, 1951.

    >>> p = np.array([[0.5, 0.5], [1.0, 0.0]])
    >>> print(kl_divergence(np.zeros((2, 2)), p, reduction="none").round(4))
    [0.     0.6931]
    """
    name = "kl_divergence"
    logits, probabilities = as_array(logits), as_array(probabilities)
    check_floats(name, logits)
    check_shapes(name, "probabilities", probabilities.shape, logits.shape)
    axis = normal_axis(name, axis, logits.ndim)
    mask = counted(name, where, _without(logits.shape, axis))
    along = None if mask is None else expand_dims(mask, axis)
    logits, probabilities = visible(along, logits), visible(along, probabilities)
    positive = probabilities > 0
    entropies = choose(positive, probabilities * log(choose(positive, probabilities, 1)), 0)
    divergences = sum_(entropies - times(probabilities, log_softmax(logits, axis)), axis=axis)
    return reduced(name, divergences, reduction, mask)


def _cross_entropy_of_probabilities(
    logits: Any,
    probabilities: Any,
    *,
    axis: int,
    weight: Any,
    ignore_index: int | None,
    label_smoothing: float,
    where: Any,
    reduction: str,
) -> Any:
    name = "softmax_cross_entropy"
    logits, probabilities = as_array(logits), as_array(probabilities)
    check_floats(name, logits)
    if ignore_index is not None:
        raise ValueError(
            f"[{name}] ignore_index={ignore_index} with probabilities, of which none is that number. Say with where "
            "what counts, or give class numbers."
        )
    axis = normal_axis(name, axis, logits.ndim)
    if probabilities.shape == _without(logits.shape, axis):
        raise ShapeError(
            f"[{name}] labels of shape {probabilities.shape} and dtype {probabilities.dtype}, with logits of shape "
            f"{logits.shape}. Give numbers of classes as integers, labels.astype(np.int64), or a probability for each."
        )
    check_shapes(name, "probabilities", probabilities.shape, logits.shape)
    mask = counted(name, where, _without(logits.shape, axis))
    along = None if mask is None else expand_dims(mask, axis)
    logits, probabilities = visible(along, logits), visible(along, probabilities)
    if label_smoothing:
        probabilities = probabilities * (1 - label_smoothing) + label_smoothing / logits.shape[axis]
    weights = _class_weights(name, weight, logits, axis)
    shares = probabilities if weights is None else weights * probabilities
    terms = times(shares, log_softmax(logits, axis))
    return reduced(name, -sum_(terms, axis=axis), reduction, mask)


class _Places(NamedTuple):
    """Scores of classes and one label for each place, checked, with what does not count out of the way."""

    name: str
    scores: Any
    axis: int
    chosen: Any
    """Whether a score is that of its place's label."""
    weight: Any
    """The classes' weights along ``axis``, or None."""
    mask: Any
    """The places that count, or None where all do."""

    def of_label(self, x: Any) -> Any:
        """Of what there is for each class that of the label."""
        return sum_(choose(self.chosen, x, 0), axis=self.axis)

    def weighted(self, losses: Any) -> Any:
        """``losses`` times the weights of their labels."""
        return losses if self.weight is None else times(self.of_label(self.weight), losses)

    def reduced(self, losses: Any, reduction: str) -> Any:
        """``losses``, of which a mean divides by the labels' weights."""
        weights = None if self.weight is None else self.of_label(self.weight)
        return reduced(self.name, losses, reduction, self.mask, weights)


def _places(
    name: str, scores: Any, labels: Any, axis: int, weight: Any, ignore_index: int | None, where: Any
) -> _Places:
    scores, labels = as_array(scores), as_array(labels)
    check_floats(name, scores)
    axis = normal_axis(name, axis, scores.ndim)
    shape = _without(scores.shape, axis)
    if labels.shape == scores.shape and labels.dtype.kind in "biu":
        raise ShapeError(
            f"[{name}] labels of shape {labels.shape} and dtype {labels.dtype} where {shape} is needed. Give the "
            f"number of each class, labels.argmax({axis}), or, to softmax_cross_entropy, probabilities as floats."
        )
    if labels.dtype.kind not in "iu":
        raise DTypeError(
            f"[{name}] labels of dtype {labels.dtype}. Give numbers of classes as integers, labels.astype(np.int64)."
        )
    check_shapes(name, "labels", labels.shape, shape)
    mask = counted(name, where, shape)
    if ignore_index is not None:
        named = labels != ignore_index
        mask = named if mask is None else mask & named
    if mask is not None:
        scores, labels = visible(expand_dims(mask, axis), scores), visible(mask, labels)
    numbers = numbers_below(scores.shape[axis], "label", labels)
    chosen = expand_dims(numbers, axis) == _positions(scores, axis)
    return _Places(name, scores, axis, chosen, _class_weights(name, weight, scores, axis), mask)


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


def _along(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return tuple(extent if k == axis else 1 for k, extent in enumerate(shape))


def _positions(scores: Any, axis: int) -> Any:
    """The number of the class at each place of ``scores``."""
    iota = OPERATORS["iota"]
    if isinstance(scores, Node):
        return iota(shape=scores.type.shape, axis=axis, dtype=np.dtype(np.int64))
    return np.arange(scores.shape[axis]).reshape(_along(scores.shape, axis))


def _class_weights(name: str, weight: Any, scores: Any, axis: int) -> Any:
    if weight is None:
        return None
    weight, classes = as_array(weight), scores.shape[axis]
    if weight.shape != (classes,):
        raise ShapeError(f"[{name}] weight of shape {weight.shape}. Give one for each class: ({classes},).")
    return weight.astype(scores.dtype).reshape(_along(scores.shape, axis))
