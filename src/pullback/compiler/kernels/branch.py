"""Terms of a sum that few of many turns have are computed behind a branch.

    for j, d: sum[i](where(near[i] == j, x[i, d] * w[i], 0))
    →
    for j, d: sum[i](where(unlikely(near[i] == j), x[i, d] * w[i], 0))

So are clusters, classes and segments summed, and so are the gradients of what won a maximum: of all that one side of an
equality goes through, one value is equal to the other side's. Where the comparison is the same for all lanes, a branch
that is seldom taken costs less than terms that are zero. The sum is what it was, bit for bit.
"""

from __future__ import annotations

from collections.abc import Set

from pullback.compiler.schedules.choose import Schedules
from pullback.compiler.schedules.cost import branch_gain
from pullback.compiler.schedules.map import MapSchedule
from pullback.compiler.schedules.reduction import is_transposed, runs_along
from pullback.compiler.target import Processor
from pullback.loops import (
    Apply,
    Axis,
    Expression,
    Kernel,
    Literal,
    Reduce,
    operands_of,
    turns_of,
    unlikely,
    walk,
)

__all__ = ["branch_on_matches"]


def branch_on_matches(kernel: Kernel, schedules: Schedules) -> Kernel:
    """The kernel with branches around terms that seldom count and take longer than a branch."""
    schedule = schedules.of(kernel)
    if not isinstance(schedule, MapSchedule):
        return kernel
    lanes = {schedule.nest.vector, schedule.row, *(store.inner[-1] for store in kernel.stores if store.inner)}

    def branched(reduce: Reduce) -> Reduce:
        body = _behind_branch(reduce, lanes, schedules.target)
        return reduce if body is None else Reduce(reduce.kind, reduce.over, body, reduce.dtype)

    return kernel.with_reductions(branched)


def _behind_branch(reduce: Reduce, lanes: Set[Axis | None], target: Processor) -> Expression | None:
    """The body of a sum with a branch, if that is expected to gain time; ``lanes`` may lie along these axes."""
    choice = operands_of(reduce.body, "where")
    if not choice or not isinstance(choice[2], Literal):
        return None
    condition, term, zero = choice
    across = {axis for axis in reduce.axes if axis in lanes}
    along = any(is_transposed(reduce, axis, target) for axis in across) if across else runs_along(reduce)
    if along or condition.axes & across or any(map(_stays, walk(term))):
        return None
    if branch_gain(condition, term, reduce.over, across, _share(condition), target) <= 0:
        return None
    return Apply("where", (unlikely(condition), term, zero), reduce.dtype)


def _stays(expression: Expression) -> bool:
    """Whether it must be computed: an index that may be out of range; or as elsewhere, such as a sum in its order."""
    return isinstance(expression, Reduce) or bool(operands_of(expression, "check_index"))


def _share(condition: Expression) -> float:
    """The share of turns in which the condition is expected to hold: 1 for all, where nothing is known.

    >>> import numpy as np
    >>> from pullback.loops import Affine, Buffer, Load
    >>> i, j, int64 = Axis("i", 1000), Axis("j", 20), np.dtype(np.int64)
    >>> near, number = (Load(Buffer("x", int64, (axis.extent,)), Affine.of(axis)) for axis in (i, j))
    >>> _share(Apply("equal", (near, number), np.dtype(bool)))
    0.05
    """
    both = operands_of(condition, "logical_and")
    if both:
        return min(map(_share, both))
    sides = operands_of(condition, "equal")
    if not sides or not all(side.axes for side in sides):
        return 1.0
    one, other = (side.axes for side in sides)
    return 1.0 / min((turns_of(own) for own in (one - other, other - one) if own), default=1)
