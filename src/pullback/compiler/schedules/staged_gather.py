"""Rows that a contraction reads are gathered at the consumer's tile, and prefetched a tile ahead.

    for i, j, k: rows[i, j, k] = table[k + 50*tokens[i, j]]
    for i, j, o: y[i, j, o] = add[k](rows[i, j, k] * w[k, o])
    →
    for i, for each tile of j:
        prefetch the rows of the table that the next tile needs
        rows[i, tile, :] = …
        y[i, tile, :] = …

A kernel that only gathers waits for memory most of the time, and a contraction for nothing: what was asked for arrives
while the contraction computes, and it finds its rows in the nearest cache. The rows are stored as before, for others to
read.
"""

from __future__ import annotations

from dataclasses import dataclass

from pullback.compiler.schedules.contraction import Contraction
from pullback.compiler.schedules.contraction_schedules import TiledContraction
from pullback.compiler.schedules.map import MapSchedule, schedule_map
from pullback.compiler.schedules.prefetch import is_far
from pullback.compiler.target import Processor
from pullback.loops import Axis, Kernel, Load, walk

__all__ = ["StagedGather", "find_staged_gather"]


@dataclass(frozen=True, eq=False)
class StagedGather:
    """A kernel that gathers what a product reads: its first axes are the product's rows.

    ``inside`` is what it does in a turn of all of these but the last.
    """

    kernel: Kernel
    inside: Kernel
    schedule: MapSchedule
    rows: tuple[Axis, ...]
    gathered: tuple[Load, ...]
    """Reads of whole rows of large arrays at computed places."""


def find_staged_gather(
    kernel: Kernel, consumer: TiledContraction, lanes: int, target: Processor
) -> StagedGather | None:
    """``kernel`` as the staged gather of ``consumer``, or ``None`` where tiles are not some of its turns each, once."""
    product, tile = consumer.contraction, consumer.tile
    count = len(product.rows)
    rows, inside = kernel.axes[:count], Kernel(kernel.axes[count - 1 :], kernel.stores)
    if len(product.pairs) != 1 or tile.row_axis is None or tile.row_axis is not product.rows[-1]:
        return None
    if tile.band_axis is not None or tile.inner or consumer.by_columns:
        return None
    if [axis.extent for axis in rows] != [axis.extent for axis in product.rows]:
        return None
    if any(store.accumulate or store.dynamic for store in kernel.stores) or not inside.axes:
        return None
    schedule = schedule_map(inside, lanes, target)
    if schedule.nest.vector is inside.axes[0] or not _of_its_rows(kernel, rows, product):
        return None
    gathered = tuple(load for load in kernel.loads() if is_far(load, rows[-1], kernel, target))
    return StagedGather(kernel, inside, schedule, rows, gathered) if gathered else None


def _of_its_rows(kernel: Kernel, rows: tuple[Axis, ...], product: Contraction) -> bool:
    """Whether each row of the product reads only what the same row of the kernel writes."""
    (pair,) = product.pairs
    left, written = pair.left, kernel.writes()
    loads = {e for e in walk(*(s.value for s in product.stores)) if isinstance(e, Load)} | {left, pair.right}
    if any(load.buffer in written for load in loads - {left}):
        return False
    for store in kernel.stores:
        if store.buffer is not left.buffer:
            continue
        pitch = store.offset.coefficient(rows[-1])
        steps = [store.offset.coefficient(axis) for axis in rows]
        low, high = left.offset.without(product.rows).bounds()
        own_low, own_high = store.offset.without(rows).bounds()
        return (
            steps == [left.offset.coefficient(axis) for axis in product.rows]
            and min(low, own_low) >= 0
            and max(high, own_high) < pitch
        )
    return False
