"""Index arithmetic and questions on one axis alone: their value where the axis stands at a place that is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeGuard

from pullback.loops.expression import Apply, Expression, Literal, Load, Position, operands_of, walk
from pullback.loops.functions import COMPARISONS, FUNCTIONS
from pullback.loops.index import Axis

__all__ = ["INDEX_ARITHMETIC", "fixed_value", "fixed_values", "settled"]


def fixed_values(roots: Iterable[Expression], places: Mapping[Axis, Any]) -> dict[Expression, Any]:
    """Of all that ``roots`` are made of the values of what is index arithmetic on ``places``.

    >>> from pullback.loops import Affine
    >>> import numpy as np
    >>> i, j, int64 = Axis("i", 4), Axis("j", 4), np.dtype(np.int64)
    >>> half = Apply("floor_divide", (Position(Affine.of(i)), Literal(2, int64)), int64)
    >>> fixed_values([half], {i: np.arange(4)})[half]
    array([0, 0, 1, 1])
    >>> half in fixed_values([half], {j: 3})
    False
    """
    known: dict[Expression, Any] = {}
    # A chain of reshapes has each part many times, and is as deep as it is long.
    for part in walk(*roots):
        if isinstance(part, Literal) and part.dtype.kind in "iub":
            known[part] = int(part.value)
        elif isinstance(part, Position) and all(axis in places for axis in part.index.axes):
            index = part.index
            known[part] = index.constant + sum(step * places[axis] for axis, step in index.terms)
        elif isinstance(part, Apply) and part.function in INDEX_ARITHMETIC | COMPARISONS:
            operands = [known[operand] for operand in part.operands if operand in known]
            if len(operands) == len(part.operands):
                known[part] = FUNCTIONS[part.function](*operands)
    return known


def fixed_value(expression: Expression, places: Mapping[Axis, Any]) -> Any:
    """The same of one expression; None where it depends on something else."""
    return fixed_values([expression], places).get(expression)


INDEX_ARITHMETIC = frozenset({"add", "subtract", "multiply", "floor_divide", "remainder"})


def settled(part: Expression) -> Expression:
    """What ``part`` is where its operands are known: what a choice chooses, what a guarded read reads.

    A product that is chosen stays rounded: it is not added to anything in one instruction where it was not before.
    """
    if isinstance(part, Position) and not part.index.terms:
        return Literal(part.index.constant, part.dtype)
    if isinstance(part, Load) and isinstance(part.guard, Literal):
        return Load(part.buffer, part.offset, part.dynamic) if part.guard.value else Literal(0, part.dtype)
    if isinstance(part, Apply) and part.function in _CHOICES:
        return _CHOICES[part.function](part)
    if isinstance(part, Apply) and part.dtype.kind in "bi" and part.function in FUNCTIONS:
        known = [operand.value for operand in part.operands if _is_whole(operand)]
        if len(known) == len(part.operands):
            return Literal(FUNCTIONS[part.function](*known), part.dtype)
    return part


def _is_whole(expression: Expression) -> TypeGuard[Literal]:
    return isinstance(expression, Literal) and expression.dtype.kind in "iub"


def _chosen(part: Apply) -> Expression:
    """Of a choice that is made the value; a product is not added to what it was not added to before."""
    mask, x, y = part.operands
    if not isinstance(mask, Literal):
        return part
    value = x if mask.value else y
    return Apply("rounded", (value,), value.dtype) if operands_of(value, "multiply") else value


def _both(part: Apply) -> Expression:
    """Of two conditions the one that is not known, or what follows from the other."""
    x, y = part.operands
    for one, other in ((x, y), (y, x)):
        if isinstance(one, Literal):
            return other if bool(one.value) == (part.function == "logical_and") else one
    return part


_CHOICES: dict[str, Callable[[Apply], Expression]] = {
    "where": _chosen,
    "logical_and": _both,
    "logical_or": _both,
}
