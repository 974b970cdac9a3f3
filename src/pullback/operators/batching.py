"""What batching rules share: how one operation does the work of many examples at once.

A batched input has one axis more than the operation's own, in front; that is how it is told from one that is
the same for all examples.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pullback.graph import OPERATORS, Node, Operation

__all__ = ["all_batched", "any_batched", "batch_first", "batch_size", "behind", "is_batched", "moved"]


def is_batched(x: Node, one: Node) -> bool:
    """Whether ``x`` holds examples of what ``one`` is, rather than being the same for all."""
    return x.ndim > one.ndim


def any_batched(inputs: Sequence[Node], ones: Sequence[Node]) -> bool:
    """Whether one of ``inputs`` is batched."""
    return any(map(is_batched, inputs, ones))


def batch_size(inputs: Sequence[Node], ones: Sequence[Node]) -> int:
    """How many examples ``inputs`` hold, of which one is batched."""
    return next(x.shape[0] for x, one in zip(inputs, ones) if is_batched(x, one))


def all_batched(inputs: Sequence[Node], ones: Sequence[Node]) -> list[Node]:
    """``inputs``, of which one is batched, with those repeated that are the same for all examples."""
    size = batch_size(inputs, ones)
    return [
        x
        if is_batched(x, one)
        else OPERATORS["broadcast"](x, shape=(size, *x.shape), axes=behind(range(x.ndim)))
        for x, one in zip(inputs, ones)
    ]


def behind(axes: Iterable[int]) -> tuple[int, ...]:
    """``axes`` of one example in an array that has the batch axis in front."""
    return tuple(axis + 1 for axis in axes)


def moved(x: Node, source: int, target: int) -> Node:
    """``x`` with its axis ``source`` at ``target``, the others in their order."""
    axes = [axis for axis in range(x.ndim) if axis != source]
    axes.insert(target, source)
    return x if source == target else OPERATORS["transpose"](x, axes=tuple(axes))


def batch_first(node: Operation, inputs: Sequence[Node]) -> Node:
    """The batching rule of operators for which a further axis in front is one more to leave alone.

    All inputs get it. Attributes called ``axis`` and ``axes`` name the same axes behind it, one called
    ``shape`` is longer by it, and others stay.
    """
    attributes: dict[str, Any] = dict(node.attributes)
    if "axis" in attributes:
        attributes["axis"] += 1
    if "axes" in attributes:
        attributes["axes"] = behind(attributes["axes"])
    if "shape" in attributes:
        attributes["shape"] = (batch_size(inputs, node.inputs), *attributes["shape"])
    return node.operator(*all_batched(inputs, node.inputs), **attributes)
