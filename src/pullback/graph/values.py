"""Values of nodes: what is known while a function is traced, and computed as it goes.

The value of a node is an array where it is known: of constants, of arguments, and of what has been computed from
these. ``PENDING`` is the value of an operation that depends on what is known alone and has not been computed. ``None``
is that of a node that stands for every value it may take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import local
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.errors import CallbackError, IndexRangeError, MatrixError
from pullback.graph.type import HALVES, TupleType, Type, is_half

if TYPE_CHECKING:
    from pullback.graph.node import Node, Operation
    from pullback.graph.operator import Operator
    from pullback.graph.source import Source

__all__ = ["PENDING", "computed", "evaluated", "evaluating", "force", "is_known", "mode", "with_line"]

PENDING: Any = object()


class _Mode(local):
    evaluates = False
    """Whether operations on known values are computed as they are made."""
    shown: Any = None
    """Where a function is traced for named axes: extents, or one, as whoever asks a node is to see them."""
    trace: Any = None
    """The innermost trace under way, if there is one."""
    tape: Any = None
    """What is computed of known values is recorded on it rather than made into nodes, if there is one."""


mode = _Mode()
"""What this thread does."""


class evaluating:
    """A context in which operations on known values are computed as they are made, or are not.

    What NumPy would warn of is silent, as it is in compiled code.
    """

    __slots__ = ("_at_once", "_before", "_silent", "_tape")

    def __init__(self, at_once: bool, tape: Any = None) -> None:
        self._at_once = at_once
        self._tape = tape

    def __enter__(self) -> None:
        self._before = mode.evaluates, mode.tape
        mode.evaluates, mode.tape = self._at_once, self._tape
        if self._at_once:
            self._silent = np.errstate(all="ignore")
            self._silent.__enter__()

    def __exit__(self, *error: Any) -> None:
        mode.evaluates, mode.tape = self._before
        if self._at_once:
            self._silent.__exit__(*error)


def computed(node: Operation, inputs: Sequence[Any]) -> Any:
    """The value of an operation on the values of its inputs, by its operator's reference; errors name its line."""
    return evaluated(node.operator, inputs, node.attributes, node.type, node.source)


def evaluated(
    operator: Operator,
    inputs: Sequence[Any],
    attributes: Mapping[str, Any],
    type_: Type,
    source: Source | None,
) -> Any:
    """The value of ``operator`` on values, of the type that its rule says; of 16 bits in ``float32``, then rounded."""
    if type_.dtype.char in HALVES:
        inputs = [_widened(x) for x in inputs]
    try:
        value = operator.reference(*inputs, **attributes) if attributes else operator.reference(*inputs)
    except (CallbackError, IndexRangeError, MatrixError) as error:
        raise with_line(error, source) from None
    if (type(value) is np.ndarray and value.dtype is type_.dtype) or type(type_) is TupleType:
        return value
    return np.asarray(value, type_.dtype)


def with_line(error: Any, source: Source | None) -> Any:
    """An error of an operation that was made at ``source``; in a loop it has the line of what is in it already."""
    return error if source is None else error.extended(f"at {source}", source=error.source or source)


def _widened(value: Any) -> Any:
    """Floats of 16 bits in the dtype that they are computed in; anything else as it is."""
    return value.astype(np.float32) if hasattr(value, "dtype") and is_half(value.dtype) else value


def is_known(node: Node) -> bool:
    """Whether the node's value is known, or can be computed from what is."""
    return node.value is not None


def force(node: Node) -> Any:
    """The value of a node that is known, computed now if nobody has needed it before."""
    if node.value is not PENDING:
        return node.value
    made: Any = node
    values = []
    for child in made.inputs:
        value = child.value
        if value is PENDING:
            return _forced(made)
        values.append(value)
    signature = made.signature
    compute = signature.compute
    if compute is None:
        made.value = value = computed(made, values)
        return value
    try:
        value = compute(*values)
    except (CallbackError, IndexRangeError, MatrixError) as error:
        raise with_line(error, made.source) from None
    dtype = signature.type.dtype
    if type(value) is not np.ndarray or value.dtype is not dtype:
        value = np.asarray(value, dtype)
    made.value = value
    return value


def _forced(node: Any) -> Any:
    """The value of a node of which inputs are pending."""
    stack: list[Any] = [node]
    while stack:
        top = stack[-1]
        if top.value is not PENDING:
            stack.pop()
            continue
        inputs = [child.value for child in top.inputs]
        missing = [child for child in top.inputs if child.value is PENDING]
        if missing:
            stack += missing
        else:
            top.value = computed(top, inputs)
    return node.value
