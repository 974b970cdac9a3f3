"""Whether what a trainer is given is a loss, an optimiser, metrics and callbacks; if not, what was meant."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from pullback import optim
from pullback.compiler.jit import Compiled
from pullback.errors import SettingError
from pullback.metrics import METRICS, EpochMetric, Metric
from pullback.nn import losses
from pullback.train.history import COSTS, VALIDATION

__all__ = [
    "Metrics",
    "as_callbacks",
    "as_metrics",
    "check_loss",
    "check_model",
    "check_optimiser",
    "check_penalty",
    "check_scale",
]

_Metric = str | Metric | EpochMetric
Metrics = _Metric | Iterable[_Metric] | Mapping[str, _Metric]
"""Metrics as a trainer takes them: by name, as functions, one or several, or under names of one's own."""

_LOSSES = {
    "bce": "binary_cross_entropy",
    "binary_crossentropy": "binary_cross_entropy",
    "categorical_crossentropy": "softmax_cross_entropy",
    "cross_entropy": "softmax_cross_entropy",
    "crossentropy": "softmax_cross_entropy",
    "l1": "absolute_error",
    "l2": "squared_error",
    "mae": "absolute_error",
    "mape": "absolute_percentage_error",
    "mean_absolute_error": "absolute_error",
    "mean_squared_error": "squared_error",
    "mse": "squared_error",
    "sparse_categorical_crossentropy": "softmax_cross_entropy",
}
"""Losses by the names that other libraries have for them."""


def check_loss(loss: Any) -> None:
    """Raise ``SettingError`` unless ``loss`` is a function of outputs and labels.

    >>> check_loss("mse")
    Traceback (most recent call last):
    pullback.errors.SettingError: [Trainer] loss is 'mse', a str, and not a function ... Give nn.squared_error itself...
    """
    if isinstance(loss, str):
        meant = _LOSSES.get(loss.lower()) or _nearest(loss, losses.__all__)
        raise _wrong(
            "loss", loss, f"Give nn.{meant} itself, not its name.", "a function of outputs and labels"
        )
    if _is_optimiser(loss) or _is_class_of_optimisers(loss):
        raise _wrong("loss", loss, "The loss comes before the optimiser.", "a function of outputs and labels")
    if not callable(loss):
        raise _wrong("loss", loss, "Give one such as nn.squared_error.", "a function of outputs and labels")
    if _takes(loss, 2) is False:
        name = getattr(loss, "__name__", type(loss).__name__)
        raise SettingError(
            f"[Trainer] loss is {name}{inspect.signature(loss)}, which cannot be called with outputs and labels. "
            "Put what else it needs in with functools.partial or a lambda."
        )


def check_optimiser(optimiser: Any) -> None:
    """Raise ``SettingError`` unless ``optimiser`` has a learning rate, ``init`` and ``update``.

    >>> check_optimiser(optim.SGD)
    Traceback (most recent call last):
    pullback.errors.SettingError: [Trainer] optimiser is the class SGD, and not an optimiser. Make one: optim.SGD...
    """
    if _is_class_of_optimisers(optimiser):
        raise SettingError(
            f"[Trainer] optimiser is the class {optimiser.__name__}, and not an optimiser. Make one: "
            f"optim.{optimiser.__name__}(0.01)."
        )
    if isinstance(optimiser, str):
        known = [name for name in optim.__all__ if _is_class_of_optimisers(getattr(optim, name))]
        raise _wrong(
            "optimiser", optimiser, f"Make one: optim.{_nearest(optimiser, known)}(0.01).", "an optimiser"
        )
    if isinstance(optimiser, (int, float)):
        raise _wrong(
            "optimiser", optimiser, f"Make one of this learning rate: optim.SGD({optimiser}).", "an optimiser"
        )
    if not _is_optimiser(optimiser):
        hint = (
            "The loss comes before the optimiser."
            if callable(optimiser)
            else "Give one such as optim.SGD(0.01)."
        )
        raise _wrong("optimiser", optimiser, hint, "an optimiser, which has a learning_rate, init and update")


def check_model(model: Any) -> None:
    """Raise ``SettingError`` unless ``model`` can be called and holds its parameters.

    >>> check_model([optim.SGD(0.1)])
    Traceback (most recent call last):
    pullback.errors.SettingError: [Trainer] model is a list, which cannot be called. Make a chain of it: ...
    """
    kind = type(model).__name__
    if isinstance(model, type):
        raise SettingError(f"[Trainer] model is the class {model.__name__}. Make one: {model.__name__}(…).")
    if inspect.isroutine(model) or isinstance(model, (Compiled, functools.partial)):
        raise SettingError(
            f"[Trainer] model is a {kind}, which holds no parameters. Give a module, which has them in its fields; the "
            "trainer compiles it."
        )
    if not callable(model):
        hint = "Give a module, such as nn.Dense, or a class of your own with __call__(self, x)."
        if isinstance(model, (list, tuple)):
            hint = "Make a chain of it: nn.Chain(*layers)."
        elif callable(getattr(model, "forward", None)):
            hint = "Name its method __call__, not forward."
        raise SettingError(f"[Trainer] model is a {kind}, which cannot be called. {hint}")


