"""Results that take over an argument's memory: proof that nobody reads the old value later, or a copy at the end."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from pullback.compiler.kernels.order import Users
from pullback.compiler.lowering.lower import axes_of
from pullback.compiler.schedules.cost import FEW_UPDATES
from pullback.loops import Buffer, Kernel, Load, Store, load_at, staged, walk
from pullback.loops.dependences import dependences
from pullback.loops.kernel import with_buffer

__all__ = ["arrange"]


def arrange(
    kernels: Sequence[Kernel], aliased: Mapping[Buffer, Buffer]
) -> tuple[list[Kernel], dict[Kernel, list[Kernel]]]:
    """Kernels in an order in which each result may overwrite the argument that ``aliased`` gives for it.

    Returns the kernels and, for those that overwrite, which kernels must have finished in an earlier region: the other
    readers of the argument and everything that may still report an error, so that a failed step changes nothing. A
    result that is the very argument it takes over needs no kernel.
    """
    program, in_place, changed = Users(kernels), list[Buffer](), dict[Buffer, Buffer]()
    for result, argument in aliased.items():
        writers = list(program.writers[result])
        if len(writers) == 1 and _stays(writers[0], result, argument):
            program.leave(writers[0])
        elif writers:
            changed[result] = argument
    for result in changed:
        _store_few_updates(program, result, changed)
    for result, argument in changed.items():
        if _in_place(program, result, argument):
            in_place.append(result)
        else:
            _compute_elsewhere(program, result)
    while True:
        done, waiting = program.sorted(_before(program, changed))
        if not waiting:
            idle = {k for r in in_place for k in program.writers[r] if _stays(k, r, changed[r])}
            for kernel in idle:
                program.leave(kernel)
            return [kernel for kernel in done if kernel not in idle], _before(program, changed)
        # These would overwrite what others of them still read, as when two arguments change places.
        written = {buffer for kernel in waiting for buffer in kernel.writes()}
        stuck = next(result for result in in_place if result in written)
        in_place.remove(stuck)
        _compute_elsewhere(program, stuck)


def _compute_elsewhere(program: Users, result: Buffer) -> None:
    """Have ``result`` computed in memory of its own, and copied at the end."""
    temporary = Buffer(f"new_{result.name}", result.dtype, result.shape)
    for kernel in {**program.writers[result], **program.readers[result]}:
        program.replace(kernel, with_buffer(kernel, result, temporary))
    axes, index = axes_of(result.shape)
    value = load_at(temporary, index)
    program.enter(Kernel(axes, (Store(result, value.offset, value),)))


def _reached(program: Users, buffers: Iterable[Buffer]) -> Iterator[Kernel]:
    """The kernels that need one of the ``buffers``, directly or not."""
    found: set[Kernel] = set()
    stack = [*buffers]
    while stack:
        for kernel in program.readers[stack.pop()]:
            if kernel not in found:
                found.add(kernel)
                yield kernel
                stack.extend(kernel.writes())


def _store_few_updates(program: Users, result: Buffer, taken_over: Mapping[Buffer, Buffer]) -> None:
    """Have a scatter of few updates into ``result`` find them in memory, where they could not be computed in place.

        for i, j: table[j + 8*rows[i]] += check_index(...) …
        →
        for i, j: update_table[i, j] = check_index(...) …
        for i, j: table[j + 8*rows[i]] += update_table[i, j]

    So the table stays where it is, although the updates check indices or read what others overwrite, such as each
    other's tables: all of them are computed first.
    """
    writers = list(program.writers[result])
    if len(writers) != 2 or not _stays(writers[0], result, taken_over[result]):
        return
    scatter = writers[1]
    if len(scatter.stores) != 1 or scatter.stores[0].inner:
        return
    (store,) = scatter.stores
    shape = tuple(axis.extent for axis in scatter.axes)
    overwritten = any(buffer in taken_over.values() for buffer in scatter.reads())
    if math.prod(shape) > FEW_UPDATES * result.size or not (overwritten or scatter.has_checks):
        return
    updates, read = staged(f"update_{result.name}", store.value, scatter.axes)
    program.enter(updates)
    program.replace(scatter, scatter.with_stores([replace(store, value=read)]))


def _stays(kernel: Kernel, result: Buffer, argument: Buffer) -> bool:
    """Whether the kernel would only copy the argument over itself."""
    if len(kernel.stores) != 1:
        return False
    (store,) = kernel.stores
    return store.buffer is result and store.is_plain and store.value is Load(argument, store.offset)


def _before(program: Users, aliased: Mapping[Buffer, Buffer]) -> dict[Kernel, list[Kernel]]:
    """For each kernel that overwrites an argument, its other readers and everything that checks an index."""
    before: dict[Kernel, list[Kernel]] = {}
    checking = [kernel for kernel in program.kernels if kernel.has_checks]
    for result, argument in aliased.items():
        others = dict.fromkeys((*program.readers[argument], *checking))
        for writer in program.writers[result]:
            before.setdefault(writer, []).extend(k for k in others if k is not writer)
    return before


def _in_place(program: Users, result: Buffer, argument: Buffer) -> bool:
    """Whether the writers may write into the argument's memory while others still want to read it."""
    writers = list(program.writers[result])
    made = dict.fromkeys(buffer for writer in writers for buffer in writer.writes())
    if any(argument in k.reads() or k.has_checks for k in _reached(program, made)):
        return False
    if len(writers) > 1:  # a scatter: the argument as it is, then what is added to it
        added = [kernel for kernel in writers if not _stays(kernel, result, argument)]
        return len(added) < len(writers) and set(added) <= set(_reached(program, [result]))
    (writer,) = writers
    if writer.has_checks or not all(store.is_plain for store in writer.stores):
        return False
    stores = [store for store in writer.stores if store.buffer is result]
    if len({store.inner for store in stores}) > 1:  # parts that are joined, in loops of their own
        return False
    if any(dependences(with_buffer(writer, argument, result))):
        return False  # a turn would read what another one overwrites
    # Loops inside a turn run by their depth, the row's own values first.
    inner, offsets = stores[0].inner, {store.offset for store in stores}
    return all(
        load.offset in offsets and not load.dynamic
        if other.inner == inner
        else len(other.inner) < len(inner) and len(stores) == 1
        for other in writer.stores
        for load in walk(*other.roots())
        if isinstance(load, Load) and load.buffer is argument
    )
