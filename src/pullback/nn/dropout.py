"""Dropout."""

from __future__ import annotations

from typing import Any

from pullback.nn.module import Module
from pullback.nn.training import current_training
from pullback.numpy import where
from pullback.random import bernoulli
from pullback.tracing import static

__all__ = ["Dropout"]


class Dropout(Module):
    r"""In training each element is zero with probability ``rate``; the others are made larger in turn.

    .. math:: y = m x / (1 - \text{rate}), \quad P(m = 1) = 1 - \text{rate}

    so that the expectation of :math:`y` is :math:`x`. In evaluation, which is everywhere outside of
    ``nn.training``, :math:`y = x`. Any shape of floats. What is dropped follows from the key of the training
    pass and from the order in which layers are called: the same bits for any number of threads. In a loop or a ``vmap``
    within the pass other elements are dropped in each step and for each example.

    Raises ``ValueError`` for a rate outside [0, 1).

    Source: Srivastava et al., *Dropout: a simple way to prevent neural networks from overfitting*, 2014.

    >>> import numpy as np
    >>> from pullback import nn, random
    >>> layer = nn.Dropout(0.5)
    >>> layer(np.ones(4, np.float32))
    array([1., 1., 1., 1.], dtype=float32)
    >>> with nn.training(random.key(1)):
    ...     layer(np.ones(4, np.float32))
    array([2., 0., 0., 2.], dtype=float32)
    """

    rate: float = static()

    def __init__(self, rate: float) -> None:
        if not 0 <= rate < 1:
            raise ValueError(f"[Dropout] rate is {rate}. Give a share from 0 to below 1.")
        self.rate = rate

    def __call__(self, x: Any) -> Any:
        mode = current_training()
        if mode is None or self.rate == 0:
            return x
        kept = bernoulli(mode.next_key(), 1 - self.rate, x.shape)
        return where(kept, x * (1 / (1 - self.rate)), 0)

    def describe(self) -> str:
        return f"Dropout({self.rate})"
