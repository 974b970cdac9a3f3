"""The vocabulary of operators, one family a file; importing it fills the table ``graph.OPERATORS``."""

from pullback.operators import (
    arithmetic,
    elementwise,
    indexing,
    logic,
    products,
    reductions,
    shapes,
    transcendental,
)

__all__ = [
    "arithmetic",
    "elementwise",
    "indexing",
    "logic",
    "products",
    "reductions",
    "shapes",
    "transcendental",
]
