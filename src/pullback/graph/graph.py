"""A graph: its inputs and its outputs; everything between is reached from the outputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pullback.errors import GraphError
from pullback.graph.node import Constant, Node, Operation, Variable, apply
from pullback.graph.source import written_at

__all__ = [
    "Graph",
    "Limit",
    "behind",
    "check",
    "every_node",
    "free_variables",
    "regions",
    "substitute",
    "topological",
    "with_regions",
]


class Limit(NamedTuple):
    """A number of rows that count, of those that arrays have: an input of the graph that is known when it runs."""

    size: int
    """The number of that input."""
    capacity: int
    """The rows that there are."""
    zeros: tuple[tuple[int, int], ...] = ()
    """Inputs, by their numbers, that are zero from the size on, and the axis of the rows of each."""
    cut: tuple[tuple[int, int], ...] = ()
    """Outputs of which nobody looks at what stands from the size on, and the axis of each."""


@dataclass(frozen=True, eq=False)
class Graph:
    """Variables in, nodes out."""

    inputs: tuple[Variable, ...]
    outputs: tuple[Node, ...]
    limits: tuple[Limit, ...] = ()

    def nodes(self) -> tuple[Node, ...]:
        """Every node that the outputs need, inputs before users."""
        known: tuple[Node, ...] | None = self.__dict__.get("_nodes")
        if known is None:  # every pass asks
            known = self.__dict__["_nodes"] = tuple(topological(self.outputs))
        return known


def topological(roots: Iterable[Node], is_known: Callable[[Node], bool] | None = None) -> list[Node]:
    """Depth-first order from ``roots``: each node once, after all of its inputs, which known ones do not need."""
    order: list[Node] = []
    done: set[Node] = set()
    stack: list[Any] = [*reversed(tuple(roots))]
    while stack:
        node = stack.pop()
        if node is None:  # what follows had its inputs above it
            node = stack.pop()
        elif node in done:
            continue
        else:
            inputs = node.inputs
            if inputs and (is_known is None or not is_known(node)):
                stack += (node, None)
                stack += inputs[::-1]
                continue
        done.add(node)
        order.append(node)
    return order


def behind(node: Node, names: Collection[str]) -> Node:
    """What ``node`` is made of by operations of these ``names``, each of its first input."""
    while isinstance(node, Operation) and node.operator.name in names:
        node = node.inputs[0]
    return node


def regions(node: Node) -> list[Graph]:
    """The graphs that an operation holds."""
    found: list[Graph] = []
    if not isinstance(node, Operation) or node.signature.is_plain:
        return found
    for value in node.attributes.values():
        if isinstance(value, Graph):
            found.append(value)
        elif isinstance(value, tuple):
            found += [part for part in value if isinstance(part, Graph)]
    return found


def with_regions(attributes: Mapping[str, Any], change: Callable[[Graph], Graph]) -> dict[str, Any]:
    """The attributes of an operation with what ``change`` makes of the graphs among them."""

    def changed(value: Any) -> Any:
        if isinstance(value, Graph):
            return change(value)
        return tuple(map(changed, value)) if type(value) is tuple else value

    return {name: changed(value) for name, value in attributes.items()}


def every_node(graph: Graph) -> list[Node]:
    """The nodes of a graph and of all regions inside it, each before the operation that holds it."""
    found: list[Node] = []
    for node in graph.nodes():
        for region in regions(node):
            found += every_node(region)
        found.append(node)
    return found


def substitute(
    outputs: Iterable[Node],
    replacements: Mapping[Node, Node],
    rebuild: Callable[[Operation, tuple[Node, ...]], Node | None] | None = None,
) -> tuple[Node, ...]:
    """``outputs`` with nodes replaced, operations on them built again and all else shared.

    ``rebuild(operation, new_inputs)`` may give another node for an operation; where it gives ``None``, and by default,
    the operation is applied anew.
    """
    outputs = tuple(outputs)
    made: dict[int, Node] = {id(old): new for old, new in replacements.items()}
    for node in topological(outputs):
        if id(node) in made:
            continue
        if not isinstance(node, Operation):
            made[id(node)] = node
            continue
        inputs = tuple(made[id(child)] for child in node.inputs)
        same = all(new is old for new, old in zip(inputs, node.inputs))
        if rebuild is None and same:
            made[id(node)] = node
            continue
        with written_at(node.source):
            new = None if rebuild is None else rebuild(node, inputs)
            if new is None:
                new = node if same else apply(node.operator, inputs, node.attributes)
        made[id(node)] = new
    return tuple(made[id(node)] for node in outputs)


def free_variables(roots: Iterable[Node]) -> list[Variable]:
    """The variables that ``roots`` depend on, in topological order."""
    return [node for node in topological(roots) if isinstance(node, Variable)]


def check(graph: Graph) -> None:
    """Raise ``GraphError`` unless the graph follows its grammar.

    That is: nodes of the three kinds, the types that their rules give, and no variable but the inputs.
    """
    known = {id(variable) for variable in graph.inputs}
    if len(known) != len(graph.inputs):
        raise GraphError("a graph lists the same input twice")
    for node in graph.nodes():
        if isinstance(node, Variable):
            if id(node) not in known:
                raise GraphError(f"{node!r} is used but is no input of the graph")
        elif isinstance(node, Operation):
            expected = node.operator.type_rule(*(child.type for child in node.inputs), **node.attributes)
            if expected != node.type:
                raise GraphError(f"{node.operator.name} is typed {node.type}, its rule says {expected}")
            for region in regions(node):
                check(region)
        elif not isinstance(node, Constant):
            raise GraphError(f"{type(node).__name__} is no kind of node")
