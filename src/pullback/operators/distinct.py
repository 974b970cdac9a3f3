"""Which rows of a table are named, each of them once: what is computed of a row need be computed no more often.

Compiled, it is a routine that marks the rows and counts the marks (``compiler/codegen/marking.py``).
"""

from __future__ import annotations

import math

import numpy as np

from pullback.errors import DTypeError, ShapeError
from pullback.graph import Case, InputAt, Operator, OutputAt, Routine, Type, WorkAt
from pullback.graph.routine import number
from pullback.operators.batching import batch_first
from pullback.operators.indexing import index_sample

__all__ = ["distinct"]

_INT = np.dtype(np.int64)
_PLANE = 1 << 58


def _type_rule(places: Type, extent: int) -> Type:
    if not places.rank:
        raise ShapeError("distinct: a single place; give a list of them")
    if places.dtype != _INT:
        raise DTypeError(f"distinct: {places.dtype} places; cast them with .astype(np.int64)")
    *rows, count = places.shape
    return Type(_INT, (*rows, 1 + min(count, extent) + count))


def _spread(places: np.ndarray) -> np.ndarray:
    """Numbers in the order in which rows come: of eights, every eighth one first."""
    return np.asarray((places >> 3 & 7) * _PLANE + (places >> 6) * 8 + (places & 7))


def _reference(places: np.ndarray, extent: int) -> np.ndarray:
    *rows, count = places.shape
    capacity = min(count, extent)
    made = np.zeros((*rows, 1 + capacity + count), _INT)
    for row in np.ndindex(*rows):
        found, numbers = np.unique(_spread(places[row]), return_inverse=True)
        made[row][0] = len(found)
        which, rest = np.divmod(found, _PLANE)
        made[row][1 : 1 + len(found)] = (rest >> 3) * 64 + which * 8 + (rest & 7)
        made[row][1 + capacity :] = numbers
    return made


def _routine(places: Type, extent: int) -> Routine:
    *rows, count = places.shape
    return Routine(
        "distinct",
        None,
        (InputAt(0), OutputAt(0), WorkAt(), number(math.prod(rows)), number(count), number(extent)),
        workspace=96 * -(-extent // 64),
    )


distinct = Operator(
    "distinct",
    _type_rule,
    _reference,
    None,
    batch_first,
    None,
    (
        Case((index_sample(9, below=5),), {"extent": 5}),
        Case((index_sample(3, below=70),), {"extent": 70}),
        Case((index_sample(2, 6, below=4),), {"extent": 4}),
        Case((index_sample(1, below=1),), {"extent": 1}),
        Case((index_sample(0, below=3),), {"extent": 3}),
    ),
    routine=_routine,
)
"""Of ``n`` places below ``extent`` in each row, all in one: how many different ones there are, ``k``; those, and zeros
up to ``min(n, extent)`` of them; and for each place its number among them, which is below ``k``.

Eight rows after another come together, of these eights every eighth one first: words are numbered by how often they
occur, and so any part of the list has its share of those that occur most. ``int64``; the last axis has
``1 + min(n, extent) + n`` elements. Only the compiler makes this operation.
"""
