"""Short axes at the end of an array, such as coordinates or colours, are written out, so that lanes lie along rows.

    for j<240:                                       for j<240:
        s = sum[k<3](x[3*j + k] ** 2)          →         s = x[3*j]**2 + x[3*j + 1]**2 + x[3*j + 2]**2
        for k<3:                                         y[3*j] = x[3*j] / s
            y[3*j + k] = x[3*j + k] / s                  y[3*j + 1] = x[3*j + 1] / s
                                                         y[3*j + 2] = x[3*j + 2] / s

Lanes along an axis of three leave most of a vector idle, and what belongs to a whole row is computed one row at a time.
Vectors along the rows are picked out of what lies in memory, and mixed again where they are stored.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from pullback.compiler.cost import MOST_UNROLLED_FUNCTIONS
from pullback.compiler.schedules.lanes import filled, lanes_of
from pullback.compiler.target import Processor
from pullback.loops import (
    Affine,
    Apply,
    Axis,
    Expression,
    Kernel,
    Literal,
    Reduce,
    Store,
    fused,
    rewrite,
    turns_of,
)

__all__ = ["CHAINED", "chained", "unroll_short_axes"]


CHAINED = frozenset({"add", "multiply", "maximum", "minimum"})
"""Reductions that repeat the function of two numbers of the same name."""


def unroll_short_axes(kernel: Kernel, target: Processor) -> Kernel:
    """A map with its short axes written out, if its rows fill vectors then; any other as it is."""
    longest = target.gather_vectors
    short = _short_axes(kernel, longest)
    if short is None:
        return kernel
    rows = tuple(axis for axis in kernel.axes if axis not in short)
    if not rows or not _fills(kernel, rows[-1], short, longest):
        return kernel
    lanes = lanes_of(kernel, target)
    if filled(rows[-1].extent, lanes) < 2 * max(filled(axis.extent, lanes) for axis in short):
        return kernel
    turns = turns_of(short)
    if turns * kernel.functions > MOST_UNROLLED_FUNCTIONS:
        return kernel
    stores = kernel.with_reductions(chained).stores
    return Kernel(rows, tuple(part for store in stores for part in _written_out(store, short)))


def _short_axes(kernel: Kernel, longest: int) -> set[Axis] | None:
    """The axes of the inner loops, or the last one of the kernel; None where these or the sums are long."""
    if any(store.dynamic or store.accumulate for store in kernel.stores):
        return None
    inner = {axis for store in kernel.stores for axis in store.inner}
    short = inner or set(kernel.axes[-1:])
    reductions = kernel.reductions
    summed = [axis for e in reductions for axis in e.over]
    if any(axis.extent > longest for axis in (*short, *summed)):
        return None
    if any(len(e.over) > 1 or e.kind not in CHAINED for e in reductions):
        return None
    if any(len(store.inner) > 1 for store in kernel.stores):
        return None
    return short


def _fills(kernel: Kernel, row: Axis, short: set[Axis], longest: int) -> bool:
    """Whether lanes along ``row`` read and write what lies together: whole rows, or elements side by side."""
    for store in kernel.stores:
        step = store.offset.coefficient(row)
        own = [axis for axis in short if store.offset.coefficient(axis)]
        whole = len(own) == 1 and store.offset.coefficient(own[0]) == 1 and step == own[0].extent
        if not whole and (step != 1 or own):
            return False
    loads = kernel.loads()
    return all(abs(load.offset.coefficient(row)) <= longest for load in loads if not load.dynamic)


def _written_out(store: Store, short: set[Axis]) -> Iterator[Store]:
    """A store for each turn of the short axes that it goes through."""
    own = [*store.inner, *(axis for axis in short if axis not in store.inner and axis in _axes(store))]
    if not own:
        yield store
        return
    (axis,) = own
    for turn in range(axis.extent):
        yield replace(store.rewritten({axis: Affine() + turn}, {}), inner=())


def _axes(store: Store) -> set[Axis]:
    return {*store.offset.axes, *store.value.axes}


def chained(reduce: Reduce) -> Expression:
    """A sum and the like as a chain of its function, in order; products are added unrounded, as in a loop."""
    turns = itertools.product(*(range(axis.extent) for axis in reduce.over))
    places = [{axis: Affine() + k for axis, k in zip(reduce.over, turn)} for turn in turns]
    terms = [rewrite(reduce.body, place, {}, {}) for place in places]
    if reduce.kind == "add":  # it begins with zero: that of negative zeros is zero
        terms.insert(0, Literal(0, reduce.dtype))
    total = terms[0]
    for term in terms[1:]:
        total = fused(Apply(reduce.kind, (total, term), reduce.dtype))
    return total
