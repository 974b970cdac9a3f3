"""Updates at computed places, the owner computes: a chunk makes those that belong to its rows of the target.

Rows are told by one of the computed indices, if it is certain that all else in the place of an update leaves them as
they are. Where no index is certain to, all updates are those of one chunk. Where each turn of the first axis adds to a
row of its own, as the pullback of a pool does sample by sample, there is nothing to look for: such a scatter takes part
in the row group of its first axis like any other kernel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pullback.compiler.schedules.map import lane_axis
from pullback.compiler.schedules.schedule import Schedule
from pullback.compiler.target import Processor
from pullback.loops import Affine, Axis, Expression, Kernel, Store, turns_of
from pullback.loops.arithmetic import bounds, in_row
from pullback.loops.interpreter import Rows

__all__ = ["ScatterSchedule", "find_scatter"]


@dataclass(frozen=True, eq=False)
class ScatterSchedule(Schedule):
    """An accumulating kernel; ``selector`` plus ``shift``, below ``owners``, says whose update it is.

    There is no selector where all updates have one owner, nor where they are ``disjoint``: then rows are the turns of
    the first position axis, each of which adds to a row of its own. ``outermost`` tells that a row is one piece of
    memory, and all rows together the whole target.
    """

    name: ClassVar[str] = "scatter"
    positions: tuple[Axis, ...]
    trailing: tuple[Axis, ...]
    selector: Expression | None
    shift: int
    owners: int
    outermost: bool
    disjoint: bool
    lane: Axis | None
    """The axis of an update that the lanes lie along."""

    def parts(self, kernel: Kernel) -> int:
        return self.owners

    def rows(self, kernel: Kernel) -> int:
        return self.owners

    @property
    def alone(self) -> bool:
        return not (self.outermost or self.disjoint)

    def runs(self, kernel: Kernel, low: int, high: int) -> Iterator[Mapping[str, Any]]:
        if self.selector is not None:
            yield {"rows": Rows(self.selector, low - self.shift, high - self.shift)}
        elif not self.disjoint:
            yield {}
        else:
            yield from super().runs(kernel, low, high)

    def most_grains(self, lanes: int) -> int:
        """Grains beyond which comparing indices would take longer than adding the updates."""
        updated = turns_of(self.trailing)
        return lanes * -(-updated // lanes)


def find_scatter(kernel: Kernel, target: Processor) -> ScatterSchedule | None:
    """The kernel as a scatter, if it accumulates."""
    if len(kernel.stores) != 1 or not kernel.stores[0].accumulate:
        return None
    (store,) = kernel.stores
    depends = [axis for axis in kernel.axes if any(axis in e.axes for e, _ in store.dynamic)]
    last = kernel.axes.index(depends[-1]) + 1 if depends else int(not store.dynamic)
    positions, trailing = kernel.axes[:last], kernel.axes[last:]
    lane = lane_axis(kernel, target)
    lane = lane if lane in trailing else None
    if positions and store.buffer.size % positions[0].extent == 0:
        pitch = store.buffer.size // positions[0].extent
        if in_row(store.offset, store.dynamic, pitch, positions[0]):
            return ScatterSchedule(positions, trailing, None, 0, positions[0].extent, True, True, lane)
    if not store.dynamic:
        return None
    for number, (selector, stride) in enumerate(store.dynamic):
        found = _row_of(store, number)
        if found is not None:
            rows, shift = found
            whole = rows * stride == store.buffer.size
            return ScatterSchedule(positions, trailing, selector, shift, rows, whole, False, lane)
    return ScatterSchedule(positions, trailing, None, 0, 1, True, False, lane)


def _row_of(store: Store, number: int) -> tuple[int, int] | None:
    """``rows`` and ``shift`` such that ``index + shift`` is ``place // stride % rows`` for every update, if any.

    ``number`` says which of the store's computed indices it is, with its ``stride``. Then updates of one element have
    one row, and updates of different rows have no element in common.
    """
    selector, stride = store.dynamic[number]
    known = bounds(selector)
    rest = _beside(store, number)
    split = None if rest is None or stride <= 0 or store.buffer.size % stride else rest.divide(stride)
    if known is None or split is None:
        return None
    above, _ = split
    rows = math.gcd(store.buffer.size // stride, *(step for _, step in above.terms))
    shift = above.constant % rows
    return (rows, shift) if known[0] + shift >= 0 and known[1] + shift < rows else None


def _beside(store: Store, number: int) -> Affine | None:
    """The place of an update but for what one computed index adds, the others taken for axes of their own."""
    parts = [store.offset]
    for index, step in (*store.dynamic[:number], *store.dynamic[number + 1 :]):
        known = bounds(index)
        if known is None:
            return None
        low, high = known
        parts.append(Affine.of(Axis("other", high - low + 1)) * step + low * step)
    return Affine.total(parts)
