"""Fusing kernels: a producer's value takes the place of the read in its consumer, and both share one loop nest.

    for i, j: e[i, j] = exp(x[i, j])                for i:
    for i:    s[i] = add[k](e[i, k])          →         s[i] = add[k](exp(x[i, k]))
    for i, j: y[i, j] = e[i, j] / s[i]                  for j: y[i, j] = exp(x[i, j]) / s[i]

Two kernels share the axes that they have in common; what is left of the longer one becomes loops inside. A product
takes what follows it elementwise as its epilogue, and several products that are only added become one. Each loop inside
makes what it reads by itself; what costs more than an exponential function is stored and read back, by kernels that
stay apart. Kernels that do not need each other, but go through the same rows of a large array, become one sweep of it:

    for i:    p[i] = add[k](w[i, k] * z[k])                for i:
    for i, j: v[i, j] = w[i, j] - x[i] * z[j]         →         p[i] = add[k](w[i, k] * z[k])
                                                                for j: v[i, j] = w[i, j] - x[i] * z[j]
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pullback.compiler.kernels.canonicalise import shared_rows
from pullback.compiler.kernels.order import Users
from pullback.compiler.kernels.single_evaluation import evaluated_twice
from pullback.compiler.schedules.contraction import Contraction, contractions, find_contraction
from pullback.compiler.schedules.cost import (
    FEWEST_UNROLLED_VECTORS,
    HANDING_ON,
    HANDING_ON_ALL,
    LARGEST_KERNEL,
    LEAST_SWEEP,
    LONGEST_ROW,
    MOST_REPEATED_WORK,
    REPEATED_ARRAY_COST,
    SHORTEST_SWEPT_ROW,
    costs_of,
)
from pullback.compiler.schedules.map import lane_axis
from pullback.compiler.schedules.window_maximum import find_window_maximum
from pullback.compiler.target import Processor
from pullback.loops import (
    Affine,
    Apply,
    Axis,
    Buffer,
    Expression,
    Kernel,
    Load,
    Reduce,
    Store,
    matched,
    rewrite,
    turns_of,
    walk,
)
from pullback.loops.dependences import dependences

__all__ = ["fuse"]


def fuse(kernels: Sequence[Kernel], outputs: Iterable[Buffer], target: Processor) -> list[Kernel]:
    """Fuse wherever it is legal and pays on ``target``; stores that nobody reads any more are dropped."""
    program = _Levels(kernels, outputs)
    for kernel in kernels:
        _fuse_vertically(program, kernel, target)
    _fuse_horizontally(program)
    ordered, waiting = program.sorted({})
    assert not waiting, "kernels that wait for each other"
    return ordered


def _fuse_vertically(program: _Levels, consumer: Kernel, target: Processor) -> None:
    """Fuse ``consumer`` with its producers, then with theirs, until none fits."""
    producers = program.producers(consumer)
    while producers:
        producer = producers.pop(0)
        merged = _merge(producer, consumer, program.needed_without(producer, consumer), target)
        if merged is not None and not program.something_between((producer, consumer), program.level):
            program.merge(producer, consumer, merged)
            consumer, producers = merged, program.producers(merged)


def _fuse_horizontally(program: _Levels) -> None:
    """Fuse kernels that walk the same loops, or the same rows, and read the same memory or write between each other.

    Such are a pool's maximum and its place, the pullback of a matrix-vector product and the matrix's update, or every
    second column and the other ones.
    """
    for kernel in list(program.level):
        if kernel not in program.level:
            continue
        first = kernel
        for second in program.beside(kernel):
            if (
                second is first
                or second not in program.level
                or program.level[first] != program.level[second]
            ):
                continue  # on different levels one may need the other
            merged = _fused_horizontally(first, second)
            if merged is not None:
                program.merge(first, second, merged)
                first = merged


def _fused_horizontally(first: Kernel, second: Kernel) -> Kernel | None:
    """Two independent kernels as one, or ``None`` where they walk neither the same loops nor the same rows.

    Rows are those of a large array that both read.
    """
    short, long = sorted((first, second), key=lambda kernel: len(kernel.axes))
    shared, inner = len(short.axes), long.axes[len(short.axes) :]
    axes = matched(long.axes[:shared], short.axes)
    if not axes or first.functions + second.functions > LARGEST_KERNEL:
        return None
    if not (first.is_plain and second.is_plain):
        return None
    has_product = bool(contractions(first) or contractions(second))
    if inner and (has_product or not _sweep_together(short, long, axes)):
        return None
    merged = Kernel(short.axes, (*short.stores, *_moved(long.stores, inner, axes)))
    if not set(first.writes()).isdisjoint(second.writes()) and any(dependences(merged)):
        return None  # parts of one array that are not known to be apart: neither could have lanes
    if inner:
        return merged
    merged = shared_rows(merged)
    return None if has_product and find_window_maximum(merged) is None else merged


def _sweep_together(short: Kernel, long: Kernel, axes: dict[Axis, Affine]) -> bool:
    """Whether the turns of a kernel are the rows of a large array that both read; ``axes`` are those of its rows.

    The longer one goes through it element by element, the shorter one sums over its rows.
    """
    row = long.axes[-1].extent
    if len(long.axes) != len(short.axes) + 1 or not SHORTEST_SWEPT_ROW <= row <= LONGEST_ROW:
        return False
    sums = [reduce for reduce in short.reductions if [axis.extent for axis in reduce.over] == [row]]
    return any(
        load.moved({**axes, long.axes[-1]: Affine.of(reduce.over[0])}) in walk(reduce.body)
        for load in long.loads()
        if load.buffer.nbytes >= LEAST_SWEEP and load.buffer.size == turns_of(long.axes)
        if load.offset.goes_through(long.axes) and load.is_plain
        for reduce in sums
    )


class _Levels(Users):
    """The kernels with the length of the longest way to each, and what of them the caller wants."""

    def __init__(self, kernels: Sequence[Kernel], outputs: Iterable[Buffer]) -> None:
        self.outputs = set(outputs)
        self.level: dict[Kernel, int] = {}
        super().__init__(kernels)

    def enter(self, kernel: Kernel, number: int | None = None) -> None:
        super().enter(kernel, number)
        self.level[kernel] = 1 + max((self.level[k] for k in self.before(kernel)), default=-1)

    def leave(self, kernel: Kernel) -> int:
        del self.level[kernel]
        return super().leave(kernel)

    def producers(self, consumer: Kernel) -> list[Kernel]:
        """Kernels that alone write what ``consumer`` reads; of what else they write others may write other parts."""
        read = set(consumer.reads())
        return [
            p
            for p in self.before(consumer)
            if all(
                len(self.writers[buffer]) == 1 or (buffer not in read and self._in_parts(buffer))
                for buffer in p.writes()
            )
        ]

    def _in_parts(self, buffer: Buffer) -> bool:
        """Whether several kernels write a buffer, each a part of its own, in whatever order."""
        stores = (s for kernel in self.writers[buffer] for s in kernel.stores if s.buffer is buffer)
        return all(store.is_plain for store in stores)

    def beside(self, kernel: Kernel) -> list[Kernel]:
        """Kernels that read what ``kernel`` reads, or write between the elements that it writes along its last axis."""
        apart = [s.buffer for s in kernel.stores if kernel.axes and s.offset.coefficient(kernel.axes[-1]) > 1]
        readers = [k for buffer in kernel.reads() for k in self.readers[buffer]]
        return readers + [k for buffer in apart for k in self.writers[buffer]]

    def needed_without(self, producer: Kernel, consumer: Kernel) -> set[Buffer]:
        """The producer's buffers that are still read by others, or by the caller, once both are one."""
        return {
            buffer
            for buffer in producer.writes()
            if buffer in self.outputs or any(r is not consumer for r in self.readers[buffer])
        }

    def merge(self, producer: Kernel, consumer: Kernel, merged: Kernel) -> None:
        """Put ``merged`` in the place of both; whoever reads of it now stands behind it."""
        self.leave(producer)
        self.leave(consumer)
        # Its level is not the consumer's: what the producer alone has put before it may stand beside it now.
        self.enter(merged)
        stack = [merged]
        while stack:
            kernel = stack.pop()
            for reader in self.after(kernel):
                if self.level[reader] <= self.level[kernel]:
                    self.level[reader] = self.level[kernel] + 1
                    stack.append(reader)


