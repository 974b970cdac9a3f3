"""Axes as users write them, made sorted and non-negative."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.errors import PullbackError, ShapeError
from pullback.numpy.promotion import where_written

__all__ = ["Axes", "listed_axes", "normal_axes", "normal_axis", "of_scalar", "reduced_axes"]

Axes = int | Sequence[int] | None


def normal_axis(name: str, axis: Any, rank: int) -> int:
    """``axis`` counted from the front; raises ``ShapeError`` when there is no such axis."""
    try:
        number = operator.index(axis)
    except TypeError as error:
        if isinstance(error, PullbackError):
            raise
        raise ShapeError(f"{name}: axis {axis!r:.40} is no integer{where_written()}") from None
    if not -rank <= number < rank:
        raise ShapeError(
            f"{name}: axis {number} of an array of {rank} axes; use one from {-rank} to "
            f"{rank - 1}{where_written()}"
            if rank
            else f"{name}: axis {number} of a scalar, which has none{where_written()}"
        )
    return number % rank


def normal_axes(name: str, axis: Axes, rank: int) -> tuple[int, ...]:
    """The axes meant, in the order given; every axis for ``None``."""
    if axis is None:
        return tuple(range(rank))
    axes = listed_axes(axis)
    normal = tuple([normal_axis(name, one, rank) for one in axes])
    if len(set(normal)) != len(normal):
        raise ShapeError(f"{name}: axis {axes} names an axis twice{where_written()}")
    return normal


def reduced_axes(name: str, axis: Axes, rank: int) -> tuple[int, ...]:
    """``normal_axes`` of a ufunc's reduction, which takes axis 0 or -1 of a scalar, too."""
    return () if of_scalar(axis, rank) else normal_axes(name, axis, rank)


def of_scalar(axis: Any, rank: int) -> bool:
    """Whether ``axis`` is what NumPy's reductions and running totals take as the axis of a scalar."""
    return rank == 0 and isinstance(axis, (int, np.integer)) and axis in (0, -1)


def listed_axes(axis: Any) -> tuple[Any, ...]:
    """An axis, or a sequence or array of axes, as a tuple."""
    if isinstance(axis, Sequence) or (isinstance(axis, np.ndarray) and axis.ndim == 1):
        return tuple(axis)
    return (axis,)
