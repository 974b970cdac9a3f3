"""Whether an array's memory is its own: allocated with it, or taken from results that nobody uses any more.

The latter is held by a capsule that goes by the name of ``MEMORY``, see ``compiler/runtime/recycling.py``.
"""

from __future__ import annotations

import ctypes

import numpy as np
from numpy.typing import NDArray

__all__ = ["MEMORY", "owns_memory"]

MEMORY = b"pullback.memory"

_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)


def owns_memory(array: NDArray[np.generic]) -> bool:
    """Whether no other array has this one's memory, but for views of it.

    >>> x = np.zeros(3)
    >>> owns_memory(x), owns_memory(x[1:]), owns_memory(np.frombuffer(bytearray(8)))
    (True, False, False)
    """
    return array.flags.owndata or (array.base is not None and _is_valid(array.base, MEMORY) == 1)
