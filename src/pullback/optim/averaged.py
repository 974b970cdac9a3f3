"""Moving averages of parameters: what a training wanders around, in place of where it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pullback.graph import Node
from pullback.optim.optimiser import (
    LearningRate,
    Optimiser,
    check_below_one,
    check_inner,
    check_not_negative,
    map_parameters,
    scalar_for,
    zeros_for,
)
from pullback.tracing import static

__all__ = ["Averaged", "Averages", "averaged", "averages_of"]


class Averages(NamedTuple):
    """Steps done (a ``float64`` without axes), the averages of the parameters, and the inner state."""

    step: Any
    mean: Any
    state: Any


@dataclass(frozen=True)
class Averaged:
    r"""Another optimiser that keeps the exponential moving average of the parameters after each step.

    .. math:: a_t = a_{t-1} + \frac{1 - \beta}{1 - \beta^t} (p_t - a_{t-1})

    with :math:`\beta` the ``decay``: the mean of :math:`p_1, \ldots, p_t`, each weighted by :math:`\beta` for every
    step since. It forgets within about :math:`1 / (1 - \beta)` steps, and what the parameters began with is no part
    of it. The steps are those of the other optimiser; ``averaged(state, parameters)`` gives the averages. A ``Trainer``
    validates, evaluates and predicts with them, and has them as ``trainer.averaged``, for ``pb.save``. What is not
    trained, such as running statistics, is not averaged. The averages are kept in the parameters' dtype, those of 16
    bits in ``float32``.

    Raises ``ValueError`` for a decay outside [0, 1), ``TypeError`` for a line search and for what is no optimiser.

    Source: Polyak & Juditsky, *Acceleration of stochastic approximation by averaging*, 1992; with weights that fall
    exponentially, made to sum to 1 as in Kingma & Ba, *Adam: a method for stochastic optimization*, 2015.

    >>> from pullback import optim
    >>> optimiser = Averaged(optim.SGD(1.0), decay=0.5)
    >>> weights = np.array([4.0])
    >>> state = optimiser.init(weights)
    >>> for gradient in (2.0, -3.0):
    ...     weights, state = optimiser.update(np.array([gradient]), state, weights)
    ...     print(weights, optim.averaged(state, weights))
    [2.] [2.]
    [5.] [4.]
    """

    optimiser: Optimiser = static()
    decay: float = static(default=0.999)

    def __post_init__(self) -> None:
        check_inner("Averaged", self.optimiser)
        check_not_negative("Averaged", decay=self.decay)
        check_below_one("Averaged", decay=self.decay)

    @property
    def learning_rate(self) -> LearningRate:
        """That of the other optimiser."""
        return self.optimiser.learning_rate

    def init(self, parameters: Any) -> Averages:
        """The averages are the parameters; no steps are done."""
        means = map_parameters(_copied, zeros_for(parameters), parameters)
        return Averages(np.zeros(()), means, self.optimiser.init(parameters))

    def update(self, gradients: Any, state: Averages, parameters: Any) -> tuple[Any, Averages]:
        """The parameters and the state after a step."""
        parameters, inner = self.optimiser.update(gradients, state.state, parameters)
        step = state.step + 1.0
        # In float64: 1 - decay**t is a difference of nearly equal numbers in the first steps.
        share = (1.0 - self.decay) / (1.0 - self.decay**step)
        means = map_parameters(lambda a, p: a + scalar_for(share, a) * (p - a), state.mean, parameters)
        return parameters, Averages(step, means, inner)


def averages_of(state: Any) -> Averages | None:
    """The averages in an optimiser's state, also within that of ``Accumulate``; None where there are none."""
    while state is not None and not isinstance(state, Averages):
        state = getattr(state, "state", None)
    return state


def averaged(state: Any, parameters: Any) -> Any:
    """The averages that an optimiser's ``state`` has of ``parameters``, a tree like them, of their dtypes.

    What is not trained is that of ``parameters``; where ``state`` has no averages, so is all.

    >>> from pullback import optim
    >>> weights = {"weight": np.ones(2), "steps": np.array(7)}
    >>> averaged(optim.Averaged(optim.SGD(0.1)).init(weights), weights)
    {'weight': array([1., 1.]), 'steps': array(7)}
    """
    found = averages_of(state)
    return parameters if found is None else map_parameters(lambda p, a: a, parameters, found.mean)


def _copied(zeros: Any, parameter: Any) -> Any:
    """A parameter as an array of its own, of the dtype of ``zeros``."""
    return zeros + parameter if isinstance(parameter, Node) else np.array(parameter, zeros.dtype)
