"""Passes: graph to better graph, one a file, and their order in ``pipeline``."""

from pullback.compiler.passes.pipeline import PASSES, Pass, optimise, passes_for

__all__ = ["PASSES", "Pass", "optimise", "passes_for"]
