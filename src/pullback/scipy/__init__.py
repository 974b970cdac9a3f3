"""SciPy's vocabulary: functions of SciPy's names, of traced values and of concrete arrays, without SciPy.

``scipy.special``'s own functions take traced values, too, since they are ufuncs; what SciPy writes in Python
does not, so use the function of the same name here.

>>> import numpy as np
>>> import pullback as pb
>>> from pullback.scipy import special
>>> float(pb.grad(special.gammaln)(1.0))
-0.5772156649015329
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["fft", "integrate", "linalg", "ndimage", "signal", "special", "stats"]


if TYPE_CHECKING:
    from pullback.scipy import fft, integrate, linalg, ndimage, signal, special, stats
else:

    def __getattr__(name: str) -> Any:
        if name in __all__:
            return import_module(f"pullback.scipy.{name}")
        raise AttributeError(f"module 'pullback.scipy' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
