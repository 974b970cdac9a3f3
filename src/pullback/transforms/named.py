"""Named axes: what the examples of a ``vmap`` know of each other."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from pullback.errors import ShapeError, TracingError
from pullback.graph import OPERATORS, Node, Operation, Operator, Type, Variable, apply, substitute
from pullback.numpy.promotion import as_array_node, where_written
from pullback.operators.batching import behind, is_batched, moved
from pullback.operators.elementwise import filled, zeros_like
from pullback.tracing.tracebacks import shows_users_frames
from pullback.tracing.trees import map_tree

__all__ = [
    "NamedAxis",
    "all_gather",
    "axis_index",
    "batching",
    "is_collective",
    "pmax",
    "pmean",
    "pmin",
    "psum",
    "without_collectives",
]

_numbers = itertools.count()
_here = threading.local()


class NamedAxis:
    """The axis of the examples of one call of a mapped function."""

    def __init__(self, name: str, size: int) -> None:
        self.name, self.size = name, size
        self.number = next(_numbers)
        self.index = Variable(Type(np.dtype(np.int64), ()), f"{name} index")

    @contextmanager
    def known(self) -> Iterator[None]:
        """Within this context the name is that of this axis."""
        stack = _here.__dict__.setdefault("axes", [])
        stack.append(self)
        try:
            yield
        finally:
            stack.pop()


@contextmanager
def batching(axis: NamedAxis | None) -> Iterator[None]:
    """Within this context batching rules are applied for ``axis``, or for one without a name."""
    before = getattr(_here, "batched", None)
    _here.batched = axis
    try:
        yield
    finally:
        _here.batched = before


def _axis(function: str, name: str) -> NamedAxis:
    stack: list[NamedAxis] = _here.__dict__.setdefault("axes", [])
    found = next((axis for axis in reversed(stack) if axis.name == name), None)
    if found is None:
        known = ", ".join(repr(axis.name) for axis in stack) or "none"
        raise TracingError(
            f"{function}: there is no axis {name!r} here, names in use: {known}; call it in a function that is "
            f"given to vmap with axis_name={name!r}{where_written()}"
        )
    return found


@shows_users_frames
def psum(tree: Any, axis_name: str) -> Any:
    r"""The sum of a value over all examples of the ``vmap`` around that has this ``axis_name``.

    .. math:: y_n = \sum_m x_m

    ``tree`` holds what each example has; the result is a tree like it, the same for all. Cotangents are summed
    likewise. Raises ``TracingError`` where no ``vmap`` of this name is under way.

    Source: the meaning is that of ``jax.lax.psum``.

    >>> from pullback import vmap
    >>> vmap(lambda x: x / psum(x, "examples"), axis_name="examples")(np.array([1.0, 3.0]))
    array([0.25, 0.75])
    """
    axis = _axis("psum", axis_name)
    return map_tree(lambda x: _sum_over(as_array_node(x), number=axis.number, size=axis.size), tree)


@shows_users_frames
def pmean(tree: Any, axis_name: str) -> Any:
    """The mean over all examples of the ``vmap`` around that has this ``axis_name``: ``psum`` by their number.

    >>> from pullback import vmap
    >>> vmap(lambda x: x - pmean(x, "examples"), axis_name="examples")(np.array([1.0, 3.0]))
    array([-1.,  1.])
    """
    size = _axis("pmean", axis_name).size
    return map_tree(lambda x: x / size, psum(tree, axis_name))


@shows_users_frames
def axis_index(axis_name: str) -> Any:
    """The number of the example, an ``int64``, in the ``vmap`` around that has this ``axis_name``.

    >>> from pullback import vmap
    >>> vmap(lambda x: x * axis_index("examples"), axis_name="examples")(np.array([1.0, 3.0]))
    array([0., 3.])
    """
    return _axis("axis_index", axis_name).index


@shows_users_frames
def pmax(tree: Any, axis_name: str) -> Any:
    r"""The largest value over all examples of the ``vmap`` around that has this ``axis_name``.

    .. math:: y_n = \max_m x_m

    Like ``psum``; NaN if one is NaN. Equal winners share the cotangent equally.

    >>> from pullback import vmap
    >>> vmap(lambda x: x == pmax(x, "examples"), axis_name="examples")(np.array([1.0, 3.0, 2.0]))
    array([False,  True, False])
    """
    number = _axis("pmax", axis_name).number
    return map_tree(lambda x: _max_over(as_array_node(x), number=number), tree)


@shows_users_frames
def pmin(tree: Any, axis_name: str) -> Any:
    """The smallest value over all examples of the ``vmap`` around that has this ``axis_name``, as with ``pmax``.

    >>> from pullback import vmap
    >>> vmap(lambda x: x - pmin(x, "examples"), axis_name="examples")(np.array([1.0, 3.0, 2.0]))
    array([0., 2., 1.])
    """
    number = _axis("pmin", axis_name).number
    return map_tree(lambda x: _min_over(as_array_node(x), number=number), tree)


@shows_users_frames
def all_gather(tree: Any, axis_name: str, axis: int = 0) -> Any:
    r"""The values of all examples of the ``vmap`` around that has this ``axis_name``, side by side.

    .. math:: y_{n, m} = x_m

    A new axis of as many elements as there are examples stands at ``axis`` of each array of the ``tree``. Cotangents of
    an example's value are summed over all that have it. Raises ``TracingError`` where no ``vmap`` of this name is under
    way, and ``ShapeError`` for an axis that the result has not.

    Source: the meaning is that of ``jax.lax.all_gather``.

    >>> from pullback import vmap
    >>> nearest = lambda x: np.sort(np.abs(all_gather(x, "points") - x))[1]
    >>> vmap(nearest, axis_name="points")(np.array([0.0, 1.0, 5.0]))
    array([1., 1., 4.])
    """
    named = _axis("all_gather", axis_name)

    def gathered(x: Any) -> Node:
        node = as_array_node(x)
        if not -node.ndim - 1 <= axis <= node.ndim:
            raise ShapeError(
                f"all_gather: axis {axis} of {node.ndim + 1} axes, of {node.type} and that of the examples"
                f"{where_written()}"
            )
        made = _gather_over(node, named.index, number=named.number, size=named.size)
        return moved(made, 0, axis % (node.ndim + 1))

    return map_tree(gathered, tree)


def without_collectives(nodes: Sequence[Node], axis: NamedAxis) -> tuple[Node, ...]:
    """``nodes`` after batching: what is left of operations over ``axis`` is of values that are the same for all."""

    def rebuild(node: Operation, inputs: tuple[Node, ...]) -> Node:
        if node.operator in _OF_EQUALS and node.attributes["number"] == axis.number:
            same: Node = _OF_EQUALS[node.operator](inputs[0], axis.size)
            return same
        return apply(node.operator, inputs, node.attributes)

    return substitute(nodes, {}, rebuild)


def is_collective(node: Node) -> bool:
    """Whether an operation is over the examples of a named axis, which belongs to one call of a mapped function."""
    return isinstance(node, Operation) and node.operator in _COLLECTIVES


def _is_own(node: Operation) -> bool:
    """Whether batching rules are applied for the axis of this operation."""
    axis = getattr(_here, "batched", None)
    return axis is not None and bool(axis.number == node.attributes["number"])


def _over(reduction: str) -> Any:
    """The batching rule of an operation that reduces over the examples."""

    def batch(node: Operation, inputs: Sequence[Node]) -> Node:
        (x,) = inputs
        if not _is_own(node):
            return apply(node.operator, (x,), node.attributes)
        total = OPERATORS[reduction](x, axes=(0,))
        return OPERATORS["broadcast"](total, shape=x.shape, axes=behind(range(total.ndim)))

    return batch


def _times(x: Node, size: int) -> Node:
    return OPERATORS["multiply"](x, filled(size, x.dtype, x.shape))


def _repeated(x: Node, size: int) -> Node:
    return OPERATORS["broadcast"](x, shape=(size, *x.shape), axes=behind(range(x.ndim)))


_sum_over = Operator(
    "psum",
    lambda x, number, size: Type(x.dtype, x.shape),
    lambda x, number, size: np.asarray(x * np.asarray(size, x.dtype)),
    lambda node, g: [apply(node.operator, (g,), node.attributes)],
    _over("sum"),
    None,
    (),
    linear=True,
)
"""The sum over the examples of the axis ``number``, of which there are ``size``: in the graph of one example."""


def _extreme_pullback(node: Operation, g: Node) -> list[Node | None]:
    (x,), number = node.inputs, node.attributes["number"]
    wins = OPERATORS["equal"](x, node)
    # Their sums over the examples are of the same size: what is the same for all is counted as often in both.
    sums = [_sum_over(each, number=number, size=1) for each in (g, OPERATORS["cast"](wins, dtype=x.dtype))]
    return [OPERATORS["where"](wins, OPERATORS["divide"](*sums), zeros_like(x))]


def _extreme(name: str, reduction: str) -> Operator:
    return Operator(
        name,
        lambda x, number: Type(x.dtype, x.shape),
        lambda x, number: np.asarray(x),
        _extreme_pullback,
        _over(reduction),
        None,
        (),
    )


_max_over, _min_over = _extreme("pmax", "max"), _extreme("pmin", "min")
"""The largest and the smallest value over the examples."""


def _batch_gather(node: Operation, inputs: Sequence[Node]) -> Node:
    x, index = inputs
    if not _is_own(node):
        return moved(apply(node.operator, (x, index), node.attributes), 0, 1)
    if not is_batched(x, node.inputs[0]):
        return _repeated(_repeated(x, node.attributes["size"]), node.attributes["size"])
    return _repeated(x, node.attributes["size"])


_gather_over: Operator = Operator(
    "all_gather",
    lambda x, index, number, size: Type(x.dtype, (size, *x.shape)),
    lambda x, index, number, size: np.repeat(np.asarray(x)[None], size, 0),
    lambda node, g: [apply(_scatter_over, (g, node.inputs[1]), node.attributes), None],
    _batch_gather,
    None,
    (),
    linear=True,
)
"""The values of all examples; the second input is the number of the example, on which all results depend."""


def _batch_scatter(node: Operation, inputs: Sequence[Node]) -> Node:
    g, index = inputs
    if not _is_own(node):
        return apply(node.operator, (moved(g, 0, 1), index), node.attributes)
    if not is_batched(g, node.inputs[0]):
        return _times(g, node.attributes["size"])
    return OPERATORS["sum"](g, axes=(0,))


_scatter_over: Operator = Operator(
    "psum_scatter",
    lambda g, index, number, size: Type(g.dtype, g.shape[1:]),
    lambda g, index, number, size: np.asarray(g[int(index)] * np.asarray(size, g.dtype)),
    lambda node, g: [apply(_gather_over, (g, node.inputs[1]), node.attributes), None],
    _batch_scatter,
    None,
    (),
    linear=True,
)
"""The element of the example's own number of the sum over the examples: what ``all_gather`` is the transpose of."""

_OF_EQUALS: dict[Operator, Any] = {
    _sum_over: _times,
    _max_over: lambda x, size: x,
    _min_over: lambda x, size: x,
}
"""What they make of values that are the same for all examples."""

_COLLECTIVES = frozenset({*_OF_EQUALS, _gather_over, _scatter_over})
