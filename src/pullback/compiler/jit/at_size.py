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
from typing import Any

import numpy as np

from pullback.control.custom import without_rules
from pullback.graph import Constant, Graph, Node, Operation, TupleType, Type, Variable
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


def unlike_at(graph: Graph, sizes: Sequence[NamedSize], numbers: Sequence[int], other: Graph) -> Node | None:
    """A node of ``graph`` that is another one in ``other``, where ``sizes`` are ``numbers``; None if none is."""
    with named_sizes(sizes):
        return _Pair(sizes, numbers).unlike(without_rules(graph), without_rules(other))


class _Scope:
    """A graph whose variables stand for nodes of the scope around it, or for themselves."""

    def __init__(self, graph: Graph, around: _Scope | None, at: _Sizes) -> None:
        self.graph, self.around, self.at = graph, around, at
        self.aliases: dict[int, Node] = {}
        self.tokens: dict[int, Any] = {}
        self.values: dict[int, Any] = {}
        self._known: set[int] | None = None

    def resolved(self, node: Node) -> tuple[Node, _Scope]:
        """What a node stands for, and where that is."""
        scope = self
        while id(node) in scope.aliases:
            assert scope.around is not None
            node, scope = scope.aliases[id(node)], scope.around
        return node, scope

    def is_known(self, node: Node) -> bool:
        """Whether a node's value follows from the sizes."""
        node, scope = self.resolved(node)
        if scope._known is None:
            scope._known = set()
            for each in scope.graph.nodes():
                if scope._follows(each):
                    scope._known.add(id(each))
        return id(node) in scope._known or scope._follows(node)

    def _follows(self, node: Node) -> bool:
        if isinstance(node, Constant):
            return True
        if isinstance(node, Variable):
            return self.is_known(node) if id(node) in self.aliases else id(node) in self.at.variables
        assert self._known is not None
        plain = isinstance(node, Operation) and node.operator.name not in _NO_VALUE
        return plain and all(id(child) in self._known for child in node.inputs)

    def value(self, node: Node) -> Any:
        """The value of a node that is known."""
        node, scope = self.resolved(node)
        stack = [node]
        while stack:
            each = stack[-1]
            waiting = [child for child in each.inputs if id(child) not in scope.values]
            if id(each) in scope.values or not waiting:
                if id(each) not in scope.values:
                    scope.values[id(each)] = scope._computed(each)
                stack.pop()
            else:
                stack += waiting
        return scope.values[id(node)]

    def _computed(self, node: Node) -> Any:
        if isinstance(node, Constant):
            return node.value
        if isinstance(node, Variable):
            if id(node) in self.aliases:
                return self.value(node)
            return np.asarray(self.at.variables[id(node)], node.dtype)
        assert isinstance(node, Operation)
        attributes = {key: self.at.number(value) for key, value in node.attributes.items()}
        with np.errstate(all="ignore"):
            given = [self.values[id(child)] for child in node.inputs]
            return evaluated(node.operator, given, attributes, self.at.type(node.type), node.source)


class _Sizes:
    """What stand-ins and size variables are at certain sizes; nothing, in a graph that has none."""

    def __init__(self, sizes: Sequence[NamedSize] = (), numbers: Sequence[int] = ()) -> None:
        self.variables = {id(size.variable): number for size, number in zip(sizes, numbers)}
        self._extents = {size.stand_in: number for size, number in zip(sizes, numbers)}

    def number(self, value: Any) -> Any:
        """An attribute at these sizes."""
        if not self._extents or isinstance(value, Graph):
            return value
        if type(value) is int:
            found = None if value == NO_END else multiple(value)
            return value if found is None else found.times * self._extents[found.size.stand_in] + found.beside
        return tuple(map(self.number, value)) if type(value) is tuple else value

    def type(self, given: Type) -> Type:
        """A type at these sizes."""
        if not self._extents:
            return given
        if isinstance(given, TupleType):
            return TupleType.of([self.type(each) for each in given.types])
        return given.with_shape(tuple(map(self.number, given.shape)))


class _Unlike(Exception):
    """Two nodes differ."""


