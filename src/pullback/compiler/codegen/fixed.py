"""Index arithmetic and questions on one axis alone: their value where the axis stands at a place that is known."""

from __future__ import annotations

import operator
from collections.abc import Callable

from pullback.loops import Apply, Axis, Expression, Literal, Position, walk

__all__ = ["INDEX_ARITHMETIC", "fixed_value"]


def fixed_value(expression: Expression, axis: Axis, value: int) -> int | None:
    """An index's value where ``axis`` stands at ``value``, if it depends on nothing else."""
    known: dict[int, int] = {}
    # A chain of reshapes has each part many times, and is as deep as it is long.
    for part in walk(expression):
        if isinstance(part, Literal) and part.dtype.kind in "iub":
            known[id(part)] = int(part.value)
        elif isinstance(part, Position) and part.index.axes in ((), (axis,)):
            known[id(part)] = part.index.constant + part.index.coefficient(axis) * value
        elif isinstance(part, Apply) and (part.function in INDEX_ARITHMETIC or part.function in _ASKED):
            operands = [known[id(operand)] for operand in part.operands]
            known[id(part)] = int((INDEX_ARITHMETIC | _ASKED)[part.function](*operands))
        else:
            return None
    return known[id(expression)]


INDEX_ARITHMETIC: dict[str, Callable[..., int]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
}

_ASKED: dict[str, Callable[..., bool]] = {
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "equal": operator.eq,
    "not_equal": operator.ne,
}
