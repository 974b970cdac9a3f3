"""Losses of elements: of outputs and targets of one shape, a loss for each element."""

from __future__ import annotations

import math
from typing import Any

from pullback.errors import ShapeError
from pullback.nn.losses.common import (
    as_array,
    check_floats,
    check_shapes,
    counted,
    focused,
    not_negative,
    reduced,
    times,
    visible,
)
from pullback.numpy import (
    absolute,
    astype,
    broadcast_to,
    exp,
    log,
    maximum,
    minimum,
    sigmoid,
    softplus,
    square,
)
from pullback.numpy import where as choose
from pullback.transforms import stop_gradient

__all__ = [
    "absolute_error",
    "absolute_percentage_error",
    "binary_cross_entropy",
    "binary_focal",
    "gaussian_nll",
    "hinge",
    "huber",
    "log_cosh",
    "poisson_nll",
    "smooth_l1",
    "squared_error",
    "squared_hinge",
    "squared_logarithmic_error",
]


def squared_error(outputs: Any, targets: Any, *, where: Any = None, reduction: str = "mean") -> Any:
    r"""The squared error :math:`(y - t)^2` of each element; its mean is the mean squared error.

    >>> import numpy as np
    >>> float(squared_error(np.array([1.0, 2.0]), np.array([0.0, 4.0])))
    2.5
    >>> float(squared_error(np.array([1.0, np.nan]), np.zeros(2), where=np.array([True, False])))
    1.0
    """
    outputs, targets, mask = _pair("squared_error", outputs, targets, where)
    return reduced("squared_error", square(outputs - targets), reduction, mask)


def absolute_error(outputs: Any, targets: Any, *, where: Any = None, reduction: str = "mean") -> Any:
    r"""The absolute error :math:`|y - t|` of each element; its mean is the mean absolute error.

    >>> import numpy as np
    >>> float(absolute_error(np.array([1.0, 2.0]), np.array([0.0, 4.0])))
    1.5
    """
    outputs, targets, mask = _pair("absolute_error", outputs, targets, where)
    return reduced("absolute_error", absolute(outputs - targets), reduction, mask)


def huber(
    outputs: Any, targets: Any, *, delta: float = 1.0, where: Any = None, reduction: str = "mean"
) -> Any:
    r"""Huber's loss of each element: a squared error near zero, an absolute one further out.

    .. math:: \tfrac12 e^2 \text{ where } |e| \le \delta, \quad \delta (|e| - \tfrac12 \delta)
        \text{ elsewhere}, \quad e = y - t

    Raises ``ValueError`` for a ``delta`` that is not positive.

    Source: Huber, *Robust estimation of a location parameter*, 1964.

    >>> import numpy as np
    >>> print(huber(np.array([0.5, 3.0]), np.zeros(2), reduction="none"))
    [0.125 2.5  ]
    """
    return reduced("huber", *_huber("huber", outputs, targets, "delta", delta, where, reduction))


def smooth_l1(
    outputs: Any, targets: Any, *, beta: float = 1.0, where: Any = None, reduction: str = "mean"
) -> Any:
    r"""Huber's loss divided by its ``delta``, here ``beta``: far out it is the absolute error less a constant.

    .. math:: \tfrac12 e^2 / \beta \text{ where } |e| \le \beta, \quad |e| - \tfrac12 \beta
        \text{ elsewhere}, \quad e = y - t

    Raises ``ValueError`` for a ``beta`` that is not positive; for 0 there is ``absolute_error``.

    Source: Girshick, *Fast R-CNN*, 2015.

    >>> import numpy as np
    >>> print(smooth_l1(np.array([0.5, 3.0]), np.zeros(2), beta=2.0, reduction="none"))
    [0.0625 2.    ]
    """
    losses, reduction, mask = _huber("smooth_l1", outputs, targets, "beta", beta, where, reduction)
    return reduced("smooth_l1", losses / beta, reduction, mask)


