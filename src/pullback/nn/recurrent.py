"""Recurrent layers, unrolled over time in plain Python: the compiler fuses across the steps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from pullback.errors import ShapeError
from pullback.nn.initialisers import Initialiser, uniform, zeros
from pullback.nn.layers import Seed, check_features, drawn
from pullback.nn.module import Module
from pullback.numpy import relu, stack, tanh

__all__ = ["RNN"]

_ACTIVATIONS = {"tanh": tanh, "relu": relu}


class RNN(Module):
    r"""A vanilla recurrent layer, :math:`h_t = f(x_t W_x + h_{t-1} W_h + b)` with :math:`h_0 = 0`.

    (…, time, inputs) → (…, hidden), the last state, or with ``return_sequences`` all states,
    (…, time, hidden), which is what another recurrent layer takes. ``f`` is ``"tanh"`` or ``"relu"``. Called
    as ``rnn(x, state)`` it begins with a state of shape (…, hidden) instead of zeros, such as the last one of
    the sequence before.

    ``input_weight`` has shape (inputs, hidden), ``recurrent_weight`` (hidden, hidden), ``bias`` (hidden,) or
    is None with ``bias=False``. By default all begin uniform in :math:`\pm 1 / \sqrt{\text{hidden}}`, as
    PyTorch's do; with ``initialiser`` or ``recurrent_initialiser`` the bias begins at zero.

    Raises ``ShapeError`` for inputs of another size or without steps.

    Source: Elman, *Finding structure in time*, Cognitive Science 14, 1990.

    >>> rnn = RNN(196, 64, seed=0)
    >>> rnn
    RNN(196 → 64, tanh)  # 16,704 parameters, 66.8 kB
    >>> rnn(np.zeros((100, 4, 196), np.float32)).shape
    (100, 64)
    """

    input_weight: Any
    recurrent_weight: Any
    bias: Any
    activation: str
    return_sequences: bool

    def __init__(
        self,
        inputs: int,
        hidden: int,
        activation: str = "tanh",
        *,
        return_sequences: bool = False,
        bias: bool = True,
        initialiser: Initialiser | None = None,
        recurrent_initialiser: Initialiser | None = None,
        seed: Seed = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        if activation not in _ACTIVATIONS:
            raise ValueError(
                f"[RNN] activation {activation!r}. Use one of {', '.join(map(repr, _ACTIVATIONS))}."
            )
        random = np.random.default_rng(seed)
        usual = uniform(1 / math.sqrt(max(hidden, 1)))
        own = initialiser is not None or recurrent_initialiser is not None
        self.input_weight = drawn("RNN", initialiser or usual, (inputs, hidden), random, dtype)
        self.recurrent_weight = drawn("RNN", recurrent_initialiser or usual, (hidden, hidden), random, dtype)
        self.bias = drawn("RNN", zeros if own else usual, (hidden,), random, dtype) if bias else None
        self.activation = activation
        self.return_sequences = return_sequences

    def __call__(self, x: Any, state: Any = None) -> Any:
        check_features(self, x, self.input_weight.shape[0])
        if x.ndim < 2 or x.shape[-2] == 0:
            raise ShapeError(
                f"[{self.describe()}] the input has shape {tuple(x.shape)}, which has no steps. "
                "Give it the axes (…, time, inputs) with at least one step."
            )
        states = []
        for step in range(x.shape[-2]):
            state = self.advance(x[..., step, :], state)
            states.append(state)
        return stack(states, axis=-2) if self.return_sequences else states[-1]

    def advance(self, x: Any, state: Any = None) -> Any:
        """One step: the state after the input ``x`` (…, inputs), from ``state`` (…, hidden) or from zeros."""
        total = x @ self.input_weight
        if state is not None:
            # The zeros before the first step are known, so there is no product with them to compute.
            total = total + state @ self.recurrent_weight
        if self.bias is not None:
            total = total + self.bias
        return _ACTIVATIONS[self.activation](total)

    def describe(self) -> str:
        inputs, hidden = self.input_weight.shape
        options = ["all states"] * self.return_sequences + ["no bias"] * (self.bias is None)
        return f"RNN({', '.join([f'{inputs} → {hidden}', self.activation, *options])})"
