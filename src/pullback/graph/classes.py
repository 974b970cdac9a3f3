"""Classes of arrays that say more than their numbers: refused, because a graph holds numbers only."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from pullback.errors import ArrayClassError
from pullback.graph.source import current_source

__all__ = ["is_sparse", "refuse_class", "sparse_refused"]


def is_sparse(value: Any) -> bool:
    """Whether a value is one of SciPy's sparse arrays, or stands for one in a traced function."""
    module = sys.modules.get("scipy.sparse")  # while that is not loaded, there are none
    return hasattr(type(value), "__sparse__") or (module is not None and bool(module.issparse(value)))


def sparse_refused(matrix: Any, what: str = "an elementwise function") -> ArrayClassError:
    """The error of a sparse matrix where an array is needed: it would become dense without anybody saying so."""
    name = getattr(matrix, "__sparse__", type(matrix).__name__)
    source = current_source()
    place = "" if source is None else f" (at {source})"
    return ArrayClassError(
        f"{what} of a {name} of shape {matrix.shape}, most of which is zeros, would need all of it; write A.toarray() "
        f"if that is meant, work on its elements A.data, or multiply, A @ x{place}"
    )


def refuse_class(value: Any) -> None:
    """Raise ``ArrayClassError`` for a masked array, an ``np.matrix`` or a sparse array.

    Other subclasses of arrays count as their numbers.

    >>> refuse_class(np.ones(3))
    >>> refuse_class(np.ma.array([1.0, 1e9], mask=[False, True]))
    Traceback (most recent call last):
    pullback.errors.ArrayClassError: a MaskedArray would lose its mask: ...
    """
    kind = type(value)
    if kind is np.ndarray:
        return
    if not issubclass(kind, np.ndarray):
        if is_sparse(value):
            raise sparse_refused(value)
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
