"""The loop program as data: axes, affine indices, expressions and kernels. Stands beside the graph on the ground."""

from pullback.loops.expression import (
    Apply,
    Buffer,
    Expression,
    Index,
    Literal,
    Load,
    Operand,
    Position,
    Reduce,
    as_expression,
    load_at,
    row_major,
    walk,
)
from pullback.loops.index import Affine, Axis

__all__ = [
    "Affine",
    "Apply",
    "Axis",
    "Buffer",
    "Expression",
    "Index",
    "Literal",
    "Load",
    "Operand",
    "Position",
    "Reduce",
    "as_expression",
    "load_at",
    "row_major",
    "walk",
]
