"""What a program is stored under in the code cache: everything of the graph that machine code depends on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pullback.compiler.key.rules import is_own, is_plain
from pullback.compiler.schedules.cost import LARGEST_TABLE
from pullback.control.host import HostFunction, host_functions
from pullback.graph import (
    SMALL_CONSTANT,
    Constant,
    Graph,
    Node,
    Operation,
    Source,
    Type,
    every_node,
    regions,
)

__all__ = ["check_sites", "constant_is_code", "graph_key", "held_text", "repeats_one_value"]


class _Untold(Exception):
    """Something on which machine code depends, and of which no text tells."""


def constant_is_code(value: np.ndarray) -> bool:
    """Whether a constant's value is part of the code: small ones are, those that repeat one value, and places."""
    return _code_of(value) is not None


def _code_of(value: np.ndarray) -> np.ndarray | None:
    """The elements of a constant that code depends on: all, the one that it repeats, or none.

    Passes look at places (``gathered_scatters``).
    """
    if value.size <= SMALL_CONSTANT or (value.dtype == np.int64 and value.size <= LARGEST_TABLE):
        return value
    return value.reshape(-1)[:1] if repeats_one_value(value) else None


def repeats_one_value(value: np.ndarray) -> bool:
    """Whether all elements have the same bits: zeros of both signs differ, NaN equals itself.

    >>> repeats_one_value(np.array([0.0, 0.0])), repeats_one_value(np.array([0.0, -0.0]))
    (True, False)
    """
    bits = np.ascontiguousarray(value).reshape(-1).view(f"u{value.dtype.itemsize}")
    return bool((bits == bits[:1]).all())


TELLING = ("check_index", "host_call")
"""Operators whose line is part of what a program says."""


def check_sites(nodes: Sequence[Node]) -> dict[Source | None, int]:
    """A number for each line that may be told as that of an error, in the order of the nodes.

    Code says by such a number which line an index out of range, or a call out of the program, belongs to.
    """
    lines = dict.fromkeys(
        node.source for node in nodes if isinstance(node, Operation) and node.operator.name in TELLING
    )
    return {line: number for number, line in enumerate(lines)}


def graph_key(graph: Graph, donated: Mapping[int, int]) -> str | None:
    """A text that two graphs share only if one compiler makes the same code of them; None where it cannot tell.

    It is made from the graph before its passes, so that a program from the cache needs none of them. The compiler
    itself, with the rules of the package's operators, is for the cache to tell apart. Names and source lines do not
    matter, but for which index checks share a line, nor do the values of large constants, which programs read from
    memory.
    """
    nodes = every_node(graph)
    operators = {node.operator for node in nodes if isinstance(node, Operation)}
    # Pullbacks and batching rules do not count: what they gave is in the graph.
    if not all(is_own((each.type_rule, each.reference, each.lower)) for each in operators):
        return None
    try:
        lines = _graph_lines(graph, check_sites(nodes), host_functions(nodes))
    except _Untold:
        return None
    return "\n".join([f"donated {sorted(donated.items())}", *map(repr, graph.limits), *lines])


def held_text(
    node: Operation, sites: Mapping[Source | None, int], functions: Mapping[HostFunction, int]
) -> str | None:
    """The same of an operation's regions and attributes: what tells it from others of its operator and inputs.

    None where that cannot be told, or a region holds constants whose values are not in the text.
    """
    lines: list[str] = []
    try:
        for region in regions(node):
            if any(isinstance(n, Constant) and not constant_is_code(n.value) for n in every_node(region)):
                return None
            lines += ["region", *_graph_lines(region, sites, functions)]
        lines.append(_attributes(node, functions))
    except _Untold:
        return None
    return "\n".join(lines)


def _graph_lines(
    graph: Graph, sites: Mapping[Source | None, int], functions: Mapping[HostFunction, int]
) -> list[str]:
    """A line for each node; those of a region stand before the operation that holds it."""
    numbers: dict[int, int] = {}
    lines: list[str] = []
    for variable in graph.inputs:
        numbers[id(variable)] = len(numbers)
        lines.append(f"input {_type(variable.type)}")
    for node in graph.nodes():
        if id(node) in numbers:
            continue
        numbers[id(node)] = len(numbers)
        if isinstance(node, Constant):
            part = _code_of(node.value)
            value = "" if part is None else hashlib.sha256(part.tobytes()).hexdigest()
            lines.append(f"constant {_type(node.type)} {value}")
        elif isinstance(node, Operation):
            inputs = [numbers[id(child)] for child in node.inputs]
            site = f" {sites[node.source]}" if node.operator.name in TELLING else ""
            for region in regions(node):
                lines += ["region", *_graph_lines(region, sites, functions), "end"]
            attributes = _attributes(node, functions)
            lines.append(f"{node.operator.name}{site} {inputs} {attributes} {_type(node.type)}")
    lines.append(f"output {[numbers[id(node)] for node in graph.outputs]}")
    return lines


def _holds_region(value: Any) -> bool:
    return isinstance(value, Graph) or (isinstance(value, tuple) and any(map(_holds_region, value)))


def _type(type: Type) -> str:
    return f"weak {type}" if type.weak else str(type)


def _called(function: HostFunction, functions: Mapping[HostFunction, int]) -> tuple[int, str]:
    """What code holds of a function that it calls."""
    return functions[function], "" if function.routine is None else function.routine.code


def _attributes(node: Operation, functions: Mapping[HostFunction, int]) -> str:
    """The attributes beside regions; of functions out of the program the number tells, by which code knows them."""
    items = tuple(
        (name, _called(value, functions) if isinstance(value, HostFunction) else value)
        for name, value in sorted(node.attributes.items())
        if not _holds_region(value)
    )
    if not is_plain(items):
        raise _Untold
    return repr(items)
