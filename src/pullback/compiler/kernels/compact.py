"""Sums at computed places leave out the factors that a mask has made zero.

    for n, o, k: dw[n, o, k] = sum[p](g[n, o, p] * x[n, argmax[n, o, p] + k])        g = where(y > 0, …, 0)
    →
    for n, o, k: dw[n, o, k] = sum[p](where(g[n, o, p] != 0 or sum[q](x[n, q] * 0) != 0, g[…] * x[…], 0))

The emitter of such sums lists what meets the condition, and reads nothing for the rest. That changes no bit: a sum
begins with +0, and +0 or -0 added leave it as it is; and where zero might meet infinity or NaN, which is NaN, the panel
of ``x`` that a row may read times zero is not zero, and nothing is left out. Of an ``x`` that is finite whatever the
arguments hold, such as an image of bytes, only the factors are asked. Which factors are zero is not known when the code
is written, only that a mask, such as the slope of a relu, has made some of them so.
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
from pullback.loops import (
    Affine,
    Apply,
    Axis,
    Buffer,
    Expression,
    Kernel,
    Literal,
    Load,
    Reduce,
    Store,
    rare_case,
)
from pullback.loops.arithmetic import reach
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
    counting: list[Expression] = [sums.left]
    share = 0.0
    case = rare_case(reduce.body)  # what is not finite is one
    if case is None and largest(sums.right, stored) == math.inf:
        panel = _panel(sums.right, {*sums.over, *sums.columns})
        if panel is None:
            return kernel
        others = [axis for axis in kernel.axes if axis not in sums.columns and axis not in panel.axes]
        (read,) = panel.over
        share = read.extent * panel.dtype.itemsize / math.prod(axis.extent for axis in others)
        counting.append(panel)
    vectors = vectors_of_row(sums.columns, vector_width(lane, lanes))
    terms = [axis.extent for axis in sums.over]
    if compaction_gain(terms, vectors, lanes, share, schedules.target) <= 0:
        return kernel
    conditions = [Apply("not_equal", (value, Literal(0, value.dtype)), _BOOL) for value in counting]
    chosen = conditions[0] if len(conditions) == 1 else Apply("logical_or", conditions, _BOOL)

    term = reduce.body if case is None else case.usual
    body: Expression = Apply("where", (chosen, term, Literal(0, reduce.dtype)), reduce.dtype)
    if case is not None:
        body = Apply("where", (case.condition, case.rare, body), reduce.dtype)
    masked = Reduce(reduce.kind, reduce.over, body, reduce.dtype)
    return kernel.with_reductions(lambda each: masked if each is reduce else each)


def _panel(load: Load, moving: Collection[Axis]) -> Reduce | None:
    """Zero, or NaN unless all is finite that ``load`` may read while ``moving`` turn, wherever its indices lead."""
    start = load.offset.without(moving)
    computed = reach(load.dynamic)
    if computed is None:
        return None
    low, high = map(sum, zip(computed, (load.offset + start * -1).bounds()))
    if (start + low).bounds()[0] < 0 or (start + high).bounds()[1] >= load.buffer.size:
        return None
    place = Axis("q", high - low + 1)
    read = Load(load.buffer, start + low + Affine.of(place))
    return Reduce("add", (place,), Apply("multiply", (read, Literal(0, load.dtype)), load.dtype))
