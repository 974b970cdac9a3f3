"""The graph around a loop: what it reads of the steps, and how it is put together again when they are a scan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pullback.graph import Node, Operation, apply, written_at
from pullback.operators.batching import moved
from pullback.operators.concatenation import concatenate
from pullback.operators.shapes import reshape, reverse, slice

__all__ = ["Around", "Place", "Rank"]

Place = tuple[int, int]
"""A slot of the loop's template, and a step."""

Rank = tuple[int, int]
"""What puts operations into the order in which Python made them."""


@dataclass(frozen=True)
class _Stretch:
    """Parts of a concatenation that several steps next to each other have made, each reshaped in one way."""

    slot: int
    first: int
    last: int
    part: Node
    """The first of them."""


class Around:
    """All nodes that ``outputs`` need beside those of a loop, which are at ``places``."""

    def __init__(self, outputs: Sequence[Node], places: Mapping[int, Place]) -> None:
        self.outputs = outputs
        self.places = places
        self.singly: dict[Place, Node] = {}
        """What is read of a step by itself."""
        self.together: dict[int, set[int]] = {}
        """The slots of which several steps are read side by side, and these steps."""
        self._parts: dict[int, list[Node | _Stretch]] = {}
        self._order: list[Node] = []
        done: set[int] = set()
        stack = [(node, False) for node in reversed(outputs)]
        while stack:
            node, expanded = stack.pop()
            if id(node) in done:
                continue
            if expanded or id(node) in places:
                done.add(id(node))
                if id(node) in places:
                    self.singly[places[id(node)]] = node
                else:
                    self._order.append(node)
                continue
            stack.append((node, True))
            stack += [(child, False) for child in reversed(self._children(node))]

    def reads(self, slot: int) -> set[int]:
        """The steps of which it is read."""
        return {step for number, step in self.singly if number == slot} | self.together.get(slot, set())

    def _children(self, node: Node) -> Sequence[Node]:
        if not isinstance(node, Operation) or node.operator is not concatenate:
            return node.inputs
        parts = self._parts[id(node)] = self._stretches(node)
        for part in parts:
            if isinstance(part, _Stretch):
                low, high = sorted((part.first, part.last))
                self.together.setdefault(part.slot, set()).update(range(low, high + 1))
        return [part for part in parts if isinstance(part, Node)]

    def _stretches(self, node: Operation) -> list[Node | _Stretch]:
        parts: list[Node | _Stretch] = []
        step = 0
        for part in node.inputs:
            base: Node = part
            while id(base) not in self.places and isinstance(base, Operation) and base.operator is reshape:
                (base,) = base.inputs
            place = self.places.get(id(base))
            if place is None:
                parts.append(part)
                continue
            slot, now = place
            before = parts[-1] if parts else None
            if isinstance(before, _Stretch) and (before.slot, before.part.shape) == (slot, part.shape):
                apart = now - before.last
                if abs(apart) == 1 and (before.first == before.last or apart == step):
                    parts[-1], step = _Stretch(slot, before.first, now, before.part), apart
                    continue
            parts.append(_Stretch(slot, now, now, part))
        return [
            part.part if isinstance(part, _Stretch) and part.first == part.last else part for part in parts
        ]

    def rebuilt(
        self, single: Callable[[Place, Node], Node], all_of: Callable[[int], Node], ranks: dict[int, Rank]
    ) -> tuple[Node, ...]:
        """The outputs with ``single`` for what is read of a step, and ``all_of`` for all steps of a slot.

        Nodes that are made anew take the rank of those whose place they take.
        """
        made: dict[int, Node] = {id(node): single(place, node) for place, node in self.singly.items()}
        for node in self._order:
            made[id(node)] = node
            if not isinstance(node, Operation):
                continue
            with written_at(node.source):
                if id(node) in self._parts:
                    inputs = tuple(
                        [
                            _side_by_side(part, all_of(part.slot), node.attributes["axis"])
                            if isinstance(part, _Stretch)
                            else made[id(part)]
                            for part in self._parts[id(node)]
                        ]
                    )
                    if len(inputs) == 1:
                        made[id(node)] = inputs[0]
                        continue
                else:
                    inputs = tuple([made[id(child)] for child in node.inputs])
                if len(inputs) == len(node.inputs) and all(
                    new is old for new, old in zip(inputs, node.inputs)
                ):
                    continue
                new = made[id(node)] = apply(node.operator, inputs, node.attributes)
            if id(node) in ranks:
                ranks.setdefault(id(new), ranks[id(node)])
        return tuple([made[id(node)] for node in self.outputs])


def _side_by_side(stretch: _Stretch, whole: Node, axis: int) -> Node:
    """The parts of a stretch along ``axis``, from the array ``whole`` with all steps in front."""
    low, high = sorted((stretch.first, stretch.last))
    count, shape = high - low + 1, stretch.part.shape
    if count < whole.shape[0]:
        zeros, ones = (0,) * (whole.ndim - 1), (1,) * whole.ndim
        whole = slice(whole, starts=(low, *zeros), stops=(high + 1, *whole.shape[1:]), steps=ones)
    if stretch.first > stretch.last:
        whole = reverse(whole, axes=(0,))
    if whole.shape != (count, *shape):
        whole = reshape(whole, shape=(count, *shape))
    joined = (*shape[:axis], count * shape[axis], *shape[axis + 1 :])
    return reshape(moved(whole, 0, axis), shape=joined)
