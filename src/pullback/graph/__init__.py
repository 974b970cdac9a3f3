"""The graph: typed immutable nodes, their order, their printer and their checker. The ground floor."""

from pullback.graph.classes import refuse_class
from pullback.graph.graph import Graph, check, every_node, free_variables, regions, substitute, topological
from pullback.graph.node import SMALL_CONSTANT, Constant, Node, Operation, Variable, apply, constant, mark
from pullback.graph.operator import OPERATORS, Case, Operator, Sample
from pullback.graph.printer import format_graph
from pullback.graph.results import pruned, result, results
from pullback.graph.routine import InputAt, OutputAt, Routine, Scalar
from pullback.graph.source import Source, current_source, written_at
from pullback.graph.type import DTYPES, TupleType, Type, is_float
from pullback.graph.values import PENDING, computed, evaluating, force, is_known

__all__ = [
    "DTYPES",
    "OPERATORS",
    "PENDING",
    "SMALL_CONSTANT",
    "Case",
    "Constant",
    "Graph",
    "InputAt",
    "Node",
    "Operation",
    "Operator",
    "OutputAt",
    "Routine",
    "Sample",
    "Scalar",
    "Source",
    "TupleType",
    "Type",
    "Variable",
    "apply",
    "check",
    "computed",
    "constant",
    "current_source",
    "evaluating",
    "every_node",
    "force",
    "format_graph",
    "free_variables",
    "is_float",
    "is_known",
    "mark",
    "pruned",
    "refuse_class",
    "regions",
    "result",
    "results",
    "substitute",
    "topological",
    "written_at",
]
