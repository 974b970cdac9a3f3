"""Kernels without a contraction: loops over the axes, lanes along the last one wherever memory lies that way."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pullback.compiler.schedules.columns import Columns, blocks_of_rows
from pullback.compiler.schedules.cost import (
    CHEAP_FUNCTIONS,
    COSTLY_SIDE_BY_SIDE,
    CROSSING,
    FEWEST_LANES,
    HELD_ROW,
    LONG_PIECES,
    MANY_SHARED,
    REDUCED_VECTOR,
    SHARING,
    SIDE_BY_SIDE,
    WORTH_REORDERING,
    WRITTEN_OUT,
)
from pullback.compiler.schedules.lanes import lanes_of
from pullback.compiler.schedules.reduction import comes_by_itself, is_transposed, runs_along
from pullback.compiler.schedules.schedule import NestSchedule
from pullback.compiler.schedules.sweeps import sums_in_one_loop
from pullback.compiler.target import Processor
from pullback.loops import Apply, Axis, Expression, Kernel, Load, Reduce, operands_of, turns_of, walk
from pullback.loops.fixed import fixed_values
from pullback.loops.nest import Strips, nest_of, parallelise, split, strips_of, vectorise

__all__ = ["MapSchedule", "fit_registers", "lane_axis", "lane_strips", "schedule_map", "side_by_side"]


@dataclass(frozen=True, eq=False)
class MapSchedule(NestSchedule):
    """Lanes along an axis of the kernel; or along ``row``, one inside it that registers hold as a whole.

    Where there is neither, each of the loops inside has its own. ``alignment`` is what grains of the first axis must be
    multiples of.
    """

    name: ClassVar[str] = "map"
    row: Axis | None
    alignment: int
    columns: Columns
    """Reads of columns of rows, which are read as they lie and taken apart in registers."""
    together: Mapping[Reduce, tuple[Reduce, ...]]
    """Sums along a row that are made in one loop."""
    beside: tuple[Reduce, ...]
    """Sums along a row that are made in the loop that stores it."""


def schedule_map(kernel: Kernel, lanes: int, target: Processor, row_by_row: bool = False) -> MapSchedule:
    """The schedule of a map; ``row_by_row`` keeps the lanes off its first axis."""
    lane = None if row_by_row else lane_axis(kernel, target)
    roots = [root for store in kernel.stores for root in store.roots()]
    nest, aligned = nest_of(kernel), 1
    columns = {} if lane is None else blocks_of_rows(kernel, lane, lanes)
    if lane is not None:
        side = side_by_side(lane, roots, target)
        if columns:
            side = _vectors_of_rows(kernel, lane, columns, target)
        strips = strips_of(lane.extent, lanes * side)
        if lane is kernel.axes[0]:
            aligned = lanes * side
        elif not columns:
            strips = lane_strips(lane, roots, lanes, target)
        nest = vectorise(split(nest, lane, strips), lane, lanes)
    if kernel.axes and not any(store.accumulate for store in kernel.stores):
        nest = parallelise(nest, kernel.axes[0])
    row = None if lane is not None else _one_row(kernel, roots, lanes, target)
    together, beside = ({}, ()) if lane is not None or row is not None else sums_in_one_loop(kernel, target)
    return MapSchedule(nest, row, aligned, columns, together, beside)


def _vectors_of_rows(kernel: Kernel, lane: Axis, columns: Columns, target: Processor) -> int:
    """How many vectors of rows a loop body works on at once: their columns are many chains already.

    What is the same for all rows, such as weights, is read once for several vectors of them if there are registers for
    the columns and results of all.
    """
    widest = max(block.width for block, _ in columns.values())
    roots = [root for store in kernel.stores for root in store.roots()]
    same = sum(1 for load in kernel.loads() if lane not in load.axes)
    if same >= MANY_SHARED and SHARING * 2 * max(widest, len(kernel.stores)) <= target.vector_registers:
        return SHARING
    return max(1, side_by_side(lane, roots, target) // widest)


def lane_axis(kernel: Kernel, target: Processor) -> Axis | None:
    """The axis of the kernel that the lanes lie along, if any: the last one, unless reads lie along a reduction.

    Reads for a reduction that is longer count, and those that lanes along the axis would gather.
    """
    if not kernel.axes or any(store.inner for store in kernel.stores):
        return None
    axis = kernel.axes[-1]
    if any(axis in e.axes for store in kernel.stores for e, _ in store.dynamic):
        return None
    if any(store.accumulate and not store.offset.coefficient(axis) for store in kernel.stores):
        return None  # all lanes would be for the same element
    along = against = 0
    for reduce in kernel.reductions:
        if is_transposed(reduce, axis, target):
            if comes_by_itself(reduce, target):
                return None
            continue
        last = reduce.over[-1]
        full = last.extent >= target.lanes(reduce.body.dtype.itemsize)
        longer = full and 2 * last.extent > axis.extent
        for load in walk(reduce.body):
            if isinstance(load, Load) and {axis, last} <= load.axes:
                step = load.offset.coefficient(axis)
                if step == 1:
                    along += longer
                elif load.offset.coefficient(last) == 1:
                    against += longer or (full and abs(step) > target.gather_vectors)
    if against > along or _is_short(kernel, axis, target):
        return None
    return axis if axis.extent >= FEWEST_LANES or kernel.axes[0] is not axis else None


def _is_short(kernel: Kernel, axis: Axis, target: Processor) -> bool:
    """Whether the last axis leaves so many lanes empty that a sum is made sooner along what it adds.

    Vectors along a sum begin anywhere, so that some lie across two lines; lanes along the axis have few chains.
    """
    reduce, lanes = kernel.only_reduction, lanes_of(kernel, target)
    if reduce is None or not reduce.adds_floats or axis.extent >= lanes or not runs_along(reduce):
        return False
    depth, last = turns_of(reduce.over), max(1, reduce.over[-1].extent)
    vectors = depth / last * -(-last // lanes)
    crossing = 1 + CROSSING * min(1.0, last / lanes)
    steps = depth * max(1.0, target.latency / last)
    return axis.extent * (vectors * crossing + REDUCED_VECTOR) < WORTH_REORDERING * steps


def side_by_side(axis: Axis, roots: Sequence[Expression], target: Processor) -> int:
    """How many vectors along ``axis`` a loop body works on at once: one where each of its lanes is a row to read."""
    if any(isinstance(e, Reduce) and is_transposed(e, axis, target) for e in walk(*roots)):
        return 1
    return SIDE_BY_SIDE if _functions(roots) <= CHEAP_FUNCTIONS else COSTLY_SIDE_BY_SIDE


def lane_strips(axis: Axis, roots: Sequence[Expression], lanes: int, target: Processor) -> Strips:
    """Strips of the vectors that a loop body works on at once; one strip where registers hold all of ``axis``.

    Of sums over the rows of a large matrix these fill more of the registers: longer pieces of a row are read then,
    before the next one on another page of memory.
    """
    side = side_by_side(axis, roots, target)
    if side > 1 and fit_registers(axis.extent, {axis}, roots, lanes, target):
        return strips_of(axis.extent, axis.extent)
    if side > 1 and all(isinstance(root, Reduce) and _reads_far(root, target) for root in roots):
        side = max(side, int(LONG_PIECES * target.vector_registers) // len(roots))
    return strips_of(axis.extent, side * lanes)


def fit_registers(
    length: int, known: Collection[Axis], roots: Sequence[Expression], lanes: int, target: Processor
) -> bool:
    """Whether so many elements are at once in registers: more of them where ``roots`` need few others.

    They are along axes whose places are ``known`` when the code is written.
    """
    most = SIDE_BY_SIDE
    if _functions(roots, known) <= CHEAP_FUNCTIONS:
        most = max(SIDE_BY_SIDE, int(HELD_ROW * target.vector_registers))
    return -(-length // lanes) <= most


def _functions(roots: Sequence[Expression], known: Collection[Axis] = ()) -> int:
    """How many functions there are, without arithmetic on the places along ``known`` axes, which are constants."""
    constants = fixed_values(roots, dict.fromkeys(known, 0)) if known else {}
    return sum(1 for e in walk(*roots) if isinstance(e, Apply) and e not in constants)


def _reads_far(reduce: Reduce, target: Processor) -> bool:
    """Whether much is summed of an array that the second cache does not hold, or of its product with another one."""
    read = operands_of(reduce.body, "multiply") or (reduce.body,)
    loads = [e for e in read if isinstance(e, Load)]
    is_far = len(loads) == len(read) and any(load.buffer.nbytes > target.l2_bytes for load in loads)
    return is_far and turns_of(reduce.over) > WRITTEN_OUT


def _one_row(kernel: Kernel, roots: Sequence[Expression], lanes: int, target: Processor) -> Axis | None:
    """The axis inside the kernel's own that registers hold as a whole, if there is no other one."""
    inner = {store.inner for store in kernel.stores}
    widest = max(inner, key=len)
    alone = len(widest) == 1 and inner <= {(), widest}
    return widest[0] if alone and fit_registers(turns_of(widest), widest, roots, lanes, target) else None
