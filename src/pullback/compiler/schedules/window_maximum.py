"""The largest of some neighbouring sums of products: a convolution and the pool that follows it, in one kernel.

    for b, c, p, q: y[b, c, p, q] = max[u, v](relu(add[k, l](w[c, k, l] * x[b, 2p + u + k, 2q + v + l])))

All sums of a window, for several channels, are kept in registers until the largest is known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from pullback.compiler.schedules.schedule import NestSchedule
from pullback.compiler.target import Processor
from pullback.loops import Apply, Axis, Expression, Kernel, Load, Position, Reduce, Store, once, walk
from pullback.loops.nest import keep, nest_of, parallelise, reorder, split, strips_of, vectorise

__all__ = ["WindowMaximum", "find_window_maximum", "rows_at_once", "schedule_window_maximum"]


@dataclass(frozen=True, eq=False)
class WindowMaximum(NestSchedule):
    """A kernel whose stores are made of the largest of some sums, its place, or both.

    A tile has rows along an axis of the result that only the ``left`` operands know, if there is one; all places of the
    window are in registers. The lanes lie along the last axis.
    """

    name: ClassVar[str] = "largest of sums"

    largest: Reduce
    sums: Reduce
    left: Expression
    right: Expression
    extremes: tuple[Reduce, ...]
    stores: tuple[Store, ...]

    @property
    def window(self) -> tuple[Axis, ...]:
        """The axes of the window."""
        return self.largest.over


def rows_at_once(window: int, target: Processor) -> int:
    """Rows of which the sums of a ``window`` of so many places fit the registers."""
    return max(1, (target.vector_registers - 6) // window)


def schedule_window_maximum(kernel: Kernel, lanes: int, target: Processor) -> WindowMaximum | None:
    """The kernel in this form, with as many rows in a tile as registers hold the windows of, or ``None``."""
    found = find_window_maximum(kernel)
    if found is None:
        return None
    *outer, columns = kernel.axes
    nest = parallelise(nest_of(kernel), outer[0])
    rows = [axis for axis in outer if axis in found.left.axes and axis not in found.right.axes]
    if rows:
        most = rows_at_once(math.prod(axis.extent for axis in found.window), target)
        nest = split(nest, rows[-1], strips_of(rows[-1].extent, most, even=True))
        nest = reorder(keep(nest, rows[-1]), [*(axis for axis in outer if axis is not rows[-1]), rows[-1]])
    nest = split(nest, columns, strips_of(columns.extent, lanes))
    return replace(found, nest=vectorise(nest, columns, lanes))


@once
def find_window_maximum(kernel: Kernel) -> WindowMaximum | None:
    """The kernel in this form, one turn after another, or ``None``."""
    extremes = [e for e in kernel.expressions() if isinstance(e, Reduce) and e.kind in ("maximum", "argmax")]
    sums = [e for e in kernel.expressions() if isinstance(e, Reduce) and _is_sum_of_products(e)]
    others = [
        e for e in kernel.expressions() if isinstance(e, Reduce) and e not in sums and e not in extremes
    ]
    if not extremes or not sums or others or len(kernel.axes) < 2:
        return None
    if not kernel.is_plain:
        return None
    largest = extremes[0]
    if any(
        not _alike(largest.body, other.body, dict(zip(largest.over, other.over))) for other in extremes[1:]
    ):
        return None
    inside = [e for e in walk(largest.body) if e in sums]
    if len(inside) != 1:
        return None
    columns, (sum_of,) = kernel.axes[-1], inside
    assert isinstance(sum_of.body, Apply)
    for left, right in (sum_of.body.operands, sum_of.body.operands[::-1]):
        if columns in right.axes and not {columns, *largest.over} & left.axes:
            return WindowMaximum(
                nest_of(kernel), largest, sum_of, left, right, tuple(extremes), kernel.stores
            )
    return None


def _is_sum_of_products(reduce: Reduce) -> bool:
    if reduce.kind != "add" or reduce.dtype.kind != "f" or not isinstance(reduce.body, Apply):
        return False
    factors = reduce.body.operands if reduce.body.function == "multiply" else ()
    return bool(factors) and all(isinstance(e, Load) and not e.dynamic and e.guard is None for e in factors)


def _alike(first: Expression, second: Expression, axes: dict[Axis, Axis]) -> bool:
    """Whether two expressions differ only in the names of the axes that they close over."""
    if first is second and not first.axes & axes.keys():
        return True
    if type(first) is not type(second) or first.dtype != second.dtype:
        return False
    if isinstance(first, Reduce) and isinstance(second, Reduce):
        if first.kind != second.kind or [a.extent for a in first.over] != [a.extent for a in second.over]:
            return False
        axes = {**axes, **dict(zip(first.over, second.over))}
    elif isinstance(first, Load) and isinstance(second, Load):
        if first.buffer is not second.buffer or (first.guard is None) != (second.guard is None):
            return False
        if [stride for _, stride in first.dynamic] != [stride for _, stride in second.dynamic]:
            return False
        if (
            _renamed(first, axes) != dict(second.offset.terms)
            or first.offset.constant != second.offset.constant
        ):
            return False
    elif isinstance(first, Position) and isinstance(second, Position):
        return (
            _renamed(first, axes) == dict(second.index.terms)
            and first.index.constant == second.index.constant
        )
    elif isinstance(first, Apply) and isinstance(second, Apply):
        if (first.function, first.attributes) != (second.function, second.attributes):
            return False
    else:
        return False
    return len(first.operands) == len(second.operands) and all(
        _alike(a, b, axes) for a, b in zip(first.operands, second.operands)
    )


def _renamed(expression: Load | Position, axes: dict[Axis, Axis]) -> dict[Axis, int]:
    index = expression.offset if isinstance(expression, Load) else expression.index
    return {axes.get(axis, axis): coefficient for axis, coefficient in index.terms}
