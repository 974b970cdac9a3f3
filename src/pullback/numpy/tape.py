"""Tapes: what a function computes of known values, without nodes, for a derivative that is remembered as a whole.

Functions that have a recipe (``recipes.py``) are called and their values kept, in order; of what was done a tape knows
the recipes and the places of their operands. Such a list tells a derivative as a graph does. Whoever asks for the node
of a value has all nodes made that the values until now come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.graph import PENDING, Node, Variable, applied, constant, written_at
from pullback.graph.node import SMALL_CONSTANT
from pullback.graph.straight import scalar_or_array

__all__ = ["BYTES_OF_VALUE", "Tape", "is_told", "number_of"]

MOST_BYTES = 1 << 26
"""Of the values on a tape. They are held until the function is left; nodes of values let go of them before."""

BYTES_OF_VALUE = 256
"""What each of them counts for, beside its elements."""


class Tape:
    """The values of variables, and of what has been computed of them."""

    __slots__ = ("_nodes", "_read", "_variables", "key", "lines", "room", "values")

    def __init__(self, variables: Sequence[Variable]) -> None:
        self.values = [scalar_or_array(x.value) for x in variables]
        """Scalars of NumPy's where there are no axes."""
        self.key: list[Any] = [id(x.type) for x in variables]
        """What tells a tape from others: the types of the variables, then recipes and the places of their operands."""
        self.lines: list[Any] = []
        """The user's line of each recipe; in the place of a constant its node."""
        self.room = MOST_BYTES
        self._variables = variables
        self._nodes: list[Node] = list(variables)
        self._read = len(variables)

    def constant(self, array: Any) -> tuple[Node, int]:
        """An array that the function has met, as a node, and its place."""
        node = constant(array)
        value = node.value
        told = value.tobytes() if is_told(value) else number_of(value) if value.size else None
        self.values.append(scalar_or_array(value))
        self.key += (id(node.type), told), ()
        self.lines.append(node)
        self.room -= BYTES_OF_VALUE + value.nbytes
        return node, len(self.values) - 1

    def mend(self) -> None:
        """Take back what has been written of a recipe that was left by an exception, which may be Ctrl-C's."""
        count = len(self._variables)
        del self.key[count + 2 * len(self.lines) :]
        for recipe in self.key[count::2]:
            count += 1 if type(recipe) is tuple else len(recipe.constants) + len(recipe.steps)
        del self.values[count:]

    def node(self, place: int) -> Node:
        """The node of the value in this place."""
        if place >= len(self._nodes):
            self._make_nodes()
        return self._nodes[place]

    def places(self) -> dict[Node, int]:
        """The place of each node."""
        self.node(len(self.values) - 1)
        return {node: place for place, node in enumerate(self._nodes)}

    def _make_nodes(self) -> None:
        nodes, key, first = self._nodes, self.key, len(self._variables)
        begun, self._read = self._read, len(key)
        with written_at(None) as line:
            for k in range(begun, len(key), 2):
                recipe, places, written = key[k], key[k + 1], self.lines[(k - first) // 2]
                if type(recipe) is tuple:
                    nodes.append(written)
                    continue
                line.move(written)
                made = [*[nodes[place] for place in places], *recipe.constants]
                nodes += recipe.constants
                for signature, at, value in recipe.steps:
                    known = np.asarray(self.values[len(nodes)]) if value is PENDING else value
                    node = applied(signature, tuple([made[place] for place in at]), known)
                    made.append(node)
                    nodes.append(node)


def is_told(value: np.ndarray) -> bool:
    """Whether all numbers of a constant belong to what tells one graph from others."""
    return value.size == 1 or (value.dtype.kind not in "fc" and value.size <= SMALL_CONSTANT)


def number_of(value: np.ndarray) -> Any:
    """The number that is in every place of an array, which rules of elementwise operators look for."""
    first = value.flat[0]
    if first != value.flat[-1] or not bool((value == first).all()):
        return None
    return first.tobytes()
