"""What a transformation is given: a function, not what a function returned."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.errors import SettingError

__all__ = ["check_function"]


def check_function(name: str, function: Any) -> None:
    """Raise ``SettingError`` unless ``function`` can be called.

    >>> check_function("grad", np.sin(np.ones(3)))
    Traceback (most recent call last):
    pullback.errors.SettingError: grad: it is given float64[3] ... give the function itself, grad(f, …), not ...
    """
    if callable(function):
        return
    is_array = isinstance(function, (np.ndarray, np.generic))
    found = (
        f"{function.dtype}{list(function.shape)}"
        if is_array
        else f"{function!r:.60}, a {type(function).__name__},"
    )
    raise SettingError(
        f"{name}: it is given {found} where a function is needed; give the function itself, {name}(f, …), not what "
        f"it returned, {name}(f(x), …)"
    )
