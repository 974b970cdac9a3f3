"""Interpolation under SciPy's name.

>>> import numpy as np
>>> map_coordinates(np.array([[0.0, 1.0], [2.0, 3.0]]), [[0.5], [0.25]], order=1)
array([1.25])
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from pullback.errors import ShapeError
from pullback.numpy import elementwise as e
from pullback.numpy.promotion import as_array_node, cast, float_dtype, where_written
from pullback.scipy.arrays import on_arrays

__all__ = ["map_coordinates"]

MODES = ("constant", "nearest", "wrap", "mirror", "reflect")


def _place(index: Any, extent: int, mode: str) -> tuple[Any, Any]:
    """Whole places that are in the array, and whether each of them was."""
    inside = (index >= 0) & (index < extent)
    if mode == "wrap":
        index = index % extent
    elif mode == "mirror":
        period = max(2 * (extent - 1), 1)
        index = index % period
        index = e.where(index >= extent, period - index, index)
    elif mode == "reflect":
        index = index % (2 * extent)
        index = e.where(index >= extent, 2 * extent - 1 - index, index)
    return e.minimum(e.maximum(index, 0), extent - 1), inside


@on_arrays
def map_coordinates(
    input: Any, coordinates: Any, order: int, mode: str = "constant", cval: float = 0.0
) -> Any:
    """``input`` at places between its elements, one row of ``coordinates`` for each axis.

    Of ``order`` 0 the nearest element, of 1 linear between neighbours, with derivatives by both arguments. What
    is outside is ``cval`` with ``mode="constant"``, whose elements meet it linearly, as in SciPy's
    ``grid-constant``; the other modes repeat, or turn round, what is inside: ``"wrap"`` with the period of all
    elements, as in SciPy's ``grid-wrap``.
    """
    x, where = as_array_node(input), as_array_node(np.stack(list(coordinates)))
    if order not in (0, 1) or mode not in MODES:
        raise ValueError(
            f"map_coordinates: order={order}, mode={mode!r}; use 0 or 1, and one of {', '.join(MODES)}"
        )
    if where.shape[0] != x.ndim:
        raise ShapeError(
            f"map_coordinates: {where.shape[0]} rows of places in {x.ndim} axes{where_written()}"
        )
    where = cast(where, float_dtype(where.dtype))
    x = cast(x, float_dtype(x.dtype))
    axes = []
    for row, extent in zip(where, x.shape):
        low = e.floor(row + 0.5) if order == 0 else e.floor(row)
        whole = cast(e.stop_gradient(low), np.dtype(np.int64))
        share = cast(row - e.stop_gradient(low), x.dtype)
        near = [(_place(whole, extent, mode), 1 - share), (_place(whole + 1, extent, mode), share)]
        axes.append(near if order == 1 else [(near[0][0], None)])
    total: Any = None
    for corner in itertools.product(*axes):
        value: Any = x[tuple(index for (index, _), _ in corner)]
        if mode == "constant":
            inside = corner[0][0][1]
            for (_, other), _ in corner[1:]:
                inside = inside & other
            value = e.where(inside, value, cval)
        for _, weight in corner:
            value = value if weight is None else value * weight
        total = value if total is None else total + value
    return total