class _Pair:
    """Two graphs, compared pair by pair from their results on."""

    def __init__(self, sizes: Sequence[NamedSize], numbers: Sequence[int]) -> None:
        self.at, self.as_it_is = _Sizes(sizes, numbers), _Sizes()

    def unlike(self, graph: Graph, other: Graph) -> Node | None:
        one, two = _Scope(graph, None, self.at), _Scope(other, None, self.as_it_is)
        for number, (mine, theirs) in enumerate(zip(graph.inputs, other.inputs, strict=True)):
            one.tokens[id(mine)] = two.tokens[id(theirs)] = number
        try:
            self._all(graph.outputs, one, other.outputs, two)
        except _Unlike as error:
            (node,) = error.args
            return node  # type: ignore[no-any-return]
        return None

    def _all(self, nodes: Sequence[Node], one: _Scope, others: Sequence[Node], two: _Scope) -> None:
        if len(nodes) != len(others):
            raise _Unlike(nodes[0] if nodes else one.graph.outputs[0])
        stack = [(a, one, b, two) for a, b in zip(nodes, others)]
        met: set[tuple[int, ...]] = set()
        while stack:
            a, mine, b, theirs = stack.pop()
            a, mine = mine.resolved(a)
            b, theirs = theirs.resolved(b)
            key = id(a), id(mine), id(b), id(theirs)
            if key not in met:
                met.add(key)
                stack += self._alike(a, mine, b, theirs)

    def _alike(self, a: Node, one: _Scope, b: Node, two: _Scope) -> list[tuple[Node, _Scope, Node, _Scope]]:
        """The inputs that are left to compare."""
        if not self._types_alike(a.type, b.type):
            raise _Unlike(a)
        both = isinstance(a, Operation) and isinstance(b, Operation)
        if both and a.operator is b.operator and len(a.attributes) == len(b.attributes):  # type: ignore[attr-defined]
            found = self._operations_alike(a, one, b, two)  # type: ignore[arg-type]
            if found is not None:
                return found
        if one.is_known(a) and two.is_known(b):
            if _same_values(one.value(a), two.value(b)):
                return []
        elif isinstance(a, Variable) and isinstance(b, Variable):
            token = one.tokens.get(id(a))
            if token is not None and token == two.tokens.get(id(b)):
                return []
        raise _Unlike(a)

    def _operations_alike(
        self, a: Operation, one: _Scope, b: Operation, two: _Scope
    ) -> list[tuple[Node, _Scope, Node, _Scope]] | None:
        """The inputs that are left to compare; None where attributes differ."""
        captured = _CAPTURED.get(a.operator.name)
        graphs = []
        for key, value in a.attributes.items():
            if captured is not None and key == "consts":
                continue
            pairs = _graphs(value, b.attributes[key])
            if pairs is None:
                if _shown(value, self.at) != _shown(b.attributes[key], self.as_it_is):
                    return None
            elif captured is None:
                return None
            else:
                graphs += pairs
        if captured is None:
            if len(a.inputs) != len(b.inputs):
                return None
            return [(x, one, y, two) for x, y in zip(a.inputs, b.inputs)]
        lefts, rights = (
            [k not in range(*captured(n).indices(len(n.inputs))) for k in range(len(n.inputs))]
            for n in (a, b)
        )
        inputs = [x for x, own in zip(a.inputs, lefts) if own], [y for y, own in zip(b.inputs, rights) if own]
        if len(inputs[0]) != len(inputs[1]):
            return None
        for mine, theirs in graphs:
            inner, others = _Scope(mine, one, self.at), _Scope(theirs, two, self.as_it_is)
            self._bind(inner, a, lefts)
            self._bind(others, b, rights)
            self._all(mine.outputs, inner, theirs.outputs, others)
        return [(x, one, y, two) for x, y in zip(*inputs)]

    def _bind(self, scope: _Scope, node: Operation, own: Sequence[bool]) -> None:
        """Say what the variables of a region stand for."""
        first = len(node.inputs) - len(scope.graph.inputs)
        count = 0
        for variable, given, is_own in zip(scope.graph.inputs, node.inputs[first:], own[first:]):
            if is_own:
                scope.tokens[id(variable)] = count
                count += 1
            else:
                scope.aliases[id(variable)] = given

    def _types_alike(self, one: Type, other: Type) -> bool:
        if isinstance(one, TupleType) or isinstance(other, TupleType):
            return (
                isinstance(one, TupleType)
                and isinstance(other, TupleType)
                and len(one.types) == len(other.types)
                and all(map(self._types_alike, one.types, other.types))
            )
        return one.dtype == other.dtype and self.at.type(one).shape == other.shape


def _shown(value: Any, at: _Sizes) -> Any:
    """An attribute as it is compared."""
    if type(value) is float and math.isnan(value):
        return "nan"
    if type(value) is str:
        return re.sub(r"\d{15,}", lambda n: str(at.number(int(n[0]))), value)
    if type(value) is tuple:
        return tuple([_shown(each, at) for each in value])
    return at.number(value)


def _graphs(one: Any, other: Any) -> list[tuple[Graph, Graph]] | None:
    """Pairs of graphs that two attributes hold, if they are such."""
    if isinstance(one, Graph) and isinstance(other, Graph):
        return [(one, other)]
    if type(one) is tuple and one and all(isinstance(each, Graph) for each in one):
        return None if type(other) is not tuple or len(one) != len(other) else list(zip(one, other))
    return None


def _same_values(one: Any, other: Any) -> bool:
    one, other = np.asarray(one), np.asarray(other)
    return bool(one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes())
