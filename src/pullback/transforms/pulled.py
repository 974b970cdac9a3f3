"""Pullbacks on values, remembered: which operations a rule makes for operands like these is found out once.

A rule is given nodes, and what it makes of them depends on their types, on constants among them, and on the layers
around a cotangent (masks, broadcasts, factors), not on values. So it is asked once, with variables in place of values,
and from then on the references of the operations that it made are called: the same numbers, without rules and nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.errors import PullbackError
from pullback.graph import (
    PENDING,
    Constant,
    Detached,
    Node,
    Operation,
    Variable,
    applied,
    force,
)
from pullback.graph.node import SMALL_CONSTANT
from pullback.operators.elementwise import constant_value

__all__ = ["pulled"]

MOST_RULES = 64
"""Kinds of operands that are remembered of one signature."""

_SEEN_ONCE: Any = object()


def _layers(x: Any, nodes: list[Any], key: list[int]) -> bool:
    """Note a cotangent: a value, or layers around some. Whether rules can be remembered for such."""
    kind = type(x)
    if kind is Detached:
        key.append(id(x.type))
    elif kind is Constant:
        key.append(id(x))
        if x.value.size > SMALL_CONSTANT:
            return False
    elif kind is Operation and x.type.dtype.kind == "f" and x.operator.is_layer(x.inputs):
        key.append(id(x.signature))
        for child in x.inputs:
            if not _layers(child, nodes, key):
                return False
    else:
        return False
    nodes.append(x)
    return True


def _input(x: Any, elementwise: bool, nodes: list[Any], key: list[int]) -> bool:
    """Note an input of an operation. Rules of elementwise operators look at constants and through broadcasts."""
    if x.type.dtype.kind != "f":
        return False
    kind = type(x)
    if kind is Constant:
        if elementwise and (x.value.size == 1 or constant_value(x) is not None):
            key.append(id(x))
            if x.value.size > SMALL_CONSTANT:
                return False
        else:  # its numbers do not matter
            key.append(-2)
    elif kind is Operation and elementwise and x.operator.name == "broadcast":
        key.append(id(x.signature))
        if not _input(x.inputs[0], elementwise, nodes, key):
            return False
    else:
        for place, other in enumerate(nodes):
            if other is x:
                key.append(place)
                return True
        key.append(-1)
    nodes.append(x)
    return True


class _Unfit(Exception):
    """What a rule makes of operands is not to be remembered."""


_VALUE, _GIVEN, _LAYER, _NODE, _SHARED = range(5)
Maker = tuple[Any, ...]
"""How a part is made.

