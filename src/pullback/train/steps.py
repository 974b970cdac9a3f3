"""The functions that a trainer compiles: what happens to one batch.

They are written in the public vocabulary only; a loop of one's own around such a function compiles to the
same program (``examples/own_loop.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pullback.errors import SettingError
from pullback.graph import dtype_kind
from pullback.metrics import EpochMetric, Metric
from pullback.nn.training import training
from pullback.numpy import astype, mean
from pullback.optim import (
    Accumulate,
    Averaged,
    Groups,
    LearningRate,
    LineSearch,
    Optimiser,
    clip_by_norm,
    clip_by_value,
)
from pullback.optim.optimiser import map_parameters
from pullback.random import fold_in
from pullback.transforms import value_and_grad

__all__ = ["Steps", "clipping", "scaled"]

Figures = dict[str, Any]


def scaled(inputs: Any, scale: float | None) -> Any:
    """``inputs * scale``, integers first cast to ``float32``; without a scale the inputs as they are.

    >>> scaled(np.array([0, 255], np.uint8), 1 / 255)
    array([0., 1.], dtype=float32)
    """
    if scale is None:
        return inputs
    return (inputs if dtype_kind(inputs.dtype) == "f" else astype(inputs, np.float32)) * scale


@dataclass(frozen=True)
class _Clipping:
    """An optimiser that is given clipped gradients: by value, then by their global norm."""

    optimiser: Optimiser
    value: float | None
    norm: float | None

    @property
    def learning_rate(self) -> LearningRate:
        return self.optimiser.learning_rate

    def init(self, parameters: Any) -> Any:
        return self.optimiser.init(parameters)

    def update(self, gradients: Any, state: Any, parameters: Any) -> tuple[Any, Any]:
        if isinstance(self.optimiser, Groups):
            gradients = self.optimiser.moving(gradients)
        if self.value is not None:
            gradients = clip_by_value(gradients, self.value)
        if self.norm is not None:
            gradients = clip_by_norm(gradients, self.norm)
        return self.optimiser.update(gradients, state, parameters)


def clipping(
    optimiser: Optimiser | LineSearch, value: float | None, norm: float | None
) -> Optimiser | LineSearch:
    """``optimiser`` with the gradients that it updates by clipped, where there are limits.

    Of ``Accumulate`` these are the means of several batches. Raises ``ValueError`` for a line search, which
    needs gradients as they are.
    """
    if value is None and norm is None:
        return optimiser
    if isinstance(optimiser, LineSearch):
        name = type(optimiser).__name__
        raise ValueError(f"[Trainer] {name} takes no clipped gradients. Leave clip_norm and clip_value out.")
    return _clipped(optimiser, value, norm)


def _clipped(optimiser: Optimiser, value: float | None, norm: float | None) -> Optimiser:
    """``optimiser``, or what it is around, with clipped gradients: of ``Accumulate`` the means are clipped."""
    if isinstance(optimiser, (Accumulate, Averaged)):
        return replace(optimiser, optimiser=_clipped(optimiser.optimiser, value, norm))
    return _Clipping(optimiser, value, norm)


@dataclass(frozen=True)
class Steps:
    """Training, evaluation and prediction of one batch, as functions without side effects."""

    loss: Callable[[Any, Any], Any]
    optimiser: Optimiser | LineSearch
    metrics: Mapping[str, Metric | EpochMetric]
    scale: float | None
    penalty: Callable[[Any], Any] | None = None

    def train(
        self,
        model: Any,
        state: Any,
        number: Any,
        rows: Any,
        key: Any,
        inputs: Any,
        labels: Any,
        lengths: Any = None,
        width: int | None = None,
    ) -> tuple[Any, Any, Any, Any, Figures]:
        """After step ``number`` on these rows: model, optimiser's state, the next number; its loss and metrics.

        With ``lengths`` the model is told them, and of the rows only the first ``width`` steps are read.
        """
        x, y = scaled(_trimmed(inputs[rows], width), self.scale), labels[rows]
        own = {} if lengths is None else {"lengths": lengths[rows]}

        def objective(model: Any) -> tuple[Any, Any]:
            with training(fold_in(key, number)) as mode:
                outputs = model(x, **own)
                return self._loss(model, outputs, y), (outputs, mode.updated(model))

        point = self.optimiser.trial(state, model) if isinstance(self.optimiser, LineSearch) else model
        (loss, (outputs, updated)), gradients = value_and_grad(objective, has_aux=True)(point)
        if isinstance(self.optimiser, LineSearch):
            # Running statistics are those of the trial, parameters those that it is compared with.
            model = map_parameters(lambda _, own: own, updated, model)
            model, state, loss = self.optimiser.update(gradients, state, model, loss)
        else:
            model, state = self.optimiser.update(gradients, state, updated)
        return model, state, number + 1, loss, self._figures(outputs, y)

    def evaluate(
        self, model: Any, inputs: Any, labels: Any, lengths: Any = None, width: int | None = None
    ) -> tuple[Any, Figures]:
        """The loss and the metrics of one batch."""
        outputs = self.predict(model, inputs, lengths, width)
        return self._loss(model, outputs, labels), self._figures(outputs, labels)

    def predict(self, model: Any, inputs: Any, lengths: Any = None, width: int | None = None) -> Any:
        """The model's outputs for one batch."""
        own = {} if lengths is None else {"lengths": lengths}
        return model(scaled(_trimmed(inputs, width), self.scale), **own)

    def _loss(self, model: Any, outputs: Any, labels: Any) -> Any:
        """The loss of a batch, and the penalty of the model."""
        loss = self.loss(outputs, labels)
        return loss if self.penalty is None else loss + self.penalty(model)

    def _figures(self, outputs: Any, labels: Any) -> Figures:
        return {name: _figure(name, metric, outputs, labels) for name, metric in self.metrics.items()}


def _trimmed(inputs: Any, width: int | None) -> Any:
    """The first steps of all rows."""
    return inputs if width is None else inputs[:, :width]


def _figure(name: str, metric: Metric | EpochMetric, outputs: Any, labels: Any) -> Any:
    """What a metric keeps of a batch: a scalar, of several the mean; or a tuple with the examples of an epoch."""
    if isinstance(metric, EpochMetric):
        return metric.examples(outputs, labels)
    value = metric(outputs, labels)
    if not hasattr(value, "dtype") and not isinstance(value, (bool, int, float)):
        raise SettingError(
            f"[Trainer] the metric {name!r} gave a {type(value).__name__}. Return a number, or an array of which the "
            "mean is taken."
        )
    value = value if hasattr(value, "dtype") else np.float64(value)
    return mean(value) if value.ndim else value