def _merge(producer: Kernel, consumer: Kernel, needed: set[Buffer], target: Processor) -> Kernel | None:
    """Both kernels as one, or ``None`` where that is illegal or does not pay; stores not ``needed`` are dropped."""
    if not all(store.is_plain for store in (*producer.stores, *consumer.stores)):
        return None
    if producer.functions + consumer.functions > LARGEST_KERNEL:
        return None
    shared = min(len(producer.axes), len(consumer.axes))
    if shared == 0 and len(producer.axes) + len(consumer.axes) > 0:
        return None
    to_consumer = matched(producer.axes[:shared], consumer.axes[:shared])
    if to_consumer is None:
        return None
    same_domain = len(producer.axes) == len(consumer.axes)
    has_product = bool(contractions(producer)) or bool(contractions(consumer))
    if not same_domain and (has_product or not _row_fits(producer, consumer, shared, target)):
        return None
    flat = same_domain and producer.is_plain and consumer.is_plain
    if not flat and _sums_columns(producer, target):
        return None
    # Loops of a few elements are written out, and share what they compute.
    short = same_domain and all(turns_of(s.inner) < SHORTEST_SWEPT_ROW for s in producer.stores)
    if not (flat or short) and _repeated_cost(producer, consumer, needed, shared) > REPEATED_ARRAY_COST:
        return None
    replaced = _replacements(producer, consumer, to_consumer, shared)
    if replaced is None:
        return None
    kept = [store for store in producer.stores if store.buffer in needed]
    stores = _moved(kept, producer.axes[shared:], to_consumer)
    inner = consumer.axes[shared:]
    stores += [replace(store, inner=inner + store.inner) for store in consumer.with_replaced(replaced).stores]
    merged = Kernel(consumer.axes[:shared], tuple(stores))
    if has_product:
        product = find_contraction(merged)
        if product is None or _idles(product, target):
            return None
    return merged if evaluated_twice([merged]) is None else None


