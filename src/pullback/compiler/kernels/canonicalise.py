"""Kernels put in order before code is made: axes that memory does not tell apart are joined, inner loops shared."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

from pullback.compiler.schedules.contraction import (
    Contraction,
    Pair,
    contraction_of,
    contractions,
    find_contraction,
)
from pullback.compiler.schedules.cost import (
    COPY_CYCLES,
    MOST_UNROLLED_FUNCTIONS,
    OUTWEIGHING,
    SHORT_COPY_CYCLES,
    STEPPED,
    WORTH_REORDERING,
)
from pullback.compiler.schedules.indexed_contraction import with_columns_last
from pullback.compiler.schedules.lanes import lanes_of
from pullback.compiler.schedules.packing import choose_packing
from pullback.compiler.schedules.reduction_vectorised import cycles_along_sum, pays_along_sum
from pullback.compiler.target import Processor
from pullback.loops import (
    Affine,
    Axis,
    Buffer,
    Expression,
    Kernel,
    Load,
    Position,
    Reduce,
    Store,
    matched,
    rewrite,
    turns_of,
    walk,
)
from pullback.loops.arithmetic import reach
from pullback.loops.chains import CHAINED
from pullback.loops.kernel import once

__all__ = [
    "canonicalise",
    "coalesced_axes",
    "coalesced_rows",
    "columns_alone",
    "few_rows_last",
    "indices_of",
    "lie_side_by_side",
    "shared_rows",
]


def canonicalise(kernel: Kernel, target: Processor) -> Kernel:
    """Coalesce axes, put those last that fill the vectors of ``target``, then share inner axes.

    The first axis is joined with the next only when the kernel has a single row of work for each of its turns and
    nothing else depends on its rows; that is the schedule's to decide, so here it stays as it is, but in products
    that pack their right operand, which go on with nobody's rows.
    """
    kernel = _rows_before_places(with_columns_last(kernel.with_reductions(_coalesced_reduction)))
    kernel = _with_full_lanes(_with_best_columns(coalesced_axes(kernel), target), target)
    kernel = _with_packed_rows(kernel, target)
    return kernel if find_contraction(kernel) else shared_rows(kernel)


def _indices(expressions: Iterable[Expression]) -> list[Affine]:
    """Every index that expressions name."""
    return [
        e.offset if isinstance(e, Load) else e.index for e in expressions if isinstance(e, (Load, Position))
    ]


def _rows_before_places(kernel: Kernel) -> Kernel:
    """A scatter's axes with those first that go from one row of its target to the next, whatever places are computed.

    What is added to a row is then added in the same order as before, and found in the cache.
    """
    if len(kernel.stores) > 1 or not kernel.stores[0].accumulate:
        return kernel
    (store,) = kernel.stores
    computed = reach(store.dynamic)
    if not store.dynamic or computed is None:
        return kernel
    row = computed[1] - min(0, computed[0])
    first = [axis for axis in kernel.axes if store.offset.coefficient(axis) > row]
    return replace(kernel, axes=(*first, *(axis for axis in kernel.axes if axis not in first)))


def _with_best_columns(kernel: Kernel, target: Processor, turned: bool = False) -> Kernel:
    """A product's axes with those last along which vectors take the fewest cycles.

    The last axis of the result is the best if one operand lies along it and it fills vectors. A weight gradient may end
    in an axis of three: then other axes of one operand give fuller vectors, and stores have to step over memory; lanes
    along the sum, and a copy of what windows see, are the other ways. Where one operand is ``turned`` for this product
    alone it may be the smaller one. Axes that lie one behind the other in an operand stay together, so that they can be
    joined where the sums are first written in parts.
    """
    found = [*contractions(kernel).values()]
    if not found or not kernel.axes:
        return kernel
    lanes = lanes_of(kernel, target)
    last, full = kernel.axes[-1:], kernel.axes[-1].extent % lanes == 0
    if full and not turned:
        return kernel
    most = WORTH_REORDERING * _cycles(kernel, found, last, lanes, target)
    if len(found) == 1:
        few = not full and last[0].extent <= 2 * lanes
        along = cycles_along_sum(kernel, found[0], lanes, target) if few else math.inf
        most = min(most, WORTH_REORDERING * along, _cycles_side_by_side(kernel, found[0], lanes, target))
    runs = [_run(kernel, found[0], axis) for axis in kernel.axes]
    if len(found) > 1:
        runs = [run[-1:] for run in runs]
    cycles = {run: _cycles(kernel, found, run, lanes, target) for run in runs}
    best = min(cycles, key=cycles.__getitem__)
    if cycles[best] >= most:
        return kernel
    return Kernel((*(axis for axis in kernel.axes if axis not in best), *best), kernel.stores)


def _with_full_lanes(kernel: Kernel, target: Processor) -> Kernel:
    """A sum's axes with that last which all that is summed lies along, where the last one leaves lanes empty.

    The gradient of a depthwise convolution's weights ends in the window's axes, and channels may lie last in images.
    What is short enough is rather written out.
    """
    reduce, lanes = kernel.only_reduction, lanes_of(kernel, target)
    if reduce is None or not kernel.axes:
        return kernel
    depth, last = turns_of(reduce.over), kernel.axes[-1]
    if depth / lanes + COPY_CYCLES > WORTH_REORDERING * depth / max(1, last.extent):
        return kernel
    loads = [e for e in walk(reduce.body) if isinstance(e, Load)]
    for k, axis in enumerate(kernel.axes[:-1]):
        if axis.extent >= lanes and all(e.is_plain and e.offset.coefficient(axis) == 1 for e in loads):
            behind = kernel.axes[k + 1 :]
            if len(loads) * depth * turns_of(behind) > MOST_UNROLLED_FUNCTIONS:
                return Kernel((*kernel.axes[:k], *behind, axis), kernel.stores)
    return kernel


def _with_packed_rows(kernel: Kernel, target: Processor) -> Kernel:
    """A product with its first axes as one, as a dense layer's of sequences, if so it packs a large right operand.

    Otherwise each row, of few turns of the next axis, would read all of that operand again. Of a small one that stays
    near enough: then the product shares its rows with others.
    """
    joined = coalesced_rows(kernel)
    product = find_contraction(joined) if joined is not kernel else None
    if product is None or not any(pair.right.buffer.nbytes > target.known_bytes for pair in product.pairs):
        return kernel
    return joined if choose_packing(product, lanes_of(joined, target), target) is not None else kernel


def few_rows_last(kernels: Sequence[Kernel], target: Processor, fixed: Collection[Buffer]) -> list[Kernel]:
    """Products of few rows by the transpose of a matrix, with the axis of the matrix' rows first.

    The pullback of a small batch through a layer reads each row of the weights as it lies, and sums along it; a copy
    of the weights turned round, which larger products read, would take longer than the product. It is worth its while
    where several products read it, or all turns of a loop, in which it is one of those ``fixed``. For a product alone
    the smaller operand is turned.
    """
    found = {kernel: find_contraction(kernel) for kernel in kernels}
    turned = Counter(
        pair.right.buffer
        for product in found.values()
        if product is not None
        for pair in product.pairs
        if pair.right.offset.coefficient(product.columns) != 1
    )

    def narrow(kernel: Kernel, product: Contraction | None) -> bool:
        if product is None or len(product.pairs) != 1 or len(product.rows) != 1:
            return False
        ((pair,), (rows,), columns) = product.pairs, product.rows, product.columns
        lanes, matrix = lanes_of(kernel, target), pair.right.buffer
        return (
            turned[matrix] == 1
            and columns.extent >= 2 * lanes
            and pair.right.offset.coefficient(columns) > 1
            and (matrix not in fixed or OUTWEIGHING * rows.extent <= lanes)
            and pays_along_sum(pair, (columns, rows), lanes, target)
        )

    def arranged(kernel: Kernel, product: Contraction | None) -> Kernel:
        if narrow(kernel, product):
            return Kernel((kernel.axes[-1], *kernel.axes[:-1]), kernel.stores)
        matrices = [] if product is None else [pair.right.buffer for pair in product.pairs]
        alone = all(turned[matrix] == 1 and matrix not in fixed for matrix in matrices)
        return _with_best_columns(kernel, target, turned=True) if matrices and alone else kernel

    return [arranged(kernel, product) for kernel, product in found.items()]


def _run(kernel: Kernel, pair: Pair, last: Axis) -> tuple[Axis, ...]:
    """The axes that ``last`` continues in the operand that depends on it, and ``last``."""
    run: tuple[Axis, ...] = (last,)
    load, other = (pair.left, pair.right) if last in pair.left.axes else (pair.right, pair.left)
    while True:
        step = load.offset.coefficient(run[0]) * run[0].extent
        before = [a for a in kernel.axes if a not in run and load.offset.coefficient(a) == step]
        if len(before) != 1 or before[0] in other.axes:
            return run
        run = (before[0], *run)


def _cycles(
    kernel: Kernel, found: Sequence[Pair], columns: tuple[Axis, ...], lanes: int, target: Processor
) -> float:
    """Cycles of a product whose lanes lie along ``columns``, with the copies of operands that lie another way."""
    extent = turns_of(columns)
    rows = turns_of(kernel.axes) // extent
    total = 0.0
    for pair in found:
        depth = turns_of(pair.depth)
        rights = [load for load in (pair.left, pair.right) if columns[-1] in load.axes]
        if len(rights) != 1:
            return math.inf
        total += depth * max(-(-extent // lanes) * rows / target.multiply_adds, target.latency)
        if rights[0].offset.coefficient(columns[-1]) != 1:
            total += COPY_CYCLES * math.prod(
                axis.extent for axis in {*rights[0].axes} & {*kernel.axes, *pair.depth}
            )
    stored = sum(_cycles_of_store(store, columns[-1], lanes, target) for store in kernel.stores)
    if kernel.axes[0] in columns and columns[-1] is not kernel.axes[-1]:
        stored += SHORT_COPY_CYCLES  # its rows are no longer those of other kernels, which read them again
    return total + turns_of(kernel.axes) * stored


def _cycles_of_store(store: Store, columns: Axis, lanes: int, target: Processor) -> float:
    """Cycles to store an element of a vector along ``columns`` beyond those of a whole vector that lies in memory.

    Elements whole pages apart have the same place in the nearest cache, which their lines have left when others of
    them are written.
    """
    step = store.offset.coefficient(columns) * store.buffer.dtype.itemsize
    if step == store.buffer.dtype.itemsize:
        return 0.0
    places = target.page_bytes // max(target.line_bytes, math.gcd(step, target.page_bytes))
    return STEPPED + (target.near_line_cycles if lanes * target.panel_vectors > places * target.ways else 0.0)


def _cycles_side_by_side(kernel: Kernel, pair: Pair, lanes: int, target: Processor) -> float:
    """Cycles with the lanes along the last axes of one operand, which is copied so that they lie side by side."""
    right, left = (pair.left, pair.right) if kernel.axes[-1] in pair.left.axes else (pair.right, pair.left)
    columns = columns_alone(kernel.axes, left, right)
    if not columns:
        return math.inf
    cycles = _cycles(kernel, [pair], columns, lanes, target)
    if lie_side_by_side(columns, [right.offset]):
        return cycles
    return cycles + SHORT_COPY_CYCLES * turns_of(right.axes & {*kernel.axes, *pair.depth})


def columns_alone(axes: Sequence[Axis], left: Load, right: Load) -> tuple[Axis, ...]:
    """The last axes of a product that its ``right`` operand alone has, but for the first, which is shared out."""
    count = 0
    while count + 1 < len(axes) and axes[-1 - count] in right.axes - left.axes:
        count += 1
    return tuple(axes[len(axes) - count :])


def coalesced_axes(kernel: Kernel) -> Kernel:
    """Join neighbouring axes after the first."""
    axes, new = _joined(kernel.axes[1:], indices_of(kernel))
    return kernel.over((*kernel.axes[:1], *axes), new) if new else kernel


def coalesced_rows(kernel: Kernel) -> Kernel:
    """The kernel with its first axis joined to the second where memory allows: for kernels outside row groups."""
    axes, new = _joined(kernel.axes[:2], indices_of(kernel))
    return coalesced_rows(kernel.over((*axes, *kernel.axes[2:]), new)) if new else kernel


@once
def indices_of(kernel: Kernel) -> list[Affine]:
    """Every index of a kernel."""
    return [*(store.offset for store in kernel.stores), *_indices(kernel.expressions())]


def lie_side_by_side(axes: Sequence[Axis], indices: Iterable[Affine]) -> bool:
    """Whether memory does not tell ``axes`` apart at any of ``indices``.

    A step of one of them is always as many steps of the next as that has turns: so the last may stand for all.
    """
    return all(
        index.coefficient(first) == index.coefficient(second) * second.extent
        for index in indices
        for first, second in pairwise(axes)
    )


def _joined(axes: Sequence[Axis], indices: Sequence[Affine]) -> tuple[tuple[Axis, ...], dict[Axis, Affine]]:
    """Axes with those as one that memory does not tell apart, and the indices that they become."""
    made, new = list(axes[:1]), dict[Axis, Affine]()
    for first, second in pairwise(axes):
        if lie_side_by_side((first, second), indices):
            made[-1] = Axis(second.name, made[-1].extent * second.extent)
            new |= {first: Affine(), second: Affine.of(made[-1])}
        else:
            made.append(second)
    return tuple(made), new


def _coalesced_reduction(reduce: Reduce) -> Reduce:
    """Join neighbouring axes of a reduction, which goes through memory in its order."""
    reduce = _as_memory_lies(reduce)
    over, new = _joined(reduce.over, _indices(walk(reduce.body)))
    return Reduce(reduce.kind, over, rewrite(reduce.body, new), reduce.dtype) if new else reduce


def _as_memory_lies(reduce: Reduce) -> Reduce:
    """The reduction over the same axes, the last of them that which its largest array lies along."""
    if len(reduce.over) < 2 or reduce.kind not in CHAINED or contraction_of(reduce):
        return reduce
    loads = [e for e in walk(reduce.body) if isinstance(e, Load)]
    largest = max(loads, key=lambda load: turns_of(load.axes), default=None)
    if largest is None:
        return reduce
    steps = {axis: abs(largest.offset.coefficient(axis)) for axis in reduce.over}
    if not all(steps.values()):
        return reduce
    over = tuple(sorted(steps, key=steps.__getitem__, reverse=True))
    return Reduce(reduce.kind, over, reduce.body, reduce.dtype)


def shared_rows(kernel: Kernel) -> Kernel:
    """Give all inner loops, and reductions, over rows of one length the same axis; and reductions over equal windows.

    Equal values in different loops of a row are then one expression; where the row fits into registers it is read
    and computed once.
    """
    inner = [store.inner for store in kernel.stores if store.inner]
    reductions = kernel.reductions
    if any(len(axes) != 1 for axes in inner) or (not inner and len(reductions) < 2):
        return kernel
    axis = inner[0][0] if inner else reductions[0].over[-1]
    if any(axes[0].extent != axis.extent for axes in inner):
        return kernel

    def along_axis(store: Store) -> Store:
        if not store.inner or store.inner[0] is axis:
            return store
        return replace(store.rewritten({store.inner[0]: Affine.of(axis)}), inner=(axis,))

    shared = kernel.with_stores(map(along_axis, kernel.stores))
    shared = shared.with_reductions(partial(_over_known, [(axis,)]))
    # Where the largest element is goes first: then what it is is known as well.
    return shared.with_stores(sorted(shared.stores, key=_finds_no_place)) if shared.is_plain else shared


def _over_known(known: list[tuple[Axis, ...]], reduce: Reduce) -> Reduce:
    """A reduction over axes that are known for its extents, if there are such that are free in it."""
    over, body = reduce.over, reduce.body
    for axes in known:
        if axes == over:
            return reduce
        new = matched(over, axes)
        if new and all(_free(axis, old, body) for old, axis in zip(over, axes)):
            return Reduce(reduce.kind, axes, rewrite(body, new), reduce.dtype)
    known.append(over)
    return reduce


def _finds_no_place(store: Store) -> bool:
    return not any(isinstance(e, Reduce) and e.kind in ("argmax", "argmin") for e in walk(store.value))


def _free(axis: Axis, old: Axis, body: Expression) -> bool:
    """Whether ``axis`` may stand for ``old`` in ``body``: it means nothing else there, nor where ``old`` is used."""
    if axis is old or axis in body.axes:
        return False
    return not any(isinstance(e, Reduce) and axis in e.over and old in e.axes for e in walk(body))
