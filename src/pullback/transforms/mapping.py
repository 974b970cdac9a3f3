"""``vmap``: a function of one example as a function of a batch."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from pullback.errors import BatchError, TreeError
from pullback.graph import Node, Type, Variable, mark
from pullback.graph.protocol import vocabulary
from pullback.numpy.promotion import as_array_node, broadcast_to_shape
from pullback.numpy.ranges import arange
from pullback.operators.batching import is_batched, moved
from pullback.tracing.functions import check_function, keeps_compiled
from pullback.tracing.trace import ended, finish, leaf_type, output_nodes, tracing
from pullback.tracing.tracebacks import shows_users_frames
from pullback.tracing.trees import Structure, flatten, spread
from pullback.transforms.batching import batched
from pullback.transforms.named import NamedAxis, batching, without_collectives

__all__ = ["vmap"]

P = ParamSpec("P")
R = TypeVar("R")


@keeps_compiled
def vmap(
    function: Callable[P, R],
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_size: int | None = None,
    axis_name: str | None = None,
) -> Callable[P, R]:
    r"""The function that applies ``function`` to every example of a batch, all at once.

    .. math:: y_n = f(x_n), \quad n = 1, \dots, N

    ``function`` is written for one example. ``in_axes`` tells along which axis of each positional argument
    the examples lie: an integer for all arguments, or a tuple with an entry for each, which is an integer
    (from the end where it is negative), ``None`` for an argument that is the same for all examples, or a tree
    of these, of which one entry stands for everything below it. Arguments without examples pass through
    untouched, so Python may look at them. The examples of keyword arguments lie along axis 0. ``out_axes``
    tells likewise where the examples of the results shall lie; ``None`` is for results that are the same for
    all examples.

    ``axis_size`` is the number of examples: where no argument is batched it must be given, where one is it must agree.
    With an ``axis_name`` examples know of each other: ``psum``, ``pmean``, ``pmax``,
    ``pmin`` and ``all_gather`` of a value that each has, ``axis_index``.

    Each operator has a rule for many examples: a product of a batch of vectors by one matrix is a product
    of matrices, a convolution has more samples. Nothing is called once per example. Works inside other
    transformations and compiled functions, around them, and on itself: ``vmap(grad(loss), (None, 0, 0))``
    gives the gradient of each example. Random numbers are functions of their key: from one key every example
    has the same numbers, from a batch of keys (``random.split(key, N)``) each has its own, and so do layers such as
    ``nn.Dropout`` where ``nn.training(key)`` was opened around the ``vmap``.

    Raises ``BatchError`` where batch sizes differ, an array has no such axis, there is no batched argument and no
    ``axis_size``, or a result for which ``out_axes`` says ``None`` differs between examples; ``TreeError`` where
    ``in_axes`` or ``out_axes`` does not fit the arguments or the result.

    Source: the meaning of ``in_axes`` and ``out_axes`` is that of ``jax.vmap``.

    >>> import numpy as np
    >>> matrix, vectors = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> vmap(lambda a, x: a @ x, in_axes=(None, 0))(matrix, vectors)
    array([[1., 3.],
           [2., 4.],
           [3., 7.]])
    >>> from pullback import grad
    >>> vmap(grad(lambda w, x: (w * x).sum() ** 2), (None, 0))(np.ones(2), vectors)
    array([[2., 0.],
           [0., 2.],
           [4., 4.]])
    >>> vmap(lambda: np.ones(2), axis_size=3)().shape
    (3, 2)
    """
    check_function("vmap", function)
    if axis_size is not None and (_integer("axis_size", axis_size) or 0) < 0:
        raise BatchError(f"vmap: axis_size={axis_size}; give the number of examples")

    @wraps(function)
    @shows_users_frames
    def mapped(*arguments: P.args, **keywords: P.kwargs) -> R:
        batch = _Batch(arguments, keywords, in_axes, axis_size)
        axis = None if axis_name is None else NamedAxis(axis_name, batch.size)
        ones, many = batch.ones, batch.many
        if axis is not None:
            ones, many = [*ones, axis.index], [*many, as_array_node(arange(batch.size))]
        since = mark()
        with tracing(ones, batch.made, "example") as trace, nullcontext() if axis is None else axis.known():
            outputs, structure = output_nodes(function(*batch.arguments, **batch.keywords))
        if trace.run is not None:
            ones, many = [*ones, trace.run], [*many, as_array_node(arange(batch.size))]
        outputs = ended(outputs, since)
        axes = _spread("out_axes of the result", out_axes, structure)
        with batching(axis):
            results: Sequence[Node] = batched(outputs, ones, many)
        if axis is not None:
            results = without_collectives(results, axis)
        placed = [
            _placed(many, one, axis, batch.size, _place("result", path))
            for many, one, axis, path in zip(results, outputs, axes, structure.paths)
        ]
        return structure.unflatten(finish(placed, batch.variables, batch.leaves))  # type: ignore[no-any-return]

    return mapped


class _Batch:
    """The arguments of a mapped function with variables ``ones``, of one example, for the leaves that hold
    many.

    ``variables`` stand for those ``leaves`` themselves, and ``many`` are they with the examples in front. ``made``
    are the trees of one example.
    """

    def __init__(
        self, arguments: Sequence[Any], keywords: Mapping[str, Any], in_axes: Any, axis_size: int | None
    ) -> None:
        self.leaves: list[Any] = []
        self.variables: list[Variable] = []
        self.many: list[Node] = []
        self.ones: list[Variable] = []
        self.found: list[str] = []
        self.made: list[Any] = []
        each = in_axes if isinstance(in_axes, (tuple, list)) else [in_axes] * len(arguments)
        if len(each) != len(arguments):
            raise TreeError(
                f"vmap: in_axes {in_axes!r} has {len(each)} entries and the function was called with "
                f"{len(arguments)} positional arguments; give one for each, None for what is not batched"
            )
        self.arguments = [
            self._one(f"argument {number}", argument, axes)
            for number, (argument, axes) in enumerate(zip(arguments, each))
        ]
        self.keywords = {name: self._one(f"keyword {name}", tree, 0) for name, tree in keywords.items()}
        self.size = self._batch_size(in_axes, axis_size)

    def _one(self, name: str, tree: Any, axes: Any) -> Any:
        """``tree`` with one example in place of many along ``axes``."""
        if axes is None:
            return tree
        leaves, structure = flatten(tree)
        for k, wanted in enumerate(_spread(f"in_axes of {name}", axes, structure)):
            if wanted is None:
                continue
            place = _place(name, structure.paths[k])
            type = leaf_type(leaves[k], place)
            axis = _normal(wanted, place, type.rank, type)
            self.leaves.append(leaves[k])
            self.variables.append(Variable(type, name))
            self.many.append(moved(self.variables[-1], axis, 0))
            self.ones.append(Variable(type.with_shape(self.many[-1].shape[1:]), name, is_example=True))
            self.found.append(f"{place} has {type.shape[axis]} along axis {axis} ({type})")
            leaves[k] = self.ones[-1]
        self.made.append(structure.unflatten(leaves))
        return self.made[-1]

    def _batch_size(self, in_axes: Any, axis_size: int | None) -> int:
        if not self.many and axis_size is None:
            raise BatchError(
                f"vmap: with in_axes {in_axes!r} no array of the arguments is batched; "
                "name the axis of the examples of at least one, or give axis_size"
            )
        sizes = [many.shape[0] for many in self.many]
        if axis_size is not None and sizes[:1] != [axis_size]:
            if self.many:
                raise BatchError(f"vmap: axis_size is {axis_size}, but {self.found[0]}")
            return axis_size
        for size, found in zip(sizes, self.found):
            if size != sizes[0]:
                raise BatchError(
                    f"vmap: batch sizes differ: {self.found[0]}, {found}; give as many examples in each, "
                    "another axis in in_axes, or None for what is the same for all examples"
                )
        return sizes[0]


def _spread(name: str, axes: Any, structure: Structure) -> list[int | None]:
    """The axis for each leaf of ``structure``."""
    try:
        values = spread(axes, structure)
    except TreeError as error:
        raise TreeError(f"vmap: {name}: {error}") from None
    return [None if value is None else _integer(name, value) for value in values]


def _integer(name: str, value: Any) -> int:
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise TreeError(f"vmap: {name} holds {value!r}; an axis is an integer, or None where there is none")


def _place(name: str, path: str) -> str:
    return f"{name} at {path}" if path else name


def _normal(axis: int, place: str, rank: int, type: Type) -> int:
    """``axis`` of ``rank`` axes, counted from the front."""
    if not -rank <= axis < rank:
        which = f"has axes {-rank} to {rank - 1}" if rank else "has no axes"
        raise BatchError(
            f"vmap: axis {axis} of {place}, which is {type} and {which}; "
            "name another axis, or None for what has no batch axis"
        )
    return axis % rank


def _placed(many: Node, one: Node, axis: int | None, size: int, place: str) -> Node:
    """The examples of a result along ``axis``."""
    if axis is None:
        if is_batched(many, one):
            raise BatchError(
                f"vmap: out_axes is None for the {place}, {one.type} for each example, which depends on the "
                "example; name the axis along which the examples shall lie"
            )
        return many
    type = one.type.with_shape((size, *one.shape))
    axis = _normal(axis, f"the {place} with its batch axis", type.rank, type)
    return moved(many if is_batched(many, one) else broadcast_to_shape(many, type.shape), 0, axis)


vocabulary["vmap"] = vmap
