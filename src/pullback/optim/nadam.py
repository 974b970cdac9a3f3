"""NAdam: Adam with Nesterov's momentum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pullback.numpy import sqrt, square
from pullback.optim.optimiser import (
    LearningRate,
    check_below_one,
    check_gradients,
    check_not_negative,
    check_state,
    decayed,
    map_parameters,
    moving_mean,
    rate_at,
    scalar_for,
    zeros_for,
)
from pullback.tracing import static

__all__ = ["NAdam", "NAdamState"]

_BASE = 0.96  # of the momentum's approach to beta1, from the paper


class NAdamState(NamedTuple):
    """Steps done and the product of all momenta (``float64`` without axes), and Adam's running means."""

    step: Any
    product: Any
    mean: Any
    square: Any


@dataclass(frozen=True)
class NAdam:
    r"""NAdam: Adam that looks one step of its momentum ahead.

    .. math:: \mu_t = \beta_1 \left(1 - \tfrac{1}{2} 0.96^{t \psi}\right), \quad
        \Pi_t = \prod_{i \le t} \mu_i, \quad
        p = p - \eta \, \frac{\mu_{t+1} m / (1 - \Pi_{t+1}) + (1 - \mu_t) g' / (1 - \Pi_t)}
        {\sqrt{s / (1 - \beta_2^t)} + \epsilon}

    with momentum decay :math:`\psi`, and :math:`g'`, :math:`m`, :math:`s` and :math:`t` as in ``Adam``.

    Raises ``ValueError`` for settings that are negative and for betas of 1 or more.

    Source: Dozat, *Incorporating Nesterov momentum into Adam*, 2016; the form is PyTorch's.

    >>> optimiser = NAdam(0.1)
    >>> weights = np.array([1.0, 2.0])
    >>> optimiser.update(np.array([5.0, -5.0]), optimiser.init(weights), weights)[0].round(3)
    array([0.894, 2.106])
    """

    learning_rate: LearningRate = static(default=0.002)
    beta1: float = static(default=0.9)
    beta2: float = static(default=0.999)
    epsilon: float = static(default=1e-8)
    weight_decay: float = static(default=0.0)
    momentum_decay: float = static(default=0.004)

    def __post_init__(self) -> None:
        check_not_negative("NAdam", **vars(self))
        check_below_one("NAdam", beta1=self.beta1, beta2=self.beta2)

    def init(self, parameters: Any) -> NAdamState:
        """No steps done, means of zero."""
        return NAdamState(np.zeros(()), np.ones(()), zeros_for(parameters), zeros_for(parameters))

    def update(self, gradients: Any, state: NAdamState, parameters: Any) -> tuple[Any, NAdamState]:
        """The parameters and the state after a step."""
        check_state("NAdam", state, NAdamState)
        check_gradients("NAdam", gradients, parameters)
        gradients = decayed(gradients, parameters, self.weight_decay)
        step = state.step + 1.0
        momentum, following = self._momentum(step), self._momentum(step + 1.0)
        product = state.product * momentum
        # Scalars in float64, once a step; an element costs one root and one division.
        correction = sqrt(1.0 - self.beta2**step)
        rate = rate_at(self.learning_rate, state.step) * correction
        of_mean = rate * following / (1.0 - product * following)
        of_gradient = rate * (1.0 - momentum) / (1.0 - product)
        epsilon = self.epsilon * correction
        mean = map_parameters(lambda m, g: moving_mean(self.beta1, m, g), state.mean, gradients)
        squares = map_parameters(lambda s, g: moving_mean(self.beta2, s, square(g)), state.square, gradients)

        def moved(p: Any, g: Any, m: Any, s: Any) -> Any:
            change = scalar_for(of_mean, p) * m + scalar_for(of_gradient, p) * g
            return p - change / (sqrt(s) + scalar_for(epsilon, p))

        parameters = map_parameters(moved, parameters, gradients, mean, squares)
        return parameters, NAdamState(step, product, mean, squares)

    def _momentum(self, step: Any) -> Any:
        return self.beta1 * (1.0 - 0.5 * _BASE ** (step * self.momentum_decay))
