"""Whether what a trainer is given is a loss and an optimiser; if not, what was meant."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from pullback import optim
from pullback.errors import SettingError
from pullback.nn import losses

__all__ = ["check_loss", "check_optimiser"]

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
    pullback.errors.SettingError: [Trainer] optimiser is the class SGD, and not an optimiser. Make one: optim.SGD(0.01).
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
