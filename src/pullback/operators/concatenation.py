"""Concatenation: arrays one after another, each read where its part begins."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pullback.errors import DTypeError, ShapeError
from pullback.graph import Case, Node, Operation, Operator, Sample, Type, remembered
from pullback.loops import Apply, Expression, Index, Literal, Operand, as_expression
from pullback.loops.arithmetic import plus, within
from pullback.loops.guard import guarded
from pullback.operators.batching import batch_first
from pullback.operators.ends import joined
from pullback.operators.shapes import slice
from pullback.operators.varying import Padding, keeps, keeps_zeros, named_axes

__all__ = ["concatenate"]


def _any(*shape: int) -> Sample:
    return Sample(shape, kind="any")


@remembered
def _concatenate_type(*types: Type, axis: int) -> Type:
    if not types:
        raise ShapeError("concatenate: no arrays; give at least one")
    first = types[0]
    if not 0 <= axis < first.rank:
        raise ShapeError(
            f"concatenate: axis {axis} of shape {first.shape}; name an axis below {first.rank}, "
            "or add one with x[None] (stack does so)"
        )
    for other in types[1:]:
        if other.rank != first.rank or any(
            a != b for k, (a, b) in enumerate(zip(first.shape, other.shape)) if k != axis
        ):
            raise ShapeError(
                f"concatenate: shapes {first.shape} and {other.shape} along axis {axis}; all other extents "
                "must be equal: slice, pad or reshape one"
            )
        if other.dtype != first.dtype:
            raise DTypeError(
                f"concatenate: dtypes {first.dtype} and {other.dtype} differ; cast one with .astype"
            )
    extent = sum(t.shape[axis] for t in types)
    shape = (*first.shape[:axis], extent, *first.shape[axis + 1 :])
    return Type(first.dtype, shape, all(t.weak for t in types))


def _concatenate_pullback(node: Operation, g: Node) -> list[Node | None]:
    axis = node.attributes["axis"]
    parts: list[Node | None] = []
    start = 0
    for x in node.inputs:
        stop = start + x.shape[axis]
        starts = tuple(start if k == axis else 0 for k in range(g.ndim))
        stops = tuple(stop if k == axis else extent for k, extent in enumerate(g.shape))
        parts.append(slice(g, starts=starts, stops=stops, steps=(1,) * g.ndim))
        start = stop
    return parts


def _concatenate_lower(node: Operation, operands: Sequence[Operand], index: Sequence[Index]) -> Expression:
    axis = node.attributes["axis"]
    parts: list[tuple[int, Expression]] = []
    start = 0
    for operand, x in zip(operands, node.inputs):
        stop = start + x.shape[axis]
        inside = within(index[axis], start, stop)
        if inside is not False and start < stop:
            part = operand([plus(i, -start) if k == axis else i for k, i in enumerate(index)])
            parts.append((start, part if inside is True else guarded(part, inside)))
        start = stop
    return _chosen(index[axis], parts) if parts else Literal(0, node.dtype)


def _chosen(index: Index, parts: Sequence[tuple[int, Expression]]) -> Expression:
    """The one of ``parts`` that the index is in, each with where it starts; asked for by halves, not one by one."""
    if len(parts) == 1:
        return parts[0][1]
    middle = len(parts) // 2
    start, _ = parts[middle]
    first, second = _chosen(index, parts[:middle]), _chosen(index, parts[middle:])
    place, limit = as_expression(index), Literal(start, np.dtype(np.int64))
    below = Apply("less", (place, limit), np.dtype(np.bool_))
    return Apply("where", (below, first, second), first.dtype)


def _vary(node: Operation) -> Padding:
    """Padding may stand behind the last part alone."""
    axis = node.attributes["axis"]
    if any(axis in named_axes(x) for x in node.inputs[:-1]):
        return keeps(node)._replace(instead=joined)
    return keeps_zeros(node)


concatenate = Operator(
    "concatenate",
    _concatenate_type,
    lambda *arrays, axis: np.ascontiguousarray(np.concatenate(arrays, axis)),
    _concatenate_pullback,
    batch_first,
    _concatenate_lower,
    (
        Case((_any(3),), {"axis": 0}),
        Case((_any(3), _any(2)), {"axis": 0}),
        Case((_any(2, 1), _any(2, 3), _any(2, 2)), {"axis": 1}),
        Case((_any(1, 2, 2), _any(3, 2, 2)), {"axis": 0}),
        Case((_any(2, 3), _any(2, 0), _any(2, 1)), {"axis": 1}),
        Case((_any(0, 3), _any(0, 2)), {"axis": 1}),
    ),
    linear=True,
    is_layer=lambda inputs: True,
    vary=_vary,
)
"""Arrays one after another along ``axis``. Any dtype, the same in all.

Raises ``ShapeError`` where another extent differs, ``DTypeError`` where a dtype does.
"""
