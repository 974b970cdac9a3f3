"""Where the lanes lie in a reduction, by how memory lies."""

from __future__ import annotations

from pullback.compiler.schedules.cost import FEWEST_LANES, LONG_LINES, SHORTEST_TRANSPOSED_ROW, STAYING
from pullback.compiler.target import Processor
from pullback.loops import Axis, Load, Reduce, walk

__all__ = ["comes_by_itself", "is_transposed", "runs_along"]


def is_transposed(reduce: Reduce, axis: Axis, target: Processor) -> bool:
    """Whether lanes along ``axis`` would gather what lies along the last reduced one, and rows are read instead.

    Rows may be picked at computed places; single elements that are picked are gathered. A reduction inside that belongs
    to the row would be computed again for each of the row's vectors.
    """
    last = reduce.over[-1]
    short = last.extent < SHORTEST_TRANSPOSED_ROW or axis.extent < FEWEST_LANES
    if short or reduce.kind in ("argmax", "argmin"):
        return False
    if any(isinstance(e, Reduce) and axis in e.axes for e in walk(reduce.body)):
        return False
    loads = [e for e in walk(reduce.body) if isinstance(e, Load) and e.axes & {axis, last}]
    picked = [load for load in loads if any(axis in e.axes for e, _ in load.dynamic)]
    far = picked or any(abs(load.offset.coefficient(axis)) > target.gather_vectors for load in loads)
    return bool(far) and all(
        load.offset.coefficient(last) == (last in load.offset.axes or load in picked)
        and load.guard is None
        and not any(last in e.axes for e, _ in load.dynamic)
        for load in loads
    )


def comes_by_itself(reduce: Reduce, target: Processor) -> bool:
    """Whether a reduction goes along rows of some lines, of an array that the third-level cache does not hold.

    One after another they arrive sooner than side by side.
    """
    last = reduce.over[-1]
    loads = [e for e in walk(reduce.body) if isinstance(e, Load) and last in e.axes]
    return len(reduce.over) == 1 and any(
        load.offset.coefficient(last) == 1
        and last.extent * load.dtype.itemsize >= LONG_LINES * target.line_bytes
        and load.buffer.nbytes >= STAYING * target.l3_bytes
        for load in loads
    )


def runs_along(reduce: Reduce) -> bool:
    """Whether memory lies along the last reduced axis: every read steps by one element, or not at all."""
    last = reduce.over[-1]
    loads = [e for e in walk(reduce.body) if isinstance(e, Load) and last in e.axes]
    return bool(loads) and all(
        load.offset.coefficient(last) == 1 and not any(last in e.axes for e, _ in load.dynamic)
        for load in loads
    )
