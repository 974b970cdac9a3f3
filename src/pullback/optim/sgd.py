"""Stochastic gradient descent, with momentum and Nesterov's variant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pullback.optim.optimiser import (
    Counting,
    LearningRate,
    check_below_one,
    check_not_negative,
    decayed,
    map_parameters,
    scalar_for,
    settled,
    zeros_for,
)
from pullback.tracing import static

__all__ = ["SGD"]


@dataclass(frozen=True)
class SGD(Counting):
    r"""Stochastic gradient descent.

    .. math:: g' = g + \lambda p, \quad v = \mu v + g', \quad
        p = p - \eta \, (g' + \mu v \text{ with Nesterov, else } v)

    with learning rate :math:`\eta`, momentum :math:`\mu`, weight decay :math:`\lambda` and :math:`v = 0`
    before the first step. The velocity holds gradients, not steps, as PyTorch's does: it does not
    change with the learning rate. The state is the tree of velocities, or ``()`` without momentum.

    Raises ``ValueError`` for negative settings, a momentum of 1 or more, and Nesterov without momentum.

    Source: Sutskever et al., *On the importance of initialization and momentum in deep learning*, 2013.

    >>> import numpy as np
    >>> optimiser = SGD(0.5)
    >>> optimiser.update(np.array([2.0]), optimiser.init(np.array([1.0])), np.array([1.0]))
    (array([0.]), ())
    """

    learning_rate: LearningRate = static()
    momentum: float = static(default=0.0)
    nesterov: bool = static(default=False)
    weight_decay: float = static(default=0.0)

    def __post_init__(self) -> None:
        check_not_negative(
            "SGD", learning_rate=self.learning_rate, momentum=self.momentum, weight_decay=self.weight_decay
        )
        check_below_one("SGD", momentum=self.momentum)
        if self.nesterov and not self.momentum:
            raise ValueError("[SGD] nesterov needs momentum. Give momentum=0.9, or leave nesterov out.")

    def _begin(self, parameters: Any) -> Any:
        return zeros_for(parameters) if self.momentum else ()

    def _step(self, rate: Any, gradients: Any, state: Any, parameters: Any) -> tuple[Any, Any]:
        steps = gradients = decayed(gradients, parameters, self.weight_decay)
        if self.momentum:
            steps = state = map_parameters(lambda v, g: settled(self.momentum * v + g), state, gradients)
        if self.nesterov:
            steps = map_parameters(lambda g, v: g + self.momentum * v, gradients, state)
        return map_parameters(lambda p, step: p - scalar_for(rate, p) * step, parameters, steps), state
