"""Batching on graphs: what is computed of one example, computed of many at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pullback.errors import BatchError
from pullback.graph import Node, Operation, TupleType, Variable, apply, result, substitute
from pullback.operators.batching import any_batched, batch_size

__all__ = ["batched"]


def batched(
    outputs: Sequence[Node],
    ones: Sequence[Variable],
    many: Sequence[Node],
    arranged: Callable[[Node], Node] = lambda node: node,
) -> list[Node]:
    r"""``outputs`` for many examples, where ``many`` hold in front the examples of the variables ``ones``.

    .. math:: Y_{n,\dots} = y(x = X_{n,\dots})

    Each operation that depends on an example is replaced by what its operator's batching rule gives; all
    else is computed once. So an output that no example matters to comes without the batch axis. ``arranged`` may put
    another node for each that a rule has made.
    """

    several: dict[int, Sequence[Node]] = {}

    def rebuild(node: Operation, inputs: tuple[Node, ...]) -> Node:
        if node.operator is result:
            many = several.get(id(inputs[0]))
            return result(inputs[0], **node.attributes) if many is None else many[node.attributes["index"]]
        if not any_batched(inputs, node.inputs):
            # What is the same for all examples may yet come from an operation of which other results are not.
            return apply(node.operator, inputs, node.attributes)
        if isinstance(node.type, TupleType):
            several[id(node)] = node.operator.batch(node, inputs)
            return node
        found: Node = node.operator.batch(node, inputs)
        wanted = (batch_size(inputs, node.inputs), *node.shape)
        if (found.shape, found.dtype) != (wanted, node.dtype):
            raise BatchError(
                f"{node.operator.name}: its batching rule gives {found.type} for examples of {node.type}; "
                f"it must give {node.type.with_shape(wanted)}"
            )
        return arranged(found)

    return list(substitute(outputs, dict(zip(ones, many)), rebuild))
