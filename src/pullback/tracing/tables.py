"""pandas' series and tables, and SciPy's sparse matrices, as trees: without these libraries, where they are loaded.

To a traced function a ``Series`` or a ``DataFrame`` is the array of its values. What has the shape of the argument and
is no traced value, such as a gradient, has its labels again. A sparse matrix is its elements; where they are is part of
the program.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from pullback.errors import DTypeError
from pullback.graph import Node
from pullback.numpy.sparse import TracedSparse, elements_of

__all__ = ["parts_of"]

Flattening = Callable[[Any], tuple[Sequence[Any], Hashable]]
Building = Callable[[Any, Sequence[Any]], Any]


def parts_of(kind: type) -> tuple[type, Flattening, Building] | None:
    """What instances of a class count as, how they are taken apart and made again; ``None`` for any other class."""
    pandas, sparse = sys.modules.get("pandas"), sys.modules.get("scipy.sparse")
    if pandas is not None and issubclass(kind, (pandas.Series, pandas.DataFrame)):
        return kind, _values, _labelled
    if kind is TracedSparse or (sparse is not None and issubclass(kind, (sparse.sparray, sparse.spmatrix))):
        return TracedSparse, _elements, lambda pattern, parts: pattern.filled(parts[0])
    return None


class _Labels:
    """What a table has beside its values. It says nothing about programs: all labels count as equal."""

    def __init__(self, table: Any) -> None:
        self.cls, self.shape = type(table), table.shape
        self.names = {"index": table.index}
        self.names |= {"columns": table.columns} if table.ndim == 2 else {"name": table.name}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Labels)

    def __hash__(self) -> int:
        return hash(_Labels)

    def __repr__(self) -> str:
        return "labels"


def _values(table: Any) -> tuple[Sequence[Any], Hashable]:
    dtypes = [table.dtype] if table.ndim == 1 else list(table.dtypes)
    names = [table.name] if table.ndim == 1 else list(table.columns)
    for name, dtype in zip(names, dtypes):
        if not isinstance(dtype, np.dtype) or dtype.kind not in "biuf":
            raise DTypeError(
                f"column {name!r} of a {type(table).__name__} is {dtype}, which is no array of numbers; leave it out, "
                "or say what number each value is, with .astype(float), .cat.codes or .fillna(…).to_numpy()"
            )
    values = table.to_numpy()
    if values.dtype == object:
        raise DTypeError(
            f"columns of {', '.join(dict.fromkeys(map(str, dtypes)))} in one {type(table).__name__} have no dtype in "
            "common; cast them first, with .astype(float)"
        )
    return (values,), _Labels(table)


def _labelled(labels: _Labels, parts: Sequence[Any]) -> Any:
    (values,) = parts
    if isinstance(values, Node) or np.shape(values) != labels.shape:
        return values
    return labels.cls(values, **labels.names)


def _elements(matrix: Any) -> tuple[Sequence[Any], Hashable]:
    data, pattern = elements_of(matrix)
    return (data,), pattern
