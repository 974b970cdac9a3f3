"""Named axes: what the examples of a ``vmap`` know of each other."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from pullback.errors import TracingError
from pullback.graph import OPERATORS, Node, Operation, Operator, Type, Variable, apply, substitute
from pullback.numpy.promotion import as_array_node, where_written
from pullback.operators.batching import behind
from pullback.operators.elementwise import filled
from pullback.tracing.tracebacks import shows_users_frames
from pullback.tracing.trees import map_tree

__all__ = ["NamedAxis", "axis_index", "batching", "pmean", "psum", "without_sums"]

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


def without_sums(nodes: Sequence[Node], axis: NamedAxis) -> tuple[Node, ...]:
    """``nodes`` after batching: sums over ``axis`` that are left are of what is the same for all examples."""

    def rebuild(node: Operation, inputs: tuple[Node, ...]) -> Node:
        if node.operator is _sum_over and node.attributes["number"] == axis.number:
            return OPERATORS["multiply"](inputs[0], filled(axis.size, inputs[0].dtype, inputs[0].shape))
        return apply(node.operator, inputs, node.attributes)

    return substitute(nodes, {}, rebuild)


def _batch(node: Operation, inputs: Sequence[Node]) -> Node:
    (x,) = inputs
    axis = getattr(_here, "batched", None)
    if axis is None or axis.number != node.attributes["number"]:
        return apply(node.operator, (x,), node.attributes)
    total = OPERATORS["sum"](x, axes=(0,))
    return OPERATORS["broadcast"](total, shape=x.shape, axes=behind(range(total.ndim)))


_sum_over = Operator(
    "psum",
    lambda x, number, size: Type(x.dtype, x.shape),
    lambda x, number, size: np.asarray(x * np.asarray(size, x.dtype)),
    lambda node, g: [apply(node.operator, (g,), node.attributes)],
    _batch,
    None,
    (),
    linear=True,
)
"""The sum over the examples of the axis ``number``, of which there are ``size``: in the graph of one example."""
