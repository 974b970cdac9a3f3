"""Results that take over an argument's memory: proof that nobody reads the old value later, or a copy at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pullback.compiler.lower import axes_of
from pullback.compiler.order import sort_kernels
from pullback.compiler.products import find_product
from pullback.compiler.schedule import has_checks
from pullback.loops import Buffer, Expression, Kernel, Load, Store, load_at, rewrite

__all__ = ["arrange"]


def arrange(
    kernels: Sequence[Kernel], taken_over: Mapping[Buffer, Buffer]
) -> tuple[list[Kernel], dict[Kernel, list[Kernel]]]:
    """Kernels in an order in which each result may overwrite the argument that ``taken_over`` gives for it.

    Returns the kernels and, for those that overwrite, which kernels must have finished in an earlier phase: the other
    readers of the argument and everything that may still report an error, so that a failed step changes nothing. A
    result that is the very argument it takes over needs no kernel.
    """
    idle = [kernel for kernel in kernels if _stays(kernel, taken_over)]
    unchanged = {buffer for kernel in idle for buffer in kernel.writes()}
    taken_over = {r: argument for r, argument in taken_over.items() if r.size and r not in unchanged}
    program, in_place = [kernel for kernel in kernels if kernel not in idle], list[Buffer]()
    for result, argument in taken_over.items():
        writers = [kernel for kernel in program if result in kernel.writes()]
        if _in_place(program, writers, result, argument):
            in_place.append(result)
        else:
            program = _through_copy(program, result)
    while True:
        before = _before(program, taken_over)
        done, waiting = sort_kernels(program, before)
        if not waiting:
            return done, before
        # These would overwrite what others of them still read, as when two arguments change places.
        stuck = next(result for result in in_place if any(result in kernel.writes() for kernel in waiting))
        in_place.remove(stuck)
        program = _through_copy(program, stuck)


def _stays(kernel: Kernel, taken_over: Mapping[Buffer, Buffer]) -> bool:
    """Whether the kernel would write an argument over itself: a result that is the argument it takes over."""
    if len(kernel.stores) != 1:
        return False
    (store,) = kernel.stores
    value = store.value
    return (
        isinstance(value, Load)
        and taken_over.get(store.buffer) is value.buffer
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
    """Whether the only writer may write into the argument's memory while others still want to read it."""
    if len(writers) != 1:
        return False
    (writer,) = writers
    if has_checks(writer) or any(store.accumulate or store.dynamic for store in writer.stores):
        return False
    (store,) = [s for s in writer.stores if s.buffer is result]
    if len({s.inner for s in writer.stores}) > 1:
        return False
    product = find_product(writer)
    operands = [] if product is None else [load for pair in product.pairs for load in (pair.left, pair.right)]
    for load in writer.loads():
        if load.buffer is argument and (load in operands or load.dynamic or load.offset != store.offset):
            return False
    reached = _reached(program, result)
    return not any(argument in k.reads() for k in reached) and not any(has_checks(k) for k in reached)


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
    loads = {
        load: Load(new, load.offset, load.dynamic, load.guard)
        for load in kernel.loads()
        if load.buffer is old
    }
    memo: dict[int, Expression] = {}
    stores = tuple(
        replace(
            store,
            buffer=new if store.buffer is old else store.buffer,
            value=rewrite(store.value, {}, loads, memo),
        )
        for store in kernel.stores
    )
    return kernel.with_stores(stores)
