"""The order of rows: positions that sort them. What is sorted is gathered by them, so its pullback is a scatter.

Compiled, it is a routine that sorts by the digits of the numbers, in time linear in their count, or goes through them
once where only a few positions are wanted (``compiler/codegen/sorting.py``).
"""

from __future__ import annotations

import math

import numpy as np

from pullback.errors import ShapeError
from pullback.graph import Case, InputAt, Operation, Operator, OutputAt, Routine, Sample, Type, WorkAt
from pullback.graph.routine import number
from pullback.operators.batching import batch_first
from pullback.operators.elementwise import refuse_complex
from pullback.operators.varying import Padding, named_axes, refuse_named

__all__ = ["argsort"]


def _type_rule(x: Type, last: int | None = None) -> Type:
    if not x.rank:
        raise ShapeError("argsort: a scalar has no axis to sort along; give it one with x[None]")
    refuse_complex("argsort", x)
    if last is None:
        return Type(np.dtype(np.int64), x.shape)
    if not 0 <= last <= x.shape[-1]:
        raise ShapeError(f"argsort: the last {last} of {x.shape[-1]} positions; give a number up to that")
    return Type(np.dtype(np.int64), (*x.shape[:-1], last))


def _reference(x: np.ndarray, last: int | None = None) -> np.ndarray:
    order = np.argsort(x, axis=-1, kind="stable")
    return order if last is None else order[..., x.shape[-1] - last :]


def _routine(x: Type, last: int | None = None) -> Routine:
    rows, extent = math.prod(x.shape[:-1]), x.shape[-1]
    wanted = extent if last is None else last
    pairs, counts = 16 * extent, 8 * 256 * x.dtype.itemsize
    return Routine(
        f"argsort.{x.dtype}",
        None,
        (InputAt(0), OutputAt(0), WorkAt(), number(rows), number(extent), number(wanted)),
        count=int(x.size > 0 and wanted > 0),
        workspace=2 * pairs + counts,
    )


def _vary(node: Operation) -> Padding:
    """What comes last stays behind equal elements that stood before it."""
    if "last" in node.attributes and node.inputs[0].ndim - 1 in named_axes(node.inputs[0]):
        refuse_named(node, "has its last positions where that ends", "take them from the whole order")
    return Padding(("last" if node.ndim - 1 in named_axes(node) else None,))


argsort = Operator(
    "argsort",
    _type_rule,
    _reference,
    None,
    batch_first,
    None,
    (
        Case((Sample((7,), kind="any"),)),
        Case((Sample((3, 5), kind="any"),)),
        Case((Sample((2, 300), kind="any"),)),
        Case((Sample((2, 40), -1e30, 1e30, kind="float"),)),
        Case((Sample((2, 1), kind="any"),)),
        Case((Sample((3, 0), kind="any"),)),
        Case((Sample((3, 5), kind="any"),), {"last": 2}),
        Case((Sample((2, 300), kind="any"),), {"last": 7}),
        Case((Sample((2, 600), kind="any"),), {"last": 100}),
        Case((Sample((2, 600), kind="any"),), {"last": 1}),
        Case((Sample((2, 40), -1e30, 1e30, kind="float"),), {"last": 0}),
    ),
    routine=_routine,
    vary=_vary,
)
"""Positions that sort the last axis, as ``int64``, NaN last; equal elements stay in their order.

With ``last`` only so many of them, those of the largest elements.
"""
