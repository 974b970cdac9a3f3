"""A graph as text, one node a line.

input  %0 x: float64[3]
%1 = sin(%0): float64[3]                      # model.py:12 in loss
output %1
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pullback.graph.graph import Graph
from pullback.graph.node import Constant, Operation

__all__ = ["format_graph"]


def _attribute(value: Any) -> str:
    if isinstance(value, tuple) and any(isinstance(part, Graph) for part in value):
        return "".join(f"\n    {_attribute(part)}" for part in value)
    return format_graph(value).replace("\n", "\n    ") if isinstance(value, Graph) else str(value)


def format_graph(graph: Graph, sources: bool = True) -> str:
    """The graph in topological order; with ``sources`` each operation tells the line it was written on."""
    names: dict[int, str] = {}
    lines = []
    for variable in graph.inputs:
        names[id(variable)] = f"%{len(names)}"
        lines.append(f"input  {names[id(variable)]} {variable.name or '_'}: {variable.type}")
    for node in graph.nodes():
        if id(node) in names:
            continue
        names[id(node)] = f"%{len(names)}"
        if isinstance(node, Constant):
            text = str(node.value.reshape(-1)[0]) if node.value.size == 1 else "..."
            lines.append(f"{names[id(node)]} = constant {text}: {node.type}")
        elif isinstance(node, Operation):
            inputs = ", ".join(names[id(child)] for child in node.inputs)
            pairs = sorted(node.attributes.items())
            attributes = "".join(f", {key}={_attribute(value)}" for key, value in pairs)
            line = f"{names[id(node)]} = {node.operator.name}({inputs}{attributes}): {node.type}"
            if sources and node.source is not None:
                source = node.source
                line = f"{line:<60}  # {Path(source.file).name}:{source.line} in {source.function}"
            lines.append(line)
        else:
            lines.append(f"free   {names[id(node)]}: {node.type}")
    lines.append("output " + ", ".join(names[id(node)] for node in graph.outputs))
    return "\n".join(lines)
