"""Classes of arrays that say more than their numbers: refused, because a graph holds numbers only."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from pullback.errors import ArrayClassError
from pullback.graph.source import current_source

__all__ = ["refuse_class"]


def refuse_class(value: Any) -> None:
    """Raise ``ArrayClassError`` for a masked array or an ``np.matrix``; other subclasses count as their numbers.

    >>> refuse_class(np.ones(3))
    >>> refuse_class(np.ma.array([1.0, 1e9], mask=[False, True]))
    Traceback (most recent call last):
    pullback.errors.ArrayClassError: a MaskedArray would lose its mask: ...
    """
    kind = type(value)
    if kind is np.ndarray or not issubclass(kind, np.ndarray):
        return
    masked = sys.modules.get("numpy.ma")  # loaded when first used: until then there is no masked array
    if masked is not None and issubclass(kind, masked.MaskedArray):
        reason = (
            "its mask: what is masked would count like the rest; give x.filled(number), or x.data together with "
            "np.ma.getmaskarray(x), and choose with np.where(mask, …, …)"
        )
    elif issubclass(kind, np.matrix):
        reason = (
            "its meaning of *, which would multiply element by element; give np.asarray(x), and write @ for "
            "products"
        )
    else:
        return
    source = current_source()
    place = "" if source is None else f" (at {source})"
    raise ArrayClassError(f"a {kind.__name__} would lose {reason}{place}")
