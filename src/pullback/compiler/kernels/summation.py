"""Long sums of floats are added up in blocks, so that their rounding errors do not grow with their length.

    s = add[k<1000000](x[k])    →    s = add[b<2000](add[k<500](x[500*b + k]))

An accumulator that has grown large rounds what is added to it: the mean of ten million numbers near 1,000 would be off
by a thousandth. The order is part of the program, the same for every processor. Products keep their order: their
accumulators are few registers, and their operands are read in blocks already.
"""

from __future__ import annotations

from pullback.compiler.schedules.contraction import contraction_of
from pullback.compiler.schedules.cost import LONGEST_BLOCK, LONGEST_CHAIN
from pullback.compiler.schedules.indexed_contraction import indexed_sum
from pullback.loops import Apply, Expression, Kernel, Load, Reduce, in_strips, rewrite, turns_of, walk

__all__ = ["sum_in_blocks"]


def sum_in_blocks(kernel: Kernel) -> Kernel:
    """The kernel with its long sums in blocks."""
    if not any(map(_is_long, kernel.reductions)) or indexed_sum(kernel) is not None:
        return kernel
    return kernel.with_reductions(lambda reduce: _in_blocks(reduce) if _is_long(reduce) else reduce)


def _is_long(reduce: Reduce) -> bool:
    long = reduce.adds_floats and turns_of(reduce.over) > _longest(reduce)
    return long and not contraction_of(reduce)


def _longest(reduce: Reduce) -> int:
    """How many terms a block has."""
    loads = [e for e in walk(reduce.body) if isinstance(e, Load) and reduce.over[-1] in e.axes]
    along = any(load.offset.coefficient(reduce.over[-1]) == 1 for load in loads)
    return LONGEST_BLOCK if along else LONGEST_CHAIN


def _in_blocks(reduce: Reduce) -> Expression:
    """A long sum as a sum of blocks, itself in blocks, and of what these leave over."""
    position, terms, most = len(reduce.over) - 1, 1, _longest(reduce)
    while terms * reduce.over[position].extent <= most:
        terms *= reduce.over[position].extent
        position -= 1
    *outer, axis = reduce.over[: position + 1]
    inner = reduce.over[position + 1 :]
    sums: list[Expression] = []
    for (*number, turn), index in in_strips(axis, _turns(axis.extent, most // terms)):
        body = rewrite(reduce.body, {axis: index})
        inside = inner if turn.extent == 1 and inner else (turn, *inner)
        block, over = Reduce("add", inside, body, reduce.dtype), (*outer, *number)
        sums.append(_again(Reduce("add", over, block, reduce.dtype)) if over else block)
    return sums[0] if len(sums) == 1 else Apply("add", sums, reduce.dtype)


def _again(total: Reduce) -> Expression:
    return _in_blocks(total) if turns_of(total.over) > LONGEST_CHAIN else total


def _turns(extent: int, most: int) -> int:
    """Turns of a block: such that blocks are equal, if they need not be much shorter for it."""
    return max((n for n in range(max(1, most // 2), most + 1) if extent % n == 0), default=max(1, most))
