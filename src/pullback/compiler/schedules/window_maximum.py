"""The largest of some neighbouring sums of products: a convolution and the pool that follows it, in one kernel.

    for b, c, p, q: y[b, c, p, q] = max[u, v](relu(add[k, l](w[c, k, l] * x[b, 2p + u + k, 2q + v + l])))

All sums of a window, for several channels, are kept in registers until the largest is known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from pullback.compiler.schedules.contraction import factors_of
from pullback.compiler.schedules.cost import WINDOW_OPERANDS
from pullback.compiler.schedules.schedule import NestSchedule
from pullback.compiler.target import Processor
from pullback.loops import Axis, Kernel, Load, Reduce, once, turns_of
from pullback.loops.nest import keep, nest_of, parallelise, reorder, split, strips_of, vectorise

__all__ = ["WindowMaximum", "find_window_maximum", "rows_at_once", "schedule_window_maximum"]


@dataclass(frozen=True, eq=False)
class WindowMaximum(NestSchedule):
    """A kernel whose stores are made of the largest of some sums, its place, or both.

    A tile has rows along an axis of the result that only the ``left`` operands know, if there is one; all places of the
    window are in registers. The lanes lie along the last axis.
    """

    name: ClassVar[str] = "largest of sums"

    window: tuple[Axis, ...]
    sums: Reduce
    left: Load
    right: Load


def rows_at_once(window: int, target: Processor) -> int:
    """Rows of which the sums of a ``window`` of so many places fit the registers."""
    return max(1, (target.vector_registers - WINDOW_OPERANDS) // window)


def schedule_window_maximum(kernel: Kernel, lanes: int, target: Processor) -> WindowMaximum | None:
    """The kernel in this form, with as many rows in a tile as registers hold the windows of, or ``None``."""
    found = find_window_maximum(kernel)
    if found is None:
        return None
    *outer, columns = kernel.axes
    nest = parallelise(nest_of(kernel), outer[0])
    rows = [axis for axis in outer if axis in found.left.axes and axis not in found.right.axes]
    if rows:
        most = rows_at_once(turns_of(found.window), target)
        nest = split(nest, rows[-1], strips_of(rows[-1].extent, most, even=True))
        nest = reorder(keep(nest, rows[-1]), [*(axis for axis in outer if axis is not rows[-1]), rows[-1]])
    nest = split(nest, columns, strips_of(columns.extent, lanes))
    return replace(found, nest=vectorise(nest, columns, lanes))


@once
def find_window_maximum(kernel: Kernel) -> WindowMaximum | None:
    """The kernel in this form, one turn after another, or ``None``."""
    reductions = kernel.reductions
    extremes = [e for e in reductions if e.kind in ("maximum", "argmax")]
    sums = {e: pair for e in reductions if (pair := factors_of(e))}
    if not extremes or len(sums) != 1 or len(reductions) > len(extremes) + 1:
        return None
    if not kernel.is_plain or len(kernel.axes) < 2:
        return None
    window, body = extremes[0].over, extremes[0].body
    if any(other.over != window or other.body is not body for other in extremes):
        return None
    columns, ((sum_of, pair),) = kernel.axes[-1], sums.items()
    for left, right in ((pair.left, pair.right), (pair.right, pair.left)):
        # What moves with the window stands in nothing but the extremes.
        if columns in right.axes and right.axes & {*window} and not {columns, *window} & left.axes:
            return WindowMaximum(nest_of(kernel), window, sum_of, left, right)
    return None
