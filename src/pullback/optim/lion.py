"""Lion: steps of one size, in the direction of the sign of the momentum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pullback.numpy import sign
from pullback.optim.optimiser import (
    Counting,
    LearningRate,
    check_below_one,
    check_not_negative,
    map_parameters,
    moving_mean,
    scalar_for,
    zeros_for,
)
from pullback.tracing import static

__all__ = ["Lion"]


@dataclass(frozen=True)
class Lion(Counting):
    r"""Lion: every element moves by the learning rate, up or down.

    .. math:: p = (1 - \eta \lambda) p - \eta \operatorname{sign}(\beta_1 m + (1 - \beta_1) g), \quad
        m = \beta_2 m + (1 - \beta_2) g

    with weight decay :math:`\lambda` and :math:`m = 0` before the first step. The state is the tree of
    :math:`m`: half of Adam's memory.

    Raises ``ValueError`` for settings that are negative and for betas of 1 or more.

    Source: Chen et al., *Symbolic discovery of optimization algorithms*, 2023.

    >>> import numpy as np
    >>> optimiser = Lion(0.1)
    >>> weights = np.array([1.0, 2.0])
    >>> optimiser.update(np.array([5.0, -0.5]), optimiser.init(weights), weights)[0]
    array([0.9, 2.1])
    """

    learning_rate: LearningRate = static(default=0.0001)
    beta1: float = static(default=0.9)
    beta2: float = static(default=0.99)
    weight_decay: float = static(default=0.0)

    def __post_init__(self) -> None:
        check_not_negative("Lion", **vars(self))
        check_below_one("Lion", beta1=self.beta1, beta2=self.beta2)

    def _begin(self, parameters: Any) -> Any:
        return zeros_for(parameters)

    def _step(self, rate: Any, gradients: Any, state: Any, parameters: Any) -> tuple[Any, Any]:
        kept = 1.0 - rate * self.weight_decay

        def moved(p: Any, m: Any, g: Any) -> Any:
            direction = sign(self.beta1 * m + (1 - self.beta1) * g)
            remains = scalar_for(kept, p) * p if self.weight_decay else p
            return remains - scalar_for(rate, p) * direction

        parameters = map_parameters(moved, parameters, state, gradients)
        return parameters, map_parameters(lambda m, g: moving_mean(self.beta2, m, g), state, gradients)
