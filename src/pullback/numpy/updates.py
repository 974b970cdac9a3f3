"""``x.at[index].add(value)`` and its like: what ``x[index] += value`` is for values that never change.

An element that the index names several times is updated several times, one after another in the order of the index, as
NumPy's ``np.add.at`` does; of several values that are set, the last one stays. The derivative goes to what counted: to
every factor, to the value that stayed, to the largest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.errors import DTypeError, ShapeError
from pullback.graph import OPERATORS, Graph, Node, constant, dtype_kind
from pullback.graph.named import is_named
from pullback.graph.protocol import vocabulary
from pullback.interpreter import evaluate
from pullback.numpy import elementwise as e
from pullback.numpy.indexing import INT64, Plan, getitem, make_plan, sliced
from pullback.numpy.promotion import (
    any_traced,
    as_array_node,
    as_node,
    broadcast_shapes,
    broadcast_to_shape,
    result_dtype,
    type_of,
    where_written,
)
from pullback.numpy.shapes import flip, permuted, to_shape

__all__ = ["At", "Place", "at"]


def at(x: Any) -> At:
    """``x.at`` for arrays of every kind: NumPy's own have no such attribute, traced ones have both.

    >>> import numpy as np
    >>> at(np.array([1.0, 2.0, 3.0]))[[0, 0, 1]].multiply(np.array([2.0, 5.0, 7.0]))
    array([10., 14.,  3.])
    """
    return At(x)


@dataclass(frozen=True)
class At:
    """``at(x)`` and ``x.at``: index it to name the elements that a new array is to have changed."""

    array: Any

    def __getitem__(self, index: Any) -> Place:
        return Place(self.array, index)


@dataclass(frozen=True)
class Place:
    """Elements of an array, named by an index as NumPy writes it.

    Each method returns a new array, of the dtype of the old one. ``value`` broadcasts to the shape of
    ``x[index]``, and takes the array's dtype. An index outside its axis raises ``IndexRangeError``: a concrete
    one at once, a traced one when the program runs. Derivatives of any order by the array and by ``value``.

    >>> import numpy as np
    >>> x, i, v = np.array([1.0, 2.0, 3.0]), np.array([0, 0, 2]), np.array([4.0, 5.0, 0.0])
    >>> for name in ("set", "add", "multiply", "max"):
    ...     print(name, getattr(at(x)[i], name)(v))
    set [5. 2. 0.]
    add [10.  2.  3.]
    multiply [20.  2.  0.]
    max [5. 2. 3.]
    """

    array: Any
    index: Any

    def get(self) -> Any:
        """The elements themselves: ``x[index]``."""
        return self._answered(getitem(as_array_node(self.array), self.index))

    def set(self, value: Any) -> Any:
        """The array with the elements at the index replaced, as by ``x[index] = value``.

        Of several values for one element the last one stays, in the order of the index's rows however its arrays lie
        in memory, and the gradient goes to it alone.
        """
        return self._updated("set", value)

    def add(self, value: Any) -> Any:
        """The array with ``value`` added at the index: ``np.add.at``."""
        return self._updated("add", value)

    def subtract(self, value: Any) -> Any:
        """The array with ``value`` subtracted at the index: ``np.subtract.at``."""
        return self._updated("subtract", value)

    def multiply(self, value: Any) -> Any:
        """The array with the elements at the index multiplied by ``value``: ``np.multiply.at``."""
        return self._updated("multiply", value)

    def divide(self, value: Any) -> Any:
        """The array with the elements at the index divided by ``value``: ``np.divide.at``, for arrays of floats."""
        return self._updated("divide", value)

    def power(self, value: Any) -> Any:
        """The array with the elements at the index raised to ``value``: ``np.power.at``, for arrays of floats."""
        return self._updated("power", value)

    def max(self, value: Any) -> Any:
        """The array with the larger of its elements at the index and ``value``: ``np.maximum.at``.

        Where several are the largest, the element itself among them, they share the gradient equally.
        """
        return self._updated("max", value)

    def min(self, value: Any) -> Any:
        """The array with the smaller of its elements at the index and ``value``: ``np.minimum.at``.

        Where several are the smallest, the element itself among them, they share the gradient equally.
        """
        return self._updated("min", value)

    maximum = max
    minimum = min

    def _answered(self, node: Node, *others: Any) -> Any:
        """The node where something is traced, and its value where nothing is."""
        if any_traced(self.array, self.index, *others):
            return node
        (value,) = evaluate(Graph((), (node,)), [])
        return np.array(value)

    def _value(self, method: str, value: Any) -> Node:
        """``value`` in the array's dtype; only to ``set`` it may lose more than NumPy's own updates let it."""
        dtype = as_array_node(self.array).dtype
        common = result_dtype(type_of(value), type_of(self.array))
        if method != "set" and not np.can_cast(common, dtype, "same_kind"):
            raise DTypeError(
                f"at[...].{method}: a value of {type_of(value).dtype} for an array of {dtype} would lose its "
                f"fraction, size or sign; cast the array, for instance with .astype({common}){where_written()}"
            )
        return as_node(value, dtype)

    def _updated(self, method: str, value: Any) -> Any:
        x = as_array_node(self.array)
        if x.dtype.kind == "b" and method not in ("set", "max", "min"):
            raise DTypeError(
                f"at[...].{method} of a bool array; use .max(value) for or, .min(value) for and, or cast it with "
                f".astype(np.int64){where_written()}"
            )
        if dtype_kind(x.dtype) != "f" and method in ("divide", "power"):
            raise DTypeError(
                f"at[...].{method} of an array of {x.dtype}, whose results need not be integers; cast it, for "
                f"instance with .astype(np.float64){where_written()}"
            )
        plan, node = make_plan(x, self.index), self._value(method, value)
        if method == "subtract":
            method, node = "add", e.negative(node)
        if _is_box(x, plan):
            node = _spread(node, tuple(plan.shape))
            if method != "set":
                node = _OF_ELEMENTS[method](to_shape(sliced(x, plan.slices), node.shape), node)
            return self._answered(_with_box(x, plan.slices, node), value)
        places, name = _Places(x, plan), f"scatter_{method}"
        result = OPERATORS[name](x, places.arranged(node), *places.indices, **places.attributes(name))
        return self._answered(result, value)


vocabulary["at"] = at
_OF_ELEMENTS = {
    "add": e.add,
    "multiply": e.multiply,
    "divide": e.divide,
    "power": e.power,
    "max": e.maximum,
    "min": e.minimum,
}
"""What each update makes of elements that are named once."""


def _spread(value: Node, shape: tuple[int, ...]) -> Node:
    """``value`` for each of the elements that an index names, which have this shape."""
    if value.ndim > len(shape) or any(n not in (1, m) for n, m in zip(value.shape[::-1], shape[::-1])):
        raise ShapeError(
            f"at: a value of shape {value.shape} for elements of shape {shape}; give it a shape that "
            f"broadcasts to that{where_written()}"
        )
    return broadcast_to_shape(value, shape)


_FEWEST = 4
"""Slices that name at least one of so many elements are computed with the rest of the array."""


def _is_box(x: Node, plan: Plan) -> bool:
    """Whether an index is made of slices without gaps that together name much of ``x``.

    Then the array is computed anew, each element by what it becomes, which fuses with what is around; so does its
    derivative. Of less, such as one row, or every other one, the elements are better put where they belong. Axes that
    are left whole are not asked, so that a trace for any size of them answers as one for a size does.
    """
    cut = [(n, part) for n, part in zip(x.shape, plan.slices) if part != range(n)]
    if plan.arrays or any(is_named(n) or (len(part) > 1 and abs(part.step) > 1) for n, part in cut):
        return False
    return 0 < math.prod(n for n, _ in cut) <= _FEWEST * math.prod(len(part) for _, part in cut)


def _with_box(x: Node, slices: Sequence[range], value: Node) -> Node:
    """``x`` with the elements that ``slices`` name replaced by those of ``value``, in the order of the slices."""
    value = to_shape(value, tuple(map(len, slices)))
    value = flip(value, [axis for axis, part in enumerate(slices) if part.step < 0])
    if value.shape == x.shape:
        return value
    low = tuple(min(part[0], part[-1]) if part else 0 for part in slices)
    high = tuple(n - start - extent for n, start, extent in zip(x.shape, low, value.shape))
    inside = OPERATORS["broadcast"](constant(True), shape=value.shape, axes=())
    chosen, new = (OPERATORS["pad"](node, low=low, high=high) for node in (inside, value))
    return e.where(chosen, new, x)  # type: ignore[no-any-return]


class _Places:
    """The elements that an index names: one integer array for each axis that it selects from.

    What selects all of an axis in order leaves it to the operator as a whole. The shape of the result of
    ``x[index]`` has new axes, which an update has no use for, and the others in any order.
    """

    def __init__(self, x: Node, plan: Plan) -> None:
        arrays = [plan.arrays[axis] for axis in plan.arrays]
        block = broadcast_shapes("index", *map(np.shape, arrays)) if arrays else ()
        dimensions = [(origin, n) for origin, n in zip(plan.origins, plan.shape) if origin is not None]
        whole = [axis for axis, part in enumerate(plan.slices) if axis not in plan.arrays]
        whole = [axis for axis in whole if plan.slices[axis] == range(x.shape[axis])]
        kept = [axis for axis, _ in dimensions if axis in whole]
        self.axes = tuple(axis for axis in range(x.ndim) if axis not in kept)
        self.shape: tuple[int, ...] = ()
        """Of the result of ``x[index]``."""
        self._without_new: tuple[int, ...] = ()
        selected: list[int] = []  # where positions stand among the axes of the result without new ones
        starts: dict[
            int, int
        ] = {}  # where an axis of x, or the block of the arrays, begins among the positions
        positions: tuple[int, ...] = ()
        for axis, extent in dimensions:
            extents = block if axis == -1 else (extent,)
            if axis not in kept:
                starts[axis] = len(positions)
                selected += range(len(self._without_new), len(self._without_new) + len(extents))
                positions += extents
            self._without_new += extents
        for origin, extent in zip(plan.origins, plan.shape):
            self.shape += block if origin == -1 else (extent,)
        rest = [axis for axis in range(len(self._without_new)) if axis not in selected]
        self._order = (*selected, *rest)
        self.indices = [self._index(x, plan, axis, starts, positions, len(block)) for axis in self.axes]
        self._plan, self._count = plan, math.prod(positions)
        self._block = block

    @staticmethod
    def _index(
        x: Node, plan: Plan, axis: int, starts: dict[int, int], positions: tuple[int, ...], block: int
    ) -> Node:
        """The index along one axis at every position."""
        if axis in plan.arrays:
            node, start = as_array_node(plan.arrays[axis]), starts.get(-1, 0)
            behind = len(positions) - start - block
        else:
            count = OPERATORS["iota"](shape=(x.shape[axis],), axis=0, dtype=INT64)
            node = sliced(count, plan.slices[axis : axis + 1])
            if axis not in starts:  # a single integer
                return broadcast_to_shape(to_shape(node, ()), positions)
            behind = len(positions) - starts[axis] - 1
        return broadcast_to_shape(to_shape(node, node.shape + (1,) * behind), positions)

    def arranged(self, value: Node) -> Node:
        """``value`` at every position, those axes last that are left as a whole."""
        return permuted(to_shape(_spread(value, self.shape), self._without_new), self._order)

    def attributes(self, name: str) -> dict[str, Any]:
        """How the operator ``name`` is applied: it is told how often an element is named, where it can use that."""
        if name not in ("scatter_set", "scatter_multiply", "scatter_power"):
            return {"axes": self.axes}
        return {"axes": self.axes, "repeats": self._repeats()}

    def _repeats(self) -> int:
        """The most times that one element is named: slices name each once, traced arrays perhaps all one."""
        arrays = list(self._plan.arrays.values())
        count = math.prod(self._block)
        if not arrays or count == 0:
            return 1
        if any_traced(*arrays):
            return count
        named = np.stack([np.broadcast_to(array, self._block).reshape(-1) for array in arrays])
        return int(np.unique(named, axis=1, return_counts=True)[1].max())
