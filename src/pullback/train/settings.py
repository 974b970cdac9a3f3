"""What decides a training beside its data, as JSON, so that one that goes on can be compared with its beginning."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

import numpy as np

from pullback.errors import SettingError

__all__ = ["check_names", "described", "differences"]

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
    if any(_names(name, place) for name in changed):
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


def check_names(what: str, names: Collection[str], *descriptions: Any) -> None:
    """Raise ``SettingError`` for a name by which nothing is called in any of the ``descriptions``.

    >>> check_names("changed", ["batchsize"], {"batch_size": 20})
    Traceback (most recent call last):
    pullback.errors.SettingError: ... changed names 'batchsize', and nothing is called so. Near it is 'batch_size'. ...
    """
    places = [place for description in descriptions for place in _places(description)]
    for name in names:
        if not any(_names(name, place) for place in places):
            near = get_close_matches(name, [*places, *(place.rpartition(".")[2] for place in places)], 3, 0.4)
            listed = ", ".join(map(repr, dict.fromkeys(near)))
            hint = (
                f"Near it {'are' if ',' in listed else 'is'} {listed}."
                if near
                else (f"There are {', '.join(sorted({place.partition('.')[0] for place in places}))}.")
            )
            raise SettingError(f"[load_checkpoint] {what} names {name!r}, and nothing is called so. {hint}")


def _names(name: str, place: str) -> bool:
    """Whether what lies at ``place`` is called ``name``, or lies in what is."""
    return f".{name}." in f".{place}."


def _places(description: Any, place: str = "") -> Iterator[str]:
    """Where all parts of a description lie, with dots between names."""
    if place:
        yield place
    if isinstance(description, dict | list):
        pairs = description.items() if isinstance(description, dict) else enumerate(description)
        for name, value in pairs:
            if name != _CLASS:
                yield from _places(value, f"{place}.{name}" if place else str(name))


def _name(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _shown(value: Any) -> str:
    """A description in a few words."""
    if isinstance(value, dict) and _CLASS in value:
        return str(value[_CLASS]).rpartition(".")[2]
    return f"{value!r:.80}"
