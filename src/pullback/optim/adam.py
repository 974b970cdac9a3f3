"""Adam, with weight decay beside the gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pullback.numpy import astype, sqrt, square
from pullback.optim.optimiser import check_not_negative, map_parameters, zeros_for
from pullback.tracing import static

__all__ = ["Adam", "AdamState"]


class AdamState(NamedTuple):
    """Steps done (a ``float64`` without axes) and the running means of gradients and of their squares."""

    step: Any
    mean: Any
    square: Any


@dataclass(frozen=True)
class Adam:
    r"""Adam: steps of the gradient's running mean over the root of its running mean square.

    .. math:: m = \beta_1 m + (1 - \beta_1) g, \quad s = \beta_2 s + (1 - \beta_2) g^2, \quad
        p = p - \eta \frac{m / (1 - \beta_1^t)}{\sqrt{s / (1 - \beta_2^t)} + \epsilon} - \eta \lambda p

    in step :math:`t = 1, 2, \ldots`, with :math:`m = s = 0` before. The weight decay :math:`\lambda` acts on
    the parameter itself, not through the means.

    Raises ``ValueError`` for settings that are negative and for betas of 1 or more.

    Source: Kingma & Ba, *Adam: a method for stochastic optimization*, 2015; Loshchilov & Hutter, *Decoupled
    weight decay regularization*, 2019.

    >>> optimiser = Adam(0.1)
    >>> weights = np.array([1.0, 2.0])
    >>> optimiser.update(np.array([5.0, -5.0]), optimiser.init(weights), weights)[0].round(6)
    array([0.9, 2.1])
    """

    learning_rate: float = static(default=0.001)
    beta1: float = static(default=0.9)
    beta2: float = static(default=0.999)
    epsilon: float = static(default=1e-8)
    weight_decay: float = static(default=0.0)

    def __post_init__(self) -> None:
        settings = vars(self)
        check_not_negative("Adam", **settings)
        if not (self.beta1 < 1 and self.beta2 < 1):
            raise ValueError(
                f"[Adam] beta1 and beta2 are {self.beta1} and {self.beta2}. Give numbers below 1."
            )

    def init(self, parameters: Any) -> AdamState:
        """No steps done, means of zero."""
        return AdamState(np.zeros(()), zeros_for(parameters), zeros_for(parameters))

    def update(self, gradients: Any, state: AdamState, parameters: Any) -> tuple[Any, AdamState]:
        """The parameters and the state after a step."""
        step = state.step + 1.0
        # In float64: 1 - beta2**t is a difference of nearly equal numbers in the first steps.
        mean_share, square_share = 1.0 - self.beta1**step, 1.0 - self.beta2**step
        mean = map_parameters(lambda m, g: self.beta1 * m + (1 - self.beta1) * g, state.mean, gradients)
        squares = map_parameters(
            lambda s, g: self.beta2 * s + (1 - self.beta2) * square(g), state.square, gradients
        )

        def moved(p: Any, m: Any, s: Any) -> Any:
            rate = astype(self.learning_rate / mean_share, p.dtype)
            change = rate * m / (sqrt(s / astype(square_share, p.dtype)) + self.epsilon)
            return (
                p - change - self.learning_rate * self.weight_decay * p if self.weight_decay else p - change
            )

        return map_parameters(moved, parameters, mean, squares), AdamState(step, mean, squares)
