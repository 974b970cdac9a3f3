"""Adam, AMSGrad, and AdamW with its decay beside the gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pullback.numpy import maximum, sqrt, square
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

__all__ = ["Adam", "AdamState", "AdamW"]


class AdamState(NamedTuple):
    """Steps done (a ``float64`` without axes) and the running means of gradients and of their squares.

    ``largest`` are the largest mean squares so far with AMSGrad, else ``()``.
    """

    step: Any
    mean: Any
    square: Any
    largest: Any = ()


@dataclass(frozen=True)
class Adam:
    r"""Adam: steps of the gradient's running mean over the root of its running mean square.

    .. math:: g' = g + \lambda p, \quad m = \beta_1 m + (1 - \beta_1) g', \quad
        s = \beta_2 s + (1 - \beta_2) g'^2, \quad
        p = p - \eta \frac{m / (1 - \beta_1^t)}{\sqrt{s / (1 - \beta_2^t)} + \epsilon}

    in step :math:`t = 1, 2, \ldots`, with weight decay :math:`\lambda` and :math:`m = s = 0` before. With
    ``amsgrad`` the largest :math:`s` so far stands in place of :math:`s` in the last formula. The learning rate
    is a number or a schedule.

    Raises ``ValueError`` for settings that are negative and for betas of 1 or more.

    Source: Kingma & Ba, *Adam: a method for stochastic optimization*, 2015; Reddi, Kale & Kumar, *On the
    convergence of Adam and beyond*, 2018.

    >>> optimiser = Adam(0.1)
    >>> weights = np.array([1.0, 2.0])
    >>> optimiser.update(np.array([5.0, -5.0]), optimiser.init(weights), weights)[0].round(6)
    array([0.9, 2.1])
    """

    learning_rate: LearningRate = static(default=0.001)
    beta1: float = static(default=0.9)
    beta2: float = static(default=0.999)
    epsilon: float = static(default=1e-8)
    weight_decay: float = static(default=0.0)
    amsgrad: bool = static(default=False)

    def __post_init__(self) -> None:
        check_not_negative(type(self).__name__, **vars(self))
        check_below_one(type(self).__name__, beta1=self.beta1, beta2=self.beta2)

    def init(self, parameters: Any) -> AdamState:
        """No steps done, means of zero."""
        largest = zeros_for(parameters) if self.amsgrad else ()
        return AdamState(np.zeros(()), zeros_for(parameters), zeros_for(parameters), largest)

    def update(self, gradients: Any, state: AdamState, parameters: Any) -> tuple[Any, AdamState]:
        """The parameters and the state after a step."""
        check_state(type(self).__name__, state, AdamState)
        check_gradients(type(self).__name__, gradients, parameters)
        step = state.step + 1.0
        # In float64: 1 - beta2**t is a difference of nearly equal numbers in the first steps. Both
        # corrections are factors of the whole step, so that an element costs one root and one division.
        correction = sqrt(1.0 - self.beta2**step)
        learning_rate = rate_at(self.learning_rate, state.step)
        rate = learning_rate * correction / (1.0 - self.beta1**step)
        epsilon = self.epsilon * correction

        gradients, parameters = self._decay(gradients, parameters, learning_rate)
        mean = map_parameters(lambda m, g: moving_mean(self.beta1, m, g), state.mean, gradients)
        squares = map_parameters(lambda s, g: moving_mean(self.beta2, s, square(g)), state.square, gradients)
        largest = map_parameters(maximum, state.largest, squares) if self.amsgrad else ()

        def moved(p: Any, m: Any, s: Any) -> Any:
            return p - scalar_for(rate, p) * m / (sqrt(s) + scalar_for(epsilon, p))

        parameters = map_parameters(moved, parameters, mean, largest if self.amsgrad else squares)
        return parameters, AdamState(step, mean, squares, largest)

    def _decay(self, gradients: Any, parameters: Any, rate: Any) -> tuple[Any, Any]:
        """Gradients and parameters, one of them with the weight decay of this step."""
        return decayed(gradients, parameters, self.weight_decay), parameters


@dataclass(frozen=True)
class AdamW(Adam):
    r"""Adam with the weight decay acting on the parameter itself, not through the means.

    .. math:: p = (1 - \eta \lambda) p - \eta \frac{m / (1 - \beta_1^t)}{\sqrt{s / (1 - \beta_2^t)} + \epsilon}

    with Adam's :math:`m` and :math:`s` of the plain gradient.

    Raises ``ValueError`` as ``Adam`` does.

    Source: Loshchilov & Hutter, *Decoupled weight decay regularization*, 2019.

    >>> optimiser = AdamW(0.1, weight_decay=0.5)
    >>> weights = np.array([1.0, 2.0])
    >>> optimiser.update(np.array([5.0, -5.0]), optimiser.init(weights), weights)[0].round(6)
    array([0.85, 2.  ])
    """

    weight_decay: float = static(default=0.01)

    def _decay(self, gradients: Any, parameters: Any, rate: Any) -> tuple[Any, Any]:
        if not self.weight_decay:
            return gradients, parameters
        kept = 1.0 - rate * self.weight_decay
        return gradients, map_parameters(lambda p: scalar_for(kept, p) * p, parameters)
