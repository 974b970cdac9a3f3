"""RMSProp: steps of the gradient over its root mean square, plain, centred, or with momentum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from pullback.numpy import maximum, sqrt, square
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
    settled,
    zeros_for,
)
from pullback.tracing import static

__all__ = ["RMSProp", "RMSPropState"]


class RMSPropState(NamedTuple):
    """Running means of the squares and, if centred, of the gradients; the velocity, with momentum; else ``()``."""

    square: Any
    mean: Any
    velocity: Any


@dataclass(frozen=True)
class RMSProp(Counting):
    r"""RMSProp: steps of the gradient over its running root mean square.

    .. math:: g' = g + \lambda p, \quad s = \alpha s + (1 - \alpha) g'^2, \quad
        u = \frac{g'}{\sqrt{s - a^2} + \epsilon}, \quad v = \mu v + u, \quad p = p - \eta v

    with smoothing :math:`\alpha`, momentum :math:`\mu`, weight decay :math:`\lambda`, and zeros before the
    first step. With ``centred``, :math:`a = \alpha a + (1 - \alpha) g'`, else 0.

    Raises ``ValueError`` for settings that are negative, and a smoothing or momentum of 1 or more.

    Source: Tieleman & Hinton, *Lecture 6.5: RMSProp*, 2012; centred: Graves, *Generating sequences with
    recurrent neural networks*, 2013. The form is PyTorch's.

    >>> import numpy as np
    >>> optimiser = RMSProp(0.1)
    >>> weights = np.array([1.0, 2.0])
    >>> optimiser.update(np.array([5.0, -5.0]), optimiser.init(weights), weights)[0].round(6)
    array([0., 3.])
    """

    learning_rate: LearningRate = static(default=0.01)
    smoothing: float = static(default=0.99)
    epsilon: float = static(default=1e-8)
    weight_decay: float = static(default=0.0)
    momentum: float = static(default=0.0)
    centred: bool = static(default=False)

    def __post_init__(self) -> None:
        check_not_negative("RMSProp", **vars(self))
        check_below_one("RMSProp", smoothing=self.smoothing, momentum=self.momentum)

    def _begin(self, parameters: Any) -> RMSPropState:
        return RMSPropState(
            zeros_for(parameters),
            zeros_for(parameters) if self.centred else (),
            zeros_for(parameters) if self.momentum else (),
        )

    def _step(
        self, rate: Any, gradients: Any, state: RMSPropState, parameters: Any
    ) -> tuple[Any, RMSPropState]:
        check_state("RMSProp", state, RMSPropState)
        smoothing = self.smoothing
        gradients = decayed(gradients, parameters, self.weight_decay)
        squares = map_parameters(lambda s, g: moving_mean(smoothing, s, square(g)), state.square, gradients)
        mean, velocity, variance = state.mean, state.velocity, squares
        if self.centred:
            mean = map_parameters(lambda a, g: moving_mean(smoothing, a, g), mean, gradients)
            # Of gradients that do not change it is zero, and rounding would leave it below.
            variance = map_parameters(lambda s, a: maximum(s - square(a), 0.0), squares, mean)
        if not self.momentum:

            def moved(p: Any, g: Any, s: Any) -> Any:
                return p - scalar_for(rate, p) * g / (sqrt(s) + self.epsilon)

            return map_parameters(moved, parameters, gradients, variance), RMSPropState(squares, mean, ())
        velocity = map_parameters(
            lambda v, g, s: settled(self.momentum * v + g / (sqrt(s) + self.epsilon)),
            velocity,
            gradients,
            variance,
        )
        parameters = map_parameters(lambda p, v: p - scalar_for(rate, p) * v, parameters, velocity)
        return parameters, RMSPropState(squares, mean, velocity)
