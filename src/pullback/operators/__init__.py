"""The vocabulary of operators, one family a file; importing it fills the table ``graph.OPERATORS``."""

from pullback.operators import (
    arithmetic,
    convolution,
    elementwise,
    indexing,
    interleave,
    logic,
    normalisation,
    pooling,
    products,
    random,
    reductions,
    scatters,
    shapes,
    transcendental,
    windows,
)

__all__ = [
    "arithmetic",
    "convolution",
    "elementwise",
    "indexing",
    "interleave",
    "logic",
    "normalisation",
    "pooling",
    "products",
    "random",
    "reductions",
    "scatters",
    "shapes",
    "transcendental",
    "windows",
]