def _sums_columns(kernel: Kernel, target: Processor) -> bool:
    """Whether long sums lie beside each other along the last axis: with lanes inside, each would be read by itself."""
    lane = lane_axis(kernel, target)
    return lane is not None and any(
        lane.extent * turns_of(e.over) > target.exchange_cycles
        and any(
            isinstance(load, Load)
            and load.offset.coefficient(lane) == 1
            and abs(load.offset.coefficient(e.over[-1])) > target.gather_vectors
            for load in walk(e.body)
        )
        for e in kernel.reductions
    )


def _idles(product: Contraction, target: Processor) -> bool:
    """Whether functions behind a product of few columns are computed sooner by themselves, with all lanes filled."""
    lanes = target.lanes(product.accumulator.dtype.itemsize)
    columns, rows = product.columns.extent, turns_of(product.rows)
    # Where rows share their columns' operand no vector lies in several of them, as in several lines of an image.
    if 2 * columns > lanes or any(axis in pair.right.axes for pair in product.pairs for axis in product.rows):
        return False
    filled = rows * columns / lanes
    cost = sum(costs_of(walk(*(store.value for store in product.stores))))
    return (rows - filled) * cost > HANDING_ON * filled + HANDING_ON_ALL


def _row_fits(producer: Kernel, consumer: Kernel, shared: int, target: Processor) -> bool:
    """Whether the axes that become inner loops are short enough, and what is repeated in them cheap enough."""
    longer = producer if len(producer.axes) > shared else consumer
    if turns_of(longer.axes[shared:]) > LONGEST_ROW or _has_short_rows(longer, shared, target):
        return False
    return _repeated_work(producer, shared) <= MOST_REPEATED_WORK


