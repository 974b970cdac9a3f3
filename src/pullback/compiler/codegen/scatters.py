"""Updates at computed places, added or otherwise: a chunk makes those that belong to its rows of the target.

Every chunk goes through all positions in order. So each element receives its updates in the order of the positions,
whatever the number of threads, and no two chunks touch the same row. A whole vector of indices is compared with the
chunk's rows at once, several of them for one branch, and only what belongs to them is visited:

    for each 64 positions:
        mine = a bit for each position whose index is in [low, high)
        for each set bit of mine, lowest first:
            target[index[position], :] += updates[position, :]

Indices that lie in memory in the order of the positions are searched as one long row, and what is found is divided into
the axes again; narrow ones, which materialise.py stores where it can, are twice as many for a comparison.

Where each turn of the first axis adds to a row of its own, as the pullback of a pool does sample by sample, there is
nothing to look for: such a scatter takes part in the row group of its first axis like any other kernel.

Rows are told by one of the computed indices, if it is certain that all else in the place of an update leaves them as
they are (``_row_of``). Where no index is certain to, all updates are those of one chunk.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pullback.compiler.codegen.maps import emit_stores
from pullback.compiler.codegen.nest import ChunkTurns, TileTurns, emit_nest
from pullback.compiler.codegen.types import convert, scalar_type, vector_of
from pullback.compiler.codegen.values import LaneGroup, Place, Values
from pullback.compiler.schedules.cost import MOST_COMPARED
from pullback.compiler.schedules.scatter import ScatterSchedule
from pullback.loops import Affine, Apply, Axis, Expression, Kernel, Load, turns_of
from pullback.loops.nest import Kind, level_of, levels_over

__all__ = ["emit_scatter"]


def emit_scatter(values: Values, kernel: Kernel, scatter: ScatterSchedule, ends: ChunkTurns) -> None:
    """Add the updates of the rows between ``ends``."""
    along = scatter.lane
    outer = levels_over([axis for axis in scatter.trailing if axis is not along])

    def update(tile: TileTurns, _: list[str]) -> None:
        emit_stores(values, [] if along is None else [along], kernel.stores)

    if scatter.selector is None:
        levels = levels_over(scatter.positions)
        if scatter.disjoint:
            levels[0] = level_of(scatter.positions[0], Kind.PARALLEL)
        emit_nest(values, [*levels, *outer], update, ends=ends)
        return
    f, low, high = values.f, ends.low, ends.high
    if scatter.shift:
        low, high = (f.value(f"sub i64 {end}, {scatter.shift}") for end in (low, high))
    if not scatter.positions:
        (row,) = values.convert_index(scatter.selector)
        below, above = f.value(f"icmp sge i64 {row}, {low}"), f.value(f"icmp slt i64 {row}, {high}")
        with f.when(f.value(f"and i1 {below}, {above}")), values.scope():
            emit_nest(values, outer, update)
        return
    search = _Search(values, scatter, scatter.selector, low, high)

    def run(tile: TileTurns, _: list[str]) -> None:
        search.run(lambda: emit_nest(values, outer, update))

    emit_nest(values, levels_over(search.before), run)


class _Search:
    """Finds the positions whose index is from ``low`` to ``high``: all of them where indices lie one after another.

    Otherwise those along the last axis, in a loop over the axes ``before`` it.
    """

    def __init__(
        self, values: Values, scatter: ScatterSchedule, selector: Expression, low: str, high: str
    ) -> None:
        self.values = values
        self.selector, self.dtype = _narrowed(selector, scatter.owners)
        self.before, self.axes = list(scatter.positions[:-1]), scatter.positions[-1:]
        self.axis, self.index = self.axes[0], self.selector
        places = self.selector if isinstance(self.selector, Load) and self.selector.is_plain else None
        if places is not None and places.offset.goes_through(scatter.positions):
            self.before, self.axes = [], scatter.positions
            self.axis = Axis("position", turns_of(scatter.positions))
            start = places.offset.without(scatter.positions)
            self.index = Load(places.buffer, start + Affine.of(self.axis))
        wide = np.dtype(np.int64)
        self.low = convert(values.f, low, wide, self.dtype, 1)
        count = values.f.value(f"sub i64 {high}, {low}")
        self.count = convert(values.f, count, wide, self.dtype, 1)

    def run(self, visit: Callable[[], object]) -> None:
        """``visit`` each position found, in order."""
        lanes = self.values.lanes * max(1, 4 // self.dtype.itemsize)
        step = lanes * max(1, MOST_COMPARED // lanes)
        whole = self.axis.extent // step * step
        if whole:
            end = str(whole)
            if self.values.end is not None:
                end = self.values.f.smaller(end, self.values.end[0])
            with self.values.f.loop("0", end, step) as loop:
                self._block(LaneGroup.over(self.axis, step, lanes), Place(loop.index), visit)
        if whole < self.axis.extent:
            group = LaneGroup.over(self.axis, self.axis.extent - whole, lanes)
            self._block(group, Place(None, whole), visit)

    def _block(self, group: LaneGroup, place: Place, visit: Callable[[], object]) -> None:
        f, values = self.values.f, self.values
        with values.lane_group(group, place):
            found = self._bits(group)
        if values.end is not None:
            found = self._up_to(values.end[0], found, place)
        count = f.call("i64", "llvm.ctpop.i64", ("i64", found))
        with f.loop("0", count, carried=[("i64", found)], counted=False) as loop:
            (bits,) = loop.values
            ahead = f.call("i64", "llvm.cttz.i64", ("i64", bits), ("i1", "true"))
            start = place.value or str(place.constant)
            position = f.value(f"add i64 {start}, {ahead}")
            with values.standing({self.axis: Place(position)}):
                index = values.emit(self.index)
                with values.standing(self._divided(position)):
                    values.bind(self.selector, index)
                    visit()
            loop.carry(f.value(f"and i64 {bits}, {f.value(f'add i64 {bits}, -1')}"))

    def _up_to(self, size: str, found: str, place: Place) -> str:
        """The bits of positions before the end."""
        f = self.values.f
        left = f.value(f"sub i64 {size}, {place.value or place.constant}")
        bits = f.smaller(f.larger(left, 0), 63)
        mask = f.value(f"sub i64 {f.value(f'shl i64 1, {bits}')}, 1")
        whole = f.value(f"icmp sgt i64 {left}, 63")
        mask = f.value(f"select i1 {whole}, i64 -1, i64 {mask}")
        return f.value(f"and i64 {found}, {mask}")

    def _divided(self, rest: str) -> dict[Axis, Place]:
        """Where each axis stands at a position."""
        f, places = self.values.f, dict[Axis, Place]()
        for axis in reversed(self.axes[1:]):
            places[axis] = Place(f.value(f"urem i64 {rest}, {axis.extent}"))
            rest = f.value(f"udiv i64 {rest}, {axis.extent}")
        return {**places, self.axes[0]: Place(rest)}

    def _bits(self, group: LaneGroup) -> str:
        """A bit for each of the group's positions: whether it is one of those looked for."""
        f, values, lanes = self.values.f, self.values, group.lanes
        kind, mask_kind = vector_of(scalar_type(self.dtype), lanes), vector_of("i1", lanes)
        low, count = (values.splat(bound, self.dtype) for bound in (self.low, self.count))
        total = "0"
        for k, vector in enumerate(values.vectors(self.index)):
            index = convert(f, vector, self.index.dtype, self.dtype, lanes)
            # One unsigned comparison for both ends: what is below wraps round to something large.
            within = f.value(f"icmp ult {kind} {f.value(f'sub {kind} {index}, {low}')}, {count}")
            within = values.existing(within, k)
            bits = f.value(f"zext i{lanes} {f.value(f'bitcast {mask_kind} {within} to i{lanes}')} to i64")
            if k:
                bits = f.value(f"shl i64 {bits}, {k * lanes}")
            total = bits if not k else f.value(f"or i64 {total}, {bits}")
        return total


def _narrowed(selector: Expression, rows: int) -> tuple[Expression, np.dtype]:
    """The index before it was made wider, and the integers that hold it and every row: more of them fit a vector."""
    while isinstance(selector, Apply) and selector.function in ("bounded", "cast"):
        (operand,) = selector.operands
        if operand.dtype.kind not in "iu" or not np.can_cast(operand.dtype, selector.dtype):
            break
        selector = operand
    for narrow, bits in ((np.dtype(np.uint16), 16), (np.dtype(np.int32), 31)):
        if rows < 2**bits and np.can_cast(selector.dtype, narrow):
            return selector, narrow
    return selector, np.dtype(np.int64)
