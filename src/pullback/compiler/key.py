"""What a program is stored under in the code cache: everything of the graph that machine code depends on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pullback.graph import SMALL_CONSTANT, Constant, Graph, Node, Operation, Source

__all__ = ["COMPILER_VERSION", "check_sites", "constant_is_code", "graph_key", "repeats_one_value"]

COMPILER_VERSION = 30
"""Raised when the same graph gives other code than before, also when that is because a pass has changed.

Keys are made from graphs before their passes, so that a program from the cache needs none of them.
"""


def constant_is_code(value: np.ndarray) -> bool:
    """Whether a constant's value is part of the code: small ones are, and those that repeat one value."""
    return value.size <= SMALL_CONSTANT or repeats_one_value(value)


def repeats_one_value(value: np.ndarray) -> bool:
    """Whether all elements have the same bits: zeros of both signs differ, NaN equals itself.

    >>> repeats_one_value(np.array([0.0, 0.0])), repeats_one_value(np.array([0.0, -0.0]))
    (True, False)
    """
    bits = np.ascontiguousarray(value).reshape(-1).view(f"u{value.dtype.itemsize}")
    return bool((bits == bits[:1]).all())


def check_sites(nodes: Sequence[Node]) -> dict[Source | None, int]:
    """A number for each line that an index check of the graph was written on, in the order of the nodes.

    Code says by such a number which line an index out of range belongs to.
    """
    lines = dict.fromkeys(
        node.source for node in nodes if isinstance(node, Operation) and node.operator.name == "check_index"
    )
    return {line: number for number, line in enumerate(lines)}


def graph_key(graph: Graph, donated: Mapping[int, int]) -> str:
    """A text that two graphs share only if they are compiled to the same code.

    Names and source lines do not matter, but for which index checks share a line, nor do the values of large
    constants, which programs read from memory.
    """
    numbers: dict[int, int] = {}
    nodes = graph.nodes()
    sites = check_sites(nodes)
    lines = [f"compiler {COMPILER_VERSION}", f"donated {sorted(donated.items())}"]
    for variable in graph.inputs:
        numbers[id(variable)] = len(numbers)
        lines.append(f"input {variable.type}")
    for node in nodes:
        if id(node) in numbers:
            continue
        numbers[id(node)] = len(numbers)
        if isinstance(node, Constant):
            value = ""
            if constant_is_code(node.value):
                part = node.value if node.value.size <= SMALL_CONSTANT else node.value.reshape(-1)[:1]
                value = part.tobytes().hex()
            lines.append(f"constant {node.type} {value}")
        elif isinstance(node, Operation):
            inputs = [numbers[id(child)] for child in node.inputs]
            site = f" {sites[node.source]}" if node.operator.name == "check_index" else ""
            lines.append(f"{node.operator.name}{site} {inputs} {sorted(node.attributes.items())} {node.type}")
    lines.append(f"output {[numbers[id(node)] for node in graph.outputs]}")
    return "\n".join(lines)
