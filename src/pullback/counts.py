"""Whole numbers among settings: sizes, numbers of epochs, patience."""

from __future__ import annotations

import operator
from typing import Any

from pullback.errors import PullbackError, SettingError

__all__ = ["count"]


def count(where: str, name: str, value: Any, least: int = 1, error: type[Exception] = ValueError) -> int:
    """``value`` as an integer of Python's, where it is a whole number of at least ``least``.

    Raises ``SettingError`` for what is no integer, floats such as ``784 / 4`` too, and ``error`` for a smaller one.

    >>> import numpy as np
    >>> count("fit", "epochs", np.int64(3))
    3
    >>> count("fit", "epochs", 784 / 4)
    Traceback (most recent call last):
    pullback.errors.SettingError: [fit] epochs is 196.0, a float. Give an integer of at least 1. ...
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except PullbackError:  # of a traced number
        raise
    except TypeError:  # an array has the method, too
        number = None
    if number is None:
        kind = type(value).__name__
        raise SettingError(
            f"[{where}] {name} is {value!r:.60}, a {kind}. Give an integer of at least {least}."
        )
    if number < least:
        raise error(f"[{where}] {name} is {number}. Give {least} or more.")
    return number
