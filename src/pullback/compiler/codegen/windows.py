"""The largest of some neighbouring sums of products: a convolution and the pool that follows it, in one sweep.

    for b, c, p, q: y[b, c, p, q] = max[u, v](relu(add[k, l](w[c, k, l] * x[b, 2p + u + k, 2q + v + l])))

All sums of a window, for several channels, are kept in registers until the largest is known; nothing but the maxima,
and who they are, is written. What a window reads of the image is read once for all channels.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pullback.compiler.codegen.maps import write_stores
from pullback.compiler.codegen.reductions import better
from pullback.compiler.codegen.types import convert, literal, scalar_type, vector_of
from pullback.compiler.codegen.values import Group, Place, Values
from pullback.compiler.codegen.vectormath import Lanes
from pullback.loops import Apply, Axis, Expression, Kernel, Load, Position, Reduce, Store, once, walk

__all__ = ["WindowMaximum", "emit_window_maximum", "find_window_maximum"]

MOST_TAPS = 32
"""Summed elements written out at once: with more of them, outer axes of the sum become loops."""


@dataclass(frozen=True, eq=False)
class WindowMaximum:
    """A kernel whose stores are made of the largest of some sums, its place, or both.

    ``row`` is an axis of the result that only the ``left`` operands know; the lanes lie along ``columns``.
    """

    first: Axis
    outer: tuple[Axis, ...]
    row: Axis | None
    columns: Axis
    largest: Reduce
    sums: Reduce
    left: Expression
    right: Expression
    extremes: tuple[Reduce, ...]
    stores: tuple[Store, ...]

    @property
    def window(self) -> tuple[Axis, ...]:
        """The axes of the window."""
        return self.largest.over


@once
def find_window_maximum(kernel: Kernel) -> WindowMaximum | None:
    """The kernel in this form, or ``None``."""
    extremes = [e for e in kernel.expressions() if isinstance(e, Reduce) and e.kind in ("maximum", "argmax")]
    sums = [e for e in kernel.expressions() if isinstance(e, Reduce) and _is_sum_of_products(e)]
    others = [
        e for e in kernel.expressions() if isinstance(e, Reduce) and e not in sums and e not in extremes
    ]
    if not extremes or not sums or others or len(kernel.axes) < 2:
        return None
    if any(store.inner or store.dynamic or store.accumulate for store in kernel.stores):
        return None
    largest = extremes[0]
    if any(
        not _alike(largest.body, other.body, dict(zip(largest.over, other.over))) for other in extremes[1:]
    ):
        return None
    inside = [e for e in walk(largest.body) if e in sums]
    if len(inside) != 1:
        return None
    columns, (sum_of,) = kernel.axes[-1], inside
    assert isinstance(sum_of.body, Apply)
    for left, right in (sum_of.body.operands, sum_of.body.operands[::-1]):
        if columns in right.axes and not {columns, *largest.over} & left.axes:
            rows = [axis for axis in kernel.axes[:-1] if axis in left.axes and axis not in right.axes]
            row = rows[-1] if rows else None
            outer = tuple(axis for axis in kernel.axes[:-1] if axis is not row)
            return WindowMaximum(
                kernel.axes[0],
                outer,
                row,
                columns,
                largest,
                sum_of,
                left,
                right,
                tuple(extremes),
                kernel.stores,
            )
    return None


def _is_sum_of_products(reduce: Reduce) -> bool:
    if reduce.kind != "add" or reduce.dtype.kind != "f" or not isinstance(reduce.body, Apply):
        return False
    factors = reduce.body.operands if reduce.body.function == "multiply" else ()
    return bool(factors) and all(isinstance(e, Load) and not e.dynamic and e.guard is None for e in factors)


def _alike(first: Expression, second: Expression, axes: dict[Axis, Axis]) -> bool:
    """Whether two expressions differ only in the names of the axes that they close over."""
    if first is second and not first.axes & axes.keys():
        return True
    if type(first) is not type(second) or first.dtype != second.dtype:
        return False
    if isinstance(first, Reduce) and isinstance(second, Reduce):
        if first.kind != second.kind or [a.extent for a in first.over] != [a.extent for a in second.over]:
            return False
        axes = {**axes, **dict(zip(first.over, second.over))}
    elif isinstance(first, Load) and isinstance(second, Load):
        if first.buffer is not second.buffer or (first.guard is None) != (second.guard is None):
            return False
        if [stride for _, stride in first.dynamic] != [stride for _, stride in second.dynamic]:
            return False
        if (
            _renamed(first, axes) != dict(second.offset.terms)
            or first.offset.constant != second.offset.constant
        ):
            return False
    elif isinstance(first, Position) and isinstance(second, Position):
        return (
            _renamed(first, axes) == dict(second.index.terms)
            and first.index.constant == second.index.constant
        )
    elif isinstance(first, Apply) and isinstance(second, Apply):
        if (first.function, first.attributes) != (second.function, second.attributes):
            return False
    else:
        return False
    return len(first.operands) == len(second.operands) and all(
        _alike(a, b, axes) for a, b in zip(first.operands, second.operands)
    )


def _renamed(expression: Load | Position, axes: dict[Axis, Axis]) -> dict[Axis, int]:
    index = expression.offset if isinstance(expression, Load) else expression.index
    return {axes.get(axis, axis): coefficient for axis, coefficient in index.terms}


def emit_window_maximum(
    values: Values, pooled: WindowMaximum, registers: int, low: str, high: str, shares: Sequence[int]
) -> None:
    """Run the kernel for turns ``low`` to ``high`` of its first axis; ``shares`` are how many of them may occur."""
    f, row, first = values.f, pooled.row, pooled.first
    whole = math.prod(axis.extent for axis in pooled.window)
    most = max(1, (registers - 6) // whole)

    def tiles() -> None:
        if row is None:
            _columns(values, pooled, Place(None), 1)
        elif row is first and list(shares) != [row.extent]:
            with f.loop(low, high) as loop, values.scope():
                _columns(values, pooled, Place(loop.index), 1)
        else:
            count = -(-row.extent // most)
            bounds = [row.extent * k // count for k in range(count + 1)]
            for start, stop in itertools.pairwise(bounds):
                _columns(values, pooled, Place(None, start), stop - start)

    def nest(axes: Sequence[Axis]) -> None:
        if not axes:
            tiles()
            return
        start, stop = (low, high) if axes[0] is first else ("0", str(axes[0].extent))
        with f.loop(start, stop) as loop:
            values.places[axes[0]] = Place(loop.index)
            with values.scope():
                nest(axes[1:])
            del values.places[axes[0]]

    nest(pooled.outer)


def _columns(values: Values, pooled: WindowMaximum, start: Place, rows: int) -> None:
    """All columns of some rows, a vector at a time."""
    lanes, extent = values.lanes, pooled.columns.extent
    full, tail = divmod(extent, lanes)
    if full > 1:
        with values.f.loop("0", str(full * lanes), lanes) as loop:
            _tile(values, pooled, start, rows, Group(pooled.columns, 1, lanes), Place(loop.index))
    elif full:
        _tile(values, pooled, start, rows, Group(pooled.columns, 1, lanes), Place(None, 0))
    if tail:
        group = Group(pooled.columns, 1, lanes, tail)
        _tile(values, pooled, start, rows, group, Place(None, full * lanes))


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

    def nest(axes: Sequence[Axis], current: list[str]) -> list[str]:
        if not axes:
            return turn(current)
        written_out = math.prod(axis.extent for axis in axes) <= MOST_TAPS
        if written_out:
            for place in range(axes[0].extent):
                values.places[axes[0]] = Place(None, place)
                with values.scope():
                    current = nest(axes[1:], current)
                del values.places[axes[0]]
            return current
        with values.f.loop("0", str(axes[0].extent), carried=[(kind, value) for value in current]) as loop:
            values.places[axes[0]] = Place(loop.index)
            with values.scope():
                loop.carry(*nest(axes[1:], loop.values))
            del values.places[axes[0]]
        return loop.results

    return nest(pooled.sums.over, ["zeroinitializer"] * (rows * len(window)))


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
