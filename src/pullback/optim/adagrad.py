"""AdaGrad: a learning rate of its own for each parameter, falling as its gradients add up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pullback.numpy import sqrt, square
from pullback.optim.optimiser import (
    Counting,
    LearningRate,
    check_not_negative,
    decayed,
    map_parameters,
    scalar_for,
    zeros_for,
)
from pullback.tracing import static

__all__ = ["Adagrad"]


@dataclass(frozen=True)
class Adagrad(Counting):
    r"""AdaGrad: steps of the gradient over the root of the sum of its squares so far.

    .. math:: g' = g + \lambda p, \quad s = s + g'^2, \quad p = p - \eta \frac{g'}{\sqrt{s} + \epsilon}

    with learning rate :math:`\eta`, weight decay :math:`\lambda` and :math:`s = 0` before the
    first step. What has rare gradients, such as the row of a rare word, keeps its large steps. The state is
    the tree of sums.

    Raises ``ValueError`` for settings that are negative.

    Source: Duchi, Hazan & Singer, *Adaptive subgradient methods for online learning and stochastic
    optimization*, JMLR 12, 2011.

    >>> import numpy as np
    >>> optimiser = Adagrad(0.1)
    >>> weights = np.array([1.0, 2.0])
    >>> optimiser.update(np.array([5.0, -0.5]), optimiser.init(weights), weights)[0].round(6)
    array([0.9, 2.1])
    """

    learning_rate: LearningRate = static(default=0.01)
    epsilon: float = static(default=1e-10)
    weight_decay: float = static(default=0.0)

    def __post_init__(self) -> None:
        check_not_negative("Adagrad", **vars(self))

    def _begin(self, parameters: Any) -> Any:
        return zeros_for(parameters)

    def _step(self, rate: Any, gradients: Any, state: Any, parameters: Any) -> tuple[Any, Any]:
        gradients = decayed(gradients, parameters, self.weight_decay)
        state = map_parameters(lambda s, g: s + square(g), state, gradients)

        def moved(p: Any, g: Any, s: Any) -> Any:
            return p - scalar_for(rate, p) * g / (sqrt(s) + self.epsilon)

        return map_parameters(moved, parameters, gradients, state), state
