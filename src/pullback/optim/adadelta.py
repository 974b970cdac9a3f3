"""Adadelta: steps in the parameters' own units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from pullback.numpy import sqrt, square
from pullback.optim.optimiser import (
    Counting,
    LearningRate,
    check_below_one,
    check_not_negative,
    check_state,
    decayed,
    map_parameters,
    moving_mean,
    scalar_for,
    zeros_for,
)
from pullback.tracing import static

__all__ = ["Adadelta", "AdadeltaState"]


class AdadeltaState(NamedTuple):
    """Running means of the squares of the gradients and of the squares of the steps."""

    square: Any
    change: Any


@dataclass(frozen=True)
class Adadelta(Counting):
    r"""Adadelta: the gradient, scaled by the root mean square of past steps over that of the gradients.

    .. math:: g' = g + \lambda p, \quad s = \rho s + (1 - \rho) g'^2, \quad
        d = \frac{\sqrt{u + \epsilon}}{\sqrt{s + \epsilon}} g', \quad u = \rho u + (1 - \rho) d^2, \quad
        p = p - \eta d

    with decay :math:`\rho`, weight decay :math:`\lambda` and :math:`s = u = 0` before the first step.

    Raises ``ValueError`` for settings that are negative and a decay of 1 or more.

    Source: Zeiler, *ADADELTA: an adaptive learning rate method*, 2012.

    >>> import numpy as np
    >>> optimiser = Adadelta()
    >>> weights = np.array([1.0, 2.0])
    >>> optimiser.update(np.array([5.0, -5.0]), optimiser.init(weights), weights)[0].round(4)
    array([0.9968, 2.0032])
    """

    learning_rate: LearningRate = static(default=1.0)
    decay: float = static(default=0.9)
    epsilon: float = static(default=1e-6)
    weight_decay: float = static(default=0.0)

    def __post_init__(self) -> None:
        check_not_negative("Adadelta", **vars(self))
        check_below_one("Adadelta", decay=self.decay)

    def _begin(self, parameters: Any) -> AdadeltaState:
        return AdadeltaState(zeros_for(parameters), zeros_for(parameters))

    def _step(
        self, rate: Any, gradients: Any, state: AdadeltaState, parameters: Any
    ) -> tuple[Any, AdadeltaState]:
        check_state("Adadelta", state, AdadeltaState)
        decay, epsilon = self.decay, self.epsilon
        gradients = decayed(gradients, parameters, self.weight_decay)
        squares = map_parameters(lambda s, g: moving_mean(decay, s, square(g)), state.square, gradients)
        # One root of the quotient in place of a quotient of two roots.
        changes = map_parameters(
            lambda g, s, u: g * sqrt((u + epsilon) / (s + epsilon)), gradients, squares, state.change
        )
        means = map_parameters(lambda u, d: moving_mean(decay, u, square(d)), state.change, changes)
        parameters = map_parameters(lambda p, d: p - scalar_for(rate, p) * d, parameters, changes)
        return parameters, AdadeltaState(squares, means)