Of a value, as an operand itself, as a layer around others, as what it always is, or, a mask, as a node that all share.
"""


class _Rule:
    """What an operator's pullback makes of operands of one kind: steps from values to values, and the parts of these.

    A slot is the place of a value: of an operand, of what is always the same, or of a step's result.
    """

    __slots__ = ("_free", "_given", "_makers", "_named", "_needed", "_of_bar", "_slots", "_steps", "_values")

    def __init__(
        self, node: Operation, bar: Node, nodes: Sequence[Any], named: Sequence[Any], active: Sequence[bool]
    ) -> None:
        """Ask the rule for ``nodes``, of which the key names those; ``_Unfit`` where it is not to be remembered."""
        layered = _layered(node, bar)
        made: dict[int, Any] = {}
        for x in nodes[:-1]:
            if type(x) is Constant:
                made[id(x)] = x
            elif id(x) in layered:
                made[id(x)] = applied(x.signature, tuple([made[id(child)] for child in x.inputs]))
            else:
                made[id(x)] = Variable(x.type)
        made[id(node)] = applied(node.signature, tuple([made[id(x)] for x in node.inputs]))
        given = [made[id(x)] for x in nodes]
        self._named = named
        known = set(map(id, named))
        self._free = {id(x) for x in nodes if type(x) is Constant and id(x) not in known}
        self._given = {id(x): place for place, x in enumerate(given)}
        self._of_bar = 1 + max([place for place, x in enumerate(nodes) if x is bar])
        self._slots = dict(self._given)
        self._needed: list[int] = []
        self._values: list[Any] = [None] * len(given)
        self._steps: list[tuple[Any, tuple[int, ...], Any, int]] = []
        parts = node.operator.pullback(made[id(node)], made[id(bar)])  # type: ignore[misc]
        as_they_are = [type(x) in (Detached, Constant) or id(x) in layered for x in nodes]
        self._makers = [
            self._maker(part, as_they_are, True) if moves and part is not None else None
            for part, moves in zip(parts, active)
        ]
        del self._free, self._given, self._of_bar, self._slots

    def _maker(self, x: Any, as_they_are: Sequence[bool], outermost: bool) -> Maker:
        place = self._given.get(id(x))
        if place is not None:
            return (_GIVEN, place) if as_they_are[place] else (_VALUE, self._slot(x), x.type)
        if type(x) is Constant:
            return _NODE, x
        if type(x) is Operation:
            if x.type.dtype.kind == "b":
                return self._mask(x)
            if not _is_simple(x):
                raise _Unfit
            # A part among zeros is added in place, if it can be.
            if x.operator.is_layer(x.inputs) or (outermost and x.operator.name == "pad"):
                return _LAYER, x.signature, [self._maker(child, as_they_are, False) for child in x.inputs]
        return _VALUE, self._slot(x), x.type

    def _mask(self, x: Any) -> Maker:
        """A mask is an operation of the graph: rules ask whether two are one."""
        place = self._given.get(id(x))
        if place is not None:
            if place < self._of_bar:
                raise _Unfit
            return _GIVEN, place
        if type(x) is Constant:
            return _NODE, x
        if type(x) is not Operation or not x.signature.is_plain:
            raise _Unfit
        return _SHARED, x.signature, [self._mask(child) for child in x.inputs]

    def _slot(self, x: Any) -> int:
        """The slot of the value of ``x``."""
        slot = self._slots.get(id(x))
        if slot is not None:
            if slot < len(self._given) and slot not in self._needed:
                self._needed.append(slot)
            return slot
        if type(x) is not Constant:
            if type(x) is not Operation or not _is_simple(x):
                raise _Unfit
            places = tuple([self._slot(child) for child in x.inputs])
        slot = self._slots[id(x)] = len(self._values)
        if self._is_fixed(x):
            self._values.append(force(x))
        else:
            self._values.append(None)
            self._steps.append((x.signature.compute, places, x.type.dtype, slot))
        return slot

    def _is_fixed(self, x: Any) -> bool:
        """Whether ``x`` is the same each time, and takes no memory."""
        if type(x) is Constant:
            return id(x) not in self._free
        return type(x) is Operation and x.operator.name == "broadcast" and self._is_fixed(x.inputs[0])

    def follow(self, nodes: Sequence[Any]) -> list[Node | None]:
        """The cotangents of the inputs, of these operands."""
        values = self._values.copy()
        for place in self._needed:
            value = nodes[place].value
            values[place] = force(nodes[place]) if value is PENDING else value
        for compute, places, dtype, slot in self._steps:
            if len(places) == 2:
                value = compute(values[places[0]], values[places[1]])
            elif len(places) == 1:
                value = compute(values[places[0]])
            else:
                value = compute(*[values[k] for k in places])
            if type(value) is not np.ndarray or value.dtype is not dtype:
                value = np.asarray(value, dtype)
            values[slot] = value
        parts: list[Node | None] = []
        for maker in self._makers:
            if maker is None:
                parts.append(None)
            elif maker[0] == _VALUE:
                parts.append(Detached(maker[2], values[maker[1]]))
            else:
                parts.append(_made(maker, nodes, values))
        return parts


def _is_simple(x: Operation) -> bool:
    return x.signature.compute is not None and x.signature.is_plain and x.type.dtype.kind in "fb"


def _made(maker: Maker, nodes: Sequence[Any], values: Sequence[Any]) -> Node:
    kind = maker[0]
    if kind == _VALUE:
        return Detached(maker[2], values[maker[1]])
    if kind == _GIVEN:
        return nodes[maker[1]]  # type: ignore[no-any-return]
    if kind == _NODE:
        return maker[1]  # type: ignore[no-any-return]
    inputs = tuple([_made(each, nodes, values) for each in maker[2]])
    if kind == _LAYER:
        return Operation(maker[1], inputs)
    mask = applied(maker[1], inputs)
    force(mask)  # while the values that it is made of are there
    return mask


def _layered(node: Operation, bar: Any) -> set[int]:
    """The numbers of the nodes that the rule sees as operations on others."""
    found = set[int]()
    stack: list[Any] = [bar]
    while stack:
        x = stack.pop()
        if type(x) is Operation:
            found.add(id(x))
            stack += x.inputs
    stack = list(node.inputs) if node.operator.elementwise else []
    while stack:
        x = stack.pop()
        if type(x) is Operation and x.operator.name == "broadcast":
            found.add(id(x))
            stack += x.inputs
    return found


def _named(nodes: Sequence[Any], key: Sequence[int]) -> list[Any]:
    """What ``key`` tells by its number, which stays its own while it is alive."""
    constants = [x for x in nodes if type(x) is Constant and id(x) in key]
    return [*constants, *[x.type for x in nodes], *[x.signature for x in nodes if type(x) is Operation]]


def pulled(node: Operation, bar: Node, active: set[Node]) -> Sequence[Node | None] | None:
    """The cotangents of the inputs of ``node`` that are ``active``, given its own, without asking its operator's rule.

    ``None`` where that has to be asked.
    """
    signature = node.signature
    if not signature.is_smooth:
        return None
    if type(bar) is Detached:
        nodes: list[Any] = [bar]
        key = [id(bar.type)]
    else:
        nodes, key = [], []
        if not _layers(bar, nodes, key):
            return None
    elementwise = signature.operator.elementwise
    for x in node.inputs:
        key.append(x in active)
        if not _input(x, elementwise, nodes, key):
            return None
    nodes.append(node)
    known = tuple(key)
    rules = signature.pullbacks
    rule = rules.get(known)
    if type(rule) is _Rule:
        try:
            return rule.follow(nodes)
        except PullbackError:  # the operation itself tells its line
            return None
    if rule is None and len(rules) < MOST_RULES:
        rules[known] = (_SEEN_ONCE, _named(nodes, key))
    elif rule is not None and rule[0] is _SEEN_ONCE:
        try:
            rules[known] = _Rule(node, bar, nodes, rule[1], [x in active for x in node.inputs])
        except _Unfit:
            rules[known] = (None, rule[1])
    return None
