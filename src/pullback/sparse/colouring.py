"""Colours for columns: all columns of one colour are found by one product."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["column_colours", "star_colours"]


def _first_free(taken: int) -> int:
    """The lowest bit that is not set."""
    return (~taken & (taken + 1)).bit_length() - 1


def column_colours(pattern: Any) -> np.ndarray:
    """A colour for each column, no two alike in one row of the ``csr_array``: one column after another takes the first.

    Source: Curtis, Powell & Reid, *On the estimation of sparse Jacobian matrices*, J. Inst. Maths Applics 13, 1974.

    >>> from scipy.sparse import csr_array
    >>> column_colours(csr_array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]))
    array([0, 1, 0, 1])
    """
    columns = pattern.tocsc()
    in_row = [0] * pattern.shape[0]
    colours = np.zeros(pattern.shape[1], np.int64)
    for column in range(pattern.shape[1]):
        rows = columns.indices[columns.indptr[column] : columns.indptr[column + 1]].tolist()
        taken = 0
        for row in rows:
            taken |= in_row[row]
        colour = _first_free(taken)
        colours[column] = colour
        for row in rows:
            in_row[row] |= 1 << colour
    return colours


def star_colours(pattern: Any) -> np.ndarray:
    """A colour for each column of a symmetric pattern: neighbours differ, and of any four on a path there are three.

    So of every entry ``(i, j)`` either ``j`` is alone of its colour in row ``i``, or ``i`` of its own in row ``j``.
    The time is that of looking at each entry some times.

    Source: Gebremedhin, Manne & Pothen, *What color is your Jacobian?*, SIAM Review 47, 2005, algorithm 4.1.

    >>> from scipy.sparse import csr_array
    >>> star_colours(csr_array([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1]]))
    array([0, 1, 1, 1])
    """
    size = pattern.shape[0]
    near = [
        [k for k in pattern.indices[pattern.indptr[i] : pattern.indptr[i + 1]].tolist() if k != i]
        for i in range(size)
    ]
    colours = [-1] * size
    seen = [0] * size
    """Of each vertex the colours of its neighbours, as bits."""
    closed = [0] * size
    """Of each vertex the colours of neighbours that have another neighbour of its own colour: a path that has two."""
    alike: list[dict[int, list[int]]] = [{} for _ in range(size)]
    """Of each vertex its neighbours by colour."""
    for vertex in np.argsort(-np.diff(pattern.indptr), kind="stable").tolist():
        taken = 0
        for w in near[vertex]:
            taken |= seen[w] if colours[w] < 0 else 1 << colours[w] | closed[w]
        colours[vertex] = colour = _first_free(taken)
        for w in near[vertex]:
            seen[w] |= 1 << colour
            group = alike[w].setdefault(colour, [])
            group.append(vertex)
            if colours[w] >= 0 and len(group) > 1:
                for other in group if len(group) == 2 else (vertex,):
                    closed[other] |= 1 << colours[w]
        for group in alike[vertex].values():
            if len(group) > 1:
                for other in group:
                    closed[other] |= 1 << colour
    return np.array(colours, np.int64)
