"""The order of kernels: what writes a buffer comes before what reads it."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from pullback.loops import Buffer, Kernel
from pullback.loops.kernel import once

__all__ = ["Users", "added", "dependencies", "sort_kernels"]


class Users:
    """Who writes and who reads each buffer, in the order in which the kernels came."""

    def __init__(self, kernels: Iterable[Kernel] = ()) -> None:
        self.writers: defaultdict[Buffer, dict[Kernel, None]] = defaultdict(dict)
        self.readers: defaultdict[Buffer, dict[Kernel, None]] = defaultdict(dict)
        self._numbers: dict[Kernel, int] = {}
        for kernel in kernels:
            self.enter(kernel)

    def enter(self, kernel: Kernel) -> None:
        """One kernel more."""
        self._numbers[kernel] = len(self._numbers)
        for users in self._of(kernel):
            users[kernel] = None

    def leave(self, kernel: Kernel) -> None:
        """One kernel less."""
        for users in self._of(kernel):
            del users[kernel]

    def before(self, kernel: Kernel) -> list[Kernel]:
        """The writers of what a kernel reads."""
        return [
            writer
            for buffer in kernel.reads()
            for writer in self.writers[buffer]
            if writer is not kernel and self._comes_first(writer, kernel, buffer)
        ]

    def after(self, kernel: Kernel) -> list[Kernel]:
        """The readers of what a kernel writes."""
        return [
            reader
            for buffer in kernel.writes()
            for reader in self.readers[buffer]
            if reader is not kernel and self._comes_first(kernel, reader, buffer)
        ]

    def _comes_first(self, writer: Kernel, reader: Kernel, buffer: Buffer) -> bool:
        """Whether who writes a buffer comes before who reads it: of two that add to it the one that came first."""
        both = buffer in added(writer) and buffer in added(reader)
        return not both or self._numbers[writer] < self._numbers[reader]

    def _of(self, kernel: Kernel) -> list[dict[Kernel, None]]:
        """The users of what a kernel writes, and of what it reads."""
        tables = (self.writers, kernel.writes()), (self.readers, kernel.reads())
        return [table[buffer] for table, buffers in tables for buffer in buffers]


def dependencies(kernels: Sequence[Kernel]) -> dict[Kernel, list[Kernel]]:
    """For each kernel those that must run before it: the writers of what it reads.

    A kernel that adds to a buffer comes after those that store to it; between two that add the order given stands.
    """
    users = Users(kernels)
    return {kernel: list(dict.fromkeys(users.before(kernel))) for kernel in kernels}


@once
def added(kernel: Kernel) -> frozenset[Buffer]:
    """The buffers that the kernel adds to, and so reads as well as writes."""
    return frozenset(store.buffer for store in kernel.stores if store.accumulate)


def sort_kernels(
    kernels: Sequence[Kernel], before: Mapping[Kernel, Iterable[Kernel]]
) -> tuple[list[Kernel], list[Kernel]]:
    """The kernels with dependencies, and what ``before`` adds to them, first; otherwise in the order given.

    The second list holds those that wait for each other, in circles that ``before`` made, and what lies between two
    circles. What only comes after a circle is in neither list.
    """
    needs = {kernel: set(found) for kernel, found in dependencies(kernels).items()}
    for kernel, earlier in before.items():
        needs[kernel].update(earlier)
    users: dict[Kernel, list[Kernel]] = {}
    for kernel, found in needs.items():
        for other in found:
            users.setdefault(other, []).append(kernel)
    position = {kernel: k for k, kernel in enumerate(kernels)}
    ready = [position[kernel] for kernel, found in needs.items() if not found]
    heapq.heapify(ready)
    done: list[Kernel] = []
    while ready:
        kernel = kernels[heapq.heappop(ready)]
        done.append(kernel)
        for user in users.get(kernel, ()):
            needs[user].discard(kernel)
            if not needs[user]:
                heapq.heappush(ready, position[user])
    waiting = _without_ends({kernel: found for kernel, found in needs.items() if found})
    return done, [kernel for kernel in kernels if kernel in waiting]


def _without_ends(needs: Mapping[Kernel, Iterable[Kernel]]) -> set[Kernel]:
    """The kernels that others of them need, those others too: circles, without what only comes after them."""
    users = Counter(other for found in needs.values() for other in found)
    waiting = set(needs)
    ends = [kernel for kernel in needs if not users[kernel]]
    while ends:
        kernel = ends.pop()
        waiting.discard(kernel)
        for other in needs[kernel]:
            users[other] -= 1
            if not users[other]:
                ends.append(other)
    return waiting
