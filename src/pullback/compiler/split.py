"""Long sums with few results are cut in two steps, so that there is something to share out.

    for o, k: dw[o, k] = add[b, p](g[b, o, p] * x[b, p + k])
    →
    for b, o, k: part[b, o, k] = add[p](g[b, o, p] * x[b, p + k])
    for o, k:    dw[o, k] = add[b](part[b, o, k])

The first step treats the samples of a batch one by one, and so belongs to their row group. How a sum is cut depends on
its shape only: results are the same bits for any number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

from pullback.compiler.codegen.gathered import gathered_sum
from pullback.compiler.cost import kernel_cycles
from pullback.compiler.products import contractions
from pullback.compiler.tidy import joined_axes
from pullback.loops import Affine, Axis, Buffer, Expression, Kernel, Load, Reduce, Store, rewrite, row_major

__all__ = ["split_sums"]

LEAST_CYCLES = 12_000.0
"""Sums that take less are done soonest by one thread."""

LEAST_PART = 32
"""Elements that a part sums for each result: of shorter parts too many are written and read again."""

MOST_RESULTS = 4096
MOST_PARTS = 128
FEWEST_ROWS = 8
"""Kernels with this many rows have enough to share out as they are; sums at computed places stay with their samples."""


def split_sums(kernels: Iterable[Kernel], lanes: Callable[[Kernel], int]) -> list[Kernel]:
    """The kernels with long sums cut into parts and a sum of the parts; ``lanes`` of a kernel's vectors."""
    program: list[Kernel] = []
    for kernel in kernels:
        reduce = _long_sum(kernel, lanes)
        if reduce is None:
            program.append(kernel)
        else:
            program.extend(_cut(kernel, reduce))
    return program


def _long_sum(kernel: Kernel, lanes: Callable[[Kernel], int]) -> Reduce | None:
    """The only reduction of a kernel, if it is a long sum of floats with few results."""
    found = [e for e in kernel.expressions() if isinstance(e, Reduce)]
    if len(found) != 1 or found[0].kind != "add" or found[0].dtype.kind != "f":
        return None
    if any(store.inner or store.dynamic or store.accumulate for store in kernel.stores):
        return None
    results = math.prod(axis.extent for axis in kernel.axes)
    if results > MOST_RESULTS:
        return None
    gathered = gathered_sum(kernel) is not None
    if kernel.axes and kernel.axes[0].extent >= FEWEST_ROWS and not gathered:
        return None
    if contractions(kernel) or gathered:  # each vector that is read serves several sums
        cycles = results * _length(found[0]) / lanes(kernel)
    else:
        cycles = kernel_cycles(kernel, None, lanes(kernel))
    return found[0] if cycles >= LEAST_CYCLES else None


def _length(reduce: Reduce) -> int:
    """How many elements are summed."""
    return math.prod(axis.extent for axis in reduce.over)


def _parts(reduce: Reduce, least: int) -> int:
    """Into how many equal parts the first summed axis is cut: the most that divide it and are not too many."""
    extent = reduce.over[0].extent
    most = min(extent, MOST_PARTS, _length(reduce) // least)
    return max((part for part in range(1, most + 1) if extent % part == 0), default=1)


def _cut(kernel: Kernel, reduce: Reduce) -> list[Kernel]:
    first, *rest = reduce.over
    # A sum at computed places reads its samples in no order: it is done best while they are in the cache.
    parts = _parts(reduce, LEAST_PART if gathered_sum(kernel) is None else 1)
    if parts < 2:
        return [kernel]
    outer, inner = Axis(first.name, parts), Axis(first.name, first.extent // parts)
    split = {first: Affine.of(outer) * inner.extent + Affine.of(inner)}
    own = tuple(Axis(axis.name, axis.extent) for axis in kernel.axes)
    renamed = {old: Affine.of(new) for old, new in zip(kernel.axes, own)}
    body = rewrite(reduce.body, {**split, **renamed}, {}, {})
    over = tuple(axis for axis in (inner, *rest) if axis.extent > 1)
    value: Expression = Reduce("add", over, body, reduce.dtype) if over else body
    shape = tuple(axis.extent for axis in (outer, *own))
    buffer = Buffer(f"part_{kernel.stores[0].buffer.name}", reduce.dtype, shape)
    strides = row_major(shape)
    offset = Affine.total(Affine.of(axis) * stride for axis, stride in zip((outer, *own), strides))
    part = joined_axes(Kernel((outer, *own), (Store(buffer, offset, value),)))
    number = Axis(first.name, parts)
    read = Affine.total(Affine.of(axis) * stride for axis, stride in zip((number, *kernel.axes), strides))
    total = Reduce("add", (number,), Load(buffer, read), reduce.dtype)
    stores = tuple(replace(s, value=_replaced(s.value, reduce, total)) for s in kernel.stores)
    return [part, kernel.with_stores(stores)]


def _replaced(value: Expression, old: Reduce, new: Reduce) -> Expression:
    return rewrite(value, {}, {}, {id(old): new, id(old.body): old.body})
