"""What is to be compiled: the graph of a function, and which results may take over which arguments."""

from __future__ import annotations

from typing import NamedTuple

from pullback.graph import Graph
from pullback.tracing.trees import Structure

__all__ = ["Requested"]


class Requested(NamedTuple):
    """A graph, and what ``jit`` knows of its arguments and results."""

    graph: Graph
    out_structure: Structure
    offered: dict[int, int]
    """Which argument each result may take over, by number."""
    carried: bool
    """Whether the donated arguments are, in order, the first results."""
