"""Guards: values that must be computed only where their operands exist."""

from __future__ import annotations

import numpy as np

from pullback.loops.expression import Apply, Expression, Literal, Load, rebuilt

__all__ = ["guarded"]


def guarded(expression: Expression, condition: Expression) -> Expression:
    """``expression`` reading memory only where ``condition`` holds; elsewhere its value is of no meaning.

    Every load under it gets the condition as its guard, beside the guard that it has. An index that is
    checked is 0 where the condition is false, so that a place which is not read reports no error.
    """

    def with_condition(part: Expression) -> Expression:
        if isinstance(part, Load):
            guard = condition
            if part.guard is not None:
                guard = Apply("logical_and", (condition, part.guard), condition.dtype)
            return Load(part.buffer, part.offset, part.dynamic, guard)
        if isinstance(part, Apply) and part.function == "check_index":
            zero = Literal(0, np.dtype(np.int64))
            index = Apply("where", (condition, *part.operands, zero), zero.dtype)
            return Apply(part.function, (index,), part.dtype, part.attributes)
        return part

    return rebuilt(expression, with_condition, {})
