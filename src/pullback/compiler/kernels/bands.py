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
from pullback.compiler.schedules.cost import LEAST_BANDED, MOST_BANDS, MOST_NARROW_BANDS
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
    rows = next((axis for axis in kernel.axes[1:] if _share(axis, lane, reduce)), None)
    if rows is None:
        return [kernel]
    narrow = lane.extent <= schedules.lanes(kernel)
    most, functions = MOST_NARROW_BANDS if narrow else MOST_BANDS
    most = max(1, min(most, functions // turns_of(reduce.over)))
    bands = -(-rows.extent // -(-rows.extent // most))
    return [kernel] if bands < 2 else _banded(kernel, reduce, rows, bands)


def _share(rows: Axis, lane: Axis, reduce: Reduce) -> bool:
    """Whether neighbouring turns of ``rows`` read mostly the same vectors, for other turns of the reduction."""
    if rows is lane:
        return False
    wide = [e for e in walk(reduce.body) if isinstance(e, Load) and lane in e.axes]
    return bool(wide) and any(all(_meets(e, rows, along) for e in wide) for along in reduce.over)


def _meets(load: Load, rows: Axis, along: Axis) -> bool:
    """Whether a turn of ``rows`` is as far as some turns of a window, half of it or fewer."""
    step, turn = load.offset.coefficient(along), load.offset.coefficient(rows)
    return load.is_plain and 0 < step <= turn <= step * along.extent // 2 and turn % step == 0


def _banded(kernel: Kernel, reduce: Reduce, rows: Axis, bands: int) -> list[Kernel]:
    """The kernel with so many turns of ``rows`` and its sum written out, and one of the turns that are left."""
    written_out = kernel.with_replaced({reduce: chained(reduce)})
    found: list[Kernel] = []
    for (*strips, inside), turn in in_strips(rows, bands):
        kept = [strip for strip in strips if strip.extent > 1]
        axes = tuple(own for axis in kernel.axes for own in (kept if axis is rows else [axis]))
        whole = written_out if inside.extent > 1 else kernel
        turns = (turn.replace({inside: Affine((), k)}) for k in range(inside.extent))
        parts = (whole.over(axes, {rows: each}) for each in turns)
        found.append(Kernel(axes, tuple(store for part in parts for store in part.stores)))
    return found
