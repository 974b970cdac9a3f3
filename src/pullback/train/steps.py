"""The functions that a trainer compiles: what happens to one batch.

They are written in the public vocabulary only; a loop of one's own around such a function compiles to the
same program (``examples/own_loop.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.metrics import Metric
from pullback.nn.training import training
from pullback.numpy import astype, mean
from pullback.optim import Optimiser, clip_by_norm, clip_by_value
from pullback.random import fold_in
from pullback.transforms import value_and_grad

__all__ = ["Steps", "scaled"]

Figures = dict[str, Any]


def scaled(inputs: Any, scale: float | None) -> Any:
    """``inputs * scale``, integers first cast to ``float32``; without a scale the inputs as they are.

    >>> scaled(np.array([0, 255], np.uint8), 1 / 255)
    array([0., 1.], dtype=float32)
    """
    if scale is None:
        return inputs
    return (inputs if inputs.dtype.kind == "f" else astype(inputs, np.float32)) * scale


@dataclass(frozen=True)
class Steps:
    """Training, evaluation and prediction of one batch, as functions without side effects."""

    loss: Callable[[Any, Any], Any]
    optimiser: Optimiser
    metrics: Mapping[str, Metric]
    scale: float | None
    clip_value: float | None
    clip_norm: float | None

    def train(
        self, model: Any, state: Any, rows: Any, number: Any, key: Any, inputs: Any, labels: Any
    ) -> tuple[Any, Any, Any, Figures]:
        """The model and the optimiser's state after step ``number`` on these rows; its loss and metrics."""
        x, y = scaled(inputs[rows], self.scale), labels[rows]

        def objective(model: Any) -> tuple[Any, Any]:
            with training(fold_in(key, number)) as mode:
                outputs = model(x)
                return self.loss(outputs, y), (outputs, mode.updated(model))

        (loss, (outputs, model)), gradients = value_and_grad(objective, has_aux=True)(model)
        if self.clip_value is not None:
            gradients = clip_by_value(gradients, self.clip_value)
        if self.clip_norm is not None:
            gradients = clip_by_norm(gradients, self.clip_norm)
        model, state = self.optimiser.update(gradients, state, model)
        return model, state, loss, self._figures(outputs, y)

    def evaluate(self, model: Any, inputs: Any, labels: Any) -> tuple[Any, Figures]:
        """The loss and the metrics of one batch."""
        outputs = model(scaled(inputs, self.scale))
        return self.loss(outputs, labels), self._figures(outputs, labels)

    def predict(self, model: Any, inputs: Any) -> Any:
        """The model's outputs for one batch."""
        return model(scaled(inputs, self.scale))

    def _figures(self, outputs: Any, labels: Any) -> Figures:
        return {name: _scalar(metric(outputs, labels)) for name, metric in self.metrics.items()}


def _scalar(value: Any) -> Any:
    """A metric that gives a figure per example is averaged."""
    return mean(value) if value.ndim else value
