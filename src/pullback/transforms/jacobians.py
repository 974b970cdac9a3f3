"""``jacobian`` and ``hessian``: all derivatives, by rows or by columns, all at once or some at a time."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Literal, ParamSpec

import numpy as np

from pullback.errors import DerivativeError
from pullback.graph import SMALL_CONSTANT, Constant, Node, Variable, is_complex, is_float, mark
from pullback.graph.protocol import vocabulary
from pullback.numpy.promotion import as_array_node, broadcast_to_shape, cast
from pullback.numpy.shapes import joined, to_shape
from pullback.operators.batching import moved
from pullback.operators.shapes import iota
from pullback.tracing.functions import check_function, keeps_compiled
from pullback.tracing.trace import ended, finish, tracing
from pullback.tracing.tracebacks import shows_users_frames
from pullback.transforms.api import Arguments, check_complex, grad, outputs_of, zero_if_absent
from pullback.transforms.batching import batched
from pullback.transforms.choosing import Argnums, choose, is_single
from pullback.transforms.forward import tangents
from pullback.transforms.reverse import cotangents

__all__ = ["hessian", "jacobian"]

P = ParamSpec("P")
_COUNT = np.dtype(np.int64)


@keeps_compiled
def jacobian(
    function: Callable[P, Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    mode: Literal["forward", "reverse"] | None = None,
    chunk: int | None = None,
    holomorphic: bool = False,
) -> Callable[P, Any]:
    r"""All derivatives of a function's result: one for each element of the result and of the argument.

    .. math:: J_{i,j} = \partial f_i / \partial x_j

    ``argnums`` is that of ``grad``. The Jacobian is a tree like the result, each leaf of it a tree like the
    argument (with several arguments a tuple of these), whose leaves have the shape ``result.shape +
    argument.shape`` and the argument's dtype; it is zero for a result of integers. With ``has_aux`` the function
    returns ``(value, extra)`` and the result is ``(jacobian, extra)``.

    ``mode="reverse"`` computes rows, ``mode="forward"`` columns; by default whichever are fewer. All are computed at
    once, side by side, or ``chunk`` of them at a time, which takes memory for so many and computes what is the same
    for all once.

    The Jacobian of complex results by real arguments is complex, and takes ``mode="forward"``. By complex arguments
    that of real results follows the convention of ``grad``, and takes ``mode="reverse"``; that of complex results
    exists if the function is ``holomorphic``.

    Raises ``DerivativeError`` when an argument holds integers, for another ``mode``, or a ``chunk`` below 1.

    Source: Griewank & Walther, *Evaluating Derivatives*, 2nd ed., SIAM 2008, chapter 3.

    >>> jacobian(lambda x: x[:2] * x[2])(np.array([1.0, 2.0, 3.0]))
    array([[3., 0., 1.],
           [0., 3., 2.]])
    >>> jacobian(lambda x: x[:2] * x[2], mode="forward", chunk=2)(np.array([1.0, 2.0, 3.0]))
    array([[3., 0., 1.],
           [0., 3., 2.]])
    """
    check_function("jacobian", function)
    if mode not in (None, "forward", "reverse"):
        raise DerivativeError(
            f"jacobian: mode={mode!r}; give 'forward', 'reverse', or None to choose by size"
        )
    if chunk is not None and (isinstance(chunk, bool) or not isinstance(chunk, int) or chunk < 1):
        raise DerivativeError(
            f"jacobian: chunk={chunk!r}; give how many directions are computed at once, 1 or more"
        )

    @wraps(function)
    @shows_users_frames
    def derivatives(*arguments: Any, **keywords: Any) -> Any:
        chosen = choose("jacobian", function, argnums, arguments, keywords)
        inside = Arguments("jacobian", chosen.arguments, chosen.numbers, chosen.names)
        since = mark()
        with tracing(inside.variables, inside.made), inside.evaluated():
            result = chosen.function(*inside.replaced, **chosen.keywords)
            found = outputs_of(result, has_aux, function)
        every = ended([*found.outputs, *found.extras], since)
        outputs = every[: len(found.outputs)]
        rows, columns = (sum(node.size for node in nodes) for nodes in (outputs, inside.variables))
        check_complex("jacobian", holomorphic, inside.variables, outputs, function)
        wanted = mode if holomorphic else _mode_of_complex(mode, inside.variables, outputs)
        by_rows = rows <= columns if wanted is None else wanted == "reverse"
        with tracing(inside.variables):
            blocks = (_by_rows if by_rows else _by_columns)(outputs, inside.variables, chunk)
        extras = every[len(outputs) :]
        finished = finish([*blocks, *extras], inside.variables, inside.leaves)
        values = iter(finished)
        parts = []
        for output in outputs:
            trees = inside.trees([next(values) for _ in inside.variables], output.shape)
            parts.append(trees[0] if is_single(argnums) else tuple(trees))
        jacobians = found.structure.unflatten(parts)
        return (jacobians, *found.extra(finished[len(blocks) :])) if has_aux else jacobians

    return derivatives


def _mode_of_complex(mode: str | None, variables: Sequence[Variable], outputs: Sequence[Node]) -> str | None:
    """The mode, which is told where either side is complex: a complex number has two directions."""
    if not any(is_complex(node.dtype) for node in (*variables, *outputs)):
        return mode
    only = "reverse" if any(is_complex(x.dtype) for x in variables) else "forward"
    if mode not in (None, only):
        sides = "complex arguments" if only == "reverse" else "complex results"
        raise DerivativeError(f"jacobian: mode={mode!r} with {sides}; leave it out, or give {only!r}")
    return only


def _by_rows(outputs: Sequence[Node], variables: Sequence[Variable], chunk: int | None = None) -> list[Node]:
    """The derivatives of each output by each variable, from the cotangents of single elements."""
    blocks = []
    for output in outputs:
        seed = Variable(output.type, "cotangent")
        bars = cotangents([output], [seed], variables) if is_float(output.dtype) else [None] * len(variables)
        blocks += [
            _block(row, output, x) for row, x in zip(_at_units(bars, variables, seed, chunk), variables)
        ]
    return blocks


def _by_columns(
    outputs: Sequence[Node], variables: Sequence[Variable], chunk: int | None = None
) -> list[Node]:
    """The same from the tangents of single elements, which come first and belong behind the output's axes."""
    columns = []
    for x in variables:
        moving = Variable(x.type, "tangent")
        moved_outputs = tangents(outputs, variables, [moving if other is x else None for other in variables])
        columns.append(_at_units(moved_outputs, outputs, moving, chunk))
    return [
        _block(moved(column, 0, output.ndim), output, x)
        for k, output in enumerate(outputs)
        for x, column in zip(variables, (of_x[k] for of_x in columns))
    ]


