"""How passes rewrite graphs: rules for single operations, applied in one walk from inputs to outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import is_
from typing import Any, TypeVar

import numpy as np

from pullback.graph import Constant, Graph, Node, Operation, Operator, apply, behind, substitute, written_at
from pullback.operators import elementwise
from pullback.operators.products import contract
from pullback.operators.shapes import reshape, slice, transpose

__all__ = [
    "ANY",
    "CONSTANT",
    "ELEMENTWISE",
    "GraphPass",
    "Range",
    "Rewriter",
    "Rule",
    "RulePass",
    "cut",
    "filled",
    "in_rare_cases",
    "inner",
    "is_positive_zero",
    "is_zero",
    "labelled",
    "ordered",
    "ranges_of",
    "rare_case",
    "readers_of",
    "rebuilt",
    "remade",
    "scalar",
    "shaped",
    "sliced",
    "uses",
    "with_outputs",
]

Rule = Callable[..., "Node | None"]
"""``rule(node)``: another node of the same value, dtype and shape, or ``None`` where it says nothing."""

Range = tuple[int, int, int]
"""Start, stop and step."""

_T = TypeVar("_T")

ANY = "any operation"
ELEMENTWISE = "elementwise operations"
CONSTANT = "constants"


@dataclass(frozen=True, eq=False)
class RulePass:
    """A pass made of rules.

    They stand under the name of their operator, or under ``ANY``, ``ELEMENTWISE`` or ``CONSTANT``.
    """

    name: str
    rules: Mapping[str, Sequence[Rule]]

    def __call__(self, graph: Graph) -> Graph:
        """``graph`` with the rules applied until none of them says anything about what they made."""
        return Rewriter((self,))(graph)

    def rules_for(self, operator: Operator) -> Sequence[Rule]:
        """The rules that may say something about operations of ``operator``."""
        elementwise = self.rules.get(ELEMENTWISE, ()) if operator.elementwise else ()
        return (*elementwise, *self.rules.get(ANY, ()), *self.rules.get(operator.name, ()))


@dataclass(frozen=True, eq=False)
class GraphPass:
    """A pass that looks at a whole graph at once."""

    name: str
    function: Callable[[Graph], Graph]

    def __call__(self, graph: Graph) -> Graph:
        """``graph`` rewritten; the graph itself where there is nothing to do."""
        return self.function(graph)


def with_outputs(graph: Graph, outputs: tuple[Node, ...]) -> Graph:
    """``graph`` with other outputs: itself if they are the same."""
    return graph if _same(outputs, graph.outputs) else Graph(graph.inputs, outputs)


def rebuilt(graph: Graph, rebuild: Callable[[Operation, tuple[Node, ...]], Node | None]) -> Graph:
    """``graph`` with what ``rebuild(operation, new_inputs)`` gives; where that is ``None``, the operation anew."""
    return with_outputs(graph, substitute(graph.outputs, {}, rebuild))


def remade(
    graph: Graph, found: Mapping[Node, _T], make: Callable[[Operation, _T, Mapping[Node, Node]], Node]
) -> Graph:
    """``graph`` with ``make(operation, what, new)`` in the place of each operation for which something was found.

    ``new`` is what all nodes that the operation needs have become.
    """
    if not found:
        return graph
    new: dict[Node, Node] = {}

    def rebuild(node: Operation, inputs: tuple[Node, ...]) -> Node | None:
        new.update(zip(node.inputs, inputs))
        return make(node, found[node], new) if node in found else None

    return rebuilt(graph, rebuild)


def _same(nodes: Sequence[Node], others: Sequence[Node]) -> bool:
    """Whether two lists hold the same nodes (``==`` would compare them elementwise)."""
    return all(map(is_, nodes, others))


class Rewriter:
    """The rules of some passes, applied in one walk over a graph; where several speak, the first one is heard.

    A node that a rule has made is visited like any other, and so are its inputs: every rule must bring a graph nearer
    to a form that no rule changes. What has become of each node is kept for the next graph: rules look at nothing else.
    """

    def __init__(self, passes: Sequence[RulePass]) -> None:
        self.done: dict[Node, Node] = {}
        self.constant_rules = [rule for each in passes for rule in each.rules.get(CONSTANT, ())]
        self.rules_for = cache(
            lambda operator: [rule for each in passes for rule in each.rules_for(operator)]
        )

    def __call__(self, graph: Graph) -> Graph:
        """``graph`` with the rules applied until none of them says anything about what they made."""
        for node in graph.nodes():
            self.visit(node)
        return with_outputs(graph, tuple([self.visit(node) for node in graph.outputs]))

    def visit(self, node: Node) -> Node:
        """The node that takes the place of ``node``."""
        known = self.done.get(node)
        if known is not None:
            return known
        if isinstance(node, Operation):
            with written_at(node.source):
                result = self._operation(node)
        elif isinstance(node, Constant):
            result = self._ruled(node, self.constant_rules)
        else:
            result = node
        self.done[node] = self.done[result] = result
        return result

    def _operation(self, node: Operation) -> Node:
        # The walk is from the inputs, so this recurses only into what a rule has just made.
        inputs = tuple([self.visit(child) for child in node.inputs])
        if not _same(inputs, node.inputs):
            node = apply(node.operator, inputs, node.attributes)
        return self._ruled(node, self.rules_for(node.operator))

    def _ruled(self, node: Node, rules: Sequence[Rule]) -> Node:
        for rule in rules:
            made = rule(node)
            if made is not None and made is not node:
                return self.visit(made)
        return node


def uses(order: Sequence[Node], outputs: Sequence[Node]) -> dict[int, int]:
    """How often each node is read, by the operations in ``order`` and as an output; by ``id``."""
    count: dict[int, int] = {}
    for node in order:
        for child in node.inputs:
            count[id(child)] = count.get(id(child), 0) + 1
    for node in outputs:
        count[id(node)] = count.get(id(node), 0) + 1
    return count


def readers_of(order: Sequence[Node]) -> dict[int, list[Operation]]:
    """The operations in ``order`` that read each node, by its ``id``."""
    readers: dict[int, list[Operation]] = {}
    for node in order:
        if isinstance(node, Operation):
            for child in dict.fromkeys(node.inputs):
                readers.setdefault(id(child), []).append(node)
    return readers


# -- what rules ask and make


def inner(node: Node, name: str) -> Operation | None:
    """``node`` if it is an operation of the operator ``name``."""
    return node if isinstance(node, Operation) and node.operator.name == name else None


def scalar(node: Node) -> np.ndarray | None:
    """The one number that ``node`` is, or repeats in every place of its shape, as an array without axes."""
    if isinstance(node, Operation) and node.operator.name == "broadcast":
        node = node.inputs[0]
    return node.value.reshape(()) if isinstance(node, Constant) and node.size == 1 else None


def rare_case(node: Node) -> tuple[Node, Node, Node] | None:
    """The condition, ``rare`` and ``usual`` of ``where(unlikely(condition), rare, usual)``, if ``node`` is that."""
    if inner(node, "where") is None:
        return None
    condition, rare, usual = node.inputs
    asked = inner(behind(condition, ("broadcast", "transpose")), "unlikely")
    return None if asked is None else (condition, rare, usual)


def in_rare_cases(node: Node) -> bool:
    """Whether ``node`` is zero but in rare cases."""
    case = rare_case(node)
    return case is not None and is_zero(case[2])


def is_zero(node: Node) -> bool:
    """Whether ``node`` is a zero of either sign in every place."""
    value = scalar(node)
    return value is not None and not value.any()


def is_positive_zero(node: Node) -> bool:
    """Whether ``node`` is a zero without a sign in every place."""
    value = scalar(node)
    return value is not None and not value.any() and not (value.dtype.kind == "f" and np.signbit(value))


def shaped(node: Node, shape: tuple[int, ...]) -> Node:
    """``node`` in a ``shape`` of as many elements."""
    return node if node.shape == shape else reshape(node, shape=shape)


def filled(value: Any, like: Node, shape: tuple[int, ...] | None = None) -> Node:
    """``value``, in the dtype of ``like``, in every place of ``shape`` or of the shape of ``like``."""
    return elementwise.filled(value, like.dtype, like.shape if shape is None else shape)


# -- nodes whose axes have labels: letters of a layout, or numbers


def labelled(
    a: Node, b: Node, a_labels: Sequence[object], b_labels: Sequence[object], out: Sequence[object]
) -> Node:
    """The contraction of ``a`` and ``b``, its labels numbered as they come, so that equal products are one node."""
    number: dict[object, int] = {}
    for label in (*a_labels, *b_labels):
        number.setdefault(label, len(number))
    numbered = [tuple([number[label] for label in labels]) for labels in (a_labels, b_labels, out)]
    return contract(a, b, a_labels=numbered[0], b_labels=numbered[1], out_labels=numbered[2])


def ordered(node: Node, labels: Sequence[object], wanted: Sequence[object]) -> Node:
    """``node`` with its axes in another order of their labels."""
    axes = tuple(labels.index(label) for label in wanted)
    return node if axes == tuple(range(node.ndim)) else transpose(node, axes=axes)


def sliced(node: Node, labels: Sequence[object], ranges: Mapping[Any, Range]) -> Node:
    """``node`` sliced along the axes whose labels have a range."""
    return cut(node, [ranges.get(label, (0, extent, 1)) for label, extent in zip(labels, node.shape)])


def cut(node: Node, ranges: Sequence[Range]) -> Node:
    """``node`` sliced to a range of each axis."""
    if all(own == (0, extent, 1) for own, extent in zip(ranges, node.shape)):
        return node
    starts, stops, steps = zip(*ranges)
    return slice(node, starts=starts, stops=stops, steps=steps)


def ranges_of(node: Operation) -> list[Range]:
    """From where to where a slice goes along each axis, and by which steps."""
    return list(zip(*(node.attributes[key] for key in ("starts", "stops", "steps"))))
