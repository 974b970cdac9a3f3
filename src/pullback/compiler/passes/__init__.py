"""Passes: graph to better graph, one a file, and their order in ``pipeline``.

Imports what makes graphs fit for kernels, the key and the cost model.
"""

from pullback.compiler.passes.broadcast_late import broadcast_late
from pullback.compiler.passes.fold_constants import fold_constants
from pullback.compiler.passes.gathered_scatters import gathered_scatters
from pullback.compiler.passes.joined_scatters import joined_scatters
from pullback.compiler.passes.masked_once import masked_once
from pullback.compiler.passes.pipeline import PASSES, Pass, optimise, passes_for
from pullback.compiler.passes.simplify_arithmetic import simplify_arithmetic
from pullback.compiler.passes.simplify_products import simplify_products
from pullback.compiler.passes.simplify_reductions import simplify_reductions
from pullback.compiler.passes.simplify_shapes import simplify_shapes
from pullback.compiler.passes.sliced_convolutions import sliced_convolutions
from pullback.compiler.passes.sparse_pooling import sparse_pooling
from pullback.compiler.passes.sparse_updates import sparse_updates
from pullback.compiler.passes.transposed_products import transposed_products

__all__ = [
    "PASSES",
    "Pass",
    "broadcast_late",
    "fold_constants",
    "gathered_scatters",
    "joined_scatters",
    "masked_once",
    "optimise",
    "passes_for",
    "simplify_arithmetic",
    "simplify_products",
    "simplify_reductions",
    "simplify_shapes",
    "sliced_convolutions",
    "sparse_pooling",
    "sparse_updates",
    "transposed_products",
]
