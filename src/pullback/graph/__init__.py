"""The graph: typed immutable nodes, their order, their printer and their checker. The ground floor."""

from pullback.graph.classes import refuse_class
from pullback.graph.graph import Graph, check, free_variables, substitute, topological
from pullback.graph.node import SMALL_CONSTANT, Constant, Node, Operation, Variable, apply, constant
from pullback.graph.operator import OPERATORS, Case, Operator, Sample
from pullback.graph.printer import format_graph
from pullback.graph.source import Source, current_source, written_at
from pullback.graph.type import DTYPES, Type, is_float

__all__ = [
    "DTYPES",
    "OPERATORS",
    "SMALL_CONSTANT",
    "Case",
    "Constant",
    "Graph",
    "Node",
    "Operation",
    "Operator",
    "Sample",
    "Source",
    "Type",
    "Variable",
    "apply",
    "check",
    "constant",
    "current_source",
    "format_graph",
    "free_variables",
    "is_float",
    "refuse_class",
    "substitute",
    "topological",
    "written_at",
]
