"""Learning rates that can be changed between steps, without another compilation."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pullback.optim.optimiser import LearningRate, Optimiser, check_inner, rate_at
from pullback.tracing import static

__all__ = ["Adjustable", "Adjusted", "rate_factor"]


class Adjusted(NamedTuple):
    """The factor of the learning rate (a ``float64`` without axes), and the inner state."""

    factor: Any
    state: Any


@dataclass(frozen=True)
class Adjustable:
    r"""Another optimiser, its learning rate times a factor that is part of the state, :math:`\eta f`.

    The factor begins at 1 and no step changes it: write to it between steps, ``state.factor[...] = 0.5``, or let
    ``ReduceOnPlateau`` do so after each epoch of a ``Trainer``. The compiled step stays the same one.

    Raises ``TypeError`` for an optimiser that is no dataclass with a field ``learning_rate``, and for a line search.

    >>> from pullback import optim
    >>> optimiser = Adjustable(optim.SGD(0.5))
    >>> weights = np.array([1.0])
    >>> state = optimiser.init(weights)
    >>> state.factor[...] = 0.1
    >>> optimiser.update(np.array([2.0]), state, weights)[0]
    array([0.9])
    """

    optimiser: Optimiser = static()

    def __post_init__(self) -> None:
        check_inner("Adjustable", self.optimiser)
        if "learning_rate" not in getattr(self.optimiser, "__dataclass_fields__", ()):
            raise TypeError(
                f"[Adjustable] {type(self.optimiser).__name__} has no field learning_rate to be replaced. "
                "Give an optimiser such as SGD; Accumulate goes around Adjustable."
            )

    @property
    def learning_rate(self) -> LearningRate:
        """That of the other optimiser, without the factor."""
        return self.optimiser.learning_rate

    def init(self, parameters: Any) -> Adjusted:
        """A factor of 1."""
        factor = np.ones(())
        return Adjusted(factor, self._with(factor).init(parameters))

    def update(self, gradients: Any, state: Adjusted, parameters: Any) -> tuple[Any, Adjusted]:
        """The parameters and the state after a step."""
        parameters, inner = self._with(state.factor).update(gradients, state.state, parameters)
        return parameters, Adjusted(state.factor, inner)

    def _with(self, factor: Any) -> Any:
        """The other optimiser with a schedule that multiplies by the factor."""
        rate = self.learning_rate
        return dataclasses.replace(
            self.optimiser,  # type: ignore[type-var]
            learning_rate=lambda step: rate_at(rate, step) * factor,
        )


def rate_factor(state: Any) -> Any:
    """The factor in an optimiser's state, also within that of ``Accumulate``; None where there is none.

    >>> from pullback import optim
    >>> rate_factor(Adjustable(optim.SGD(0.5)).init(np.ones(2)))
    array(1.)
    """
    while state is not None and not isinstance(state, Adjusted):
        state = getattr(state, "state", None)
    return None if state is None else state.factor
