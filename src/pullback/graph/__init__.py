"""The graph: typed immutable nodes, their order, their printer and their checker. The ground floor."""

from pullback.graph.classes import is_sparse, refuse_class, sparse_refused
from pullback.graph.graph import Graph, check, every_node, free_variables, regions, substitute, topological
from pullback.graph.node import (
    SMALL_CONSTANT,
    Constant,
    Detached,
    Node,
    Operation,
    Variable,
    apply,
    constant,
    mark,
)
from pullback.graph.operator import OPERATORS, Case, Operator, Sample
from pullback.graph.printer import format_graph
from pullback.graph.results import pruned, result, results
from pullback.graph.routine import Addresses, InputAt, OutputAt, Routine, Scalar, Words
from pullback.graph.source import Source, current_source, written_at
from pullback.graph.type import (
    DTYPES,
    TupleType,
    Type,
    dtype_kind,
    float_limits,
    is_complex,
    is_float,
    is_half,
    part_dtype,
    remembered,
)
from pullback.graph.values import PENDING, computed, evaluating, force, is_known

__all__ = [
    "DTYPES",
    "OPERATORS",
    "PENDING",
    "SMALL_CONSTANT",
    "Addresses",
    "Case",
    "Constant",
    "Detached",
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
    "Words",
    "apply",
    "check",
    "computed",
    "constant",
    "current_source",
    "dtype_kind",
    "evaluating",
    "every_node",
    "float_limits",
    "force",
    "format_graph",
    "free_variables",
    "is_complex",
    "is_float",
    "is_half",
    "is_known",
    "is_sparse",
    "mark",
    "part_dtype",
    "pruned",
    "refuse_class",
    "regions",
    "remembered",
    "result",
    "results",
    "sparse_refused",
    "substitute",
    "topological",
    "written_at",
]
