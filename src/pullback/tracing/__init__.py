"""From a Python function to a graph: trees of arrays, and the trace."""

from pullback.tracing.alignment import aligned, aligned_array, new_aligned
from pullback.tracing.trace import Traced, eval_shape, trace, trace_flat
from pullback.tracing.trees import (
    Static,
    Structure,
    buffer,
    flatten,
    leaf_paths,
    map_tree,
    register_tree,
    static,
)

__all__ = [
    "Static",
    "Structure",
    "Traced",
    "aligned",
    "aligned_array",
    "buffer",
    "eval_shape",
    "flatten",
    "leaf_paths",
    "map_tree",
    "new_aligned",
    "register_tree",
    "static",
    "trace",
    "trace_flat",
]
