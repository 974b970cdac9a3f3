"""Fusing kernels: a producer's value takes the place of the read in its consumer, and both share one loop nest.

    for i, j: e[i, j] = exp(x[i, j])                for i:
    for i:    s[i] = add[k](e[i, k])          →         s[i] = add[k](exp(x[i, k]))
    for i, j: y[i, j] = e[i, j] / s[i]                  for j: y[i, j] = exp(x[i, j]) / s[i]

Two kernels share the axes that they have in common; what is left of the longer one becomes loops inside. A product
takes what follows it elementwise as its epilogue, and several products that are only added become one.
"""

from __future__ import annotations

from collections.abc import Iterable

from pullback.compiler.products import contractions, find_product
from pullback.loops import Affine, Apply, Axis, Buffer, Expression, Kernel, Load, Reduce, Store, rewrite

__all__ = ["fuse"]

LARGEST_KERNEL = 120
"""Functions in one kernel: more would not fit into registers, and deep expressions are emitted recursively."""

LONGEST_ROW = 16384
"""Rows longer than this are not kept together: their values would leave the cache between one loop and the next."""

MOST_REPEATED_WORK = 48
"""How many expressions a value may have to be computed again in each loop of a row rather than read back."""


def fuse(kernels: Iterable[Kernel], outputs: Iterable[Buffer]) -> list[Kernel]:
    """Fuse wherever it is legal and pays; stores that nobody reads any more are dropped."""
    wanted = set(outputs)
    program = list(kernels)
    changed = True
    while changed:
        changed = False
        for consumer in list(program):
            for producer in _producers(program, consumer):
                others = [kernel for kernel in program if kernel is not producer and kernel is not consumer]
                if any(set(other.writes()).intersection(producer.writes()) for other in others):
                    continue  # what the producer stores is not final: another kernel adds to it
                needed = wanted.union(*(kernel.reads() for kernel in others))
                merged = _merge(producer, consumer, needed)
                if merged is None or _detour(others, producer, consumer):
                    continue
                program[program.index(consumer)] = merged
                program.remove(producer)
                program = _ordered(program)
                changed = True
                break
            if changed:
                break
    return program


def _producers(program: list[Kernel], consumer: Kernel) -> list[Kernel]:
    reads = set(consumer.reads())
    return [k for k in program if k is not consumer and reads.intersection(k.writes())]


def _detour(others: list[Kernel], producer: Kernel, consumer: Kernel) -> bool:
    """Whether some third kernel needs the producer and is needed by the consumer."""
    reached = set(producer.writes())
    for kernel in others:
        if reached.intersection(kernel.reads()):
            reached.update(kernel.writes())
    mine = set(producer.writes())
    return bool((reached - mine).intersection(consumer.reads()))


def _ordered(program: list[Kernel]) -> list[Kernel]:
    """A stable topological order: a kernel that grew may have to stand later than it did."""
    waiting, done = list(program), []
    pending: dict[Buffer, int] = {}
    for kernel in waiting:
        for buffer in kernel.writes():
            pending[buffer] = pending.get(buffer, 0) + 1
    while waiting:
        for kernel in waiting:
            own = set(kernel.writes())
            earlier = [b for b in kernel.reads() if pending.get(b, 0) and b not in own]
            unfinished = [k for k in waiting if k is not kernel and own.intersection(k.writes())]
            accumulates = any(store.accumulate for store in kernel.stores)
            if not earlier and not (accumulates and unfinished):
                break
        waiting.remove(kernel)
        done.append(kernel)
        for buffer in kernel.writes():
            pending[buffer] -= 1
    return done


