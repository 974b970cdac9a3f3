"""Neighbouring rows of a sum over windows are written out together, so that they share what they read.

A depthwise convolution, or the mean of windows that overlap, reads a vector for each of its products, and those that
begin anywhere cost two reads. Rows of the result that lie beside each other see mostly the same rows of the image:

    for j<96, k<28, l<28:    y[j, k, l] = add[r<3, s<3](x[j, k + r, l + s] * w[j, r, s])
    →
    for j<96, k<14, l<28:    y[j, 2*k, l]     = x[j, 2*k, l] * w[j, 0, 0] + x[j, 2*k, l + 1] * w[j, 0, 1] + …
                             y[j, 2*k + 1, l] = x[j, 2*k + 1, l] * w[j, 0, 0] + …

Where registers cannot hold all that several rows read, the rows are computed in the order of what they read.
"""

from __future__ import annotations

from pullback.compiler.schedules.choose import Schedules
from pullback.compiler.schedules.cost import LEAST_BANDED, MOST_BANDS, MOST_UNROLLED_FUNCTIONS
from pullback.compiler.schedules.map import MapSchedule
from pullback.loops import Affine, Axis, Kernel, Load, Reduce, in_strips, turns_of, walk
from pullback.loops.chains import chained

__all__ = ["in_bands"]


def in_bands(kernel: Kernel, schedules: Schedules) -> list[Kernel]:
    """The kernel, with bands of rows written out where windows share them."""
    schedule = schedules.of(kernel)
    lane = schedule.nest.vector if isinstance(schedule, MapSchedule) else None
    reduce = kernel.only_reduction
    if lane is None or reduce is None or not reduce.adds_floats or turns_of(kernel.axes) < LEAST_BANDED:
        return [kernel]
    bands = min(MOST_BANDS, MOST_UNROLLED_FUNCTIONS // turns_of(reduce.over))
    rows = next((axis for axis in kernel.axes[1:] if _share(axis, lane, reduce)), None)
    return [kernel] if rows is None or bands < 2 else _banded(kernel, reduce, rows, bands)


def _share(rows: Axis, lane: Axis, reduce: Reduce) -> bool:
    """Whether neighbouring turns of ``rows`` read mostly the same vectors, for other turns of the reduction."""
    if rows is lane:
        return False
    wide = [e for e in walk(reduce.body) if isinstance(e, Load) and lane in e.axes]
    return bool(wide) and any(
        all(e.is_plain and e.offset.coefficient(rows) == e.offset.coefficient(along) > 0 for e in wide)
        for along in reduce.over
        if along.extent > 1
    )


def _banded(kernel: Kernel, reduce: Reduce, rows: Axis, bands: int) -> list[Kernel]:
    """The kernel with so many turns of ``rows`` and its sum written out, and one of the turns that are left."""
    written_out = kernel.with_reductions(lambda part: chained(part) if part is reduce else part)
    found: list[Kernel] = []
    for (own, *inside), turn in in_strips(rows, bands):
        axes = tuple(own if a is rows else a for a in kernel.axes if a is not rows or own.extent > 1)
        whole, turns = kernel, [turn]
        if inside:
            whole, turns = written_out, [turn.replace({inside[0]: Affine((), k)}) for k in range(bands)]
        parts = (whole.over(axes, {rows: each}) for each in turns)
        found.append(Kernel(axes, tuple(store for part in parts for store in part.stores)))
    return found
