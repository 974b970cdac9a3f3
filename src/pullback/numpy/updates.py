"""``x.at[index].set(value)`` and ``x.at[index].add(value)``: what assignment is for values that never
change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.errors import ShapeError, TracingError
from pullback.graph import OPERATORS, Node
from pullback.numpy import elementwise as e
from pullback.numpy.indexing import INT64, getitem, make_plan
from pullback.numpy.promotion import (
    any_traced,
    as_array_node,
    as_node,
    broadcast_shapes,
    broadcast_to_shape,
    where_written,
)
from pullback.numpy.shapes import to_shape

__all__ = ["At", "Place"]


@dataclass(frozen=True)
class At:
    """``x.at``: index it to name the elements that a new array is to have changed."""

    array: Node

    def __getitem__(self, index: Any) -> Place:
        return Place(self.array, index)


@dataclass(frozen=True)
class Place:
    """Elements of an array, named by an index as NumPy writes it."""

    array: Node
    index: Any

    def get(self) -> Node:
        """The elements themselves: ``x[index]``."""
        return getitem(self.array, self.index)

    def add(self, value: Any) -> Node:
        """The array with ``value`` added at the index, once for each time that an element is named."""
        x = self.array
        plan = make_plan(x, self.index)
        axes = tuple(sorted(plan.arrays))
        direct = axes == tuple(range(len(axes))) and axes and plan.shape[0] == -1
        if direct and tuple(plan.shape[1:]) == x.shape[len(axes) :]:
            indices = [as_array_node(plan.arrays[axis]) for axis in axes]
            shape = broadcast_shapes("index", *[node.shape for node in indices])
            spread = [broadcast_to_shape(node, shape) for node in indices]
            updates = self._updates(value, (*shape, *plan.shape[1:]))
            return OPERATORS["scatter_add"](x, updates, *spread, axes=axes)
        places = self._places()
        flat = OPERATORS["scatter_add"](
            to_shape(x, (x.size,)),
            to_shape(self._updates(value, places.shape), (places.size,)),
            to_shape(places, (places.size,)),
            axes=(0,),
        )
        return to_shape(flat, x.shape)

    def multiply(self, value: Any) -> Node:
        """The array with the elements at the index multiplied by ``value``."""
        return self.set(e.multiply(self.get(), value))

    def set(self, value: Any) -> Node:
        """The array with the elements at the index replaced; of several values for one element the last
        counts.

        Traced index arrays could name an element twice, so for them only ``add`` is there.
        """
        x = self.array
        plan = make_plan(x, self.index)
        if any(isinstance(array, Node) and array.ndim for array in plan.arrays.values()):
            raise TracingError(
                "x.at[index].set with a traced index array cannot tell which value is the last for an "
                "element named twice; use x.at[index].add(value - x[index]) when no element "
                f"is{where_written()}"
            )
        if not any_traced(*plan.arrays.values()):
            return self._set_known(value)
        places = self._places()
        flat = to_shape(places, (places.size,))
        zeros = broadcast_to_shape(as_array_node(np.zeros((), x.dtype)), (x.size,))
        updates = to_shape(self._updates(value, places.shape), (places.size,))
        ones = broadcast_to_shape(as_array_node(np.ones((), np.int64)), (places.size,))
        none = broadcast_to_shape(as_array_node(np.zeros((), np.int64)), (x.size,))
        values = OPERATORS["scatter_add"](zeros, updates, flat, axes=(0,))
        named = OPERATORS["scatter_add"](none, ones, flat, axes=(0,))
        return e.where(to_shape(e.greater(named, 0), x.shape), to_shape(values, x.shape), x)  # type: ignore[no-any-return]

    def _set_known(self, value: Any) -> Node:
        """Replacement where the index is concrete: each element takes its new value, or its own."""
        x = self.array
        order = np.arange(x.size).reshape(x.shape)
        places = order[self.index]
        updates = to_shape(self._updates(value, places.shape), (places.size,))
        source = np.arange(x.size)
        source[places.reshape(-1)] = x.size + np.arange(places.size)
        both = OPERATORS["concatenate"](to_shape(x, (x.size,)), updates, axis=0)
        return to_shape(getitem(both, source), x.shape)

    def _places(self) -> Node:
        """The positions of the named elements in the flat array."""
        x = self.array
        flat = OPERATORS["iota"](shape=(x.size,), axis=0, dtype=INT64)
        return getitem(to_shape(flat, x.shape), self.index)

    def _updates(self, value: Any, shape: tuple[int, ...]) -> Node:
        """``value`` in the dtype of the array and the shape of the named elements."""
        node = as_node(value, self.array.dtype)
        if node.ndim > len(shape) or any(n not in (1, m) for n, m in zip(node.shape[::-1], shape[::-1])):
            raise ShapeError(
                f"at: a value of shape {node.shape} for elements of shape {shape}{where_written()}"
            )
        return broadcast_to_shape(node, shape)
