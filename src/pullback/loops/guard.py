"""Guards: values that must be computed only where their operands exist."""

from __future__ import annotations

import numpy as np

from pullback.loops.expression import Apply, Expression, Literal, Load, Reduce, walk

__all__ = ["guarded"]


def guarded(expression: Expression, condition: Expression) -> Expression:
    """``expression`` reading memory only where ``condition`` holds; elsewhere its value is of no meaning.

    Every load under it gets the condition as its guard, beside the guard that it has. An index that is
    checked is 0 where the condition is false, so that a place which is not read reports no error.
    """
    made: dict[int, Expression] = {}
    for part in walk(expression):
        new = part
        if isinstance(part, Load):
            dynamic = tuple((made[id(index)], stride) for index, stride in part.dynamic)
            guard = condition
            if part.guard is not None:
                guard = Apply("logical_and", (condition, made[id(part.guard)]), condition.dtype)
            new = Load(part.buffer, part.offset, dynamic, guard)
        elif isinstance(part, Apply):
            operands = [made[id(operand)] for operand in part.operands]
            if part.function == "check_index":
                zero = Literal(0, np.dtype(np.int64))
                operands = [Apply("where", (condition, operands[0], zero), zero.dtype)]
            new = Apply(part.function, operands, part.dtype, part.attributes)
        elif isinstance(part, Reduce):
            new = Reduce(part.kind, part.over, made[id(part.body)], part.dtype)
        made[id(part)] = new
    return made[id(expression)]
