"""Sums over rows that are made one by one, and long sums with few results, are cut in two steps.

    for o, k: dw[o, k] = add[b, p](g[b, o, p] * x[b, p + k])
    →
    for b, o, k: part[b, o, k] = add[p](g[b, o, p] * x[b, p + k])
    for o, k:    dw[o, k] = add[b](part[b, o, k])

So there is something to share out. The first step treats the samples of a batch one by one, and so belongs to their
row group. A vector times a matrix is cut by rows of the matrix: a share is then one piece of memory, the same that a
share of its update writes. If it can, it is cut as what makes the vector is: a channel at a time, say; a part then goes
on where that has stopped. How a sum is cut depends on its shape only: results are the same bits for any number of
threads.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from pullback.compiler.canonicalise import coalesced_axes
from pullback.compiler.cost import (
    ENOUGH_ROWS,
    FEWEST_PARTS,
    LEAST_PART,
    LEAST_PART_CYCLES,
    LEAST_SPLIT_CYCLES,
    LEAST_SPLIT_DEPTH,
    MOST_PARTS,
    MOST_SPLIT_RESULTS,
    SHORTEST_SUMMED_ROW,
    kernel_cycles,
)
from pullback.compiler.schedules.contraction import contractions, is_contraction
from pullback.compiler.schedules.indexed_contraction import indexed_sum
from pullback.compiler.schedules.lanes import lanes_of
from pullback.compiler.target import Processor
from pullback.loops import (
    Affine,
    Axis,
    Buffer,
    Expression,
    Kernel,
    Load,
    Reduce,
    Store,
    rewrite,
    row_major,
    walk,
)

__all__ = ["split_by_rows", "split_sums"]


def split_sums(kernels: Iterable[Kernel], target: Processor) -> list[Kernel]:
    """The kernels with long sums cut into parts and a sum of the parts."""
    program: list[Kernel] = []
    rows: dict[Buffer, int] = {}
    for kernel in kernels:
        reduce = _long_sum(kernel, target, rows)
        if reduce is None:
            program.append(kernel)
        else:
            program.extend(_cut(kernel, reduce, target, rows))
        rows.update((buffer, kernel.axes[0].extent) for buffer in kernel.writes() if kernel.axes)
    return program


def split_by_rows(kernels: Iterable[Kernel]) -> list[Kernel]:
    """The kernels with sums over the rows that another kernel makes, and over more, as sums of a sum for each row.

        for c: s[c] = add[b, p](x[b, c, p])
        →
        for b, c: part[b, c] = add[p](x[b, c, p])
        for c:    s[c] = add[b](part[b, c])

    The first of them belongs to the row group in which ``x`` is made, and reads it while it is in the cache. Such are
    the statistics of batch normalisation, and the gradients of what is added to or multiplies a whole channel.
    """
    program: list[Kernel] = []
    rows: dict[Buffer, int] = {}
    for kernel in kernels:
        reduce = _sum_over_rows(kernel, rows)
        program.extend([kernel] if reduce is None else _in_parts(kernel, reduce, reduce.over[0].extent))
        rows.update((buffer, kernel.axes[0].extent) for buffer in kernel.writes() if kernel.axes)
    return program


def _sum_over_rows(kernel: Kernel, rows: Mapping[Buffer, int]) -> Reduce | None:
    """The only reduction of a kernel, if it is a long sum over rows that are made one by one, and long ones."""
    reduce = _only_sum(kernel)
    if reduce is None or len(reduce.over) < 2 or is_contraction(reduce):
        return None
    first = reduce.over[0]
    results = math.prod(axis.extent for axis in kernel.axes)
    row = _length(reduce) // first.extent
    if row < SHORTEST_SUMMED_ROW or results * row * first.extent < LEAST_SPLIT_CYCLES:
        return None
    loads = [load for load in walk(reduce.body) if isinstance(load, Load)]
    if any(load.dynamic for load in loads):
        return None  # split_sums cuts sums at computed places, in an order of its own
    made = any(
        rows.get(load.buffer) == first.extent
        and load.offset.coefficient(first) * first.extent == load.buffer.size
        and results * first.extent * SHORTEST_SUMMED_ROW <= load.buffer.size
        for load in loads
    )
    return reduce if made else None


def _only_sum(kernel: Kernel) -> Reduce | None:
    """The only reduction of a kernel, if it is a sum of floats."""
    found = [e for e in kernel.expressions() if isinstance(e, Reduce)]
    if len(found) != 1 or found[0].kind != "add" or found[0].dtype.kind != "f":
        return None
    if any(store.inner or store.dynamic or store.accumulate for store in kernel.stores):
        return None
    return found[0]


def _long_sum(kernel: Kernel, target: Processor, rows: Mapping[Buffer, int]) -> Reduce | None:
    """The only reduction of a kernel, if it is a long sum of floats with few results."""
    reduce = _only_sum(kernel)
    if reduce is None:
        return None
    results = math.prod(axis.extent for axis in kernel.axes)
    extent = kernel.axes[0].extent if kernel.axes else 1
    if _has_window(reduce):
        parts = _parts(kernel, reduce, target, rows)
        enough = extent >= ENOUGH_ROWS and _near_parts(kernel, reduce, target) == 1
        if parts < (ENOUGH_ROWS if enough else 2):
            return None
    elif results > MOST_SPLIT_RESULTS or (
        extent >= ENOUGH_ROWS and not _by_matrix(kernel, reduce) and indexed_sum(kernel) is None
    ):
        return None
    return reduce if _cycles(kernel, reduce, target) >= LEAST_SPLIT_CYCLES else None


def _by_matrix(kernel: Kernel, reduce: Reduce) -> bool:
    """Whether the kernel is a vector times a matrix whose rows lie along its results."""
    if not kernel.axes:
        return False
    steps = list(row_major([axis.extent for axis in (*reduce.over, *kernel.axes)]))
    return len(reduce.over) == 1 and any(
        [load.offset.coefficient(axis) for axis in (*reduce.over, *kernel.axes)] == steps
        for load in kernel.loads()
        if not load.dynamic
    )


def _cycles(kernel: Kernel, reduce: Reduce, target: Processor) -> float:
    if (
        contractions(kernel) or indexed_sum(kernel) is not None
    ):  # each vector that is read serves several sums
        return math.prod(axis.extent for axis in kernel.axes) * _length(reduce) / lanes_of(kernel, target)
    return kernel_cycles(kernel, None, target)


def _has_window(reduce: Reduce) -> bool:
    """Whether the sum is a product over several axes, as the weight gradient of a convolution is."""
    return is_contraction(reduce) and len(reduce.over) > 1


def _length(reduce: Reduce) -> int:
    """How many elements are summed."""
    return math.prod(axis.extent for axis in reduce.over)


def _near_parts(kernel: Kernel, reduce: Reduce, target: Processor) -> int:
    """Into how many equal parts a product is cut so that the operands of each stay near, if it is deep enough.

    Each row of a tile reads a whole operand, and from beyond the second-level cache it does not arrive in time.
    """
    extent = reduce.over[0].extent
    size = sum(
        min(load.buffer.size, _places(load)) * load.dtype.itemsize
        for load in kernel.loads()
        if load in reduce.body.operands
    )
    deep = [
        part
        for part in range(1, extent + 1)
        if extent % part == 0 and part * LEAST_SPLIT_DEPTH <= _length(reduce)
    ]
    return next((part for part in deep if size <= part * target.l2_bytes), max(deep, default=1))


def _parts(kernel: Kernel, reduce: Reduce, target: Processor, rows: Mapping[Buffer, int]) -> int:
    """Into how many parts of one length the first summed axis is cut; what they leave over is one more.

    As many as divide it, if these are not too few. A vector times a matrix has no use for more than can be shared out,
    and takes the number of ``rows`` of the kernel that makes the vector if it is one that it might take.
    A sum at computed places reads its samples in no order: it is done best while they are in the cache, one by one.
    Of products with a window there are so few that writing and reading the parts is little beside reading the operands,
    or as many as keep these near.
    """
    extent = reduce.over[0].extent
    gathered = indexed_sum(kernel) is not None
    most = min(extent, MOST_PARTS, _length(reduce) // (1 if gathered else LEAST_PART))
    if _has_window(reduce):
        read: int = sum(min(load.buffer.size, _places(load)) for load in kernel.loads())
        few = read // (2 * math.prod(axis.extent for axis in kernel.axes))
        most = min(most, max(few, _near_parts(kernel, reduce, target)))
    if _by_matrix(kernel, reduce):
        most = min(most, max(2, int(_cycles(kernel, reduce, target) / LEAST_PART_CYCLES)))
        made = [rows[load.buffer] for load in kernel.loads() if load.buffer in rows]
        found = [part for part in made if 2 <= part <= most and extent % part == 0]
        if found:
            return found[0]
    equal = max((part for part in range(1, most + 1) if extent % part == 0), default=1)
    if gathered or _has_window(reduce) or equal >= min(FEWEST_PARTS, most):
        return equal
    return 1 << (most.bit_length() - 1)


def _places(load: Load) -> int:
    """How many different elements a read may be of."""
    low, high = load.offset.bounds()
    return int(high - low + 1)


def _cut(kernel: Kernel, reduce: Reduce, target: Processor, rows: Mapping[Buffer, int]) -> list[Kernel]:
    parts = _parts(kernel, reduce, target, rows)
    return [kernel] if parts < 2 else _in_parts(kernel, reduce, parts)


def _in_parts(kernel: Kernel, reduce: Reduce, parts: int) -> list[Kernel]:
    """The sum of ``parts`` of the first summed axis; what they leave over is one more."""
    first = reduce.over[0]
    size, left = divmod(first.extent, parts)
    shape = (parts + bool(left), *(axis.extent for axis in kernel.axes))
    buffer = Buffer(f"part_{kernel.stores[0].buffer.name}", reduce.dtype, shape)
    program = [_part(kernel, reduce, buffer, 0, parts, size)]
    if left:
        program.append(_part(kernel, reduce, buffer, parts, 1, left))
    number = Axis(first.name, shape[0])
    read = Affine.total(Affine.of(axis) * s for axis, s in zip((number, *kernel.axes), row_major(shape)))
    total = Reduce("add", (number,), Load(buffer, read), reduce.dtype)
    stores = tuple(replace(s, value=_replaced(s.value, reduce, total)) for s in kernel.stores)
    return [*program, kernel.with_stores(stores)]


def _part(kernel: Kernel, reduce: Reduce, buffer: Buffer, number: int, parts: int, size: int) -> Kernel:
    """The kernel of ``parts`` sums of ``size``, from part ``number`` of ``buffer`` to the last of their size."""
    first, *rest = reduce.over
    outer, inner = Axis(first.name, parts), Axis(first.name, size)
    start = first.extent - size if number else 0
    own = tuple(Axis(axis.name, axis.extent) for axis in kernel.axes)
    new = {old: Affine.of(axis) for old, axis in zip(kernel.axes, own)}
    new[first] = Affine.of(outer) * size + Affine.of(inner) + start
    body = rewrite(reduce.body, new, {}, {})
    over = tuple(axis for axis in (inner, *rest) if axis.extent > 1)
    value: Expression = Reduce("add", over, body, reduce.dtype) if over else body
    axes = tuple(axis for axis in (outer, *own) if axis is not outer or parts > 1)
    strides = row_major(buffer.shape)
    offset = Affine.total(Affine.of(axis) * stride for axis, stride in zip((outer, *own), strides))
    return coalesced_axes(Kernel(axes, (Store(buffer, offset + number * strides[0], value),)))


def _replaced(value: Expression, old: Reduce, new: Reduce) -> Expression:
    return rewrite(value, {}, {}, {id(old): new, id(old.body): old.body})
