"""Results that take over an argument's memory: proof that nobody reads the old value later, or a copy at the end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pullback.compiler.lower import axes_of
from pullback.compiler.order import sort_kernels
from pullback.compiler.products import find_product
from pullback.compiler.schedule import has_checks
from pullback.loops import (
    Affine,
    Axis,
    Buffer,
    Expression,
    Kernel,
    Load,
    Store,
    load_at,
    rewrite,
    row_major,
    walk,
)

__all__ = ["arrange"]


def arrange(
    kernels: Sequence[Kernel], taken_over: Mapping[Buffer, Buffer]
) -> tuple[list[Kernel], dict[Kernel, list[Kernel]]]:
    """Kernels in an order in which each result may overwrite the argument that ``taken_over`` gives for it.

    Returns the kernels and, for those that overwrite, which kernels must have finished in an earlier phase: the other
    readers of the argument and everything that may still report an error, so that a failed step changes nothing. A
    result that is the very argument it takes over needs no kernel.
    """
    program, in_place, changed = list(kernels), list[Buffer](), dict[Buffer, Buffer]()
    for result, argument in taken_over.items():
        writers = [kernel for kernel in program if result in kernel.writes()]
        if len(writers) == 1 and _stays(writers[0], result, argument):
            program.remove(writers[0])
        elif writers:
            changed[result] = argument
    for result, argument in changed.items():
        writers = [kernel for kernel in program if result in kernel.writes()]
        if _in_place(program, writers, result, argument):
            in_place.append(result)
        else:
            program = _through_copy(program, result)
    while True:
        before = _before(program, changed)
        done, waiting = sort_kernels(program, before)
        if not waiting:
            idle = {k for k in done for r in in_place if _stays(k, r, changed[r])}
            before = {
                k: [o for o in others if o not in idle] for k, others in before.items() if k not in idle
            }
            return [kernel for kernel in done if kernel not in idle], before
        # These would overwrite what others of them still read, as when two arguments change places.
        stuck = next(result for result in in_place if any(result in kernel.writes() for kernel in waiting))
        in_place.remove(stuck)
        program = _through_copy(program, stuck)


def _stays(kernel: Kernel, result: Buffer, argument: Buffer) -> bool:
    """Whether the kernel would only copy the argument over itself."""
    if len(kernel.stores) != 1:
        return False
    (store,) = kernel.stores
    value = store.value
    return (
        isinstance(value, Load)
        and store.buffer is result
        and value.buffer is argument
        and value.offset == store.offset
        and not (value.dynamic or store.dynamic or store.accumulate or value.guard is not None)
    )


def _before(program: list[Kernel], taken_over: Mapping[Buffer, Buffer]) -> dict[Kernel, list[Kernel]]:
    """For each kernel that overwrites an argument, its other readers and everything that checks an index."""
    before: dict[Kernel, list[Kernel]] = {}
    for result, argument in taken_over.items():
        for writer in [kernel for kernel in program if result in kernel.writes()]:
            others = [k for k in program if k is not writer and (argument in k.reads() or has_checks(k))]
            before.setdefault(writer, []).extend(others)
    return before


def _in_place(program: list[Kernel], writers: list[Kernel], result: Buffer, argument: Buffer) -> bool:
    """Whether the writers may write into the argument's memory while others still want to read it."""
    reached = _reached(program, result)
    if any(argument in k.reads() or has_checks(k) for k in reached):
        return False
    if len(writers) > 1:  # a scatter: the argument as it is, then what is added to it
        added = [kernel for kernel in writers if not _stays(kernel, result, argument)]
        return len(added) < len(writers) and all(kernel in reached for kernel in added)
    (writer,) = writers
    if has_checks(writer) or any(store.accumulate or store.dynamic for store in writer.stores):
        return False
    (store,) = [s for s in writer.stores if s.buffer is result]
    product = find_product(writer)
    operands = [] if product is None else [load for pair in product.pairs for load in (pair.left, pair.right)]
    for other in writer.stores:
        for load in {e for root in other.roots() for e in walk(root) if isinstance(e, Load)}:
            if load.buffer is not argument:
                continue
            if load in operands or load.dynamic:
                return False
            if other.inner == store.inner:
                if load.offset != store.offset:
                    return False
            elif len(other.inner) >= len(store.inner) or not _same_row(load, store, writer.axes):
                return False
    return True


def _same_row(load: Load, store: Store, rows: Sequence[Axis]) -> bool:
    """Whether each turn of ``rows`` reads only of the elements that ``store``, later in the turn, writes.

    Loops inside a turn run by their depth, the row's own values first.
    """
    pitch = max(1, math.prod(axis.extent for axis in store.inner))
    numbers = [split and split[0] for split in (load.offset.divide(pitch), store.offset.divide(pitch))]
    wanted = Affine.total(Affine.of(a) * s for a, s in zip(rows, row_major([a.extent for a in rows])))
    return numbers == [wanted, wanted]


def _reached(program: list[Kernel], buffer: Buffer) -> list[Kernel]:
    """The kernels that need ``buffer``, directly or not."""
    wanted, found = {buffer}, []
    for kernel in program:
        if wanted.intersection(kernel.reads()):
            found.append(kernel)
            wanted.update(kernel.writes())
    return found


def _through_copy(program: list[Kernel], result: Buffer) -> list[Kernel]:
    """The program with ``result`` computed elsewhere and copied at the end."""
    temporary = Buffer(f"new_{result.name}", result.dtype, result.shape)
    moved = [
        _renamed(kernel, result, temporary) if result in (*kernel.writes(), *kernel.reads()) else kernel
        for kernel in program
    ]
    axes, index = axes_of(result.shape)
    value = load_at(temporary, index)
    return [*moved, Kernel(axes, (Store(result, value.offset, value),))]


def _renamed(kernel: Kernel, old: Buffer, new: Buffer) -> Kernel:
    loads: dict[Load, Expression] = {}
    memo: dict[int, Expression] = {}

    def renamed(expression: Expression) -> Expression:
        return rewrite(expression, {}, loads, memo)

    for load in kernel.loads():  # an index or a guard comes before what it is the index or the guard of
        if load.buffer is old:
            dynamic = tuple((renamed(index), stride) for index, stride in load.dynamic)
            loads[load] = Load(new, load.offset, dynamic, load.guard and renamed(load.guard))
    stores = tuple(
        replace(
            store,
            buffer=new if store.buffer is old else store.buffer,
            value=renamed(store.value),
            dynamic=tuple((renamed(index), stride) for index, stride in store.dynamic),
        )
        for store in kernel.stores
    )
    return kernel.with_stores(stores)
