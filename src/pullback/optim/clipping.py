"""Gradient clipping: functions from gradients to gradients, to put between ``grad`` and an optimiser."""

from __future__ import annotations

from functools import reduce
from math import inf
from operator import add
from typing import Any

import numpy as np

from pullback.numpy import astype, clip, maximum, sqrt, square
from pullback.numpy import sum as sum_
from pullback.optim.optimiser import check_number, map_parameters, trained_leaves

__all__ = ["clip_by_norm", "clip_by_value", "global_norm"]


def global_norm(tree: Any) -> Any:
    r"""The Euclidean norm of all leaves that are trained, taken as one vector, :math:`\sqrt{\sum_k g_k^2}`.

    It is a ``float64``, and so are the squares, where none of a ``float32`` is too large or too small.

    >>> import numpy as np
    >>> float(global_norm({"a": np.array([3.0]), "b": np.array([[4.0]])}))
    5.0
    """
    squares = [sum_(square(astype(leaf, np.float64))) for leaf in trained_leaves(tree)]
    return sqrt(reduce(add, squares)) if squares else 0.0


def clip_by_norm(gradients: Any, limit: float) -> Any:
    r"""All gradients scaled by one factor, so that their global norm is at most ``limit``.

    .. math:: g \cdot \frac{\text{limit}}{\max(\lVert g \rVert, \text{limit})}

    An infinite limit leaves them as they are. Raises ``ValueError`` for a limit that is not positive.

    Source: Pascanu et al., *On the difficulty of training recurrent neural networks*, 2013.

    >>> import numpy as np
    >>> clip_by_norm([np.array([3.0]), np.array([4.0])], 1.0)
    [array([0.6]), array([0.8])]
    """
    _check_limit("clip_by_norm", limit)
    if limit == inf:
        return gradients
    factor = limit / maximum(global_norm(gradients), limit)
    return map_parameters(lambda g: g * astype(factor, g.dtype), gradients)


def clip_by_value(gradients: Any, limit: float) -> Any:
    """Each element of the gradients kept between ``-limit`` and ``limit``.

    Raises ``ValueError`` for a limit that is not positive.

    >>> import numpy as np
    >>> clip_by_value([np.array([-3.0, 0.5])], 1.0)
    [array([-1. ,  0.5])]
    """
    _check_limit("clip_by_value", limit)
    return map_parameters(lambda g: clip(g, -limit, limit), gradients)


def _check_limit(name: str, limit: float) -> None:
    check_number(name, "limit", limit)
    if not limit > 0:
        raise ValueError(f"[{name}] limit is {limit}. Give a positive number.")
