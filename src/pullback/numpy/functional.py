"""Functions that call functions of the user on parts of an array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.graph import Node
from pullback.graph.protocol import vocabulary
from pullback.numpy.axes import normal_axis
from pullback.numpy.dispatch import implements
from pullback.numpy.promotion import as_array_node
from pullback.numpy.shapes import expand_dims, moveaxis, to_shape

__all__ = ["apply_along_axis", "apply_over_axes"]


@implements(np.apply_along_axis)
def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    """``func1d`` of each vector along ``axis``, traced once for all; what it gives stands in the place of the axis."""
    x = as_array_node(arr)
    k = normal_axis("apply_along_axis", axis, x.ndim)
    rows = moveaxis(x, k, -1)
    lead = rows.shape[:-1]
    flat = to_shape(rows, (int(np.prod(lead, dtype=np.int64)), rows.shape[-1]))
    made = vocabulary["vmap"](lambda row: as_array_node(func1d(row, *args, **kwargs)))(flat)
    made = to_shape(made, (*lead, *made.shape[1:]))
    count = made.ndim - len(lead)
    own = tuple(range(len(lead), made.ndim))
    return moveaxis(made, own, tuple(range(k, k + count))) if count else made


@implements(np.apply_over_axes)
def apply_over_axes(func: Callable[..., Any], a: Any, axes: int | Sequence[int]) -> Any:
    """``func(a, axis)`` over one axis after another; axes that it removes are put back with extent one."""
    x: Node = as_array_node(a)
    for axis in np.atleast_1d(np.asarray(axes)).tolist():
        made = func(x, axis)
        x = made if made.ndim == x.ndim else expand_dims(made, normal_axis("apply_over_axes", axis, x.ndim))
    return x