def log_cosh(outputs: Any, targets: Any, *, where: Any = None, reduction: str = "mean") -> Any:
    r"""The logarithm of the error's hyperbolic cosine, :math:`\log \cosh(y - t)`, without overflow.

    A squared error halved near zero, an absolute one less :math:`\log 2` further out, and smooth between.
    Source: Keras's ``LogCosh``.

    >>> import numpy as np
    >>> print(log_cosh(np.array([0.0, 1000.0]), np.zeros(2), reduction="none").round(4))
    [  0.     999.3069]
    """
    outputs, targets, mask = _pair("log_cosh", outputs, targets, where)
    error = outputs - targets
    size = choose(error < 0, -error, error)  # not the absolute value, whose slope is 0 at 0
    return reduced("log_cosh", size + softplus(-2 * size) - math.log(2), reduction, mask)


def squared_logarithmic_error(
    outputs: Any, targets: Any, *, where: Any = None, reduction: str = "mean"
) -> Any:
    r"""The squared error of logarithms, :math:`(\log(1 + y) - \log(1 + t))^2`, with negative numbers taken for 1e-7.

    Source: Keras's ``MeanSquaredLogarithmicError``.

    >>> import numpy as np
    >>> float(squared_logarithmic_error(np.array([np.e - 1.0]), np.array([0.0])).round(4))
    1.0
    """
    name = "squared_logarithmic_error"
    outputs, targets, mask = _pair(name, outputs, targets, where)
    logs = [log(maximum(x, 1e-7) + 1) for x in (outputs, targets)]
    return reduced(name, square(logs[0] - logs[1]), reduction, mask)


def absolute_percentage_error(
    outputs: Any, targets: Any, *, where: Any = None, reduction: str = "mean"
) -> Any:
    r"""The absolute error in per cent of the target, :math:`100 \, |y - t| / \max(|t|, 10^{-7})`.

    Source: Keras's ``MeanAbsolutePercentageError``.

    >>> import numpy as np
    >>> print(absolute_percentage_error(np.array([1.5, 2.0]), np.array([1.0, 4.0]), reduction="none"))
    [50. 50.]
    """
    name = "absolute_percentage_error"
    outputs, targets, mask = _pair(name, outputs, targets, where)
    return reduced(
        name, 100 * absolute((outputs - targets) / maximum(absolute(targets), 1e-7)), reduction, mask
    )


def binary_cross_entropy(
    logits: Any,
    targets: Any,
    *,
    weight: Any = None,
    positive_weight: Any = None,
    where: Any = None,
    reduction: str = "mean",
) -> Any:
    r"""The cross-entropy of targets and sigmoid(logits), :math:`y \log(1 + e^{-z}) + (1 - y) \log(1 + e^z)`.

    ``logits`` and ``targets`` have one shape; targets are 0 or 1 (any dtype) or probabilities. ``weight`` multiplies
    the losses, ``positive_weight`` :math:`w` what they have of the class 1; both broadcast to the logits. The mean
    divides by the number of elements, whatever their weights.

    .. math:: -w y \log \sigma(z) - (1 - y) \log(1 - \sigma(z))

    Nothing overflows, and infinite logits are as certain as can be: the loss is 0 where they are right, infinite where
    they are wrong, and slopes are finite.

    >>> import numpy as np
    >>> round(float(binary_cross_entropy(np.array([0.0, 100.0]), np.array([1, 1]))), 4)
    0.3466
    """
    name = "binary_cross_entropy"
    logits, targets, mask = _logits_and_targets(name, logits, targets, where)
    positive = targets
    if positive_weight is not None:
        positive = visible(mask, _broadcasting(name, "positive_weight", positive_weight, logits)) * targets
    losses = _entropies(logits, positive, 1 - targets)
    if weight is not None:
        losses = times(visible(mask, _broadcasting(name, "weight", weight, logits)), losses)
    return reduced(name, losses, reduction, mask)


