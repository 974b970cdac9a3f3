"""The largest of some neighbouring sums of products: a convolution and the pool that follows it, in one sweep.

    for b, c, p, q: y[b, c, p, q] = max[u, v](relu(add[k, l](w[c, k, l] * x[b, 2p + u + k, 2q + v + l])))

All sums of a window, for several channels, are kept in registers until the largest is known; nothing but the maxima,
and who they are, is written. What a window reads of the image is read once for all channels.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from pullback.compiler.codegen.maps import write_stores
from pullback.compiler.codegen.nest import emit_nest, emit_parallel, emit_vectors
from pullback.compiler.codegen.reductions import better
from pullback.compiler.codegen.types import convert, literal, scalar_type, vector_of
from pullback.compiler.codegen.values import Group, Place, Values
from pullback.compiler.codegen.vectormath import Lanes
from pullback.compiler.cost import MOST_TAPS
from pullback.compiler.schedules.window_maximum import WindowMaximum
from pullback.loops import Apply

__all__ = ["emit_window_maximum"]


def emit_window_maximum(
    values: Values, pooled: WindowMaximum, low: str, high: str, grains: Sequence[int]
) -> None:
    """Run the kernel for turns ``low`` to ``high`` of its first axis; ``grains`` are how many of them may occur."""
    f, row, first = values.f, pooled.row, pooled.first
    most = pooled.rows_at_once(values.target)

    def tiles() -> None:
        if row is None:
            _columns(values, pooled, Place(None), 1)
        elif row is first and list(grains) != [row.extent]:
            with f.loop(low, high) as loop, values.scope():
                _columns(values, pooled, Place(loop.index), 1)
        else:
            count = -(-row.extent // most)
            bounds = [row.extent * k // count for k in range(count + 1)]
            for start, stop in itertools.pairwise(bounds):
                _columns(values, pooled, Place(None, start), stop - start)

    emit_parallel(values, pooled.outer, first, (low, high), tiles)


def _columns(values: Values, pooled: WindowMaximum, start: Place, rows: int) -> None:
    """All columns of some rows, a vector at a time."""

    def turn(group: Group, column: Place, carried: list[str]) -> list[str]:
        _tile(values, pooled, start, rows, group, column)
        return carried

    emit_vectors(values, pooled.columns, values.lanes, turn)


def _tile(
    values: Values, pooled: WindowMaximum, start: Place, rows: int, group: Group, column: Place
) -> None:
    with values.lane_group(group, column):
        window = list(itertools.product(*(range(axis.extent) for axis in pooled.window)))
        sums = _summed(values, pooled, start, rows, window)
        for r in range(rows):
            _at_row(values, pooled, start, r)
            with values.scope():
                _extremes(values, pooled, window, sums[r * len(window) : (r + 1) * len(window)])
                write_stores(values, pooled.stores)
        if pooled.row is not None:
            del values.places[pooled.row]


def _at_row(values: Values, pooled: WindowMaximum, start: Place, r: int) -> None:
    if pooled.row is not None:
        values.places[pooled.row] = Place(start.value, start.constant + r)


def _at_window(values: Values, pooled: WindowMaximum, turns: Sequence[int]) -> None:
    for axis, turn in zip(pooled.window, turns):
        values.places[axis] = Place(None, turn)


def _summed(
    values: Values, pooled: WindowMaximum, start: Place, rows: int, window: Sequence[tuple[int, ...]]
) -> list[str]:
    """The sums of products for every row and every place of the window."""
    group, dtype = values.group, pooled.sums.dtype
    assert group is not None
    step = Lanes(values.f, scalar_type(dtype), group.lanes)
    kind = vector_of(scalar_type(dtype), group.lanes)

    def turn(current: list[str]) -> list[str]:
        rights = []
        for turns in window:
            _at_window(values, pooled, turns)
            with values.scope():
                rights += values.vectors(pooled.right)
        for axis in pooled.window:
            del values.places[axis]
        new = []
        for r in range(rows):
            _at_row(values, pooled, start, r)
            with values.scope():
                (left,) = values.vectors(pooled.left)
            new += [step.fma(left, right, current[r * len(window) + k]) for k, right in enumerate(rights)]
        return new

    return emit_nest(
        values,
        pooled.sums.over,
        turn,
        [(kind, "zeroinitializer")] * (rows * len(window)),
        unrolled=lambda axes: math.prod(axis.extent for axis in axes) <= MOST_TAPS,
    )


def _extremes(
    values: Values, pooled: WindowMaximum, window: Sequence[tuple[int, ...]], sums: Sequence[str]
) -> None:
    """Give the largest value and its place, from the sums of one row."""
    group, dtype = values.group, pooled.largest.body.dtype
    assert group is not None
    lanes = group.lanes
    # Places as wide as the values: a comparison's mask selects both.
    place_dtype = np.dtype(np.int64 if dtype.itemsize == 8 else np.int32)
    kind, place_kind = vector_of(scalar_type(dtype), lanes), vector_of(scalar_type(place_dtype), lanes)
    mask = vector_of("i1", lanes)
    best = where = ""
    body = pooled.largest.body
    is_relu = isinstance(body, Apply) and body.function == "relu"
    # What must be larger than the largest relu so far may lack its own: nothing negative is larger, and a relu
    # changes nothing else.
    challenger = body.operands[0] if is_relu else body
    for number, (turns, total) in enumerate(zip(window, sums)):
        _at_window(values, pooled, turns)
        with values.scope():
            values.bind(pooled.sums, [total])
            (value,) = values.vectors(challenger if number else body)
        place = literal(place_dtype, number, lanes)
        if not number:
            best, where = value, place
            continue
        wins = better(values, "argmax", value, best, dtype, lanes)
        where = values.f.value(f"select {mask} {wins}, {place_kind} {place}, {place_kind} {where}")
        if is_relu:
            best = values.f.value(f"select {mask} {wins}, {kind} {value}, {kind} {best}")
        else:  # of equal zeros the first has won its place, but +0 is the largest
            best = Lanes(values.f, scalar_type(dtype), lanes).maximum(best, value)
    for axis in pooled.window:
        del values.places[axis]
    for extreme in pooled.extremes:
        if extreme.kind == "maximum":
            values.bind(extreme, [best])
        else:
            values.bind(extreme, [convert(values.f, where, place_dtype, extreme.dtype, lanes)])
