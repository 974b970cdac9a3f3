"""The history of a training as JSON: the figures of every epoch, and whatever settings belong to them.

JSON has no number for what is not finite. A diverged loss must not make a file that other programs refuse,
so NaN and the infinities are written as the strings ``"NaN"``, ``"Infinity"`` and ``"-Infinity"`` and come
back as numbers.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pullback.errors import DataError, DTypeError
from pullback.io.atomic import atomic_write
from pullback.io.bounded import parse_json

__all__ = ["read_history", "write_history"]

_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def write_history(path: str | os.PathLike[str], history: Mapping[str, Any]) -> None:
    """Write ``history`` to the JSON file ``path``, one entry a line; the file is replaced as a whole.

    Values may be numbers, NumPy scalars and arrays, strings, booleans, ``None``, and lists, tuples and dicts
    of these; by custom ``loss``, ``accuracy``, ``validation_loss`` and ``validation_accuracy`` hold one
    number per epoch.

    Raises ``DTypeError`` for a value that JSON cannot hold, ``OutputError`` when the file cannot be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_history(f"{folder}/history.json", {"loss": [np.float32(0.5), float("nan")], "batch": 100})
    ...     read_history(f"{folder}/history.json")
    {'loss': [0.5, nan], 'batch': 100}
    """
    plain = _plain(history, "history")
    lines = (f"  {json.dumps(name)}: {json.dumps(value, allow_nan=False)}" for name, value in plain.items())
    with atomic_write(path) as file:
        file.write(("{\n" + ",\n".join(lines) + "\n}\n").encode())


def read_history(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what ``write_history`` wrote; arrays and tuples come back as lists.

    Raises ``DataError`` when the file is missing, is no JSON or holds no object.
    """
    try:
        history = parse_json(Path(path).read_bytes())
    except OSError as error:
        raise DataError(
            f"[read_history] cannot read {path}: {error.strerror}. Check the file's name."
        ) from error
    except ValueError as error:  # bad JSON, bad UTF-8, too much of it
        raise DataError(
            f"[read_history] {path} is no JSON that can be read ({error}); it is truncated or another file. "
            "Give a file that write_history wrote."
        ) from error
    if not isinstance(history, dict):
        raise DataError(
            f"[read_history] {path}: expected an object of named values, found {type(history).__name__}. "
            "Give a file that write_history wrote."
        )
    _restore(history)
    return history


def _plain(value: Any, place: str) -> Any:
    """``value`` in JSON's own types; ``place`` is the expression that names it in an error."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise DTypeError(
                    f"[write_history] {place}: the key {name!r} is no string. Name it by a string."
                )
        return {name: _plain(entry, f"{place}[{name!r}]") for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry, f"{place}[{index}]") for index, entry in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise DTypeError(
        f"[write_history] {place} is a {type(value).__name__}, which JSON cannot hold. "
        "Give numbers, strings, lists or dicts."
    )


def _restore(history: dict[str, Any]) -> None:
    """Turn the strings that stand for NaN and the infinities back into numbers, in place at any depth."""
    left: list[dict[str, Any] | list[Any]] = [history]
    while left:
        values = left.pop()
        for place, value in values.items() if isinstance(values, dict) else enumerate(values):
            if isinstance(value, dict | list):
                left.append(value)
            elif isinstance(value, str) and value in _NOT_FINITE:
                values[place] = _NOT_FINITE[value]  # type: ignore[index]
