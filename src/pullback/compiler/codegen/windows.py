"""The largest of some neighbouring sums of products: a convolution and the pool that follows it, in one sweep.

    for b, c, p, q: y[b, c, p, q] = max[u, v](relu(add[k, l](w[c, k, l] * x[b, 2p + u + k, 2q + v + l])))

All sums of a window, for several channels, are kept in registers until the largest is known; nothing but the maxima,
and who they are, is written. What a window reads of the image is read once for all channels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pullback.compiler.codegen.maps import write_stores
from pullback.compiler.codegen.nest import Ends, Tile, each_place, emit_nest, multiply_add
from pullback.compiler.codegen.reductions import better
from pullback.compiler.codegen.types import convert, literal, scalar_type, vector_of
from pullback.compiler.codegen.values import Place, Values
from pullback.compiler.codegen.vectormath import Lanes
from pullback.compiler.cost import MOST_TAPS
from pullback.compiler.schedules.window_maximum import WindowMaximum
from pullback.loops import Apply
from pullback.loops.nest import levels_over

__all__ = ["emit_window_maximum"]


def emit_window_maximum(values: Values, pooled: WindowMaximum, ends: Ends) -> None:
    """Run the kernel between ``ends`` of its first axis."""
    window = {axis: axis.extent for axis in pooled.window}
    size = math.prod(window.values())
    kind = vector_of(scalar_type(pooled.sums.dtype), values.lanes)
    start = Place(None, 0)

    def sums(rows: Tile, _: list[str]) -> None:
        """The sums of products for every row and every place of the window, and what is made of the largest."""

        def turn(_: Tile, current: list[str]) -> list[str]:
            values.places.update(dict.fromkeys(window, start))
            new = multiply_add(values, {**rows, **window}, pooled.left, pooled.right, current)
            for axis in window:
                del values.places[axis]
            return new

        count = math.prod(rows.values()) * size
        levels = levels_over(pooled.sums.over, MOST_TAPS)
        found = emit_nest(values, levels, turn, [(kind, "zeroinitializer")] * count)
        for r in each_place(values, rows):
            _extremes(values, pooled, found[r * size : (r + 1) * size])
            write_stores(values, pooled.stores)

    emit_nest(values, pooled.nest.levels, sums, ends=ends)


def _extremes(values: Values, pooled: WindowMaximum, sums: Sequence[str]) -> None:
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
    window = {axis: axis.extent for axis in pooled.window}
    values.places.update(dict.fromkeys(window, Place(None, 0)))
    for number in each_place(values, window):
        values.bind(pooled.sums, [sums[number]])
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
