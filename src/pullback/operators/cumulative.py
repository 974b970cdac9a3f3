"""Running totals along one axis: sums, products, linear recurrences, and where running extremes are.

Compiled, they are routines that go along the axis once (``compiler/codegen/running.py``); the order of additions is
NumPy's, so the bits are too. ``reverse`` goes from the end to the start.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from pullback.errors import DTypeError, ShapeError
from pullback.graph import (
    OPERATORS,
    Case,
    InputAt,
    Node,
    Operation,
    Operator,
    OutputAt,
    Routine,
    Sample,
    Type,
    is_complex,
)
from pullback.graph.routine import number
from pullback.operators.batching import batch_first
from pullback.operators.elementwise import filled, repair_of
from pullback.operators.varying import Fill, Padding, Rule, keeps, named_axes, refuse_named

__all__ = ["cumargmax", "cumargmin", "cumprod", "cumsum", "recurrence"]


def _type_rule(name: str, result: np.dtype | None = None) -> Callable[..., Type]:
    """Numbers along an axis that there is; all inputs are alike."""

    def rule(*types: Type, axis: int, reverse: bool) -> Type:
        x = types[0]
        if not 0 <= axis < x.rank:
            raise ShapeError(f"{name}: axis {axis} of shape {x.shape}; name one of its axes")
        if x.dtype.kind == "b" or (result is not None and is_complex(x.dtype)):
            raise DTypeError(f"{name} takes no {x.dtype}; {repair_of(x.dtype, 'i')}")
        for other in types[1:]:
            if (other.shape, other.dtype) != (x.shape, x.dtype):
                raise ShapeError(f"{name}: {x} and {other} differ; broadcast and cast one to the other")
        return Type(result or x.dtype, x.shape)

    return rule


def _routine(name: str) -> Callable[..., Routine | None]:
    """The routine of this name on an array whose axis has ``outer`` rows before it and ``inner`` behind it.

    There is none of complex numbers, of which NumPy is called where they cannot be taken apart.
    """

    def routine(*types: Type, axis: int, reverse: bool) -> Routine | None:
        x = types[0]
        if is_complex(x.dtype):
            return None
        extents = math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])
        inputs = [InputAt(k) for k in range(len(types))]
        sizes = [number(extent) for extent in extents]
        written = f"{name}.{x.dtype}" + ".reverse" * reverse
        return Routine(written, None, (*inputs, OutputAt(0), *sizes), count=int(x.size > 0))

    return routine


def _cases(inputs: int, kind: str) -> tuple[Case, ...]:
    """Axes in front, behind and between, of one element and of none, in both directions."""
    examples = [((5,), 0), ((3, 4), 0), ((3, 4), 1), ((2, 3, 17), 1), ((2, 1), 1), ((0, 3), 0), ((2, 0), 0)]
    return tuple(
        Case((Sample(shape, kind=kind),) * inputs, {"axis": axis, "reverse": reverse})
        for shape, axis in examples
        for reverse in (False, True)
    )


def _in_order(x: np.ndarray, axis: int, reverse: bool) -> np.ndarray:
    """``x`` so that the first element along ``axis`` is the one to begin with."""
    return np.flip(x, axis) if reverse else x


def shifted(x: Node, axis: int, reverse: bool, first: float = 0.0) -> Node:
    """At each place the element before it along ``axis``, behind it with ``reverse``; ``first`` where there is none."""
    extent = x.shape[axis]
    if extent == 0:
        return x
    starts, stops = [0] * x.ndim, list(x.shape)
    starts[axis], stops[axis] = (1, extent) if reverse else (0, extent - 1)
    kept = OPERATORS["slice"](x, starts=tuple(starts), stops=tuple(stops), steps=(1,) * x.ndim)
    edge = filled(first, x.dtype, (*x.shape[:axis], 1, *x.shape[axis + 1 :]))
    return OPERATORS["concatenate"](*((kept, edge) if reverse else (edge, kept)), axis=axis)


def _accumulated(ufunc: np.ufunc) -> Callable[..., np.ndarray]:
    def reference(x: np.ndarray, axis: int, reverse: bool) -> np.ndarray:
        x = np.asarray(x)
        with np.errstate(all="ignore"):
            made = ufunc.accumulate(_in_order(x, axis, reverse), axis=axis, dtype=x.dtype)
        return np.ascontiguousarray(_in_order(made, axis, reverse))

    return reference


def _totals(neutral: Fill) -> Rule:
    """Padding comes last; in the other order it comes first, and must change nothing, not even among equals."""

    def rule(node: Operation) -> Padding:
        how = node.attributes
        if not how["reverse"] or how["axis"] not in named_axes(node):
            return keeps(node)
        if neutral is None:
            refuse_named(node, "begins at its end", "go through it from the first row on")
        return Padding((neutral,))

    return rule


def _cumsum_pullback(node: Operation, g: Node) -> list[Node | None]:
    how = node.attributes
    return [cumsum(g, axis=how["axis"], reverse=not how["reverse"])]


cumsum: Operator = Operator(
    "cumsum",
    _type_rule("cumsum"),
    _accumulated(np.add),
    _cumsum_pullback,
    batch_first,
    None,
    _cases(1, "any"),
    linear=True,
    routine=_routine("cumsum"),
    vary=_totals(0),
)
"""``y_t = x_0 + … + x_t`` along ``axis``. Its pullback is the sum from the other end."""


def _cumprod_pullback(node: Operation, g: Node) -> list[Node | None]:
    """``bar_t = c_t y_{t-1}``, where ``c_t = g_t + x_{t+1} c_{t+1}``: no quotient, so zeros do no harm."""
    (x,), how = node.inputs, node.attributes
    axis, reverse = how["axis"], how["reverse"]
    c = recurrence(shifted(x, axis, not reverse), g, axis=axis, reverse=not reverse)
    return [c * shifted(node, axis, reverse, first=1.0)]


cumprod: Operator = Operator(
    "cumprod",
    _type_rule("cumprod"),
    _accumulated(np.multiply),
    _cumprod_pullback,
    batch_first,
    None,
    _cases(1, "any"),
    routine=_routine("cumprod"),
    vary=_totals(1),
)
"""``y_t = x_0 · … · x_t`` along ``axis``. Its derivative is right where factors are zero, too."""


def _recurrence_reference(a: np.ndarray, b: np.ndarray, axis: int, reverse: bool) -> np.ndarray:
    factors, terms = (np.moveaxis(_in_order(np.asarray(x), axis, reverse), axis, 0) for x in (a, b))
    made = np.empty_like(terms)
    with np.errstate(all="ignore"):
        for t in range(len(terms)):
            made[t] = factors[t] * made[t - 1] + terms[t] if t else terms[t]
    return np.ascontiguousarray(_in_order(np.moveaxis(made, 0, axis), axis, reverse))


def _recurrence_pullback(node: Operation, g: Node) -> list[Node | None]:
    (a, _), how = node.inputs, node.attributes
    axis, reverse = how["axis"], how["reverse"]
    c = recurrence(shifted(a, axis, not reverse), g, axis=axis, reverse=not reverse)
    return [c * shifted(node, axis, reverse), c]


recurrence: Operator = Operator(
    "recurrence",
    _type_rule("recurrence"),
    _recurrence_reference,
    _recurrence_pullback,
    batch_first,
    None,
    _cases(2, "any"),
    routine=_routine("recurrence"),
    vary=_totals(None),
)
"""``y_t = a_t y_{t-1} + b_t`` along ``axis``, from ``y_0 = b_0`` on. Its pullback is one from the other end."""


def _positions(better: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    def reference(x: np.ndarray, axis: int, reverse: bool) -> np.ndarray:
        rows = np.moveaxis(np.asarray(x), axis, 0)
        places = np.zeros(rows.shape, np.int64)
        order = list(range(len(rows)))[:: -1 if reverse else 1]
        best = rows[order[0]] if len(rows) else rows
        if len(rows):
            places[order[0]] = order[0]
        for before, t in pairwise(order):
            row = rows[t]
            wins = better(row, best) | (np.isnan(row) & ~np.isnan(best))
            best, places[t] = np.where(wins, row, best), np.where(wins, t, places[before])
        return np.ascontiguousarray(np.moveaxis(places, 0, axis))

    return reference


cumargmax: Operator = Operator(
    "cumargmax",
    _type_rule("cumargmax", np.dtype(np.int64)),
    _positions(np.greater),
    None,
    batch_first,
    None,
    _cases(1, "any"),
    routine=_routine("cumargmax"),
    vary=_totals(None),
)
"""Where the largest element up to each place along ``axis`` is, as ``int64``: the first of equals, or of NaN."""

cumargmin: Operator = Operator(
    "cumargmin",
    _type_rule("cumargmin", np.dtype(np.int64)),
    _positions(np.less),
    None,
    batch_first,
    None,
    _cases(1, "any"),
    routine=_routine("cumargmin"),
    vary=_totals(None),
)
"""Where the smallest element up to each place along ``axis`` is, as ``int64``: the first of equals, or of NaN."""