def binary_focal(
    logits: Any,
    targets: Any,
    *,
    gamma: float = 2.0,
    alpha: float | None = None,
    where: Any = None,
    reduction: str = "mean",
) -> Any:
    r"""The focal loss of each element: a cross-entropy in which what is answered well already counts less.

    .. math:: -\alpha_t (1 - p_t)^\gamma \log p_t, \quad p_t = y \sigma(z) + (1 - y)(1 - \sigma(z)), \quad
        \alpha_t = y \alpha + (1 - y)(1 - \alpha)

    Arguments are those of ``binary_cross_entropy``, which it is for ``gamma=0`` and no ``alpha``. It is torchvision's
    ``sigmoid_focal_loss`` and, with ``alpha``, Keras's ``BinaryFocalCrossentropy(apply_class_balancing=True)``.

    Raises ``ValueError`` for a negative ``gamma`` and for an ``alpha`` that is no share.

    Source: Lin et al., *Focal loss for dense object detection*, 2017.

    >>> import numpy as np
    >>> print(binary_focal(np.array([2.0, 0.0]), np.array([1, 1]), reduction="none").round(4))
    [0.0018 0.1733]
    """
    name = "binary_focal"
    not_negative(name, "gamma", gamma)
    if alpha is not None and not 0 <= alpha <= 1:
        raise ValueError(f"[{name}] alpha is {alpha}. Give a share from 0 to 1, or None.")
    logits, targets, mask = _logits_and_targets(name, logits, targets, where)
    losses = _entropies(logits, targets, 1 - targets)
    if gamma:
        # 1 - p as the sum of what is positive: near 1 no digits of p are lost.
        losses = focused(sigmoid(logits) * (1 - targets) + sigmoid(-logits) * targets, gamma, losses)
    if alpha is not None:
        losses = (alpha * targets + (1 - alpha) * (1 - targets)) * losses
    return reduced(name, losses, reduction, mask)


def hinge(outputs: Any, labels: Any, *, where: Any = None, reduction: str = "mean") -> Any:
    r"""The hinge loss of each element, :math:`\max(0, 1 - s y)`, where :math:`s` is 1 or -1.

    ``outputs`` are scores; ``labels`` of the same shape are 1 or ``True`` for one class, and 0, -1 or
    ``False`` for the other, in any dtype.

    Source: Cortes & Vapnik, *Support-vector networks*, 1995; the same in Keras.

    >>> import numpy as np
    >>> print(hinge(np.array([2.0, 0.5, 0.5]), np.array([1, 1, 0]), reduction="none"))
    [0.  0.5 1.5]
    """
    losses, mask = _hinge("hinge", outputs, labels, where)
    return reduced("hinge", losses, reduction, mask)


def squared_hinge(outputs: Any, labels: Any, *, where: Any = None, reduction: str = "mean") -> Any:
    r"""The hinge loss squared, :math:`\max(0, 1 - s y)^2`; arguments as of ``hinge``.

    >>> import numpy as np
    >>> print(squared_hinge(np.array([2.0, 0.5, 0.5]), np.array([1, 1, 0]), reduction="none"))
    [0.   0.25 2.25]
    """
    losses, mask = _hinge("squared_hinge", outputs, labels, where)
    return reduced("squared_hinge", square(losses), reduction, mask)


def poisson_nll(
    outputs: Any,
    targets: Any,
    *,
    log_input: bool = True,
    full: bool = False,
    epsilon: float = 1e-8,
    where: Any = None,
    reduction: str = "mean",
) -> Any:
    r"""The negative log-likelihood of counts under Poisson's distribution, without the constant :math:`\log t!`.

    .. math:: e^z - t z \text{ of outputs } z = \log \lambda, \quad
        \lambda - t \log(\lambda + \epsilon) \text{ with } \texttt{log_input=False}

    ``full`` adds Stirling's formula for the constant, :math:`t \log t - t + \tfrac12 \log(2 \pi t)`, where
    :math:`t > 1`. Keras's ``Poisson`` has the second form, with an epsilon of 1e-7.

    >>> import numpy as np
    >>> print(poisson_nll(np.array([0.0, 1.0]), np.array([1, 2]), reduction="none").round(4))
    [1.     0.7183]
    """
    name = "poisson_nll"
    not_negative(name, "epsilon", epsilon)
    outputs, targets, mask = _pair(name, outputs, targets, where)
    targets = astype(targets, outputs.dtype)
    losses = (
        exp(outputs) - times(targets, outputs) if log_input else outputs - targets * log(outputs + epsilon)
    )
    if full:
        many = targets > 1
        count = choose(many, targets, 1)
        losses = losses + choose(many, count * log(count) - count + 0.5 * log(2 * math.pi * count), 0)
    return reduced(name, losses, reduction, mask)


