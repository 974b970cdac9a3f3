"""Named axes: what must stand in the padding of an operation's inputs, that its result is right where it is no padding.

A program for every size of an axis has arrays of a capacity, of which the rows from the size on are *padding*: anything
may stand there, NaN and indices outside their axis among it. A rule ``vary(node) -> Padding`` names for each input the
*fill* that its padding needs. Most need none: an elementwise function of padding is padding. A sum along the axis needs
zeros, a maximum the least number, an index a place that there is. What counts from the end of the axis is written with
its size ``instead`` (``operators/ends.py``). What cannot be had so is refused: ``NamedAxisError`` with the operator,
the user's line and the repair.

Where rules are asked, the extent of a named axis is a stand-in (``graph/named.py``).

>>> import numpy as np
>>> from pullback.graph import OPERATORS, Type, Variable
>>> from pullback.graph.named import STAND_INS
>>> rows = Variable(Type(np.dtype(np.float32), (STAND_INS[0], 3)), "x")
>>> padding(OPERATORS["sum"](rows, axes=(0,))).fills, padding(OPERATORS["sum"](rows, axes=(1,))).fills
((0,), (None,))
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol

from pullback.errors import NamedAxisError
from pullback.graph import Constant, Node, Operation, TupleType, Type
from pullback.graph.named import is_named, with_names

__all__ = [
    "AtCapacity",
    "Fill",
    "Padding",
    "behind_matrices",
    "beside",
    "is_count",
    "keeps",
    "keeps_zeros",
    "least_for",
    "named_axes",
    "padding",
    "refuse_named",
    "types_of",
]

Fill = float | str | None
"""A number, ``"least"`` or ``"greatest"`` of the dtype, ``"last"`` in its order, an ``"index"``, ``"identity"``."""


class AtCapacity(Protocol):
    """What extents of a program for any size are in its arrays, and when it runs."""

    def extent(self, number: int) -> int:
        """The extent of arrays that stands for ``number``."""

    def number(self, number: int) -> Node:
        """``number`` itself as an ``int64`` without axes, computed from the sizes."""


class Padding(NamedTuple):
    """What an operation needs of the padding of its inputs."""

    fills: tuple[Fill, ...]
    least: int = 1
    """The least size that it is right for."""
    zeros_of: tuple[int, ...] = ()
    """Where the padding of these inputs is zero, that of the result is as well."""
    instead: Callable[[Operation, Sequence[Node], AtCapacity], Node] | None = None
    """The operation written with sizes, of inputs that have been filled, where no fill would do."""


Rule = Callable[[Operation], Padding]


def named_axes(x: Node | Type) -> list[int]:
    """The axes of ``x`` whose extents depend on a size."""
    return [axis for axis, extent in enumerate(x.shape) if is_named(extent)]


def types_of(node: Node) -> tuple[Type, ...]:
    """The type of a node, or of each of its results."""
    return node.type.types if isinstance(node.type, TupleType) else (node.type,)


def padding(node: Operation) -> Padding:
    """What ``node`` needs; raises ``NamedAxisError`` where its operator has no rule, or refuses."""
    types = [type for x in (*node.inputs, node) for type in types_of(x)]
    if not any(map(named_axes, types)) and not any(map(_counts, node.attributes.values())):
        return Padding((None,) * len(node.inputs))
    if node.operator.vary is not None:
        found: Padding = node.operator.vary(node)
        return found
    if node.operator.elementwise:
        return keeps(node)
    refuse_named(node, "has no rule for it", "compute it of other axes, or leave the axis out of shapes=")


def _counts(value: Any) -> bool:
    """Whether an attribute depends on a size: the axis of an index does, though its types may not."""
    return any(map(_counts, value)) if type(value) is tuple else type(value) is int and is_named(value)


def least_for(x: Node, indices: Sequence[Node], axes: Sequence[int]) -> int:
    """The least size for which indices that are known are places of a named axis of ``x``."""
    known = [_greatest(index) for index, axis in zip(indices, axes) if is_named(x.shape[axis])]
    return max([1, *[greatest + 1 for greatest in known if greatest is not None]])


_GREATEST: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "multiply": lambda a, b: max(a * b, 0),
    "maximum": max,
    "minimum": min,
}


def _greatest(node: Node) -> int | None:
    """The greatest number that an index can be, where that does not depend on what is given: rows that are counted."""
    if isinstance(node, Constant):
        return int(node.value.max()) if node.value.size else None
    if not isinstance(node, Operation):
        return None
    name, attributes = node.operator.name, node.attributes
    if name == "iota":
        extent = attributes["shape"][attributes["axis"]]
        return None if is_named(extent) else extent - 1
    if name in ("broadcast", "cast", "reshape", "transpose"):
        return _greatest(node.inputs[0])
    if name in _GREATEST:
        a, b = map(_greatest, node.inputs)
        return None if a is None or b is None else _GREATEST[name](a, b)
    return None


def refuse_named(node: Operation, problem: str, repair: str, subject: str = "") -> NoReturn:
    """Raise ``NamedAxisError``: what is wrong with ``node`` along a named axis, and what to do.

    ``subject`` is what users call it, by default the operator's name and types.
    """
    given = ", ".join(str(x.type) for x in node.inputs)
    subject = subject or f"{node.operator.name} of {given} along a named axis"
    line = "" if node.source is None else f"\n  at {node.source}"
    raise NamedAxisError(with_names(f"{subject} {problem}; {repair}{line}"))


def is_count(node: Node, axis: int) -> bool:
    """Whether ``node`` has at each place the number of its row along ``axis``."""
    while isinstance(node, Operation):
        name, attributes = node.operator.name, node.attributes
        if name == "iota":
            return bool(attributes["axis"] == axis)
        if name == "check_index":
            (node,) = node.inputs
        elif name == "broadcast" and axis in attributes["axes"]:
            axis = attributes["axes"].index(axis)
            (node,) = node.inputs
            if not is_named(node.shape[axis]):
                return False
        else:
            return False
    return False


def keeps(node: Operation) -> Padding:
    """The rule of operators that make padding of padding, and nothing else."""
    return Padding((None,) * len(node.inputs))


def keeps_zeros(node: Operation) -> Padding:
    """The same of those that only move elements."""
    return Padding((None,) * len(node.inputs), zeros_of=tuple(range(len(node.inputs))))


def beside(node: Operation) -> Padding:
    """The rule of operators that treat each place along other axes than their ``axis`` or ``axes`` by itself."""
    attributes = node.attributes
    own = {attributes["axis"]} if "axis" in attributes else set(attributes["axes"])
    if any(own.intersection(named_axes(x)) for x in (node, *node.inputs)):
        refuse_named(
            node,
            "would need its true end",
            "use another axis, or give jit no shapes= for this function",
        )
    return keeps(node)


def behind_matrices(fills: Sequence[Fill] = ("identity",)) -> Rule:
    """The rule of functions of the last two axes; padding may be no matrix that they refuse."""

    def rule(node: Operation) -> Padding:
        if any(axis >= x.ndim - 2 for x in node.inputs for axis in named_axes(x)):
            refuse_named(node, "is of matrices of one size", "name an axis of many matrices instead")
        return Padding((*fills, *(None,) * (len(node.inputs) - len(fills))))

    return rule
