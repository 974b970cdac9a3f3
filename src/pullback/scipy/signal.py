"""Convolution under SciPy's name.

>>> import numpy as np
>>> convolve(np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0, 0.5]))
array([0. , 1. , 2.5, 4. , 1.5])
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.errors import ShapeError
from pullback.numpy.convolution import conv
from pullback.numpy.promotion import float_dtype, promote, where_written
from pullback.scipy.arrays import on_arrays

__all__ = ["convolve", "correlate"]


@on_arrays
def convolve(in1: Any, in2: Any, mode: str = "full", method: str = "auto") -> Any:
    """The sums of products of ``in1`` and ``in2`` turned round, at every place where they meet, of one to three axes.

    ``mode`` is ``"full"``, ``"same"`` (the middle, as large as ``in1``) or ``"valid"`` (where one lies in the other).
    All methods are the direct sum. Raises ``ShapeError`` for other ranks, and where neither lies in the other.
    """
    x, y = promote((in1, in2), float_dtype)
    if x.ndim != y.ndim or not 1 <= x.ndim <= 3:
        raise ShapeError(
            f"convolve: shapes {x.shape} and {y.shape}; give arrays of equal rank, 1 to 3{where_written()}"
        )
    if mode not in ("full", "same", "valid"):
        raise ValueError(f"convolve: mode={mode!r}; give 'full', 'same' or 'valid'{where_written()}")
    wanted = x.shape
    if mode == "valid" and any(a < b for a, b in zip(x.shape, y.shape)):
        if any(a > b for a, b in zip(x.shape, y.shape)):
            raise ShapeError(
                f"convolve: of shapes {x.shape} and {y.shape} neither lies in the other{where_written()}"
            )
        x, y = y, x
    reach = [0 if mode == "valid" else extent - 1 for extent in y.shape]
    wide: Any = np.pad(x, [(n, n) for n in reach])  # type: ignore[call-overload]
    whole = conv(wide[None, None], np.flip(y)[None, None])[0, 0]  # type: ignore[call-overload]
    if mode != "same":
        return whole
    starts = [(full - extent) // 2 for full, extent in zip(whole.shape, wanted)]
    return whole[tuple(slice(start, start + extent) for start, extent in zip(starts, wanted))]


@on_arrays
def correlate(in1: Any, in2: Any, mode: str = "full", method: str = "auto") -> Any:
    """``convolve`` with ``in2`` as it is, not turned round; ``in2`` is the smaller one for ``"valid"``."""
    _, y = promote((in1, in2), float_dtype)
    return convolve(in1, np.flip(y), mode, method)  # type: ignore[call-overload]
