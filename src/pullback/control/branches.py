"""Choices that a user writes: ``cond`` and ``switch``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.control.choice import make_switch
from pullback.errors import DTypeError, ShapeError, TreeError
from pullback.graph import Node, Type, Variable, mark
from pullback.numpy.promotion import cast, result_dtype, where_written
from pullback.operators.elementwise import filled
from pullback.operators.logic import not_equal
from pullback.tracing.trace import ended, finish, leaf_type, output_nodes, tracing
from pullback.tracing.tracebacks import shows_users_frames
from pullback.tracing.trees import Structure, difference, flatten

__all__ = ["cond", "switch"]

Function = Callable[..., Any]


@shows_users_frames
def cond(pred: Any, true_function: Function, false_function: Function, *operands: Any) -> Any:
    r"""``true_function(*operands)`` where the scalar ``pred`` is true, else ``false_function(*operands)``.

    .. math:: y = \begin{cases} f(x) & p \\ g(x) & \text{otherwise} \end{cases}

    Both functions are traced, and one is run: what the other would cost, or divide by zero, does not matter. Both
    return the same structure of arrays of the same shapes and dtypes. They may close over other values; what they do
    with those alone, outside any trace, NumPy does at once in both, so what may fail takes its values as operands.
    Under ``vmap`` with a predicate that differs between examples both are run, and each example takes its own.

    Raises ``TreeError``, ``ShapeError`` or ``DTypeError`` where the functions return different things, and
    ``ShapeError`` for a predicate that is no scalar.

    Source: the meaning is that of ``jax.lax.cond``.

    >>> float(cond(True, np.sqrt, np.negative, 4.0)), float(cond(False, np.sqrt, np.negative, 4.0))
    (2.0, -4.0)
    """
    type = leaf_type(pred, "cond: the predicate")
    if type.shape:
        raise ShapeError(
            f"cond: the predicate is {type}, and one branch is run for all of it; reduce it with .all() or .any(), "
            f"or choose element by element with np.where{where_written()}"
        )
    number = Variable(type, "pred")
    truth = number if type.dtype == np.bool_ else not_equal(number, filled(0, type.dtype, ()))
    index = cast(truth, np.int64)
    return _chosen("cond", index, (number, pred), (false_function, true_function), operands)


@shows_users_frames
def switch(index: Any, branches: Sequence[Function], *operands: Any) -> Any:
    """``branches[index](*operands)``; an index below 0 is that of the first branch, one beyond the last of the last.

    The index is an integer scalar. All else is as with ``cond``.

    Raises ``DTypeError`` or ``ShapeError`` for an index that is no integer scalar, and what ``cond`` raises.

    Source: the meaning is that of ``jax.lax.switch``.

    >>> functions = [np.sin, np.cos, lambda x: x * 0]
    >>> [float(switch(k, functions, 0.0)) for k in (0, 1, 7)]
    [0.0, 1.0, 0.0]
    """
    type = leaf_type(index, "switch: the index")
    if type.shape:
        raise ShapeError(f"switch: the index is {type}; give a scalar{where_written()}")
    if type.dtype.kind not in "iu":
        raise DTypeError(
            f"switch: the index is {type}, no integer; cast it with .astype(np.int64){where_written()}"
        )
    if not branches:
        raise TreeError(f"switch: there is no branch to run; give at least one{where_written()}")
    number = Variable(type, "index")
    return _chosen("switch", cast(number, np.int64), (number, index), tuple(branches), operands)


def _chosen(
    name: str,
    index: Node,
    given: tuple[Variable, Any],
    functions: Sequence[Function],
    operands: Sequence[Any],
) -> Any:
    leaves, structure = flatten(tuple(operands))
    types = [leaf_type(leaf, f"{name}: operand {path}") for leaf, path in zip(leaves, structure.paths)]
    variables = [Variable(type, "operand") for type in types]
    since = mark()
    found: list[tuple[Node, ...]] = []
    structures: list[Structure] = []
    for function in functions:
        made = structure.unflatten(variables)
        with tracing(variables, made):
            outputs, out = output_nodes(function(*made))
        found.append(ended(outputs, since))
        structures.append(out)
    names = ["false", "true"] if name == "cond" else [str(k) for k in range(len(functions))]
    for other, label in zip(structures[1:], names[1:]):
        if not other.fits(structures[0]):
            raise TreeError(
                f"{name}: branch {names[0]} returns {structures[0]!r}, branch {label} {other!r}: "
                f"{difference(structures[0], other)}; return the same structure from all{where_written()}"
            )
    branches = _of_one_type(name, names, found, structures[0])
    around = [Variable(type, "operand") for type in types]
    nodes = make_switch(index, variables, branches, around, since)
    return structures[0].unflatten(finish(nodes, [given[0], *around], [given[1], *leaves]))


def _of_one_type(
    name: str, names: Sequence[str], branches: Sequence[Sequence[Node]], structure: Structure
) -> list[list[Node]]:
    """The results of all branches in the same types; Python numbers take the dtype of what the others return."""
    columns: list[list[Node]] = []
    for k, path in enumerate(structure.paths):
        types = [branch[k].type for branch in branches]
        dtypes = [type.dtype for type in types if not type.weak] or [result_dtype(*types)]
        for type, label in zip(types, names):
            wrong = type.shape != types[0].shape or (not type.weak and type.dtype != dtypes[0])
            if wrong or (type.weak and result_dtype(type, Type(dtypes[0], ())) != dtypes[0]):
                _refuse(name, names, types, label, path, type.shape != types[0].shape)
        columns.append([cast(branch[k], dtypes[0]) for branch in branches])
    return [[column[number] for column in columns] for number in range(len(branches))]


def _refuse(
    name: str, names: Sequence[str], types: Sequence[Type], label: str, path: str, shapes: bool
) -> None:
    place = f" at {path}" if path else ""
    listed = ", ".join(f"branch {n} returns {type}" for n, type in zip(names, types))
    repair = "return the same shape from all" if shapes else "cast one with .astype"
    raise (ShapeError if shapes else DTypeError)(
        f"{name}: branch {label} differs{place}: {listed}; {repair}{where_written()}"
    )
