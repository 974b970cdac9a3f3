"""Updates added at computed places: each share of the target's rows is the work of one chunk.

Every chunk goes through all positions in order and adds what belongs to its rows. So each element receives its updates
in the order of the positions, whatever the number of threads, and no two chunks touch the same row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pullback.compiler.codegen.maps import lane_axis, lane_loop, write_stores
from pullback.compiler.codegen.values import Place, Values
from pullback.loops import Axis, Expression, Kernel, row_major

__all__ = ["Scatter", "emit_scatter", "find_scatter"]

MOST_SHARES = 4
"""Every share reads all indices; more of them would read more than they add."""

LEAST_UPDATES = 1 << 13


@dataclass(frozen=True, eq=False)
class Scatter:
    """An accumulating kernel; ``selector`` is the index whose value, below ``rows``, says whose share an update is."""

    positions: tuple[Axis, ...]
    trailing: tuple[Axis, ...]
    selector: Expression
    rows: int
    shares: int


def find_scatter(kernel: Kernel) -> Scatter | None:
    """The kernel as a scatter, if it accumulates."""
    if len(kernel.stores) != 1 or not kernel.stores[0].accumulate or not kernel.stores[0].dynamic:
        return None
    (store,) = kernel.stores
    selector, stride = store.dynamic[0]
    strides = row_major(store.buffer.shape)
    rows = next((n for n, s in zip(store.buffer.shape, strides) if s == stride and n > 1), 1)
    depends = [axis for axis in kernel.axes if any(axis in e.axes for e, _ in store.dynamic)]
    last = kernel.axes.index(depends[-1]) + 1 if depends else 0
    updates = 1
    for axis in kernel.axes:
        updates *= axis.extent
    shares = min(MOST_SHARES, rows) if updates >= LEAST_UPDATES else 1
    return Scatter(kernel.axes[:last], kernel.axes[last:], selector, rows, shares)


def emit_scatter(values: Values, kernel: Kernel, scatter: Scatter, low: str, high: str) -> None:
    """Add the updates of shares ``low`` to ``high`` of the target's rows."""
    f = values.f
    lane = lane_axis(kernel)
    first, last = (
        f.value(f"udiv i64 {f.value(f'mul i64 {b}, {scatter.rows}')}, {scatter.shares}") for b in (low, high)
    )

    def nest(axes: Sequence[Axis]) -> None:
        if axes:
            with f.loop("0", str(axes[0].extent)) as loop:
                values.places[axes[0]] = Place(loop.index)
                with values.scope():
                    nest(axes[1:])
                del values.places[axes[0]]
            return
        (row,) = values.convert_index(scatter.selector)
        below, above = f.value(f"icmp sge i64 {row}, {first}"), f.value(f"icmp slt i64 {row}, {last}")
        with f.when(f.value(f"and i1 {below}, {above}")), values.scope():
            update([axis for axis in scatter.trailing if axis is not lane])

    def update(axes: Sequence[Axis]) -> None:
        if axes:
            with f.loop("0", str(axes[0].extent)) as loop:
                values.places[axes[0]] = Place(loop.index)
                with values.scope():
                    update(axes[1:])
                del values.places[axes[0]]
        elif lane is not None and lane in scatter.trailing:
            lane_loop(values, lane, kernel.stores)
        else:
            write_stores(values, kernel.stores)

    nest(scatter.positions)