def _has_short_rows(kernel: Kernel, shared: int, target: Processor) -> bool:
    """Whether a row holds many of a few elements each: written out by themselves they have lanes along the many."""
    inner = kernel.axes[shared:]
    lanes = target.lanes(kernel.stores[0].buffer.dtype.itemsize)
    return (
        len(inner) > 1
        and 1 < inner[-1].extent <= lanes // 2
        and turns_of(inner[:-1]) >= FEWEST_UNROLLED_VECTORS * lanes
    )


def _repeated_cost(producer: Kernel, consumer: Kernel, needed: set[Buffer], shared: int) -> float:
    """What a merged kernel computes again for an element of a row: each of its loops makes what it reads by itself."""
    values = {store.buffer: store.value for store in producer.stores}
    inner = {*producer.axes[shared:], *(axis for store in producer.stores for axis in store.inner)}
    loops = [store.roots() for store in consumer.stores] + [(reduce.body,) for reduce in consumer.reductions]
    made = [{buffer} for buffer in needed] + [_read_by(roots) & values.keys() for roots in loops]
    if sum(map(bool, made)) > 1 and _looks_up(producer, inner):
        return math.inf
    again = sum(_row_cost([values[buffer] for buffer in each], inner) for each in made)
    return again - _row_cost(values.values(), inner)


def _looks_up(kernel: Kernel, inner: set[Axis]) -> bool:
    """Whether each element of a row is found at a place of its own that is computed: then it is not found twice."""
    return any(place.axes & inner for load in kernel.loads() for place, _ in load.dynamic)


def _row_cost(values: Iterable[Expression], inner: set[Axis]) -> float:
    """What of some values belongs to each element along ``inner``."""
    return sum(costs_of(e for e in walk(*values) if e.axes & inner))


def _read_by(roots: Iterable[Expression]) -> set[Buffer]:
    """The buffers that a loop reads of, and not a sum inside it alone."""
    own = walk(*roots, enter=lambda e: not isinstance(e, Reduce))
    return {e.buffer for e in own if isinstance(e, Load)}


def _repeated_work(producer: Kernel, shared: int) -> int:
    """Functions to compute again for one element of a row; those of a sum that belongs to the element in every turn."""
    inner = {*producer.axes[shared:], *(axis for store in producer.stores for axis in store.inner)}
    work = producer.functions
    for reduce in producer.reductions:
        if reduce.axes & inner:
            turns = turns_of(reduce.over)
            work += (turns - 1) * max(1, sum(isinstance(e, Apply) for e in walk(reduce.body)))
    return work


def _moved(stores: Iterable[Store], inner: tuple[Axis, ...], axes: dict[Axis, Affine]) -> list[Store]:
    """A kernel's stores inside other axes, which stand for its own but the ``inner`` ones."""
    memo: dict[Expression, Expression] = {}
    return [replace(store.rewritten(axes, memo), inner=inner + store.inner) for store in stores]


def _replacements(
    producer: Kernel, consumer: Kernel, axes: dict[Axis, Affine], shared: int
) -> dict[Load, Expression] | None:
    """For each of the consumer's reads of the producer's buffers, the value that it would find there."""
    stores = {store.buffer: store for store in producer.stores}
    replaced: dict[Load, Expression] = {}
    for load in consumer.loads():
        store = stores.get(load.buffer)
        if store is None:
            continue
        if not load.is_plain:
            return None
        mapping = _match(store, producer.axes[shared:] + store.inner, axes, load, consumer.axes[:shared])
        if mapping is None:
            return None
        replaced[load] = rewrite(store.value, mapping)
    return replaced


def _match(
    store: Store, inner: tuple[Axis, ...], axes: dict[Axis, Affine], load: Load, shared: Sequence[Axis]
) -> dict[Axis, Affine] | None:
    """Which of the consumer's axes each of the store's inner axes is, so that the read is of just what was stored.

    It is none of the ``shared`` ones.
    """
    mapping = dict(axes)
    for axis in inner:
        coefficient = store.offset.coefficient(axis)
        same = [
            a
            for a, c in load.offset.terms
            if c == coefficient and a.extent == axis.extent and a not in shared
        ]
        if len(same) != 1:
            return None
        mapping[axis] = Affine.of(same[0])
    return mapping if store.offset.replace(mapping) == load.offset else None