def check_penalty(penalty: Any) -> None:
    """Raise ``SettingError`` unless ``penalty`` is None or a function of the model.

    >>> check_penalty(1e-4)
    Traceback (most recent call last):
    pullback.errors.SettingError: [Trainer] penalty is 0.0001, a float, and not a function of the model. Give ...
    """
    if penalty is not None and (not callable(penalty) or _takes(penalty, 1) is False):
        hint = "Give one such as lambda model: 1e-4 * np.sum(model[0].weight ** 2), or a weight_decay to the optimiser."
        raise _wrong("penalty", penalty, hint, "a function of the model")


def check_scale(scale: Any) -> None:
    """Raise unless ``scale`` is None or a number that inputs can be multiplied by.

    >>> check_scale(0)
    Traceback (most recent call last):
    ValueError: [Trainer] scale is 0. Give a finite number that is not 0, such as 1 / 255, or None.
    """
    if scale is None:
        return
    optim.optimiser.check_number("Trainer", "scale", scale)
    if not 0 < abs(scale) < math.inf:
        raise ValueError(
            f"[Trainer] scale is {scale}. Give a finite number that is not 0, such as 1 / 255, or None."
        )


def as_metrics(metrics: Metrics) -> dict[str, Metric | EpochMetric]:
    """Metrics by the names that the history calls them by.

    Raises ``ValueError`` for a name that is not known, that two metrics have, or that another figure of the history
    has, ``SettingError`` for what is no metric.

    >>> list(as_metrics(["accuracy", "auc"]))
    ['accuracy', 'auc']
    >>> as_metrics([lambda y, t: abs(y - t), lambda y, t: (y - t) ** 2])
    Traceback (most recent call last):
    ValueError: [Trainer] two metrics are named '<lambda>'. Name them by a dict: metrics={"error": function, …}.
    """
    if isinstance(metrics, str) or callable(metrics):
        metrics = (metrics,)
    if not isinstance(metrics, (Iterable, Mapping)):
        raise _wrong(
            "metrics", metrics, 'Give names such as "accuracy", functions, or a dict of them.', "metrics"
        )
    given = metrics.items() if isinstance(metrics, Mapping) else [(None, metric) for metric in metrics]
    named: dict[str, Metric | EpochMetric] = {}
    for own, metric in given:
        if isinstance(metric, str) and metric not in METRICS:
            raise ValueError(
                f"[Trainer] no metric is named {metric!r}. Use {', '.join(METRICS)}, or a function."
            )
        function = METRICS[metric] if isinstance(metric, str) else metric
        if not callable(function) or isinstance(function, type):
            raise _wrong(
                "a metric", function, "Give a name or a function.", "a function of outputs and labels"
            )
        if _takes(function, 2) is False:
            known = f"{getattr(function, '__name__', type(function).__name__)}{inspect.signature(function)}"
            raise SettingError(
                f"[Trainer] a metric is {known}, which cannot be called with outputs and labels. Put what else it "
                "needs in: top_k_accuracy(3), functools.partial or a lambda."
            )
        name = own if own is not None else metric if isinstance(metric, str) else _name(function, len(named))
        if name in named:
            raise ValueError(
                f"[Trainer] two metrics are named {name!r}. Name them by a dict: "
                'metrics={"error": function, …}.'
            )
        if name == "loss" or name in COSTS or name.startswith(VALIDATION):
            raise ValueError(
                f"[Trainer] a metric is named {name!r}, as another figure of the history is. Name it by a dict: "
                'metrics={"error": function}.'
            )
        named[name] = function
    return named


def as_callbacks(given: Any) -> tuple[Callable[[Any], object], ...]:
    """The functions that are called after each epoch; raises ``SettingError`` for what is none.

    >>> as_callbacks(None)
    Traceback (most recent call last):
    pullback.errors.SettingError: [fit] on_epoch_end is None... Give a function of the trainer, or several. ...
    """
    callbacks = (given,) if callable(given) or not isinstance(given, Iterable) else tuple(given)
    for callback in callbacks:
        if isinstance(callback, type):
            raise SettingError(
                f"[fit] on_epoch_end is the class {callback.__name__}. Make one: {callback.__name__}()."
            )
        if not callable(callback):
            raise SettingError(
                f"[fit] on_epoch_end is {callback!r:.60}, a {type(callback).__name__}. Give a function of the "
                "trainer, or several."
            )
    return callbacks


def _name(metric: Any, position: int) -> str:
    return str(
        metric.name if isinstance(metric, EpochMetric) else getattr(metric, "__name__", f"metric_{position}")
    )


def _is_optimiser(value: Any) -> bool:
    there = all(hasattr(value, name) for name in ("learning_rate", "init", "update"))
    return there and not isinstance(value, type)


def _is_class_of_optimisers(value: Any) -> bool:
    return isinstance(value, type) and all(
        callable(getattr(value, name, None)) for name in ("init", "update")
    )


def _takes(function: Any, count: int) -> bool | None:
    """Whether a function may be called with so many arguments, if it says so."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:
        return None
    return True


def _nearest(name: str, known: Iterable[str]) -> str:
    by_name = {each.lower(): each for each in known}
    found = get_close_matches(name.lower(), by_name, 1, 0.0)
    return by_name[found[0]]


def _wrong(what: str, value: Any, hint: str, wanted: str) -> SettingError:
    shown = (
        f"the class {value.__name__}"
        if isinstance(value, type)
        else getattr(value, "__name__", f"{value!r:.60}")
    )
    kind = "" if isinstance(value, type) else f", a {type(value).__name__},"
    return SettingError(f"[Trainer] {what} is {shown}{kind} and not {wanted}. {hint}")
