"""Sums of products along memory: the lanes lie along the summed axis, and a tile of sums shares what is read.

The weight gradient of a convolution sums over whole images and leaves a handful of numbers: there is no axis of the
result worth a vector. Here each accumulator is a vector of partial sums of one result; ``left × right`` of them are
kept at once, so that every vector read serves several.
"""

from __future__ import annotations

import itertools

import numpy as np

from pullback.compiler.codegen.maps import write_stores
from pullback.compiler.codegen.nest import emit_nest, emit_parallel, emit_vectors
from pullback.compiler.codegen.reductions import across_rows, horizontal
from pullback.compiler.codegen.types import scalar_type, vector_of
from pullback.compiler.codegen.values import Group, Place, Values
from pullback.compiler.codegen.vectormath import Lanes
from pullback.compiler.schedules.reduction_vectorised import ReductionVectorised
from pullback.loops import Axis

__all__ = ["emit_reduction_vectorised"]


def emit_reduction_vectorised(values: Values, dots: ReductionVectorised, low: str, high: str) -> None:
    """Run the kernel for turns ``low`` to ``high`` of its first axis."""
    f, tallest, widest = values.f, dots.tallest, dots.widest

    def tiles() -> None:
        for first, rows in _segments(dots.left, tallest):
            for second, columns in _segments(dots.right, widest):
                _tile(values, dots, first, rows, second, columns)

    def strips(start: str, stop: str, width: int) -> None:
        """Tiles of ``width`` turns of the first axis, one after another."""
        with f.loop(start, stop, width, counted=False) as loop:
            values.places[dots.first] = Place(loop.index)
            with values.scope():
                if dots.first is dots.left:
                    for second, columns in _segments(dots.right, widest):
                        _tile(values, dots, 0, width, second, columns)
                else:
                    for first, rows in _segments(dots.left, tallest):
                        _tile(values, dots, first, rows, 0, width)
            del values.places[dots.first]

    if dots.first in dots.outer:
        emit_parallel(values, dots.outer, dots.first, (low, high), tiles)
        return
    width = tallest if dots.first is dots.left else widest
    length = f.value(f"sub i64 {high}, {low}")
    whole = f.value(f"sub i64 {high}, {f.value(f'urem i64 {length}, {width}')}")
    strips(low, whole, width)
    strips(whole, high, 1)


def _segments(axis: Axis | None, size: int) -> list[tuple[int, int]]:
    """Starts and lengths of tiles along an axis: equal ones, as few as can be."""
    if axis is None:
        return [(0, 1)]
    count = -(-axis.extent // size)
    bounds = [axis.extent * k // count for k in range(count + 1)]
    return [(start, stop - start) for start, stop in itertools.pairwise(bounds)]


def _tile(
    values: Values, dots: ReductionVectorised, first: int, rows: int, second: int, columns: int
) -> None:
    """All sums of ``rows × columns`` results, then their stores."""
    *outer, along = dots.pair.depth
    f, lanes = values.f, values.lanes
    kind = vector_of(scalar_type(dots.accumulator.dtype), lanes)
    step = Lanes(f, scalar_type(dots.accumulator.dtype), lanes)

    start = values.places.get(dots.first, Place(None))

    def place(axis: Axis | None, position: int) -> None:
        if axis is not None:
            values.places[axis] = Place(start.value if axis is dots.first else None, position)

    def turn(group: Group, where: Place, sums: list[str]) -> list[str]:
        with values.lane_group(group, where):
            lefts, rights = [], []
            for r in range(rows):
                place(dots.left, first + r)
                with values.scope():
                    lefts.append(values.vectors(dots.pair.left)[0])
            for c in range(columns):
                place(dots.right, second + c)
                with values.scope():
                    rights.append(values.vectors(dots.pair.right)[0])
        return [
            step.fma(a, b, sums[r * columns + c]) for r, a in enumerate(lefts) for c, b in enumerate(rights)
        ]

    def along_sum(sums: list[str]) -> list[str]:
        return emit_vectors(values, along, lanes, turn, [(kind, value) for value in sums], most_unrolled=2)

    sums = emit_nest(values, outer, along_sum, [(kind, "zeroinitializer")] * (rows * columns))
    totals = _totals(values, sums, dots.accumulator.dtype)
    for r in range(rows):
        for c in range(columns):
            place(dots.left, first + r)
            place(dots.right, second + c)
            with values.scope():
                values.bind(dots.accumulator, [totals[r * columns + c]])
                write_stores(values, dots.stores)
    for axis in (dots.left, dots.right):
        if axis is dots.first:
            values.places[axis] = start
        elif axis is not None:
            del values.places[axis]


def _totals(values: Values, sums: list[str], dtype: np.dtype) -> list[str]:
    """The sum over the lanes of each vector; as many vectors at once as there are lanes, or the next power of two."""
    lanes, kind, totals = values.lanes, scalar_type(dtype), list[str]()
    while len(totals) < len(sums):
        rest = sums[len(totals) :]
        count = min(lanes, 2 ** (len(rest).bit_length() - 1))
        if count == 1:
            totals.append(horizontal(values, "add", rest[:1], dtype, lanes))
            continue
        turned = across_rows(values, "add", rest[:count], dtype, lanes)
        vector = vector_of(kind, count)
        totals += [values.f.value(f"extractelement {vector} {turned}, i32 {k}") for k in range(count)]
    return totals
