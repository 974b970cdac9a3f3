"""What is computed in rare cases alone: ``where(unlikely(condition), rare, usual)``.

It means what ``where`` means. But where the condition is the same for all lanes, compiled code computes ``rare`` only
if it holds, and no estimate counts it: the sums of zeros times what is infinite, for one, which programs do not meet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pullback.loops.expression import Apply, Expression, Literal, operands_of

__all__ = ["RareCase", "rare_case", "unlikely", "usual_parts"]

_BOOL = np.dtype(np.bool_)


class RareCase(NamedTuple):
    """``rare`` where ``condition`` holds, which is not expected, and else ``usual``."""

    condition: Expression
    rare: Expression
    usual: Expression


def unlikely(condition: Expression) -> Expression:
    """The condition itself, which is not expected to hold; what never does stays what it is."""
    if isinstance(condition, Literal) or operands_of(condition, "unlikely"):
        return condition
    return Apply("unlikely", (condition,), _BOOL)


def rare_case(expression: Expression) -> RareCase | None:
    """The parts of a choice on a condition that is unlikely, if the expression is one.

    >>> from pullback.loops import Affine, Axis, Buffer, Load
    >>> float32 = np.dtype(np.float32)
    >>> x, flag = Load(Buffer("x", float32, (2,)), Affine()), Load(Buffer("flag", _BOOL, ()), Affine())
    >>> choice = Apply("where", (unlikely(flag), x, Literal(0, float32)), float32)
    >>> rare_case(choice).usual, rare_case(x)
    (0.0, None)
    """
    chosen = operands_of(expression, "where")
    return RareCase(*chosen) if chosen and operands_of(chosen[0], "unlikely") else None


def usual_parts(*roots: Expression) -> Iterator[Expression]:
    """Every expression under ``roots`` once, but for what rare cases alone need."""
    seen = set[Expression]()
    stack = list(roots)
    while stack:
        expression = stack.pop()
        if expression in seen:
            continue
        seen.add(expression)
        yield expression
        case = rare_case(expression)
        stack += expression.operands if case is None else (case.condition, case.usual)
