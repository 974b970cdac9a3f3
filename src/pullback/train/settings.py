"""What decides a training beside its data, as JSON, so that one that goes on can be compared with its beginning."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

__all__ = ["described", "differences"]

_CLASS = "class"


def described(value: Any) -> Any:
    """``value`` in JSON's own types: of dataclasses class and fields, of functions the name, of arrays nothing.

    Functions of one name are taken for equal.

    >>> from pullback import optim
    >>> described({"optimiser": optim.SGD(0.1), "loss": abs, "table": np.ones(3)})["loss"]
    'builtins.abs'
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, np.ndarray):
        return None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: described(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {_CLASS: _name(type(value)), **fields}
    if isinstance(value, functools.partial):
        return {_CLASS: _name(value.func), "args": described(value.args), **described(value.keywords)}
    if isinstance(value, Mapping):
        return {str(key): described(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [described(entry) for entry in value]
    return _name(value if hasattr(value, "__qualname__") else type(value))


def differences(before: Any, now: Any, changed: Collection[str] = (), place: str = "") -> list[str]:
    """A line for each difference between two descriptions, but not for what is called by a name in ``changed``.

    >>> before, now = {"batch_size": 20, "rate": {"factor": 0.5}}, {"batch_size": 40, "rate": {"factor": 1.0}}
    >>> differences(before, now)
    ['batch_size was 20, and is 40', 'rate.factor was 0.5, and is 1.0']
    >>> differences(before, now, changed=["rate"])
    ['batch_size was 20, and is 40']
    """
    if any(f".{name}." in f".{place}." for name in changed):
        return []
    if isinstance(before, dict) and isinstance(now, dict) and before.get(_CLASS) == now.get(_CLASS):
        found = []
        for name in {**before, **now}:
            inner = f"{place}.{name}" if place else name
            found += differences(before.get(name), now.get(name), changed, inner)
        return found
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        pairs = enumerate(zip(before, now))
        return [line for k, (a, b) in pairs for line in differences(a, b, changed, f"{place}.{k}")]
    return [] if before == now else [f"{place} was {_shown(before)}, and is {_shown(now)}"]


def _name(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _shown(value: Any) -> str:
    """A description in a few words."""
    if isinstance(value, dict) and _CLASS in value:
        return str(value[_CLASS]).rpartition(".")[2]
    return f"{value!r:.80}"
