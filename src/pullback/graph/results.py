"""Operations with several results: their type is a ``TupleType``, and each result is an operation that picks it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from pullback.errors import GraphError
from pullback.graph.graph import topological
from pullback.graph.node import Node, Operation, apply
from pullback.graph.operator import Operator
from pullback.graph.source import written_at
from pullback.graph.type import TupleType, Type

__all__ = ["pruned", "result", "results"]


def _type_rule(several: Type, index: int) -> Type:
    if not isinstance(several, TupleType) or not 0 <= index < len(several.types):
        raise GraphError(f"result {index} of {several}")
    return several.types[index]


def _refuse(*_: Any) -> NoReturn:
    raise GraphError("the results of an operation are batched and differentiated together with it")


result = Operator(
    "result",
    _type_rule,
    lambda several, index: several[index],
    _refuse,
    _refuse,
    None,
    (),
)
"""The result number ``index`` of an operation that has several. Whoever walks a graph treats it with the operation."""


def results(node: Operation) -> Sequence[Node]:
    """All results of an operation that has several."""
    assert isinstance(node.type, TupleType)
    return [result(node, index=index) for index in range(len(node.type.types))]


def pruned(outputs: Sequence[Node]) -> tuple[Node, ...]:
    """``outputs`` with operations of several results narrowed to those that are used."""
    order = topological(outputs)
    if not any(isinstance(node.type, TupleType) for node in order):
        return tuple(outputs)
    live = {id(node) for node in outputs}
    used: dict[int, list[int]] = {}
    narrower: dict[int, tuple[Operation, dict[int, int]]] = {}
    for node in reversed(order):
        if id(node) not in live:
            continue
        inputs = node.inputs
        if isinstance(node, Operation):
            if node.operator is result:
                used.setdefault(id(node.inputs[0]), []).append(node.attributes["index"])
            elif node.operator.narrow is not None:
                wanted = sorted(used[id(node)])
                found, positions = node.operator.narrow(node, wanted)
                narrower[id(node)] = found, dict(zip(wanted, positions))
                inputs = found.inputs
        live.update(map(id, inputs))
    made: dict[int, Node] = {}
    for node in order:
        if id(node) not in live or not isinstance(node, Operation):
            made[id(node)] = node
            continue
        attributes, sources = node.attributes, node.inputs
        if id(node) in narrower:
            attributes, sources = narrower[id(node)][0].attributes, narrower[id(node)][0].inputs
        elif node.operator is result and id(node.inputs[0]) in narrower:
            attributes = {"index": narrower[id(node.inputs[0])][1][node.attributes["index"]]}
        inputs = tuple([made[id(child)] for child in sources])
        unchanged = attributes == node.attributes and len(inputs) == len(node.inputs)
        if unchanged and all(new is old for new, old in zip(inputs, node.inputs)):
            made[id(node)] = node
            continue
        with written_at(node.source):
            made[id(node)] = apply(node.operator, inputs, attributes)
    return tuple(made[id(node)] for node in outputs)
