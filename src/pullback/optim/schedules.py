"""Schedules: learning rates as functions of the number of steps done.

Give one as ``learning_rate`` of any optimiser. A schedule is called with the number of steps done before, 0 in
the first step: a number, an array or a traced value, whose mathematics then is part of the compiled step.
Any function of this kind will do.

>>> from pullback import optim
>>> optimiser = optim.Adam(optim.schedules.WarmUpCosine(0.01, warm_up=100, steps=1000))
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, pi
from typing import Any

from pullback.numpy import cos, floor, maximum, minimum, where
from pullback.optim.optimiser import check_number

__all__ = ["Constant", "Cosine", "Exponential", "OneCycle", "Step", "WarmUpCosine"]


@dataclass(frozen=True)
class Constant:
    """The same ``rate`` in each step.

    >>> Constant(0.1)(7)
    0.1
    """

    rate: float

    def __post_init__(self) -> None:
        _check(self)

    def __call__(self, step: Any) -> Any:
        return self.rate


@dataclass(frozen=True)
class Step:
    r"""The rate times ``factor`` after each ``every`` steps: :math:`\eta \gamma^{\lfloor t / n \rfloor}`.

    Raises ``ValueError`` for settings that are negative and for ``every`` below 1.

    >>> schedule = Step(1.0, every=10)
    >>> [float(schedule(step)) for step in (0, 9, 10)]
    [1.0, 1.0, 0.1]
    """

    rate: float
    every: int
    factor: float = 0.1

    def __post_init__(self) -> None:
        _check(self, "every")

    def __call__(self, step: Any) -> Any:
        return self.rate * self.factor ** floor(step / self.every)


@dataclass(frozen=True)
class Exponential:
    r"""The rate times ``factor`` after every step: :math:`\eta \gamma^t`.

    Raises ``ValueError`` for settings that are negative.

    >>> Exponential(1.0, 0.5)(3)
    0.125
    """

    rate: float
    factor: float

    def __post_init__(self) -> None:
        _check(self)

    def __call__(self, step: Any) -> Any:
        return self.rate * self.factor**step


@dataclass(frozen=True)
class Cosine:
    r"""Half a cosine from the rate down to ``lowest`` in ``steps`` steps; ``lowest`` ever after.

    .. math:: \eta_{\min} + \tfrac{1}{2} (\eta - \eta_{\min}) (1 + \cos(\pi t / n))

    Raises ``ValueError`` for settings that are negative and for ``steps`` below 1.

    Source: Loshchilov & Hutter, *SGDR: stochastic gradient descent with warm restarts*, 2017.

    >>> schedule = Cosine(1.0, steps=10)
    >>> [round(float(schedule(step)), 3) for step in (0, 5, 10, 15)]
    [1.0, 0.5, 0.0, 0.0]
    """

    rate: float
    steps: int
    lowest: float = 0.0

    def __post_init__(self) -> None:
        _check(self, "steps")

    def __call__(self, step: Any) -> Any:
        return _between(self.rate, self.lowest, step / self.steps)


@dataclass(frozen=True)
class WarmUpCosine:
    r"""A line from ``start`` times the rate up to the rate in ``warm_up`` steps, then ``Cosine`` to step ``steps``.

    Raises ``ValueError`` for settings that are negative, and for ``steps`` not above ``warm_up`` of at least 1.

    >>> schedule = WarmUpCosine(1.0, warm_up=10, steps=30, start=0.0)
    >>> [round(float(schedule(step)), 3) for step in (0, 5, 10, 20, 30)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """

    rate: float
    warm_up: int
    steps: int
    start: float = 1 / 3
    lowest: float = 0.0

    def __post_init__(self) -> None:
        _check(self, "warm_up")
        if self.steps <= self.warm_up:
            raise ValueError(
                f"[WarmUpCosine] steps is {self.steps} and warm_up {self.warm_up}. Give more steps than that."
            )

    def __call__(self, step: Any) -> Any:
        rising = self.rate * (self.start + (1 - self.start) * (step / self.warm_up))
        falling = _between(self.rate, self.lowest, (step - self.warm_up) / (self.steps - self.warm_up))
        return where(step < self.warm_up, rising, falling)


@dataclass(frozen=True)
class OneCycle:
    r"""Half a cosine up from ``rate / divisor`` to the rate, then one down to a ``final_divisor``-th of the beginning.

    The rate is reached at step ``rising * steps - 1``, the end at step ``steps - 1``, as PyTorch counts. The
    momentum does not change.

    Raises ``ValueError`` for settings that are negative, divisors of zero, and steps too few for two phases.

    Source: Smith & Topin, *Super-convergence: very fast training of neural networks using large learning
    rates*, 2019.

    >>> schedule = OneCycle(1.0, steps=101, rising=0.5049505)
    >>> [round(float(schedule(step)), 3) for step in (0, 25, 50, 75, 100)]
    [0.04, 0.52, 1.0, 0.5, 0.0]
    """

    rate: float
    steps: int
    rising: float = 0.3
    divisor: float = 25.0
    final_divisor: float = 1e4

    def __post_init__(self) -> None:
        _check(self, "steps")
        if not (self.divisor and self.final_divisor):
            raise ValueError("[OneCycle] a divisor is 0. Give positive numbers.")
        if not 1 < self.rising * self.steps < self.steps:
            raise ValueError(
                f"[OneCycle] steps is {self.steps} and rising {self.rising}. Give rising below 1, with more than "
                "one step in it."
            )

    def __call__(self, step: Any) -> Any:
        first, peak = self.rate / self.divisor, self.rising * self.steps - 1
        rising = _between(first, self.rate, step / peak)
        falling = _between(self.rate, first / self.final_divisor, (step - peak) / (self.steps - 1 - peak))
        return where(step <= peak, rising, falling)


def _between(first: float, last: float, share: Any) -> Any:
    """Half a cosine from ``first`` at a share of 0 to ``last`` at 1; constant outside."""
    return last + (first - last) * 0.5 * (1 + cos(pi * maximum(minimum(share, 1.0), 0.0)))


def _check(schedule: Any, *counts: str) -> None:
    """Raise ``ValueError`` for settings that are below zero or infinite, and counts below one."""
    for name, value in vars(schedule).items():
        check_number(type(schedule).__name__, name, value)
        if callable(value) or not (1 if name in counts else 0) <= value < inf:
            least = "1 or more" if name in counts else "a finite number that is not negative"
            raise ValueError(f"[{type(schedule).__name__}] {name} is {value}. Give {least}.")
