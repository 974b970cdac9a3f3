"""Sums over rows that are made one by one, and long reductions with few results, are cut in two steps.

    for o, k: dw[o, k] = add[b, p](g[b, o, p] * x[b, p + k])
    →
    for b, o, k: part[b, o, k] = add[p](g[b, o, p] * x[b, p + k])
    for o, k:    dw[o, k] = add[b](part[b, o, k])

So there is something to share out. The first step treats the samples of a batch one by one, and so belongs to their
row group. A vector times a matrix is cut by rows of the matrix: a share is then one piece of memory, the same that a
share of its update writes. If it can, it is cut as what makes the vector is: a channel at a time, say; a part then goes
on where that has stopped. A few rows times a matrix that no near cache holds are cut so too, and sums of its columns:
it goes by once, some of its rows side by side, as fast as memory gives it; where a cache holds it, its columns are
shared out. Extremes and products of elements are cut like sums. How a sum is cut depends on its shape only: results are
the same bits for any number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from pullback.compiler.kernels.canonicalise import coalesced_axes
from pullback.compiler.kernels.streams import streamed, streams_of_each, streams_side_by_side
from pullback.compiler.kernels.strips import in_column_strips, shares_columns
from pullback.compiler.schedules.contraction import contraction_of, contractions, find_contraction
from pullback.compiler.schedules.cost import (
    ENOUGH_ROWS,
    FEWEST_PARTS,
    FEWEST_SHARES,
    LEAST_PART,
    LEAST_PART_CYCLES,
    LEAST_SPLIT_CYCLES,
    LEAST_SPLIT_DEPTH,
    LEAST_STREAMED,
    MOST_PARTS,
    MOST_SPLIT_RESULTS,
    MOST_TILE_ROWS,
    SHORTEST_SUMMED_ROW,
    STREAMED_ROWS,
    kernel_cycles,
)
from pullback.compiler.schedules.indexed_contraction import indexed_sum
from pullback.compiler.schedules.lanes import lanes_of
from pullback.compiler.schedules.reduction import is_transposed
from pullback.compiler.target import Processor
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
    element,
    fused,
    load_at,
    matched,
    operands_of,
    rewrite,
    staged,
    turns_of,
    walk,
)
from pullback.loops.chains import CHAINED

__all__ = ["split_by_rows", "split_sums"]


def split_sums(kernels: Iterable[Kernel], target: Processor) -> list[Kernel]:
    """The kernels with long sums cut into parts and a sum of the parts."""
    single = (part for whole in kernels for part in _one_by_one(whole, target))
    return _with_rows(single, lambda kernel, rows: _cut(kernel, target, rows))


def _with_rows(
    kernels: Iterable[Kernel], cut: Callable[[Kernel, Mapping[Buffer, int]], list[Kernel]]
) -> list[Kernel]:
    """What ``cut`` makes of each kernel, given the number of rows of what the kernels before it have made."""
    program: list[Kernel] = []
    rows: dict[Buffer, int] = {}
    for kernel in kernels:
        program += cut(kernel, rows)
        rows.update((buffer, kernel.axes[0].extent) for buffer in kernel.writes() if kernel.axes)
    return program


def split_by_rows(kernels: Iterable[Kernel]) -> list[Kernel]:
    """The kernels with sums over the rows that another kernel makes, and over more, as sums of a sum for each row.

        for c: s[c] = add[b, p](x[b, c, p])
        →
        for b, c: part[b, c] = add[p](x[b, c, p])
        for c:    s[c] = add[b](part[b, c])

    The first of them belongs to the row group in which ``x`` is made, and reads it while it is in the cache. Such are
    the statistics of batch normalisation, and the gradients of what is added to or multiplies a whole channel. Squared
    distances from a mean are taken from the mean of each row, which is known as soon as the row is:

        for c: v[c] = add[b, p]((x[b, c, p] - m[c])²)
        →
        for b, c: part[b, c] = add[p]((x[b, c, p] - mean[b, c])²)
        for c:    v[c] = add[b](part[b, c] + n (mean[b, c] - m[c])²)
    """
    sums: dict[Buffer, _InParts] = {}

    def cut(kernel: Kernel, rows: Mapping[Buffer, int]) -> list[Kernel]:
        reduce = _sum_over_rows(kernel, rows)
        if reduce is None:
            # A mean may be a kernel of its own, which divides the sum.
            means = [(store.buffer, _mean_of(store.value, sums)) for store in kernel.stores]
            sums.update((buffer, known) for buffer, known in means if known is not None)
            return [kernel]
        new, beside = _from_own_means(kernel, reduce, sums) or (reduce, None)
        parts = _in_parts(kernel.with_replaced({reduce: new}), new, new.over[0].extent, beside=beside)
        whole = _InParts(kernel, reduce, parts[0].stores[0].buffer)
        sums.update((store.buffer, whole) for store in kernel.stores if store.value is reduce)
        return parts

    return _with_rows(kernels, cut)


@dataclass(frozen=True)
class _InParts:
    """A kernel that was a sum over rows, and the buffer of the sums of each row."""

    kernel: Kernel
    reduce: Reduce
    parts: Buffer


def _from_own_means(
    kernel: Kernel, reduce: Reduce, sums: Mapping[Buffer, _InParts]
) -> tuple[Reduce, Expression] | None:
    """A sum of squared distances of what has been summed by rows, from each row's mean, and what that leaves out.

    ``sums`` has the sum of which a buffer is a known part. Neither is a difference of large numbers, wherever the
    distances are from. ``None`` for other sums.
    """
    distance, again = operands_of(reduce.body, "multiply") or (None, None)
    if distance is None or distance is not again or not operands_of(distance, "subtract"):
        return None
    value, centre = operands_of(distance, "subtract")
    known, first = _mean_of(centre, sums), reduce.over[0]
    if known is None or not centre.axes.isdisjoint(reduce.over):
        return None
    new = matched((*known.kernel.axes, *known.reduce.over), (*kernel.axes, *reduce.over))
    if new is None or rewrite(known.reduce.body, new) is not value:
        return None
    count, dtype = turns_of(reduce.over) // first.extent, reduce.dtype
    total = load_at(known.parts, [*map(Affine.of, (first, *kernel.axes))])
    mean = Apply("multiply", (total, Literal(1 / count, dtype)), dtype)
    near, far = (fused(Apply("subtract", pair, dtype)) for pair in ((value, mean), (mean, centre)))
    square = Apply("multiply", (far, far), dtype)
    beside = Apply("multiply", (Literal(count, dtype), square), dtype)
    # Two infinite means are no distance from each other, and their difference is NaN.
    equal = Apply("equal", (mean, centre), np.dtype(np.bool_))
    beside = Apply("where", (equal, Literal(0, dtype), beside), dtype)
    return Reduce("add", reduce.over, Apply("multiply", (near, near), dtype), dtype), beside


def _mean_of(value: Expression, sums: Mapping[Buffer, _InParts]) -> _InParts | None:
    """The sum of which ``value`` is a known part, so that one is infinite where the other is."""
    part, number = operands_of(value, "multiply") or operands_of(value, "divide") or (value, None)
    if isinstance(number, Literal) and number.value and math.isfinite(number.value):
        value = part
    return sums.get(value.buffer) if isinstance(value, Load) else None


def _sum_over_rows(kernel: Kernel, rows: Mapping[Buffer, int]) -> Reduce | None:
    """The only reduction of a kernel, if it is a long sum over rows that are made one by one, and long ones."""
    reduce = kernel.only_reduction
    if reduce is None or not reduce.adds_floats or len(reduce.over) < 2 or contraction_of(reduce):
        return None
    first = reduce.over[0]
    results = turns_of(kernel.axes)
    row = turns_of(reduce.over) // first.extent
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


def _one_by_one(kernel: Kernel, target: Processor) -> list[Kernel]:
    """A kernel with several long reductions as one for each and one of the rest.

    value[] = exp(add[r<100000](cos(x[r]))) - sqrt(add[r<100000](x[r] * x[r]))
    →
    sum0[] = add[r<100000](cos(x[r]));    sum1[] = add[r<100000](x[r] * x[r])
    value[] = exp(sum0[]) - sqrt(sum1[])

    They are of single numbers, or all of the columns of large matrices.
    """
    found, axes = kernel.reductions, kernel.axes
    if len(found) < 2 or not kernel.is_plain or any(e.kind not in CHAINED for e in found):
        return [kernel]
    if not all(e.axes <= {*axes} and (not axes or streamed(kernel, e, target)) for e in found):
        return [kernel]
    name, made = kernel.stores[0].buffer.name, list[Kernel]()

    def stored(reduce: Reduce) -> Expression:
        alone, read = staged(f"{name}_{reduce.kind}{len(made)}", reduce, axes)
        made.append(alone)
        return read

    rest = kernel.with_reductions(stored)
    return [*made, rest] if any(_long_sum(part, target, {}) for part in made) else [kernel]


def _only_reduction(kernel: Kernel) -> Reduce | None:
    """The only reduction of a kernel, if it may be cut: it is associative, and stored as it is found."""
    reduce = kernel.only_reduction
    return reduce if reduce is not None and reduce.kind in CHAINED else None


def _long_sum(kernel: Kernel, target: Processor, rows: Mapping[Buffer, int]) -> Reduce | None:
    """The only reduction of a kernel, if it is a long one with few results: a sum, an extreme, or a product."""
    reduce = _only_reduction(kernel)
    if reduce is None or streamed(kernel, reduce, target):
        return reduce
    results = turns_of(kernel.axes)
    extent = kernel.axes[0].extent if kernel.axes else 1
    if _has_window(reduce):
        parts = _parts(kernel, reduce, target, rows)
        enough = extent >= ENOUGH_ROWS and _near_parts(kernel, reduce, target) == 1
        if parts < (ENOUGH_ROWS if enough else 2):
            return None
    elif results > MOST_SPLIT_RESULTS or (
        extent >= ENOUGH_ROWS
        and _shares(kernel, reduce, target, rows) >= FEWEST_SHARES
        and not _by_matrix(kernel, reduce)
        and indexed_sum(kernel) is None
    ):
        return None
    return reduce if _cycles(kernel, reduce, target) >= LEAST_SPLIT_CYCLES else None


def _shares(kernel: Kernel, reduce: Reduce, target: Processor, rows: Mapping[Buffer, int]) -> int:
    """Into how many shares the rows of a kernel can be cut: by vectors of them where each row is read along.

    Rows that another kernel makes belong to its row group, whose chunks are rows.
    """
    first = kernel.axes[0]
    made = any(load.buffer in rows for load in kernel.loads())
    if made or first is not kernel.axes[-1] or not is_transposed(reduce, first, target):
        return first.extent
    return -(-first.extent // lanes_of(kernel, target))


def _by_matrix(kernel: Kernel, reduce: Reduce) -> bool:
    """Whether the kernel is a vector times a matrix whose rows lie along its results."""
    axes = (*reduce.over, *kernel.axes)
    return len(axes) > len(reduce.over) == 1 and any(
        load.offset.goes_through(axes) for load in kernel.loads() if not load.dynamic
    )


def _cycles(kernel: Kernel, reduce: Reduce, target: Processor) -> float:
    if (
        contractions(kernel) or indexed_sum(kernel) is not None
    ):  # each vector that is read serves several sums
        return turns_of(kernel.axes) * turns_of(reduce.over) / lanes_of(kernel, target)
    return kernel_cycles(kernel, None, target)


def _has_window(reduce: Reduce) -> bool:
    """Whether the sum is a product over several axes, as the weight gradient of a convolution is."""
    return len(reduce.over) > 1 and contraction_of(reduce) is not None


def _near_parts(kernel: Kernel, reduce: Reduce, target: Processor) -> int:
    """Into how many equal parts a product is cut so that the operands of each stay near, if it is deep enough.

    Each row of a tile reads a whole operand, and from beyond the second-level cache it does not arrive in time. Of an
    operand that has the kernel's rows, such as the images of a convolution, that is what one row reads.
    """
    extent = reduce.over[0].extent
    size = sum(
        min(load.buffer.size, load.offset.span) * load.dtype.itemsize // _own_rows(kernel, load)
        for load in kernel.loads()
        if load in reduce.body.operands
    )
    deep = [
        part
        for part in range(1, extent + 1)
        if extent % part == 0 and part * LEAST_SPLIT_DEPTH <= turns_of(reduce.over)
    ]
    return next((part for part in deep if size <= part * target.l2_bytes), max(deep, default=1))


def _own_rows(kernel: Kernel, load: Load) -> int:
    """How many turns of the kernel's first axis read a piece of the operand each, one after the other in memory."""
    rows = kernel.axes[0]
    return rows.extent if load.offset.coefficient(rows) * rows.extent == load.buffer.size else 1


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
    most = min(extent, MOST_PARTS, turns_of(reduce.over) // (1 if gathered else LEAST_PART))
    if _has_window(reduce):
        read: int = sum(min(load.buffer.size, load.offset.span) for load in kernel.loads())
        few = read // (2 * turns_of(kernel.axes))  # a part is written and read
        most = min(most, max(few, _near_parts(kernel, reduce, target)))
    if _by_matrix(kernel, reduce):
        most = min(most, max(2, int(_cycles(kernel, reduce, target) / LEAST_PART_CYCLES)))
        made = [rows[load.buffer] for load in kernel.loads() if load.buffer in rows]
        found = [part for part in made if 2 <= part <= most and extent % part == 0]
        if found:
            return found[0]
    if len(reduce.over) == 1 and streamed(kernel, reduce, target):
        sums = turns_of(kernel.axes[:-1])
        most = max(2, extent // max(STREAMED_ROWS, LEAST_STREAMED * sums))
    equal = max((part for part in range(1, most + 1) if extent % part == 0), default=1)
    if gathered or _has_window(reduce) or equal >= min(FEWEST_PARTS, most):
        return equal
    return 1 << (most.bit_length() - 1)


def _cut(kernel: Kernel, target: Processor, rows: Mapping[Buffer, int]) -> list[Kernel]:
    """The kernel with its long sum in parts, if it has one."""
    reduce = _only_reduction(kernel)
    if reduce is not None and (each := streams_of_each(kernel, reduce, target, rows)):
        return _in_parts(kernel, reduce, reduce.over[0].extent // each, len(kernel.axes) - 1)
    reduce = _long_sum(kernel, target, rows)
    if reduce is None or (parts := _parts(kernel, reduce, target, rows)) < 2:
        return _shared_columns(kernel, target)
    shared = _rows_to_share(kernel, reduce, parts, target)
    if shared is not None:
        kernel = replace(kernel, axes=(shared, *(axis for axis in kernel.axes if axis is not shared)))
    *made, total = _in_parts(kernel, reduce, parts, 0 if shared is None else 1)
    if matrix := streamed(kernel, reduce, target):
        streams = streams_side_by_side(kernel, reduce, matrix, target)
        made = [
            finer
            for part in made
            for finer in _in_strips(part, len(part.axes) - len(kernel.axes), streams, len(reduce.over))
        ]
    return [*made, total]


def _rows_to_share(kernel: Kernel, reduce: Reduce, parts: int, target: Processor) -> Axis | None:
    """The rows of a product's result if these are shared out rather than its parts, of which there are too few.

    They are the first axis that one operand alone has: groups are fewer.
    """
    if not _has_window(reduce):
        return None
    left, right = (operand.axes for operand in operands_of(reduce.body, "multiply"))
    rows = next(axis for axis in kernel.axes if (axis in left) != (axis in right))
    few = parts < min(target.sharers, _cycles(kernel, reduce, target) / target.chunk_cycles)
    return rows if few and parts * MOST_TILE_ROWS <= rows.extent else None


def _in_strips(kernel: Kernel, outside: int, streams: int, axes: int) -> list[Kernel]:
    """Sums over some rows of a matrix as sums over a few, which are read side by side, and sums of those.

    A sum over fewer ``axes`` is one of a single row.
    """
    reduce = _only_reduction(kernel)
    if reduce is None or len(reduce.over) < axes or reduce.over[0].extent <= streams:
        return [kernel]
    return _in_parts(kernel, reduce, reduce.over[0].extent // streams, outside)


def _shared_columns(kernel: Kernel, target: Processor) -> list[Kernel]:
    """A product of few rows and a matrix that lies along them, in strips of columns: enough to share out."""
    product, lanes = find_contraction(kernel), lanes_of(kernel, target)
    if product is None or any(pair.right.offset.coefficient(product.columns) != 1 for pair in product.pairs):
        return [kernel]
    width = product.columns.extent // (lanes * ENOUGH_ROWS) * lanes
    if width == 0 or not shares_columns(product, lanes, target):
        return [kernel]
    return in_column_strips(kernel, width, outermost=True)


def _in_parts(
    kernel: Kernel, reduce: Reduce, parts: int, outside: int = 0, beside: Expression | None = None
) -> list[Kernel]:
    """The sum of ``parts`` of the first summed axis; what they leave over is one more.

    The axis of parts is inside of as many of the kernel's axes as stay ``outside``. Where a part is one turn, what
    stands ``beside`` the sum of that turn is added to it.
    """
    first, *rest = reduce.over
    size, left = divmod(first.extent, parts)
    number = Axis(first.name, parts + bool(left))
    axes = (*kernel.axes[:outside], number, *kernel.axes[outside:])
    shape = tuple(axis.extent for axis in axes)
    buffer = Buffer(f"part_{kernel.stores[0].buffer.name}", reduce.dtype, shape)
    place, program = element(map(Affine.of, axes), shape), list[Kernel]()
    for start, count, turns in ((0, parts, size), (parts, 1, left))[: 1 + bool(left)]:
        own, inner = {number: Axis(first.name, count)}, Axis(first.name, turns)
        own |= {axis: Axis(axis.name, axis.extent) for axis in kernel.axes}
        new = {old: Affine.of(axis) for old, axis in own.items()}
        new[first] = new[number] * turns + Affine.of(inner) + start * size
        new[number] += start
        over = tuple(axis for axis in (inner, *rest) if axis.extent > 1)
        body = rewrite(reduce.body, new)
        value = Reduce(reduce.kind, over, body, reduce.dtype) if over else body
        within = tuple(own[axis] for axis in axes if axis is not number or count > 1)
        part = Kernel(within, (Store(buffer, place.replace(new), value),))
        program.append(part if outside else coalesced_axes(part))
    each: Expression = Load(buffer, place)
    if beside is not None:
        each = Apply("add", (each, rewrite(beside, {first: Affine.of(number)})), reduce.dtype)
    total = Reduce(reduce.kind, (number,), each, reduce.dtype)
    return [*program, kernel.with_replaced({reduce: total})]
