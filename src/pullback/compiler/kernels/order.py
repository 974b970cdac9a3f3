"""The order of kernels: what writes a buffer comes before what reads it."""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from pullback.loops import Buffer, Kernel
from pullback.loops.kernel import once

__all__ = ["Needs", "Users", "added", "users_of"]

Needs = Mapping[Kernel, Iterable[Kernel]]
"""For kernels those that must run before them."""


class Users:
    """Kernels in the order in which they came, and who of them writes and who reads each buffer."""

    def __init__(self, kernels: Iterable[Kernel] = ()) -> None:
        self.writers: defaultdict[Buffer, dict[Kernel, None]] = defaultdict(dict)
        self.readers: defaultdict[Buffer, dict[Kernel, None]] = defaultdict(dict)
        self._numbers: dict[Kernel, int] = {}
        self._free = itertools.count()
        for kernel in kernels:
            self.enter(kernel)

    @property
    def kernels(self) -> list[Kernel]:
        """All of them, in their order."""
        return sorted(self._numbers, key=self._numbers.__getitem__)

    def enter(self, kernel: Kernel, number: int | None = None) -> None:
        """One kernel more, behind all others if it has no ``number``."""
        self._numbers[kernel] = next(self._free) if number is None else number
        for users in self._of(kernel):
            users[kernel] = None

    def leave(self, kernel: Kernel) -> int:
        """One kernel less; returns its number."""
        for users in self._of(kernel):
            del users[kernel]
        return self._numbers.pop(kernel)

    def replace(self, kernel: Kernel, other: Kernel) -> None:
        """Put another kernel in the place of one."""
        self.enter(other, self.leave(kernel))

    def before(self, kernel: Kernel) -> list[Kernel]:
        """The writers of what a kernel reads, each once.

        One that adds to a buffer comes after those that store to it; of two that add the one that came first is first.
        """
        found = (
            writer
            for buffer in kernel.reads()
            for writer in self.writers[buffer]
            if writer is not kernel and self._comes_first(writer, kernel, buffer)
        )
        return list(dict.fromkeys(found))

    def after(self, kernel: Kernel) -> list[Kernel]:
        """The readers of what a kernel writes, each once."""
        found = (
            reader
            for buffer in kernel.writes()
            for reader in self.readers[buffer]
            if reader is not kernel and self._comes_first(kernel, reader, buffer)
        )
        return list(dict.fromkeys(found))

    def sorted(self, before: Needs) -> tuple[list[Kernel], list[Kernel]]:
        """The kernels with those that they need, and what ``before`` adds to them, first; otherwise in their order.

        The second list holds those that wait for each other, in circles that ``before`` made, and what lies between two
        circles. What only comes after a circle is in neither list.
        """
        needs = {kernel: {*self.before(kernel), *before.get(kernel, ())} for kernel in self.kernels}
        done = _taken_out(needs)
        users = users_of(needs)
        _taken_out(users)
        return done, list(users)

    def something_between(self, parts: Collection[Kernel], order: Mapping[Kernel, int]) -> bool:
        """Whether another kernel needs one of the ``parts`` and is needed by one.

        ``order`` gives a larger number to a kernel than to those that it needs.
        """
        last = max(order[part] for part in parts)
        seen, stack = set(parts), list(parts)
        while stack:
            kernel = stack.pop()
            for reader in self.after(kernel):
                if reader in parts and kernel not in parts:
                    return True
                if reader not in seen and order[reader] < last:
                    seen.add(reader)
                    stack.append(reader)
        return False

    def _comes_first(self, writer: Kernel, reader: Kernel, buffer: Buffer) -> bool:
        """Whether who writes a buffer comes before who reads it: of two that add to it the one that came first."""
        both = buffer in added(writer) and buffer in added(reader)
        return not both or self._numbers[writer] < self._numbers[reader]

    def _of(self, kernel: Kernel) -> list[dict[Kernel, None]]:
        """The users of what a kernel writes, and of what it reads."""
        tables = (self.writers, kernel.writes()), (self.readers, kernel.reads())
        return [table[buffer] for table, buffers in tables for buffer in buffers]


@once
def added(kernel: Kernel) -> frozenset[Buffer]:
    """The buffers that the kernel adds to, and so reads as well as writes."""
    return frozenset(store.buffer for store in kernel.stores if store.accumulate)


def _taken_out(needs: dict[Kernel, set[Kernel]]) -> list[Kernel]:
    """Take those out that need nothing, then those that need nothing else, each time the first in the order given."""
    users, kernels, done = users_of(needs), list(needs), list[Kernel]()
    position = {kernel: k for k, kernel in enumerate(kernels)}
    ready = [position[kernel] for kernel in kernels if not needs[kernel]]
    while ready:
        kernel = kernels[heapq.heappop(ready)]
        done.append(kernel)
        del needs[kernel]
        for user in users[kernel]:
            needs[user].discard(kernel)
            if not needs[user]:
                heapq.heappush(ready, position[user])
    return done


def users_of(needs: Needs) -> dict[Kernel, set[Kernel]]:
    """For each kernel those that need it."""
    users = {kernel: set[Kernel]() for kernel in needs}
    for kernel, found in needs.items():
        for other in found:
            users[other].add(kernel)
    return users
