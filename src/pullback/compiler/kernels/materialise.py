"""The places of a scatter's updates are computed once, not by every chunk that looks for its own among them.

    for i, j, k: table[k + 50*check_index(tokens[j + 130*rows[i]])] += updates[i, j, k]
    →
    for i, j:    place[i, j] = int32(check_index(tokens[j + 130*rows[i]]))
    for i, j, k: table[k + 50*place[i, j]] += updates[i, j, k]

So an index out of range is found before anything is added, and what goes on with the table's rows may overwrite
donated memory in the same region.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pullback.compiler.kernels.canonicalise import coalesced_rows
from pullback.compiler.schedules.choose import Schedules
from pullback.compiler.schedules.scatter import ScatterSchedule
from pullback.loops import (
    Affine,
    Apply,
    Axis,
    Expression,
    Kernel,
    Literal,
    Load,
    Position,
    Store,
    staged,
    walk,
)
from pullback.loops.arithmetic import bounds, times, total
from pullback.loops.expression import as_expression

__all__ = ["materialise_indices"]

_INT64 = np.dtype(np.int64)


def materialise_indices(kernel: Kernel, schedules: Schedules) -> list[Kernel]:
    """The kernel with computed places stored before they are used; positions are joined where memory allows."""
    scatter = schedules.of(kernel)
    if not isinstance(scatter, ScatterSchedule):
        return [kernel]
    disjoint = scatter.disjoint  # then each place is computed once anyway
    if scatter.selector is None and not disjoint:
        kernel = _with_one_index(kernel, scatter.trailing)
    (store,) = kernel.stores
    program, dynamic = list[Kernel](), list[tuple[Expression, int]]()
    for index, stride in store.dynamic:
        place = index
        if not _is_plain(index) and (_has_checks(index) or not disjoint):
            before, place = _stored(kernel, store, index)
            program.append(before)
        dynamic.append((place, stride))
    placed = kernel.with_stores([replace(store, dynamic=tuple(dynamic))])
    return [*program, placed if disjoint else coalesced_rows(placed)]


def _with_one_index(kernel: Kernel, trailing: Sequence[Axis]) -> Kernel:
    """The kernel with one computed index for all but what the ``trailing`` axes add to a place, if that tells the rows.

    >>> from pullback.loops import Buffer
    >>> from pullback.loops.printer import format_kernel
    >>> i, k, int64 = Axis("i", 4), Axis("k", 3), np.dtype(np.int64)
    >>> first, second = (Load(Buffer(name, int64, (4,)), Affine.of(i)) for name in ("first", "second"))
    >>> x, updates = (Buffer(name, np.dtype(np.float32), (6, 4, 3)) for name in ("x", "updates"))
    >>> value = Load(updates, Affine.of(i) * 3 + Affine.of(k))
    >>> store = Store(x, Affine.of(k) + 3, value, (), ((first, 6), (second, 9)), "add")
    >>> print(format_kernel(_with_one_index(Kernel((i, k), (store,)), (k,))))
    for i<4, k<3:
        x[k + 3*bounded(second[i] * 3 + first[i] * 2 + 1, high=23, low=0)] += updates[3*i + k]
    """
    (store,) = kernel.stores
    within = Affine.total(Affine.of(axis) * store.offset.coefficient(axis) for axis in trailing)
    base = store.offset.without(trailing)
    steps = [*(step for _, step in store.dynamic), *(step for _, step in base.terms)]
    pitch = math.gcd(store.buffer.size, *steps)
    split = (within + base.constant).divide(pitch)
    if split is None or split[0].terms:
        return kernel
    parts = [times(index, step // pitch) for index, step in store.dynamic]
    parts += [Affine.of(axis) * (step // pitch) for axis, step in base.terms]
    limits = (("high", store.buffer.size // pitch - 1), ("low", 0))
    row = Apply("bounded", (as_expression(total([*parts, split[0]])),), _INT64, limits)
    return kernel.with_stores([replace(store, offset=split[1], dynamic=((row, pitch),))])


def _is_plain(index: Expression) -> bool:
    """Whether the index is simply there: a constant, a position, or an element of an array, made wider."""
    while isinstance(index, Apply) and index.function in ("bounded", "cast"):
        (index,) = index.operands
    if isinstance(index, Load):
        return index.is_plain
    return isinstance(index, Literal | Position)


def _has_checks(index: Expression) -> bool:
    return any(isinstance(e, Apply) and e.function == "check_index" for e in walk(index))


def _stored(kernel: Kernel, store: Store, index: Expression) -> tuple[Kernel, Expression]:
    """The kernel that stores ``index`` at every position, and the read of it."""
    axes = tuple(axis for axis in kernel.axes if axis in index.axes)
    known = bounds(index)
    dtype = _narrowest(known)
    value = Apply("cast", (index,), dtype) if dtype != _INT64 else index
    made, load = staged(f"place_{store.buffer.name}", value, axes)
    read: Expression = Apply("cast", (load,), _INT64) if dtype != _INT64 else load
    if known is not None:
        read = Apply("bounded", (read,), _INT64, (("high", known[1]), ("low", known[0])))
    return made, read


def _narrowest(known: tuple[int, int] | None) -> np.dtype:
    """The smallest integers that hold what is within the bounds that are ``known``: a vector has more of them."""
    if known is None:
        return _INT64
    if known[0] >= 0 and known[1] < 2**16:
        return np.dtype(np.uint16)
    return np.dtype(np.int32) if known[0] >= -(2**31) and known[1] < 2**31 else _INT64
