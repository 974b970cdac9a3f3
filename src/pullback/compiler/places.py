"""The places of a scatter's updates are computed once, not by every chunk that looks for its own among them.

    for i, j, k: table[k + 50*check_index(tokens[j + 130*rows[i]])] += updates[i, j, k]
    →
    for i, j:    place[i, j] = int32(check_index(tokens[j + 130*rows[i]]))
    for i, j, k: table[k + 50*place[i, j]] += updates[i, j, k]

So an index out of range is found before anything is added, and what goes on with the table's rows may overwrite
donated memory in the same phase.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from pullback.compiler.codegen.scatters import find_scatter
from pullback.compiler.tidy import joined_rows
from pullback.loops import (
    Affine,
    Apply,
    Buffer,
    Expression,
    Kernel,
    Literal,
    Load,
    Position,
    Store,
    row_major,
    walk,
)
from pullback.loops.arithmetic import bounds

__all__ = ["store_places"]

_INT64 = np.dtype(np.int64)


def store_places(kernels: Iterable[Kernel]) -> list[Kernel]:
    """The kernels with computed places stored before they are used; positions are joined where memory allows."""
    program: list[Kernel] = []
    for kernel in kernels:
        if not any(store.accumulate and store.dynamic for store in kernel.stores):
            program.append(kernel)
            continue
        (store,) = kernel.stores
        scatter = find_scatter(kernel)
        apart = scatter is not None and scatter.apart  # then each place is computed once anyway
        dynamic = []
        for index, stride in store.dynamic:
            place = index
            if not _is_plain(index) and (_has_checks(index) or not apart):
                before, place = _stored(kernel, store, index)
                program.append(before)
            dynamic.append((place, stride))
        placed = kernel.with_stores((replace(store, dynamic=tuple(dynamic)),))
        program.append(placed if apart else joined_rows(placed))
    return program


def _is_plain(index: Expression) -> bool:
    """Whether the index is simply there: a constant, a position, or an element of an array, made wider."""
    while isinstance(index, Apply) and index.function in ("bounded", "cast"):
        (index,) = index.operands
    if isinstance(index, Load):
        return not index.dynamic and index.guard is None
    return isinstance(index, Literal | Position)


def _has_checks(index: Expression) -> bool:
    return any(isinstance(e, Apply) and e.function == "check_index" for e in walk(index))


def _stored(kernel: Kernel, store: Store, index: Expression) -> tuple[Kernel, Expression]:
    """The kernel that stores ``index`` at every position, and the read of it."""
    axes = tuple(axis for axis in kernel.axes if axis in index.axes)
    shape = tuple(axis.extent for axis in axes)
    known = bounds(index)
    dtype = _narrowest(known)
    buffer = Buffer(f"place_{store.buffer.name}", dtype, shape)
    offset = Affine.total(Affine.of(axis) * stride for axis, stride in zip(axes, row_major(shape)))
    value = Apply("cast", (index,), dtype) if dtype != _INT64 else index
    load = Load(buffer, offset)
    read: Expression = Apply("cast", (load,), _INT64) if dtype != _INT64 else load
    if known is not None:
        read = Apply("bounded", (read,), _INT64, (("high", known[1]), ("low", known[0])))
    return Kernel(axes, (Store(buffer, offset, value),)), read


def _narrowest(known: tuple[int, int] | None) -> np.dtype:
    """The smallest integers that hold what is within the bounds that are ``known``: a vector has more of them."""
    if known is None:
        return _INT64
    if known[0] >= 0 and known[1] < 2**16:
        return np.dtype(np.uint16)
    return np.dtype(np.int32) if known[0] >= -(2**31) and known[1] < 2**31 else _INT64
