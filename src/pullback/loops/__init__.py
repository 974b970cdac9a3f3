"""The loop program as data: axes, affine indices, expressions and kernels. Beside the graph on the ground."""

from pullback.loops.expression import (
    Apply,
    Buffer,
    Expression,
    Index,
    Literal,
    Load,
    Operand,
    Placeholder,
    Position,
    Reduce,
    as_expression,
    element,
    load_at,
    operands_of,
    rebuilt,
    row_major,
    walk,
)
from pullback.loops.index import Affine, Axis, turns_of
from pullback.loops.kernel import Kernel, Store, once, rewrite, staged
from pullback.loops.multiply_add import fused, fused_product
from pullback.loops.rare import RareCase, rare_case, unlikely, usual_parts

__all__ = [
    "Affine",
    "Apply",
    "Axis",
    "Buffer",
    "Expression",
    "Index",
    "Kernel",
    "Literal",
    "Load",
    "Operand",
    "Placeholder",
    "Position",
    "RareCase",
    "Reduce",
    "Store",
    "as_expression",
    "element",
    "fused",
    "fused_product",
    "load_at",
    "once",
    "operands_of",
    "rare_case",
    "rebuilt",
    "rewrite",
    "row_major",
    "staged",
    "turns_of",
    "unlikely",
    "usual_parts",
    "walk",
]
