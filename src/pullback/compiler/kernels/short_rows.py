"""Short rows of a map are joined, so that lanes lie along several of them.

The windows of a pool over an image of eight columns make rows of four, which fill four lanes of sixteen. What is stored
lies side by side, and where the elements lie that a vector of it reads is known when the code is written:

    for i<64, k<4, l<4:     y[16*i + 4*k + l] = max[r<3, s<3](x[81*i + 18*k + 2*l + 9*r + s])
    →
    for i<64, l<16:         y[16*i + l] = max[r<3, s<3](x[81*i + 9*r + s + 18*(l // 4) + 2*(l % 4)])

So whole vectors are read, and lanes are picked out of them. Whether that pays the cost model says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pullback.compiler.kernels.canonicalise import lie_side_by_side
from pullback.compiler.schedules.choose import Schedules
from pullback.compiler.schedules.cost import MOST_CHUNKS, WELL_FILLED, WORTH_REORDERING
from pullback.compiler.schedules.lanes import filled
from pullback.compiler.schedules.map import MapSchedule, fit_registers
from pullback.compiler.schedules.picked import cycles_of_vectors
from pullback.loops import (
    Affine,
    Axis,
    Expression,
    Index,
    Kernel,
    Load,
    Position,
    as_expression,
    in_strips,
    rebuilt,
    turns_of,
)
from pullback.loops.arithmetic import divided, times, total
from pullback.loops.expression import linear

__all__ = ["join_short_rows"]


def join_short_rows(kernel: Kernel, schedules: Schedules, shared: bool) -> Kernel:
    """A map with rows as one, more of them as long as that pays; the first axis stays where others share its rows."""
    schedule, lanes, target = schedules.of(kernel), schedules.lanes(kernel), schedules.target
    lane = schedule.nest.vector if isinstance(schedule, MapSchedule) else None
    if lane is None or lane is not kernel.axes[-1] or not kernel.is_plain or kernel.has_checks:
        return kernel
    if turns_of(kernel.axes) == 0 or filled(lane.extent, lanes) >= WELL_FILLED:
        return kernel
    over = {axis for each in kernel.reductions for axis in each.over}
    roots = [store.value for store in kernel.stores]
    best: tuple[tuple[Axis, ...], int] | None = None
    fill = filled(lane.extent, lanes)
    alone = {lane: np.arange(lane.extent)}
    least = WORTH_REORDERING * cycles_of_vectors(kernel, lanes, target, alone, {lane})
    for first in range(len(kernel.axes) - 2, shared - 1, -1):
        rows, joined = kernel.axes[first], kernel.axes[first:]
        if not over.isdisjoint(joined) or not lie_side_by_side(joined, [s.offset for s in kernel.stores]):
            break
        most = rows.extent if first else rows.extent // MOST_CHUNKS  # the first axis is shared out
        for count in range(2, most + 1):
            if rows.extent % count:
                continue
            places = _places(joined, count)
            known = {axis for axis in joined if axis is not rows or count == rows.extent}
            length = len(places[lane])
            if not fit_registers(length, known, roots, lanes, target):
                break
            cycles = cycles_of_vectors(kernel, lanes, target, places, known)
            # Rows that fill vectors no better are longer code.
            if cycles < (1.0 if filled(length, lanes) > fill else WORTH_REORDERING) * least:
                best, least, fill = (joined, count), cycles, filled(length, lanes)
    return kernel if best is None else _joined(kernel, *best)


def _places(joined: Sequence[Axis], count: int) -> dict[Axis, NDArray[np.int64]]:
    """Where axes stand one after another, the last of them first, in ``count`` turns of the first of them."""
    turn, places = np.arange(count * turns_of(joined[1:])), dict[Axis, NDArray[np.int64]]()
    for axis in reversed(joined):
        turn, places[axis] = np.divmod(turn, axis.extent)
    return places


def _joined(kernel: Kernel, joined: tuple[Axis, ...], count: int) -> Kernel:
    """The kernel with its last axes as one, of the first of them ``count`` turns."""
    rows, *others = joined
    axis, outer = Axis(joined[-1].name, count * turns_of(others)), kernel.axes[: -len(joined)]
    places = dict[Axis, Index]()
    place: Index = Affine.of(axis)
    for each in reversed(others):
        place, places[each] = divided(place, each.extent)
    if count < rows.extent:
        (((strip, within), split),) = in_strips(rows, count)
        outer, rows = (*outer, strip), within
        kernel = kernel.over((*outer, within, *others), {joined[0]: split})
    places[rows] = place
    memo: dict[Expression, Expression] = {}
    made = kernel.with_values(lambda value: rebuilt(value, _at(places), memo))
    return made.over((*outer, axis), {each: Affine.of(axis) * (each is others[-1]) for each in places})


def _at(places: Mapping[Axis, Index]) -> Callable[[Expression], Expression]:
    """What makes of reads and positions the same with ``places`` instead of axes."""

    def moved(index: Affine) -> tuple[Affine, tuple[tuple[Expression, int], ...]]:
        offset, computed = linear((places.get(axis, Affine.of(axis)), step) for axis, step in index.terms)
        return offset + index.constant, computed

    def change(part: Expression) -> Expression:
        if isinstance(part, Load):
            offset, computed = moved(part.offset)
            return Load(part.buffer, offset, (*part.dynamic, *computed), part.guard)
        if isinstance(part, Position):
            offset, computed = moved(part.index)
            return as_expression(total((offset, *(times(index, step) for index, step in computed))))
        return part

    return change
