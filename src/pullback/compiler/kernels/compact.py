"""Sums at computed places leave out the factors that a mask has made zero.

    for n, o, k: dw[n, o, k] = sum[p](g[n, o, p] * x[n, argmax[n, o, p] + k])        g = where(y > 0, …, 0)
    →
    for n, o, k: dw[n, o, k] = sum[p](where(g[n, o, p] != 0, g[…] * x[…], 0))

The emitter of such sums lists what meets the condition, and reads nothing for the rest. That changes no bit: a sum
begins with +0, and +0 or -0 added leave it as it is. Zero times infinity or NaN is NaN: so it is done where ``x`` is
finite whatever the arguments hold, as an image of bytes is, or what is not finite is a rare case of the sum, as behind
a pool. Which factors are zero is not known when the code is written, only that a mask, such as the slope of a relu, has
made some of them so.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from pullback.compiler.schedules.choose import Schedules
from pullback.compiler.schedules.cost import compaction_gain
from pullback.compiler.schedules.indexed_contraction import (
    IndexedContraction,
    can_compact,
    vector_width,
    vectors_of_row,
)
from pullback.loops import Apply, Buffer, Expression, Kernel, Literal, Load, Reduce, Store, rare_case
from pullback.loops.magnitudes import largest

__all__ = ["compact_masked"]

_BOOL = np.dtype(np.bool_)


def compact_masked(kernels: Iterable[Kernel], schedules: Schedules) -> list[Kernel]:
    """The kernels with conditions on the terms of sums at computed places whose factors are masked."""
    masked: set[Buffer] = set()
    stored: dict[Buffer, list[Store]] = {}
    program: list[Kernel] = []
    for kernel in kernels:
        sums = schedules.of(kernel)
        if isinstance(sums, IndexedContraction) and _is_masked(sums.left, masked):
            program.append(_compacted(kernel, sums, stored, schedules))
        else:
            program.append(kernel)
        for store in kernel.stores:
            stored.setdefault(store.buffer, []).append(store)
            if not store.accumulate and _is_masked(store.value, masked):
                masked.add(store.buffer)
    return program


def _is_masked(value: Expression, masked: Collection[Buffer]) -> bool:
    """Whether ``value`` is a float that is zero where a mask says so, by itself or as it was stored.

    >>> from pullback.loops import Affine, Axis
    >>> i, float32 = Axis("i", 4), np.dtype(np.float32)
    >>> y, zero = Load(Buffer("y", float32, (4,)), Affine.of(i)), Literal(0, float32)
    >>> slope = Apply("where", (Apply("greater", (y, zero), _BOOL), y, zero), float32)
    >>> _is_masked(slope, ()), _is_masked(Apply("multiply", (y, slope), float32), ()), _is_masked(y, ())
    (True, True, False)
    """
    if isinstance(value, Load):
        return value.buffer in masked
    if not isinstance(value, Apply) or value.dtype.kind != "f":
        return False
    if value.function == "where":
        return any(isinstance(branch, Literal) and branch.value == 0 for branch in value.operands[1:])
    return value.function == "multiply" and any(_is_masked(factor, masked) for factor in value.operands)


def _compacted(
    kernel: Kernel, sums: IndexedContraction, stored: Mapping[Buffer, Sequence[Store]], schedules: Schedules
) -> Kernel:
    """The kernel with a condition on its terms, if the target compacts them and that is expected to gain time."""
    lanes, (*_, lane) = schedules.lanes(kernel), sums.columns
    reduce = kernel.only_reduction  # there is none where only a rare case sums
    if reduce is None or not can_compact(sums.left, sums.right, sums.over, lanes, schedules.target):
        return kernel
    case = rare_case(reduce.body)
    if case is None and largest(sums.right, stored) == math.inf:
        return kernel
    vectors = vectors_of_row(sums.columns, vector_width(lane, lanes))
    terms = [axis.extent for axis in sums.over]
    if compaction_gain(terms, vectors, lanes) <= 0:
        return kernel
    chosen = Apply("not_equal", (sums.left, Literal(0, sums.left.dtype)), _BOOL)
    term = reduce.body if case is None else case.usual
    body: Expression = Apply("where", (chosen, term, Literal(0, reduce.dtype)), reduce.dtype)
    if case is not None:
        body = Apply("where", (case.condition, case.rare, body), reduce.dtype)
    masked = Reduce(reduce.kind, reduce.over, body, reduce.dtype)
    return kernel.with_replaced({reduce: masked})
