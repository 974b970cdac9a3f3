"""A graph traced for axes of any size, as the graph of a capacity with the sizes as further inputs.

The operations are those that have been traced, with the capacity in place of each stand-in. Where an operator's rule
asks for it, padding is filled: ``where(row < size, x, 0)`` before a sum along the axis.

>>> import numpy as np
>>> from pullback.graph import Graph, OPERATORS, Type, Variable, format_graph
>>> from pullback.graph.named import STAND_INS, NamedSize
>>> size = NamedSize("batch", STAND_INS[0], Variable(Type(np.dtype(np.int64), (), True), "batch"))
>>> x = Variable(Type(np.dtype(np.float32), (size.stand_in, 3)), "x")
>>> made = with_capacity(Graph((x,), (OPERATORS["sum"](x * 2, axes=(0,)),)), [size], [100])
>>> print(format_graph(made.graph, sources=False))
input  %0 x: float32[100, 3]
input  %1 batch: int64[]
%2 = iota(, axis=0, dtype=int64, shape=(100, 3)): int64[100, 3]
%3 = broadcast(%1, axes=(), shape=(100, 3)): int64[100, 3]
%4 = less(%2, %3): bool[100, 3]
%5 = constant 2.0: float32[]
%6 = broadcast(%5, axes=(), shape=(100, 3)): float32[100, 3]
%7 = multiply(%0, %6): float32[100, 3]
%8 = constant 0.0: float32[]
%9 = broadcast(%8, axes=(), shape=(100, 3)): float32[100, 3]
%10 = where(%4, %7, %9): float32[100, 3]
%11 = sum(%10, axes=(0,)): float32[3]
output %11
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from pullback.control.custom import without_rules
from pullback.graph import (
    OPERATORS,
    Constant,
    Graph,
    Limit,
    Node,
    Operation,
    TupleType,
    Type,
    Variable,
    apply,
    behind,
    constant,
    every_node,
    is_float,
    regions,
    result,
    substitute,
    with_regions,
)
from pullback.graph.named import (
    LEAST_SIZE,
    LEAST_STAND_IN,
    NO_END,
    NamedSize,
    is_named,
    multiple,
    named_sizes,
    with_names,
)
from pullback.numpy.sizes import size_node
from pullback.operators.elementwise import filled, is_zero
from pullback.operators.varying import Fill, Padding, keeps, named_axes, padding, refuse_named, types_of

__all__ = ["Padded", "with_capacity"]

_INT = np.dtype(np.int64)
_IN_RANGE = frozenset({
    "argmax", "argmin", "argmax_index", "argsort", "check_index", "cumargmax", "cumargmin", "iota", "window_argmax",
})  # fmt: skip
"""Operators whose results are places that there are, whatever they are given: of what they count along."""


def _searched(node: Operation) -> int:
    return math.prod(node.inputs[0].shape[axis] for axis in node.attributes["axes"])


_COUNTED: Mapping[str, Callable[[Operation], int]] = {
    "argmax": _searched,
    "argmin": _searched,
    "argsort": lambda node: node.inputs[0].shape[-1],
    "check_index": lambda node: int(node.attributes["extent"]),
    "iota": lambda node: node.shape[node.attributes["axis"]],
}
"""How many places these tell apart."""


class Padded(NamedTuple):
    """The graph of a capacity; its last inputs are the sizes."""

    graph: Graph
    least: int
    """The least size that it is right for; a capacity below has been raised to it."""


def with_capacity(
    graph: Graph, sizes: Sequence[NamedSize], capacities: Sequence[int], zeroed: Sequence[bool] = ()
) -> Padded:
    """``graph``, whose extents are the stand-ins of ``sizes``, for arrays of ``capacities``.

    Anything may stand in the padding of the arguments, but of those that are ``zeroed`` there.

    Raises ``NamedAxisError`` for what has no rule.
    """
    with named_sizes(sizes):
        graph = without_rules(graph)
        made = _Instance(sizes, capacities)
        made.raise_to_least(graph)
        own = [Variable(size.variable.type, size.name) for size in sizes]
        inputs, outputs = made.inside(own).graph(graph.inputs, graph.outputs, zeroed)
        return Padded(Graph((*inputs, *own), outputs, made.limits(graph, zeroed)), made.least)


class _Instance:
    """Graphs of one capacity, and what operations ask that are written with sizes."""

    def __init__(self, sizes: Sequence[NamedSize], capacities: Sequence[int]) -> None:
        self.sizes = sizes
        self.capacities = {size.stand_in: capacity for size, capacity in zip(sizes, capacities)}
        self.least = LEAST_SIZE
        self.own: Sequence[Node] = ()
        """The sizes; in the body of a loop over a named axis also whether the step is one that there is."""

    def inside(self, own: Sequence[Node]) -> _Instance:
        """The same for a graph in which ``own`` are the sizes."""
        made = copy(self)
        made.own = own
        return made

    def raise_to_least(self, graph: Graph) -> None:
        """Make room for the rows that operations name by their numbers."""
        for node in every_node(graph):
            if isinstance(node, Operation):
                self.least = max(self.least, self._rule(node).least)
        self.capacities = {
            stand_in: max(capacity, self.least) for stand_in, capacity in self.capacities.items()
        }

    def limits(self, graph: Graph, zeroed: Sequence[bool]) -> tuple[Limit, ...]:
        """What is known of the padding of the graph's arguments and results."""

        def places(nodes: Iterable[Node], extent: int) -> list[tuple[int, int]]:
            return [(k, x.shape.index(extent)) for k, x in enumerate(nodes) if x.shape.count(extent) == 1]

        found = []
        for k, size in enumerate(self.sizes):
            zeros = [each for each in places(graph.inputs, size.stand_in) if zeroed and zeroed[each[0]]]
            cut, capacity = places(graph.outputs, size.stand_in), self.capacities[size.stand_in]
            found.append(Limit(len(graph.inputs) + k, capacity, tuple(zeros), tuple(cut)))
        return tuple(found)

    def graph(
        self, variables: Sequence[Variable], outputs: Sequence[Node], zeroed: Sequence[bool] = ()
    ) -> tuple[tuple[Variable, ...], tuple[Node, ...]]:
        """The inputs and outputs of a graph or region."""
        rules, zeros = self._demands(outputs)
        inputs = tuple([Variable(self._type(x.type), x.name) for x in variables])
        replaced: dict[Node, Node] = dict(zip(variables, inputs))
        for size, variable in zip(self.sizes, self.own):
            replaced.setdefault(size.variable, variable)
        for number, (old, new) in enumerate(zip(variables, inputs)):
            if id(old) in zeros and not (zeroed and zeroed[number]):
                replaced[old] = self._filled(new, old, 0)

        def rebuild(node: Operation, given: tuple[Node, ...]) -> Node:
            if is_named(node.attributes.get("trips", 0)):
                made = self._to_its_end(node, given)
            elif regions(node):
                made = self._with_regions(node, given)
            else:
                fills, _, _, instead = rules[id(node)]
                given = tuple(
                    [
                        new
                        if fill in (None, 0) or (fill == "index" and _in_range(old, node))
                        else self._filled(new, old, fill)
                        for new, old, fill in zip(given, node.inputs, fills)
                    ]
                )
                given = self._harmless(node, given)
                if instead is None:
                    made = apply(node.operator, given, self._attributes(node))
                else:
                    made = instead(node, given, self)
            return self._filled(made, node, 0) if id(node) in zeros else made

        return inputs, substitute(outputs, replaced, rebuild)

    def _demands(self, outputs: Sequence[Node]) -> tuple[dict[int, Padding], set[int]]:
        """What each operation needs, and the nodes of which all users are given zeros in the padding."""
        order = Graph((), tuple(outputs)).nodes()
        rules, zeros = dict[int, Padding](), set[int]()
        for node in reversed(order):
            if not isinstance(node, Operation):
                continue
            rule = rules[id(node)] = self._rule(node)
            wanted = {k for k, fill in enumerate(rule.fills) if fill == 0 and type(fill) is int}
            if id(node) in zeros and rule.zeros_of:
                zeros.discard(id(node))
                wanted.update(rule.zeros_of)
            zeros.update(
                id(node.inputs[k])
                for k in wanted
                if named_axes(node.inputs[k]) and not is_zero(node.inputs[k])
            )
        return rules, zeros

    def _rule(self, node: Operation) -> Padding:
        least = 1
        for type in types_of(node):
            for extent in type.shape:
                found = multiple(extent)
                if found is not None:
                    least = max(least, -((found.beside - 1) // found.times))
                elif extent >= LEAST_STAND_IN:
                    refuse_named(
                        node,
                        f"gives {type}: an axis that is no multiple of the size",
                        "leave rows out with np.where, or give the part that is meant as an argument",
                    )
        rule = (keeps if regions(node) or node.operator is result else padding)(node)
        return rule._replace(least=max(least, rule.least))

    # -- From stand-ins to the capacity

    def _type(self, type: Type) -> Type:
        if isinstance(type, TupleType):
            return TupleType.of([self._type(each) for each in type.types])
        return type.with_shape(tuple([self.extent(extent) for extent in type.shape]))

    def extent(self, number: int) -> int:
        """An extent of the program's arrays."""
        found = multiple(number)
        if found is None:
            return number
        return found.times * self.capacities[found.size.stand_in] + found.beside

    def _attributes(self, node: Operation) -> dict[str, Any]:
        return {key: self._number(node, key, value) for key, value in node.attributes.items()}

    def _number(self, node: Operation, key: str, value: Any) -> Any:
        if type(value) is int and abs(value) >= LEAST_STAND_IN and value != NO_END:
            found = multiple(value)
            if found is None:
                refuse_named(node, f"counts {key}={value}", "compute it of another axis")
            return self.extent(value)
        if type(value) is str:
            return with_names(value)
        if type(value) is tuple:
            return tuple([self._number(node, key, each) for each in value])
        return value

    def number(self, number: int) -> Node:
        """The same number when the program runs."""
        found = multiple(number)
        if found is None:
            return constant(number, _INT)
        return size_node(found, self.own[self.sizes.index(found.size)])

    # -- Fills

    def _filled(self, new: Node, old: Node, fill: Fill) -> Node:
        """``new`` with ``fill`` in its padding."""
        if not named_axes(old):
            return new
        inside = []
        for axis in named_axes(old):
            limit = OPERATORS["broadcast"](self.number(old.shape[axis]), shape=new.shape, axes=())
            place = OPERATORS["iota"](shape=new.shape, axis=axis, dtype=_INT)
            inside.append(OPERATORS["less"](place, limit))
        return OPERATORS["where"](reduce(OPERATORS["logical_and"], inside), new, _other(new, fill))

    # -- Regions

    def _with_regions(self, node: Operation, given: tuple[Node, ...]) -> Node:
        """An operation whose regions take the sizes first, where they need them."""
        if node.operator.name == "while":
            self._harmless(node, given)
        held = regions(node)
        before = len(node.inputs) - len(held[0].inputs)
        joined = [output for region in held for output in region.outputs]
        inner = self._own_inside()
        # All regions of an operation have the same variables.
        inputs, outputs = self.inside(inner).graph(held[0].inputs, joined)
        ends = iter(outputs)

        def made(region: Graph) -> Graph:
            return Graph((*inner, *inputs), tuple([next(ends) for _ in region.outputs]))

        final = with_regions(self._attributes(node), made)
        if "consts" in final:
            final["consts"] += len(inner)
        return apply(node.operator, (*given[:before], *self.own, *given[before:]), final)

    def _own_inside(self) -> list[Variable]:
        """Variables of a region for what this graph has of sizes."""
        return [Variable(x.type, getattr(x, "name", "")) for x in self.own]

    def _to_its_end(self, node: Operation, given: tuple[Node, ...]) -> Node:
        """A ``scan`` of as many steps as the capacity; those from the size on leave the carries as they are."""
        attributes = self._attributes(node)
        body, consts, carries = (attributes[key] for key in ("body", "consts", "carries"))
        step = Variable(Type(_INT, ()), "step")
        inner = self._own_inside()
        sizes = len(self.sizes)
        is_step = OPERATORS["less"](step, self.inside(inner).number(node.attributes["trips"]))
        if len(inner) > sizes:
            is_step = OPERATORS["logical_and"](is_step, inner[-1])
        inputs, outputs = self.inside([*inner[:sizes], is_step]).graph(body.inputs, body.outputs)
        before = inputs[consts : consts + carries]
        kept = [_chosen(is_step, new, old) for new, old in zip(outputs, before)]
        final = {
            **attributes,
            "body": Graph((*inner, *inputs, step), (*kept, *outputs[carries:])),
            "consts": consts + len(inner),
        }
        count = OPERATORS["iota"](shape=(attributes["trips"],), axis=0, dtype=_INT)
        return apply(node.operator, (*self.own, *given, count), final)

    def _harmless(self, node: Operation, given: tuple[Node, ...]) -> tuple[Node, ...]:
        """What an operation is given that checks it, in steps of a loop that are none."""
        if len(self.own) == len(self.sizes):
            return given
        if node.operator.name in ("host_call", "while"):
            refuse_named(node, "is run in steps beyond its end", "take it out of the loop over that axis")
        if node.operator.vary is None:
            return given
        return tuple(
            [
                _chosen(self.own[-1], x, _other(x, fill)) if fill in ("index", "identity") else x
                for x, fill in zip(given, node.operator.vary(node).fills)
            ]
        )


def _in_range(index: Node, user: Operation) -> bool:
    """Whether an index is a place that there is in what ``user`` reads, in the padding too."""
    index = behind(index, ("broadcast", "reshape", "transpose"))
    if not isinstance(index, Operation):
        return isinstance(index, Constant)
    name = index.operator.name
    if user.operator.name != "check_index":  # what is not checked was, or tells places of what it was made of
        return name in _IN_RANGE
    return name in _COUNTED and _COUNTED[name](index) <= user.attributes["extent"]


def _chosen(condition: Node, x: Node, other: Node) -> Node:
    """``x`` where a condition without axes holds, ``other`` elsewhere."""
    if x.shape:
        condition = OPERATORS["broadcast"](condition, shape=x.shape, axes=())
    return OPERATORS["where"](condition, x, other)


def _other(x: Node, fill: Fill) -> Node:
    """``fill`` everywhere in the shape and dtype of ``x``."""
    if fill == "identity":
        eye = constant(np.eye(*x.shape[-2:], dtype=x.dtype))
        return OPERATORS["broadcast"](eye, shape=x.shape, axes=(x.ndim - 2, x.ndim - 1))
    return filled(_value(fill, x.dtype), x.dtype, x.shape)


def _value(fill: Fill, dtype: np.dtype) -> Any:
    if not isinstance(fill, str):
        return fill
    if fill == "index":
        return 0
    if dtype.kind == "b":
        return fill != "least"
    if is_float(dtype):
        return {"least": -np.inf, "greatest": np.inf, "last": np.nan}[fill]
    limits = np.iinfo(dtype)
    return limits.min if fill == "least" else limits.max
