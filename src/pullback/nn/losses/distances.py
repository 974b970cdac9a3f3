"""Losses of distances: between vectors, and between scores of which one should be larger."""

from __future__ import annotations

from typing import Any

from pullback.nn.losses.common import (
    as_array,
    check_floats,
    check_shapes,
    counted,
    not_negative,
    reduced,
    visible,
)
from pullback.numpy import expand_dims, maximum, sqrt, square
from pullback.numpy import sum as sum_
from pullback.numpy import where as choose
from pullback.numpy.axes import normal_axis

__all__ = ["cosine_embedding", "cosine_similarity", "margin_ranking", "triplet_margin"]


def cosine_similarity(x: Any, y: Any, *, axis: int = -1, epsilon: float = 1e-8) -> Any:
    r"""The cosine of the angle between vectors along ``axis``, which vanishes.

    .. math:: \frac{x \cdot y}{\max(\|x\|, \epsilon) \max(\|y\|, \epsilon)}

    ``x`` and ``y`` are floats of one shape. Keras's loss ``CosineSimilarity`` is the mean of this, negated.

    >>> import numpy as np
    >>> print(cosine_similarity(np.array([[1.0, 0.0], [3.0, 3.0]]), np.array([[0.0, 2.0], [1.0, 1.0]])).round(4))
    [0. 1.]
    """
    name = "cosine_similarity"
    x, y = _vectors(name, x, y)
    if not epsilon > 0:
        raise ValueError(f"[{name}] epsilon is {epsilon}. Give a positive number.")
    axis = normal_axis(name, axis, x.ndim)
    # The bound is taken of the squares: where it holds there is no root of zero, and no slope.
    lengths = [sqrt(maximum(sum_(square(each), axis=axis), epsilon**2)) for each in (x, y)]
    return sum_(x * y, axis=axis) / (lengths[0] * lengths[1])


def cosine_embedding(
    x: Any, y: Any, labels: Any, *, margin: float = 0.0, where: Any = None, reduction: str = "mean"
) -> Any:
    r"""A loss of pairs of vectors: :math:`1 - c` for a pair that belongs together, :math:`\max(0, c - m)` for others.

    ``x`` and ``y`` (…, features), :math:`c` their ``cosine_similarity``; ``labels`` (…) are 1 or ``True`` for pairs
    that belong together, and 0, -1 or ``False`` for others.

    >>> import numpy as np
    >>> x, y = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[0.0, 1.0], [1.0, 0.0]])
    >>> print(cosine_embedding(x, y, np.array([1, -1]), reduction="none"))
    [1. 1.]
    """
    name = "cosine_embedding"
    x, y = _vectors(name, x, y)
    labels = as_array(labels)
    check_shapes(name, "labels", labels.shape, x.shape[:-1])
    mask = counted(name, where, labels.shape)
    along = None if mask is None else expand_dims(mask, -1)
    cosine = cosine_similarity(visible(along, x), visible(along, y))
    return reduced(name, choose(labels > 0, 1 - cosine, maximum(cosine - margin, 0)), reduction, mask)


def margin_ranking(
    x: Any, y: Any, labels: Any, *, margin: float = 0.0, where: Any = None, reduction: str = "mean"
) -> Any:
    r"""A loss of pairs of scores, :math:`\max(0, -s (x - y) + m)`: zero where the order is right by a margin.

    ``x``, ``y`` and ``labels`` have one shape; ``labels`` are 1 or ``True`` where ``x`` should be the larger one,
    and 0, -1 or ``False`` where ``y`` should be.

    >>> import numpy as np
    >>> print(margin_ranking(np.array([2.0, 2.0]), np.array([1.0, 1.0]), np.array([1, -1]), reduction="none"))
    [0. 1.]
    """
    name = "margin_ranking"
    x, y = _vectors(name, x, y)
    labels = as_array(labels)
    check_shapes(name, "labels", labels.shape, x.shape)
    mask = counted(name, where, x.shape)
    x, y = visible(mask, x), visible(mask, y)
    return reduced(name, maximum(choose(labels > 0, y - x, x - y) + margin, 0), reduction, mask)


def triplet_margin(
    anchor: Any,
    positive: Any,
    negative: Any,
    *,
    margin: float = 1.0,
    epsilon: float = 1e-6,
    where: Any = None,
    reduction: str = "mean",
) -> Any:
    r"""A loss of triplets: an anchor should be closer to the positive than to the negative example, by a margin.

    .. math:: \max(0, d(a, p) - d(a, n) + m), \quad d(x, y) = \|x - y + \epsilon\|_2

    All three have shape (…, features). Raises ``ValueError`` for a negative ``epsilon``.

    Source: Balntas et al., *Learning shallow convolutional feature descriptors with triplet losses*, 2016.

    >>> import numpy as np
    >>> a, p, n = np.zeros((1, 2)), np.array([[3.0, 4.0]]), np.array([[0.0, 2.0]])
    >>> float(triplet_margin(a, p, n).round(4))
    4.0
    """
    name = "triplet_margin"
    not_negative(name, "epsilon", epsilon)
    anchor, positive = _vectors(name, anchor, positive)
    anchor, negative = _vectors(name, anchor, negative)
    mask = counted(name, where, anchor.shape[:-1])
    along = None if mask is None else expand_dims(mask, -1)
    anchor, positive, negative = (visible(along, x) for x in (anchor, positive, negative))
    near, far = (sqrt(sum_(square(anchor - x + epsilon), axis=-1)) for x in (positive, negative))
    return reduced(name, maximum(near - far + margin, 0), reduction, mask)


def _vectors(name: str, x: Any, y: Any) -> tuple[Any, Any]:
    x, y = as_array(x), as_array(y)
    check_floats(name, x, "an input")
    check_floats(name, y, "an input")
    check_shapes(name, "an input", y.shape, x.shape)
    return x, y