def _merge(producer: Kernel, consumer: Kernel, needed: set[Buffer]) -> Kernel | None:
    """Both kernels as one, or ``None`` where that is illegal or does not pay; stores not ``needed`` are dropped."""
    if any(store.accumulate or store.dynamic for kernel in (producer, consumer) for store in kernel.stores):
        return None
    shared = min(len(producer.axes), len(consumer.axes))
    if shared == 0 and len(producer.axes) + len(consumer.axes) > 0:
        return None
    if any(p.extent != c.extent for p, c in zip(producer.axes[:shared], consumer.axes[:shared])):
        return None
    same_domain = len(producer.axes) == len(consumer.axes)
    has_product = bool(contractions(producer)) or bool(contractions(consumer))
    if has_product and not same_domain:
        return None
    if not same_domain and not _row_fits(producer, consumer, shared):
        return None
    to_consumer = {p: Affine.of(c) for p, c in zip(producer.axes[:shared], consumer.axes[:shared])}
    replaced = _replacements(producer, consumer, to_consumer, shared)
    if replaced is None:
        return None
    memo: dict[int, Expression] = {}
    kept = [store for store in producer.stores if store.buffer in needed]
    stores = [_moved(store, producer.axes[shared:], to_consumer, memo) for store in kept]
    memo = {}
    for store in consumer.stores:
        value = rewrite(store.value, {}, replaced, memo)
        stores.append(Store(store.buffer, store.offset, value, consumer.axes[shared:] + store.inner))
    merged = Kernel(consumer.axes[:shared], tuple(stores))
    if has_product and find_product(merged) is None:
        return None
    if sum(1 for e in merged.expressions() if isinstance(e, Apply)) > LARGEST_KERNEL:
        return None
    return merged


def _row_fits(producer: Kernel, consumer: Kernel, shared: int) -> bool:
    """Whether the axes that become inner loops are short enough, and what is repeated in them cheap enough."""
    longer = producer if len(producer.axes) > shared else consumer
    size = 1
    for axis in longer.axes[shared:]:
        size *= axis.extent
    if size > LONGEST_ROW:
        return False
    return sum(1 for e in producer.expressions() if isinstance(e, Apply)) <= MOST_REPEATED_WORK


def _moved(store: Store, trailing: tuple[Axis, ...], axes: dict[Axis, Affine], memo: dict[int, Expression]) -> Store:
    """A producer's store inside the consumer's axes."""
    return Store(store.buffer, store.offset.replace(axes), rewrite(store.value, axes, {}, memo), trailing + store.inner)


def _replacements(
    producer: Kernel, consumer: Kernel, axes: dict[Axis, Affine], shared: int
) -> dict[Load, Expression] | None:
    """For each of the consumer's reads of the producer's buffers, the value that it would find there."""
    stores = {store.buffer: store for store in producer.stores}
    available = _enclosing(consumer, shared)
    replaced: dict[Load, Expression] = {}
    for load in consumer.loads():
        store = stores.get(load.buffer)
        if store is None:
            continue
        if load.dynamic or load.guard is not None:
            return None
        mapping = _match(store, producer.axes[shared:] + store.inner, axes, load, available)
        if mapping is None:
            return None
        replaced[load] = rewrite(store.value, mapping, {}, {})
    return replaced


def _enclosing(consumer: Kernel, shared: int) -> set[Axis]:
    """The axes inside the shared ones over which the consumer may read."""
    inside = set(consumer.axes[shared:])
    for store in consumer.stores:
        inside.update(store.inner)
    for expression in consumer.expressions():
        if isinstance(expression, Reduce):
            inside.update(expression.over)
    return inside


def _match(
    store: Store, inner: tuple[Axis, ...], axes: dict[Axis, Affine], load: Load, available: set[Axis]
) -> dict[Axis, Affine] | None:
    """Which of the consumer's axes each of the store's inner axes is, so that the read is of just what was stored."""
    mapping = dict(axes)
    for axis in inner:
        coefficient = store.offset.coefficient(axis)
        same = [
            a for a, c in load.offset.terms if c == coefficient and a.extent == axis.extent and a in available
        ]
        if len(same) != 1:
            return None
        mapping[axis] = Affine.of(same[0])
    return mapping if store.offset.replace(mapping) == load.offset else None
