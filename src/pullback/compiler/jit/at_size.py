"""Whether a function that was traced for any size of an axis is, at one size, what its trace for that size says.

The graph for any size has stand-ins for extents and variables for sizes. At one size both are numbers, and the graph
must be the other one: the same operations on the same inputs with the same attributes. Numbers are compared by their
values, however they were computed: of a size variable in one graph, by Python in the other. So nothing that depends on
the size, be it a constant, a shape or a branch that was taken, can be another thing than NumPy has at that size.

>>> import numpy as np
>>> from pullback.graph import Graph, OPERATORS, Type, Variable
>>> from pullback.graph.named import STAND_INS, NamedSize
>>> size = NamedSize("batch", STAND_INS[0], Variable(Type(np.dtype(np.int64), (), True), "batch"))
>>> def summed(extent, count):
...     x = Variable(Type(np.dtype(np.float64), (extent,)), "x")
...     return Graph((x,), (OPERATORS["sum"](x, axes=(0,)) * count,))
>>> unlike_at(summed(size.stand_in, size.variable), [size], [5], summed(5, 5)) is None
True
>>> unlike_at(summed(size.stand_in, size.variable), [size], [5], summed(5, 6)).operator.name
'cast'
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pullback.control.custom import without_rules
from pullback.graph import (
    Constant,
    Graph,
    Node,
    Operation,
    TupleType,
    Type,
    Variable,
    regions,
    substitute,
    topological,
)
from pullback.graph.named import NO_END, NamedSize, multiple, named_sizes
from pullback.graph.values import evaluated

__all__ = ["unlike_at"]

_CAPTURED: dict[str, Callable[[Operation], slice]] = {
    "scan": lambda node: slice(0, node.attributes["consts"]),
    "while": lambda node: slice(0, node.attributes["consts"]),
    "switch": lambda node: slice(1, None),
    "call": lambda node: slice(0, None),
}
"""Of operators that hold graphs the inputs that a region uses as they are: which these are may differ, for numbers
belong to the region and what is computed of a size is handed to it."""
_NO_VALUE = frozenset({*_CAPTURED, "host_call"})

_Pairs = list[tuple[Node, Node]]


def unlike_at(graph: Graph, sizes: Sequence[NamedSize], numbers: Sequence[int], other: Graph) -> Node | None:
    """A node of ``graph`` that is another one in ``other``, where ``sizes`` are ``numbers``; None if none is."""
    with named_sizes(sizes):
        graph, other = without_rules(graph), without_rules(other)
        compared = _Comparison(_Side(sizes, numbers), dict(zip(graph.inputs, other.inputs, strict=True)))
        return compared.unlike(graph.outputs, other.outputs)


class _Side:
    """What nodes of a graph are at certain sizes; as they are, in a graph that has none."""

    def __init__(self, sizes: Sequence[NamedSize] = (), numbers: Sequence[int] = ()) -> None:
        self._extents = {size.stand_in: number for size, number in zip(sizes, numbers)}
        self._values: dict[Node, Any] = {
            size.variable: np.asarray(number, size.variable.dtype) for size, number in zip(sizes, numbers)
        }

    def number(self, value: Any) -> Any:
        """An attribute."""
        if type(value) is int and self._extents:
            found = None if value == NO_END else multiple(value)
            return value if found is None else found.times * self._extents[found.size.stand_in] + found.beside
        if type(value) is str:
            return re.sub(r"\d{15,}", lambda digits: str(self.number(int(digits[0]))), value)
        return tuple(map(self.number, value)) if type(value) is tuple else value

    def type(self, given: Type) -> Type:
        if isinstance(given, TupleType):
            return TupleType.of([self.type(each) for each in given.types])
        return given.with_shape(self.number(given.shape))

    def value(self, node: Node) -> Any:
        """The value of a node; None where it does not follow from the sizes alone."""
        order = topological([node], self._values.__contains__)
        for each in order:
            if isinstance(each, Operation):
                if each.operator.name in _NO_VALUE:
                    return None
            elif not isinstance(each, Constant) and each not in self._values:
                return None
        for each in order:
            if isinstance(each, Constant):
                self._values[each] = each.value
            elif isinstance(each, Operation) and each not in self._values:
                given = [self._values[child] for child in each.inputs]
                attributes = {key: self.number(value) for key, value in each.attributes.items()}
                with np.errstate(all="ignore"):
                    made = evaluated(each.operator, given, attributes, self.type(each.type), each.source)
                self._values[each] = made
        return self._values[node]


@dataclass(eq=False)
class _Comparison:
    """Two graphs, compared pair by pair from their results on; ``partners`` are their variables."""

    at: _Side
    partners: dict[Node, Node]
    as_it_is: _Side = field(default_factory=_Side)

    def unlike(self, outputs: Sequence[Node], others: Sequence[Node]) -> Node | None:
        """The first node found that is another one; that there are as many results is for the caller to see."""
        stack, met = list(zip(outputs, others)), set[tuple[Node, Node]]()
        while stack:
            pair = stack.pop()
            if pair not in met:
                met.add(pair)
                inside = self._alike(*pair)
                if inside is None:
                    return pair[0]
                stack += inside
        return None

    def _alike(self, a: Node, b: Node) -> _Pairs | None:
        """What is left to compare of two nodes; None where they differ."""
        if _told(self.at.type(a.type)) != _told(b.type):
            return None
        if isinstance(a, Operation) and isinstance(b, Operation) and a.operator is b.operator:
            inside = self._inside(a, b)
            if inside is not None:
                return inside
        if self.partners.get(a) is b:
            return []
        one = self.at.value(a)
        two = None if one is None else self.as_it_is.value(b)
        return [] if two is not None and np.asarray(one).tobytes() == np.asarray(two).tobytes() else None

    def _inside(self, a: Operation, b: Operation) -> _Pairs | None:
        """The inputs and the results of regions that must be alike; None where the operations differ."""
        captured = _CAPTURED.get(a.operator.name)
        if _shown(a, self.at) != _shown(b, self.as_it_is) or (captured is None and regions(a)):
            return None
        own, owned = (
            [
                captured is None or k not in range(*captured(n).indices(len(n.inputs)))
                for k in range(len(n.inputs))
            ]
            for n in (a, b)
        )
        mine, theirs = (
            [x for x, is_own in zip(n.inputs, kept) if is_own] for n, kept in ((a, own), (b, owned))
        )
        if len(mine) != len(theirs):
            return None
        pairs = list(zip(mine, theirs))
        for region, other in zip(regions(a), regions(b)):
            variables, outputs = _opened(region, a, own)
            partners, others = _opened(other, b, owned)
            self.partners.update(zip(variables, partners))
            pairs += zip(outputs, others)
        return pairs


def _opened(region: Graph, node: Operation, own: Sequence[bool]) -> tuple[list[Variable], tuple[Node, ...]]:
    """The results of a region of what its operation is given, and new variables for its own inputs."""
    first = len(node.inputs) - len(region.inputs)
    new = [Variable(v.type) for v, is_own in zip(region.inputs, own[first:]) if is_own]
    variables = iter(new)
    inside = [next(variables) if is_own else x for x, is_own in zip(node.inputs[first:], own[first:])]
    return new, substitute(region.outputs, dict(zip(region.inputs, inside)))


def _told(type: Type) -> list[tuple[np.dtype, tuple[int, ...]]]:
    return [(each.dtype, each.shape) for each in (type.types if isinstance(type, TupleType) else [type])]


def _shown(node: Operation, side: _Side) -> dict[str, Any]:
    """The attributes of an operation as they are compared, without graphs and how many inputs these share."""

    def plain(value: Any) -> Any:
        if isinstance(value, Graph):
            return Graph
        if type(value) is float and math.isnan(value):
            return "nan"
        return tuple(map(plain, value)) if type(value) is tuple else value

    shared = {"consts"} if node.operator.name in _CAPTURED else set()
    return {key: plain(side.number(value)) for key, value in node.attributes.items() if key not in shared}