def gaussian_nll(
    outputs: Any,
    targets: Any,
    variances: Any,
    *,
    full: bool = False,
    epsilon: float = 1e-6,
    where: Any = None,
    reduction: str = "mean",
) -> Any:
    r"""The negative log-likelihood of targets under normal distributions of these means and variances.

    .. math:: \tfrac12 \Big( \log \max(v, \epsilon) + \frac{(y - t)^2}{\max(v, \epsilon)} \Big)

    ``variances`` broadcast to the outputs: one for each, (…, 1) for one of each row. As in PyTorch, the bound by
    ``epsilon`` is no part of the derivative: a variance below it has the slope of one there. ``full`` adds
    :math:`\tfrac12 \log 2 \pi`.

    >>> import numpy as np
    >>> print(gaussian_nll(np.array([0.0, 1.0]), np.zeros(2), np.array([1.0, 4.0]), reduction="none").round(4))
    [0.     0.8181]
    """
    name = "gaussian_nll"
    if not epsilon > 0:
        raise ValueError(f"[{name}] epsilon is {epsilon}. Give a positive number.")
    outputs, targets, mask = _pair(name, outputs, targets, where)
    variances = visible(mask, _broadcasting(name, "variances", variances, outputs), 1)
    variances = variances + stop_gradient(maximum(variances, epsilon) - variances)
    losses = 0.5 * (log(variances) + square(outputs - targets) / variances)
    return reduced(name, losses + 0.5 * math.log(2 * math.pi) if full else losses, reduction, mask)


def _pair(name: str, outputs: Any, targets: Any, where: Any, what: str = "outputs") -> tuple[Any, Any, Any]:
    """Outputs, which are floats, and targets of one shape, zero where they do not count, and the mask of what does."""
    outputs, targets = as_array(outputs), as_array(targets)
    check_floats(name, outputs, what)
    check_shapes(name, "targets", targets.shape, outputs.shape)
    mask = counted(name, where, outputs.shape)
    return visible(mask, outputs), visible(mask, targets), mask


def _logits_and_targets(name: str, logits: Any, targets: Any, where: Any) -> tuple[Any, Any, Any]:
    logits, targets, mask = _pair(name, logits, targets, where, "logits")
    return logits, astype(targets, logits.dtype), mask


def _entropies(logits: Any, positive: Any, negative: Any) -> Any:
    """The cross-entropies of sigmoid(logits) and these shares of the class 1 and of the other one.

    Both have a term softplus(-|z|), the wrong one |z| beside it. Of terms that are not negative no digits are lost.
    """
    size = choose(logits < 0, -logits, logits)  # not the absolute value, whose slope is 0 at 0
    wrong = choose(logits < 0, positive, negative)
    return times(wrong, size) + (positive + negative) * softplus(-size)


def _huber(
    name: str, outputs: Any, targets: Any, what: str, delta: float, where: Any, reduction: str
) -> tuple[Any, str, Any]:
    """Huber's losses, with what reduces them."""
    if not delta > 0:
        raise ValueError(f"[{name}] {what} is {delta}. Give a positive number.")
    outputs, targets, mask = _pair(name, outputs, targets, where)
    size = absolute(outputs - targets)
    # What lies within delta counts squared, the rest once: no branch whose value would not be taken.
    near = minimum(size, delta)
    return near * (size - 0.5 * near), reduction, mask


def _hinge(name: str, outputs: Any, labels: Any, where: Any) -> tuple[Any, Any]:
    outputs, labels = as_array(outputs), as_array(labels)
    check_floats(name, outputs)
    check_shapes(name, "labels", labels.shape, outputs.shape)
    mask = counted(name, where, outputs.shape)
    outputs = visible(mask, outputs)
    return maximum(1 - choose(labels > 0, outputs, -outputs), 0), mask


def _broadcasting(name: str, what: str, value: Any, outputs: Any) -> Any:
    """``value`` in the outputs' dtype, repeated to their shape."""
    value, shape = as_array(value), outputs.shape
    extents = zip(reversed(value.shape), reversed(shape))
    if value.ndim > len(shape) or any(own not in (1, wanted) for own, wanted in extents):
        raise ShapeError(
            f"[{name}] {what} of shape {value.shape} where the outputs have {shape}. Give what broadcasts to it."
        )
    return broadcast_to(astype(value, outputs.dtype), shape)