def _at_units(
    nodes: Sequence[Node | None], like: Sequence[Node], x: Variable, chunk: int | None
) -> list[Node]:
    """``nodes``, linear in ``x`` or absent, where ``x`` is 1 in one place and 0 elsewhere: places come first."""
    whole = [zero_if_absent(node, model) for node, model in zip(nodes, like)]

    def along(units: Node) -> list[Node]:
        return [
            broadcast_to_shape(many, (units.shape[0], *one.shape))
            for many, one in zip(batched(whole, [x], [units]), whole)
        ]

    if chunk is None or chunk >= x.size:
        return along(_units(x, as_array_node(np.int64(0)), x.size))
    steps = x.size // chunk
    cut = steps * chunk
    firsts = iota(shape=(steps,), axis=0, dtype=_COUNT) * chunk
    made = vocabulary["map"](lambda first: along(_units(x, first, chunk)), firsts)
    parts = [[to_shape(part, (cut, *part.shape[2:])) for part in made]]
    if cut < x.size:
        parts.append(along(_units(x, as_array_node(np.int64(cut)), x.size - cut)))
    return [joined(list(each), 0) if len(each) > 1 else each[0] for each in zip(*parts)]


def _units(x: Variable, first: Node, count: int) -> Node:
    """So many unit directions of ``x`` from the ``first`` on: 1 where the number of an element is the direction's.

    Those of a small array are a constant. Compared numbers need no memory, and let the lanes lie along directions.
    """
    shape = (count, *x.shape)
    if isinstance(first, Constant) and x.size * count <= SMALL_CONSTANT:
        start = int(first.value)
        return as_array_node(np.eye(x.size, dtype=x.dtype)[start : start + count].reshape(shape))
    strides = [math.prod(x.shape[axis + 1 :]) for axis in range(x.ndim)]
    direction = iota(shape=shape, axis=0, dtype=_COUNT) + broadcast_to_shape(first, shape)
    places = [iota(shape=shape, axis=axis + 1, dtype=_COUNT) * stride for axis, stride in enumerate(strides)]
    return cast(vocabulary["equal"](direction, functools.reduce(operator.add, places)), x.dtype)


def _block(x: Node, output: Node, variable: Variable) -> Node:
    kind = np.promote_types(output.dtype, variable.dtype) if is_complex(output.dtype) else variable.dtype
    return cast(to_shape(x, (*output.shape, *variable.shape)), kind)


@keeps_compiled
def hessian(
    function: Callable[P, Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    chunk: int | None = None,
    holomorphic: bool = False,
) -> Callable[P, Any]:
    r"""The second derivatives of a function whose result is a scalar: the Jacobian of its gradient.

    .. math:: H_{i,j} = \partial^2 f / \partial x_i \, \partial x_j

    ``argnums`` is that of ``grad``, ``has_aux``, ``chunk`` and ``holomorphic`` those of ``jacobian``. For an array the
    Hessian has the shape ``x.shape + x.shape``; for a tree it is a tree like it whose leaves are trees like it.

    Raises ``DerivativeError`` when the result is no float scalar or an argument holds integers.

    >>> hessian(lambda x: x[0] ** 2 * x[1])(np.array([3.0, 5.0]))
    array([[10.,  6.],
           [ 6.,  0.]])
    """
    check_function("hessian", function)
    slope = grad(function, argnums, has_aux, holomorphic=holomorphic)
    return jacobian(slope, argnums, has_aux, chunk=chunk, holomorphic=holomorphic)
