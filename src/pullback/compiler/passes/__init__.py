"""Passes: graph to better graph, one a file, and their order in ``pipeline``.

Imports what makes graphs fit for kernels, the key and the cost model.
"""

from pullback.compiler.passes.pipeline import PASSES, Pass, optimise, passes_for

__all__ = ["PASSES", "Pass", "optimise", "passes_for"]
